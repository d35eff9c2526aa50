"""The problems that every solver and every trainer runs, by name.

Each carries its head, the selection a solver is asked for, and whether that selection can be separated at all.
`tests/attention/test_cases.py` checks these claims with a linear program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from attsvm import TokenDataset, optimal_token_set
from attsvm.data import random_sphere


@dataclass(frozen=True, eq=False)
class Case:
    """A small problem.

    Attributes:
        data: with its head.
        feasible: whether some W gives every selected token a margin over all others.
        unique: whether no two tokens of an input share the best score.
    """

    name: str
    data: TokenDataset
    feasible: bool
    unique: bool = True

    @property
    def selected(self) -> Tensor:
        """A token of the best score in every input, the first where several share it."""
        return optimal_token_set(self.data).to(torch.int64).argmax(-1)


def _sphere(rng: np.random.Generator, *shape: int) -> np.ndarray:
    points = rng.standard_normal(shape)
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def _signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], shape)


def _feasible() -> Case:
    return Case("feasible", random_sphere(n=3, T=4, d=5, seed=11), feasible=True)


def _batched() -> Case:
    return Case("batched", random_sphere(n=3, T=4, d=5, batch=(2, 2), seed=12), feasible=True)


def _infeasible() -> Case:
    # The same tokens and query with opposite labels ask for opposite selections.
    tokens = np.broadcast_to(np.array([[1.0, 0.5], [-0.5, 1.0]]), (2, 2, 2)).copy()
    data = TokenDataset(tokens, np.ones((2, 2)), [1, -1], head=np.array([1.0, -1.0]))
    return Case("infeasible", data, feasible=False)


def _ties() -> Case:
    tokens = np.array(
        [[[1.0, 0.0, 0.5], [1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0], [-1, 0, 1]]]
    )
    data = TokenDataset(tokens, np.array([[1.0, 0.0], [0.0, 1.0]]), [1, 1], head=np.array([1.0, 0.0, 0.0]))
    return Case("ties", data, feasible=True, unique=False)


def _duplicates() -> Case:
    tokens = _sphere(np.random.default_rng(13), 2, 4, 5)
    tokens[:, 3] = tokens[:, 0]
    # The head prefers the doubled token, whose two copies no W can tell apart.
    data = TokenDataset(tokens, _sphere(np.random.default_rng(14), 2, 5), [1, 1], head=tokens[:, 0].sum(0))
    return Case("duplicate tokens", data, feasible=False, unique=False)


def _one_token() -> Case:
    rng = np.random.default_rng(15)
    data = TokenDataset(_sphere(rng, 2, 1, 3), _sphere(rng, 2, 3), [1, -1], head=_sphere(rng, 3))
    return Case("one token", data, feasible=True)


def _zero_query() -> Case:
    rng = np.random.default_rng(16)
    queries = np.stack([np.zeros(3), _sphere(rng, 3)])
    data = TokenDataset(_sphere(rng, 2, 3, 3), queries, [1, -1], head=_sphere(rng, 3))
    return Case("zero query", data, feasible=False)


def _small_d() -> Case:
    rng = np.random.default_rng(17)
    data = TokenDataset(_sphere(rng, 8, 6, 2), np.ones((8, 1)), [1, -1] * 4, head=_sphere(rng, 2))
    return Case("d too small", data, feasible=False)


def _badly_scaled() -> Case:
    rng = np.random.default_rng(18)
    tokens = _sphere(rng, 3, 4, 5) * np.array([1e-4, 1.0, 1e3])[:, None, None]
    queries = _sphere(rng, 3, 5) * np.array([1e2, 1e-3, 1.0])[:, None]
    return Case("badly scaled", TokenDataset(tokens, queries, [1, -1, 1], head=_sphere(rng, 5)), feasible=True)


def _ragged() -> Case:
    rng = np.random.default_rng(19)
    mask = np.arange(5) < np.array([5, 2, 1, 3])[:, None]
    tokens = np.where(mask[..., None], _sphere(rng, 4, 5, 6), 1e6)
    data = TokenDataset(tokens, _sphere(rng, 4, 6), _signs(rng, 4), mask=mask, head=_sphere(rng, 6))
    return Case("ragged", data, feasible=True)


def _prompt() -> Case:
    rng = np.random.default_rng(20)
    data = TokenDataset.prompt(_sphere(rng, 2, 3, 6), _signs(rng, 2), rng.standard_normal((6, 6)), head=_sphere(rng, 6))
    return Case("prompt", data, feasible=True)


def _causal() -> Case:
    rng = np.random.default_rng(21)
    data = TokenDataset.causal(_sphere(rng, 1, 4, 6), _signs(rng, 1, 4), head=_sphere(rng, 6))
    return Case("causal", data, feasible=True)


def _values() -> Case:
    rng = np.random.default_rng(22)
    data = TokenDataset(
        _sphere(rng, 3, 4, 5),
        _sphere(rng, 3, 4),
        _signs(rng, 3),
        values=rng.standard_normal((3, 4, 2)),
        head=_sphere(rng, 2),
    )
    return Case("values apart from keys", data, feasible=True)


CASES: tuple[Case, ...] = tuple(
    make()
    for make in (
        _feasible,
        _batched,
        _infeasible,
        _ties,
        _duplicates,
        _one_token,
        _zero_query,
        _small_d,
        _badly_scaled,
        _ragged,
        _prompt,
        _causal,
        _values,
    )
)

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def case(name: str) -> Case:
    """The case of this name."""
    return next(one for one in CASES if one.name == name)
