"""Which max-margin problem belongs to which way of training, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from attsvm import descent
from attsvm.attention import KeyQuery, Parameterization, Weights
from attsvm.data.checks import check_kind
from attsvm.descent import GradientDescent, NormalizedGradientDescent, Optimizer, PolyakDescent, SteepestDescent
from attsvm.norms import Entrywise, Frobenius, LargestColumn, LargestRow, MaxEntry, Norm, Nuclear, Spectral, factor_norm


class Standing(Enum):
    """How well a statement is founded; the value is what a person reads.

    A norm is "proved locally" or "conjectured"; a predicted selection is "proved" (from every start), "proved locally"
    (this start lies where a theorem holds) or "predicted" (a rule named it).
    """

    PROVED = "proved"
    PROVED_LOCALLY = "proved locally"
    CONJECTURED = "conjectured"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class ImplicitBias:
    """The norm whose max-margin direction training should tend to."""

    norm: Norm  #: of the attention SVM
    standing: Standing  #: proved locally, from starts in some cone and with small enough steps, or conjectured
    citation: str  #: key and subject, or arXiv number, of the result


def implicit_bias(parameterization: Parameterization, optimizer: Optimizer) -> ImplicitBias:
    """The norm that belongs to a parameterization and an optimizer.

    | trained | optimizer | norm |
    |---|---|---|
    | W | gradient, normalized, Polyak | Frobenius |
    | (K, Q) | gradient, normalized | nuclear |
    | (K, Q) | `SteepestDescent(N)`, N spectral, largest entry, row or column | `factor_norm(N, rank)` |
    | W | `SteepestDescent(N)` | N |
    | W | `MirrorDescent(p)` | entrywise l_p |
    | W | `Adam` | largest entry |

    A `ValueError` for a combination about which nothing is known, such as mirror descent on K and Q.

    >>> implicit_bias(Weights(), NormalizedGradientDescent(0.1)).norm
    Frobenius()
    """
    check_kind(optimizer, Optimizer, "optimizer", "an optimizer such as GradientDescent(0.1)")
    if optimizer.option_words is not None:
        raise ValueError(
            f"with {optimizer.option_words} weights stay bounded, so training has no max-margin direction as its limit"
        )
    plain = isinstance(optimizer, (GradientDescent, NormalizedGradientDescent, PolyakDescent))
    steepest = optimizer.norm if isinstance(optimizer, SteepestDescent) else None
    if isinstance(parameterization, KeyQuery):
        if plain or isinstance(steepest, Frobenius):
            return ImplicitBias(Nuclear(), Standing.CONJECTURED, "[TaSVM, key-query bias]")
        if isinstance(steepest, (Spectral, MaxEntry, LargestRow, LargestColumn)):
            norm, source = factor_norm(steepest, parameterization.rank), "arXiv 2410.22069 (homogeneous networks)"
            return ImplicitBias(norm, Standing.CONJECTURED, f"{source}, factors eliminated")
        known = "train Weights() or use gradient descent"
        raise ValueError(f"no limit is proved or conjectured for {optimizer!r} on K and Q; {known}")
    if not isinstance(parameterization, Weights):
        raise ValueError(f"no limit is known for the parameterization {parameterization!r}")
    if plain or isinstance(steepest, Frobenius):
        return ImplicitBias(Frobenius(), Standing.PROVED_LOCALLY, "[TaSVM, local convergence]")
    if steepest is not None:
        return ImplicitBias(steepest, Standing.CONJECTURED, "arXiv 2502.04664 (proved for linear models)")
    if isinstance(optimizer, descent.MirrorDescent):
        return ImplicitBias(Entrywise(optimizer.p), Standing.PROVED_LOCALLY, "arXiv 2410.14581")
    if isinstance(optimizer, descent.Adam):
        return ImplicitBias(MaxEntry(), Standing.CONJECTURED, "Adam as sign descent (proved for linear models)")
    raise ValueError(f"no limit is known for the optimizer {optimizer!r}")
