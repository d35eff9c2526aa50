"""Step sizes along a run, and when to stop before its last step: each data set stops for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head, Loss, Weights, lipschitz_bound
from attsvm.attention.gradient import Attended
from attsvm.data import TokenDataset
from attsvm.data.checks import check_count, check_number, check_positive
from attsvm.norms import direction_distance

if TYPE_CHECKING:
    from attsvm.descent.task import Task


class Schedule(ABC):
    """One step size for each step, times one factor for each data set."""

    @abstractmethod
    def sizes(self, first: int, count: int) -> np.ndarray:
        """Sizes of steps ``first .. first + count - 1``; step 0 leaves the starting point."""

    def factors(self, data: TokenDataset, head: Head, loss: Loss) -> Tensor:
        """A factor for each data set of a batch with one axis."""
        return torch.ones(data.batch_shape, dtype=data.dtype, device=data.device)

    def check(self, task: Task) -> None:  # noqa: B027 - most need nothing
        """Raise a ValueError where the task lacks what these step sizes need."""


class _Positive(Schedule):
    """A schedule all of whose numbers must be positive."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_positive(value, "step_size" if name == "size" else name)


@dataclass(frozen=True)
class Constant(_Positive):
    """The same size throughout.

    >>> Constant(0.1).sizes(0, 3).tolist()
    [0.1, 0.1, 0.1]
    """

    size: float

    def sizes(self, first: int, count: int) -> np.ndarray:
        return np.full(count, float(self.size))


@dataclass(frozen=True)
class InverseSqrt(_Positive):
    """size / sqrt(t + 1) at step t.

    >>> InverseSqrt(1.0).sizes(0, 4).tolist()[3]
    0.5
    """

    size: float

    def sizes(self, first: int, count: int) -> np.ndarray:
        return self.size / np.sqrt(np.arange(first, first + count) + 1.0)


@dataclass(frozen=True)
class Geometric(_Positive):
    """size * growth^t at step t, never above `largest`: continuation to very large norms, or decay with growth < 1.

    >>> Geometric(1.0, 2.0, largest=4.0).sizes(0, 4).tolist()
    [1.0, 2.0, 4.0, 4.0]
    """

    size: float
    growth: float
    largest: float = 1e100

    def sizes(self, first: int, count: int) -> np.ndarray:
        # In logarithms, so that a long run meets its ceiling instead of an overflow.
        steps, rate = np.arange(first, first + count, dtype=np.float64), np.log(self.growth)
        powers = np.power(self.growth, np.minimum(steps, np.inf if rate == 0 else 690.0 / abs(rate)))
        return np.where(np.log(self.size) + steps * rate < np.log(self.largest), self.size * powers, self.largest)


@dataclass(frozen=True)
class LipschitzStep(_Positive):
    """`fraction` / L for each data set, L the bound on the Lipschitz constant of its gradient (`lipschitz_bound`).

    With fraction <= 1 plain gradient descent on W never increases the risk.
    """

    fraction: float = 1.0

    def sizes(self, first: int, count: int) -> np.ndarray:
        return np.full(count, float(self.fraction))

    def check(self, task: Task) -> None:
        if task.ridge > 0:
            raise ValueError("LipschitzStep() bounds the gradient of the risk alone; it needs ridge=0")
        if not isinstance(given := task.parameterization, Weights):
            raise ValueError(f"LipschitzStep() bounds the gradient in W; it needs Weights(), got {given!r}")
        if task.train_head:
            raise ValueError("LipschitzStep() bounds the gradient in W; it needs a fixed head, not train_head=True")
        _ = task.factors  # says what is wrong with the head or the loss

    def factors(self, data: TokenDataset, head: Head, loss: Loss) -> Tensor:
        bound = lipschitz_bound(data, head, loss)
        # A constant risk (T = 1, zero queries) has bound 0 and no gradient: any factor will do.
        return torch.where(bound > 0, 1 / bound, torch.ones_like(bound))


def as_schedule(step_size: float | Schedule) -> Schedule:
    """A schedule; a number means `Constant`."""
    return step_size if isinstance(step_size, Schedule) else Constant(step_size)


class StoppingRule(ABC):
    """Decides, every `every` steps, by a positive `tolerance`, which elements ``[starts, batch]`` are done."""

    tolerance: float
    every: int

    def __post_init__(self) -> None:
        check_count(self.every, "every")
        check_positive(self.tolerance, "tolerance")

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
        check_number(self.tolerance, "tolerance", "be below 1", lambda share: share < 1)

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
        check_number(self.growth, "growth", "be above 1", lambda growth: growth > 1)

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
