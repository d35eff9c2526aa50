"""How heads are analysed: one frozen record, whose values are part of the names of cached results."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attsvm.data.checks import check_count
from attsvm.heads.analysis.kinds import SINKS, SelectionKind
from attsvm.norms import Frobenius, Norm


@dataclass(frozen=True)
class Settings:
    """What `analyze` is asked for.

    Arguments:
        norms: of the max-margin problems; the first one is shown in the table.
        queries: largest number of confident queries that enter the problem of a head, drawn with `seed`. Where
            positions are inside the logits and they have more than 6,000 candidates, the head's weights are projected
            on a larger space, all frequencies of all tokens, and their margin efficiency is somewhat smaller for it.
        confidence: a query is confident where the largest attention exceeds this. From 0.5 on, the selected token has
            more than all others together.
        held_out: share of the sentences kept apart, to ask whether W_mm selects there what the head selects.
        leave_out: kinds of tokens that cannot be selected, such as `SINKS`; attention is renormalised on the others.
        accuracy: relative gap to which a solution must be certified.
        quantile: which quantile of the margins is reported next to the smallest.
        other_queries: like `queries`, for norms other than Frobenius, whose solvers hold all working rows at once.
        rounds: largest number of scans of all rows in one solve in the Frobenius norm. Ten are usual; a problem that
            takes many more is hardly separable, or not at all.
        examples: number of sentences shown with their attention for each head.
        draws: of each control.
        seed: of the draws, the split and the controls.
        device: where problems in the Frobenius norm are solved, "cpu" or "cuda".
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
    draws: int = 5
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not self.norms or not all(isinstance(norm, Norm) for norm in self.norms):
            raise ValueError(f"norms must be norms such as (Frobenius(), Nuclear()); got {self.norms!r}")
        if len({norm.name for norm in self.norms}) < len(self.norms):
            raise ValueError(f"norms must differ; got {', '.join(norm.name for norm in self.norms)}")
        for name in ("queries", "other_queries", "rounds", "draws", "examples", "seed"):
            check_count(getattr(self, name), name, least=int(name not in ("examples", "seed")))
        for name in ("confidence", "held_out", "quantile"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(f"{name} must lie in [0, 1); got {value!r}")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise ValueError(f"device must be cpu, cuda or cuda:N; got {self.device!r}")
        if not self.accuracy > 0:
            raise ValueError(f"accuracy must be positive; got {self.accuracy!r}")
        unknown = [kind for kind in self.leave_out if kind not in SINKS]
        if unknown:
            sinks = " and ".join(map(str, SINKS))
            raise ValueError(f"leave_out may hold {sinks}, which do not depend on the query; got {unknown[0]!s}")
