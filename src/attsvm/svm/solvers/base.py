"""What a solver is, lists of rows, and what a solver returns: a raw pair that the certificate judges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data.checks import check_count, check_number, check_positive
from attsvm.norms import Norm
from attsvm.svm.problem import AttentionSVM

ProgressReport = Callable[[str], None] | None
"""What is called with a line of text now and then; None where nobody listens."""


@dataclass(frozen=True, eq=False)
class RawSolution:
    """What a solver claims, for problems with one batch axis. It need not say whether it is right."""

    weights: Float[Tensor, "batch d dq"]
    #: norm form or any positive multiple of it; a ray where the solver found the problem infeasible
    duals: Float[Tensor, "batch n T"]
    iterations: Int[Tensor, " batch"]  #: in the solver's unit
    unique: Bool[Tensor, " batch"] | None = None  #: True or False where known; None where the solver cannot tell


class Solver(ABC):
    """A method for some norms."""

    accuracy: float  #: relative gap and violation to which the certificate must hold for an answer to count as solved
    norms: ClassVar[tuple[type[Norm], ...]]  #: those it solves

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # tolerances and limits, all of them
            if name in ("accuracy", "tolerance"):
                check_positive(value, name)
            elif name == "time_limit":
                check_number(value, name, "be positive", lambda seconds: seconds > 0)
            elif name in ("rounds", "iterations", "most_rows", "threads", "workers") and value is not None:
                check_count(value, name)

    def refusal(self, problem: AttentionSVM, norm: Norm) -> str | None:
        """Why this solver cannot solve these problems, as a clause; None if it can."""
        names = ", ".join(kind.__name__ for kind in self.norms)
        return None if isinstance(norm, self.norms) else f"it solves {names}"

    @abstractmethod
    def solve(self, problem: AttentionSVM, norm: Norm, initial: Tensor | None, progress: ProgressReport) -> RawSolution:
        """Solve problems with one batch axis; `initial` are duals ``[batch, n, T]`` to start from."""


@dataclass(frozen=True, eq=False)
class RowList:
    """Rows of a batch of problems in lists of one length m, each with its own query.

        d_k^T W z_k >= b_k  on `inequalities`,      d_k^T W z_k = b_k  on `equalities`

    Where neither mask is set there is no row: padding, where a problem has fewer. What solvers derive from it (rows
    scaled or reduced) has the same field names.
    """

    differences: Tensor  #: d_k = x_i,selected - x_it, ``[batch, m, d]``
    queries: Tensor  #: z_k = z_i, ``[batch, m, dq]``
    right_hand_side: Tensor  #: b_k, ``[batch, m]``
    inequalities: Tensor  #: ``[batch, m]``
    equalities: Tensor  #: ``[batch, m]``

    @staticmethod
    def of(problem: AttentionSVM, places: Int[Tensor, "batch m"]) -> RowList:
        """The rows at these places among n T, of problems with one batch axis."""
        each = problem.right_hand_side, problem.inequalities, problem.equalities
        return RowList(*problem.listed(places), *(x.flatten(1).gather(1, places) for x in each))

    @cached_property
    def present(self) -> Tensor:
        """Where there is a row."""
        return self.inequalities | self.equalities

    @property
    def asking(self) -> Tensor:
        """Rows that W = 0 does not meet."""
        return (self.inequalities & (self.right_hand_side > 0)) | (self.equalities & (self.right_hand_side != 0))

    def __len__(self) -> int:
        return len(self.right_hand_side)

    def __getitem__(self, index: Tensor | slice) -> Self:
        """Some of the problems."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: part[index] for name, part in parts.items() if part is not None})

    def combine(self, duals: Tensor) -> Tensor:
        """sum_k lam_k d_k z_k^T, ``[batch, d, dq]``."""
        return (self.differences * duals[..., None]).mT @ self.queries

    def margins(self, weights: Tensor) -> Tensor:
        """d_k^T W z_k, ``[batch, m]``."""
        return ((self.queries @ weights.mT) * self.differences).sum(-1)

    def gram(self) -> Tensor:
        """<a_k, a_l> = (d_k . d_l)(z_k . z_l), ``[batch, m, m]``."""
        return (self.differences @ self.differences.mT) * (self.queries @ self.queries.mT)


def unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors of length 1 and their lengths, without underflow; 0 and 0 where they are zero or not finite."""
    largest = vectors.abs().amax(-1, keepdim=True)
    usable = (largest > 0) & torch.isfinite(largest)
    safe = torch.where(usable, vectors / torch.where(usable, largest, 1.0), 0.0)
    size = torch.linalg.vector_norm(safe, dim=-1, keepdim=True)
    return safe / torch.where(usable, size, 1.0), (torch.where(usable, largest, 0.0) * size).squeeze(-1)


_SHARE = 16  # problems that are worth a thread
_Part = TypeVar("_Part")


def in_shares(solve: Callable[[slice], _Part], count: int, threads: int | None = None) -> list[_Part]:
    """What `solve` gives for shares of `count` problems, on at most `threads` threads (None: as many as PyTorch)."""
    threads = max(1, min(threads or torch.get_num_threads(), count // _SHARE))
    if threads == 1:
        return [solve(slice(None))]
    share = -(-count // threads)
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(solve, (slice(first, first + share) for first in range(0, count, share))))


# What compiled code knows of a row: its kind.
ABSENT, INEQUALITY, EQUALITY = 0, 1, 2


def row_kinds(rows: RowList | AttentionSVM) -> Int[Tensor, "..."]:
    """ABSENT, INEQUALITY or EQUALITY of every row, int8."""
    return INEQUALITY * rows.inequalities.to(torch.int8) + EQUALITY * rows.equalities.to(torch.int8)


# How an active-set method ends: with a solution, with a ray, or unable to tell.
OPTIMAL, INFEASIBLE, UNSURE = 0, 1, 2

EPSILON = 2.0**-52
RAY = 1e-12  # accepted ||sum lam_k A_k|| / sum lam_k ||A_k|| of a ray
BOUND = 1e10  # a ray is believed when it proves ||W|| > BOUND, in units of the largest b_k / ||A_k||
