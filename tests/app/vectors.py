"""Test vectors for the playground: what Python computes, as JSON for the page's own mathematics to repeat.

Paths of `attsvm.fit`, solutions of `attsvm.solve` with their support, label margins, joint predictions, local
optimality and the lists of locally optimal selections, for the built-in examples in the plane and for seeded random
problems. ``python -m app.vectors FILE``, with the folder of the tests on the path, writes them; they repeat up to the
rounding of the machine.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.vector_paths import paths, ragged
from app.vector_problems import case_names, vector_problem
from attsvm.app.problem import data_to_problem
from attsvm.attention import token_scores
from attsvm.data import TokenDataset
from attsvm.norms import Frobenius, MaxEntry, Norm, Nuclear, Spectral
from attsvm.svm import AttentionSVM, Conic, label_svm, solve
from attsvm.theory import is_locally_optimal, joint_prediction, locally_optimal_selections

NORMS: dict[str, Norm] = {
    "frobenius": Frobenius(),
    "nuclear": Nuclear(),
    "spectral": Spectral(),
    "max-entry": MaxEntry(),
}
"""The norms by the playground's names."""

_SELECTIONS = 16
_JOINT_SELECTIONS = 3


def vectors(name: str) -> dict[str, Any]:
    """The test vectors of one problem, JSON-able; `case_names` lists the problems.

    Raises:
        ValueError: if no problem is called so.
    """
    problem = vector_problem(name)
    data = problem.data
    selections = _selections(data)
    known = ("frobenius",) if data.dq == 1 else ("frobenius", "nuclear")
    given_scores = data.values is not data.tokens
    return {
        "name": name,
        "problem": data_to_problem(data),
        "scores": ragged(data, token_scores(data)),
        "optimal": token_scores(data).argmax(-1).tolist(),
        "runs": paths(problem),
        "solutions": [each for norm in NORMS for each in _solutions(data, selections, norm)],
        "optimality": [each for norm in known for each in _optimality(data, selections, norm)],
        "enumerations": [_enumeration(data, norm) for norm in known],
        "labels": [] if given_scores else _labels(data, selections),
        "joint": [] if given_scores else _joint(data, selections[:_JOINT_SELECTIONS]),
    }


def write(path: str | Path) -> Path:
    """Write the vectors of all problems to `path` as JSON: a list, in the order of `case_names`."""
    target = Path(path)
    target.write_text(json.dumps([vectors(name) for name in case_names()], allow_nan=False), encoding="utf-8")
    return target


def _selections(data: TokenDataset) -> list[list[int]]:
    """The optimal selection and then all others, or some of them drawn with a fixed seed."""
    lengths = data.real.sum(-1).tolist()
    best = token_scores(data).argmax(-1).tolist()
    if math.prod(lengths) <= _SELECTIONS:
        others = [list(each) for each in itertools.product(*map(range, lengths))]
    else:
        stream = np.random.default_rng(7)
        others = [[int(stream.integers(0, length)) for length in lengths] for _ in range(_SELECTIONS)]
    return [best, *(each for k, each in enumerate(others) if each != best and each not in others[:k])]


def _copies(data: TokenDataset, count: int) -> TokenDataset:
    return data.flatten()[torch.zeros(count, dtype=torch.int64)]


def _finite(weights: Tensor) -> list[float] | None:
    flat: list[float] = weights.flatten().tolist()
    return flat if all(map(math.isfinite, flat)) else None


def _solutions(data: TokenDataset, selections: list[list[int]], name: str) -> list[dict[str, Any]]:
    norm = NORMS[name]
    problem = AttentionSVM(_copies(data, len(selections)), torch.tensor(selections))
    # Gaps of 1e-12: the page is compared to 1e-9, which is finer than the interior point for batches promises.
    solution = solve(problem, norm, solver=Conic() if norm == Spectral() else None)
    return [
        {
            "selected": selected,
            "norm": name,
            "status": solution.status[k].name.lower(),
            "weights": _finite(solution.weights[k]),
            "value": float(norm.value(solution.weights[k])) if bool(solution.solved[k]) else None,
            "unique": bool(solution.unique[k]),
            "support": torch.nonzero(solution.support[k]).tolist(),
            "ambiguous": int(solution.ambiguous[k]),
        }
        for k, selected in enumerate(selections)
    ]


def _optimality(data: TokenDataset, selections: list[list[int]], name: str) -> list[dict[str, Any]]:
    verdict = is_locally_optimal(_copies(data, len(selections)), data.head, torch.tensor(selections), NORMS[name])
    return [
        {
            "selected": selected,
            "norm": name,
            "answer": bool(verdict.holds[k]),
            "violations": torch.nonzero(verdict.violations[k]).tolist(),
            "undecided": bool(verdict.undecided[k]),
        }
        for k, selected in enumerate(selections)
    ]


def _enumeration(data: TokenDataset, name: str) -> dict[str, Any]:
    found = locally_optimal_selections(data, norm=NORMS[name])
    return {
        "norm": name,
        "selections": found.selections.tolist(),
        "norms": found.norms.tolist(),
        "isGlobal": found.is_optimal.tolist(),
        "tried": found.tried,
        "exhaustive": found.exhaustive and found.failed.shape[0] == 0,
    }


def _labels(data: TokenDataset, selections: list[list[int]]) -> list[dict[str, Any]]:
    found = label_svm(_copies(data, len(selections)), torch.tensor(selections))
    return [
        {
            "selected": selected,
            "solved": bool(found.solution.solved[k]),
            "head": _finite(found.vector[k]),
            "supportInputs": torch.nonzero(found.support[k]).flatten().tolist(),
        }
        for k, selected in enumerate(selections)
    ]


def _joint(data: TokenDataset, selections: list[list[int]]) -> list[dict[str, Any]]:
    """Joint predictions with the growth ratio that belongs to what is trained and how."""
    plans = [("gradient", math.inf, "frobenius"), ("normalized", 1.0, "frobenius")]
    if data.dq == 2:
        plans.append(("normalized", 0.0, "nuclear"))
    found = []
    for optimizer, ratio, norm in plans:
        copies, chosen = _copies(data, len(selections)), torch.tensor(selections)
        made = joint_prediction(copies, chosen, NORMS[norm], growth_ratio=ratio)
        found += [
            {
                "selected": selected,
                "optimizer": optimizer,
                "trained": "p" if data.dq == 1 else "KQ" if norm == "nuclear" else "W",
                "predicted": bool(made.predicted[k]),
                "weights": _finite(made.weights[k]),
                "head": _finite(made.head[k]),
                "tight": bool(made.tight[k]),
            }
            for k, selected in enumerate(selections)
        ]
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m app.vectors FILE")
    torch.set_num_threads(1)
    write(sys.argv[1])
