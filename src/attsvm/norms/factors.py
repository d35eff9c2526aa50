"""The norm of W = K Q^T that belongs to steps in a norm on K and on Q."""

from __future__ import annotations

from attsvm.data.checks import check_count
from attsvm.norms.base import Norm
from attsvm.norms.frobenius import Frobenius
from attsvm.norms.projective import Projective
from attsvm.norms.semidefinite import Gamma2
from attsvm.norms.singular import Nuclear, Spectral, SpectralOfRank
from attsvm.norms.sizes import LargestColumn, LargestRow, MaxEntry


def factor_norm(norm: Norm, rank: int | None = None) -> Norm:
    """The norm of W = K Q^T whose max-margin problem belongs to steps in `norm` on K and on Q.

        inf { ||K|| ||Q|| : K Q^T = W },  K [d, rank], Q [dq, rank]

    | steps on K and on Q | norm of W |
    |---|---|
    | `Frobenius()`; `LargestColumn()`, up to the factor 1 / rank | `Nuclear()` |
    | `Spectral()` (Muon) | `Spectral()`; with a rank, the largest norm below the infimum, `SpectralOfRank(rank)` |
    | `LargestRow()` | `Gamma2()`, from a rank of at least that of W on |
    | `MaxEntry()` (sign) | `Projective()`, the limit of large ranks, up to the factor 1 / rank |

    That training tends to these problems is derived, not proved.

    Arguments:
        norm: of the steps.
        rank: columns of K and Q; None means at least the rank of W.

    Raises:
        ValueError: for other norms, of which none is known, and for a rank that is not a positive integer.

    >>> factor_norm(Frobenius()), factor_norm(Spectral()), factor_norm(Spectral(), rank=2), factor_norm(MaxEntry())
    (Nuclear(), Spectral(), SpectralOfRank(rank=2), Projective())
    """
    check_count(1 if rank is None else rank, "rank")
    known: dict[type[Norm], Norm] = {
        Frobenius: Nuclear(),
        LargestColumn: Nuclear(),
        Spectral: Spectral() if rank is None else SpectralOfRank(rank),
        MaxEntry: Projective(),
        LargestRow: Gamma2(),
    }
    if type(norm) not in known:
        names = ", ".join(f"{kind.__name__}()" for kind in known)
        raise ValueError(f"no norm of K Q^T is known for steps in {norm!r}; these have one: {names}")
    return known[type(norm)]
