"""When to stop before the last step; each data set stops for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.attention.gradient import Attended
from attsvm.data.checks import check_count, check_positive
from attsvm.norms import direction_distance


class StoppingRule(ABC):
    """Decides, every `every` steps, which elements ``[starts, batch]`` are done."""

    every: int

    def __post_init__(self) -> None:
        check_count(self.every, "every")

    @abstractmethod
    def done(self, weights: Tensor, attended: Attended, memory: dict[str, Tensor]) -> Tensor:
        """Elements to stop; `memory` is the rule's own and lives as long as the run."""


@dataclass(frozen=True)
class Saturated(StoppingRule):
    """Stop once every input gives its winner all but `tolerance` of its attention."""

    tolerance: float = 1e-12
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.tolerance, "tolerance")

    def done(self, weights: Tensor, attended: Attended, memory: dict[str, Tensor]) -> Tensor:
        log_rest = attended.log_attention.scatter(-1, attended.winner.unsqueeze(-1), -torch.inf).logsumexp(-1)
        return (log_rest.exp() <= self.tolerance).all(-1)


@dataclass(frozen=True)
class Settled(StoppingRule):
    """Stop once the direction has turned by less than `tolerance` (1 - cosine) while the norm grew by `growth`.

    A fixed number of steps would always look settled in the end, since the angle of one step falls like 1/||W||; a
    doubling of the norm is the same stretch of the path at every scale.
    """

    tolerance: float = 1e-6
    growth: float = 2.0
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.tolerance, "tolerance")
        if not self.growth > 1:
            raise ValueError(f"growth must be above 1; got {self.growth!r}")

    def done(self, weights: Tensor, attended: Attended, memory: dict[str, Tensor]) -> Tensor:
        norm = torch.linalg.matrix_norm(weights)
        if "weights" not in memory:
            memory["weights"], memory["norm"] = weights.clone(), norm
            return torch.zeros_like(norm, dtype=torch.bool)
        grown = norm >= self.growth * memory["norm"]
        done = grown & (direction_distance(weights, memory["weights"]) < self.tolerance) & (memory["norm"] > 0)
        memory["weights"] = torch.where(grown[..., None, None], weights, memory["weights"])
        memory["norm"] = torch.where(grown, norm, memory["norm"])
        return done
