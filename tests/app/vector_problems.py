"""The problems of the playground's test vectors: every example in the plane, and seeded random ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attsvm.data import EXAMPLES, TokenDataset, example, starting_points

RANDOM = 12
TRAINED = 4
"""Number of random problems, and how many of them are trained in every combination of settings."""


@dataclass(frozen=True)
class Plan:
    """How a problem is trained, in the playground's words; `every` so many steps are recorded."""

    trained: str
    optimizer: str
    loss: str
    step_size: float
    train_head: bool
    steps: int
    every: int


@dataclass(frozen=True, eq=False)
class VectorProblem:
    """A data set with a head, its starting points and its plans.

    Attributes:
        weights: W(0) or p(0), one row for each start ``[starts, 2, dq]``.
        key, query: K(0) and Q(0), ``[1, 2, 2]``.
        head: v(0) where the head is trained.
    """

    name: str
    data: TokenDataset
    weights: Tensor
    key: Tensor
    query: Tensor
    head: Tensor
    plans: tuple[Plan, ...]


def case_names() -> list[str]:
    """The names of all problems, in order."""
    return [*EXAMPLES, *(f"random-{seed}" for seed in range(RANDOM))]


def vector_problem(name: str) -> VectorProblem:
    """The problem of this name.

    Raises:
        ValueError: if no example or random problem is called so.
    """
    if name not in case_names():
        raise ValueError(f"no test vectors are called {name!r}; there are {', '.join(case_names())}")
    if name.startswith("random-"):
        return _random(int(name.removeprefix("random-")))
    return _example(name)


def _example(name: str) -> VectorProblem:
    """An example with the papers' own run, and a short one with every other optimizer and loss."""
    data, starts = example(name), starting_points(name)
    joint = starts.head is not None
    kinds = ("p",) if data.dq == 1 else ("W", "KQ")
    # (K, Q) oscillates after some 250 steps, and its path then means nothing number by number.
    lengths = {"p": 300, "W": 600, "KQ": 300}
    papers = [Plan(kind, "normalized", "logistic", 0.1, joint, lengths[kind], 20) for kind in kinds]
    others = [
        Plan(kind, optimizer, loss, 0.1, joint, 40, 5)
        for kind in kinds
        for optimizer, loss in (("gradient", "logistic"), ("sign", "exponential"), ("spectral", "linear"))
    ]
    head = data.head if starts.head is None else starts.head[0]
    if head is None:
        raise ValueError(f"example {name!r} has neither a head nor a start for one")
    whole = data if data.head is not None else TokenDataset(data.tokens, data.queries, data.labels, head=head)
    key = torch.from_numpy(0.1 * np.random.default_rng(0).standard_normal((1, 2, 2)))
    return VectorProblem(name, whole, starts.weights, key, torch.zeros_like(key), head, (*papers, *others))


def _random(seed: int) -> VectorProblem:
    """Matrix (even seeds) or prompt (odd), some with inputs of different lengths; the first ones in every setting."""
    stream = np.random.default_rng(1000 + seed)
    prompt = seed % 2 == 1
    n, longest = int(stream.integers(1, 4)), int(stream.integers(2, 6))
    lengths = stream.integers(2, longest + 1, n) if seed % 4 >= 2 else np.full(n, longest)
    lengths[0] = longest
    mask = torch.arange(longest) < torch.from_numpy(lengths)[:, None]
    tokens = torch.from_numpy(stream.standard_normal((n, longest, 2))).masked_fill(~mask.unsqueeze(-1), 0.0)
    drawn = torch.from_numpy(stream.standard_normal((n, 2)))
    queries = torch.ones(n, 1, dtype=torch.float64) if prompt else drawn
    head = torch.from_numpy(stream.standard_normal(2))
    labels = torch.from_numpy(stream.choice([-1.0, 1.0], n))
    plans = tuple(
        Plan(kind, optimizer, loss, 0.2, train_head, 30, 3)
        for kind in (("p",) if prompt else ("W", "KQ"))
        for optimizer in ("gradient", "normalized", "sign", "spectral")
        for loss in ("logistic", "exponential", "linear")
        for train_head in (False, True)
        if seed < TRAINED
    )
    return VectorProblem(
        f"random-{seed}",
        TokenDataset(tokens, queries, labels, None if bool(mask.all()) else mask, head=head),
        torch.from_numpy(stream.standard_normal((1, 2, 1 if prompt else 2))),
        torch.from_numpy(0.3 * stream.standard_normal((1, 2, 2))),
        torch.from_numpy(0.3 * stream.standard_normal((1, 2, 2))),
        torch.from_numpy(stream.standard_normal(2)),
        plans,
    )
