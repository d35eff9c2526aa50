"""How heads are analysed: one frozen record that also names the cache."""

from __future__ import annotations

from dataclasses import dataclass

from attsvm.heads.analysis.views import SINKS, SelectionKind
from attsvm.norms import Frobenius, Norm


@dataclass(frozen=True)
class Settings:
    """What `analyze` is asked for.

    Arguments:
        norms: of the max-margin problems; the first one is shown in the table.
        queries: most confident queries of a head that enter its problem, drawn with `seed`.
        confidence: a query is confident where the largest attention exceeds this. From 0.5 on, the selected token has
            more than all others together.
        held_out: share of the sentences kept apart, to ask whether W_mm selects there what the head selects.
        leave_out: kinds of tokens that are no candidates, such as `SINKS`; attention is renormalised on the others.
        accuracy: relative gap to which a solution must be certified.
        quantile: of the margins, beside the smallest.
        other_queries: most queries in norms other than Frobenius, whose solvers hold their working rows at once.
        rounds: most scans of all rows in one solve in the Frobenius norm. Ten are usual; a problem that takes many
            more is hardly separable, or not at all.
        examples: sentences a head shows with their attention.
        seed: of the draws, the split and the controls.
    """

    norms: tuple[Norm, ...] = (Frobenius(),)
    queries: int = 500
    confidence: float = 0.5
    held_out: float = 0.2
    leave_out: tuple[SelectionKind, ...] = ()
    accuracy: float = 1e-3
    quantile: float = 0.1
    other_queries: int = 60
    rounds: int = 60
    examples: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.norms or not all(isinstance(norm, Norm) for norm in self.norms):
            raise ValueError(f"norms must be norms such as (Frobenius(), Nuclear()); got {self.norms!r}")
        if len({norm.name for norm in self.norms}) < len(self.norms):
            raise ValueError(f"norms must differ; got {', '.join(norm.name for norm in self.norms)}")
        for name, least in (("queries", 1), ("other_queries", 1), ("rounds", 1), ("examples", 0), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name} must be a whole number, at least {least}; got {value!r}")
        for name, low, high in (("confidence", 0.0, 1.0), ("held_out", 0.0, 1.0), ("quantile", 0.0, 1.0)):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not low <= value < high:
                raise ValueError(f"{name} must lie in [{low:g}, {high:g}); got {value!r}")
        if not self.accuracy > 0:
            raise ValueError(f"accuracy must be positive; got {self.accuracy!r}")
        unknown = [kind for kind in self.leave_out if kind not in SINKS]
        if unknown:
            sinks = " and ".join(map(str, SINKS))
            raise ValueError(f"leave_out may hold {sinks}, which do not depend on the query; got {unknown[0]!s}")
