"""What Python proves about a problem of the playground: max-margin solution, certificate, local optimality."""

from __future__ import annotations

import math
import threading
from typing import Any

import torch
from torch import Tensor

from attsvm.app.problem import Given, problem_to_data, selection
from attsvm.attention import evaluate, optimal_token_set
from attsvm.data import TokenDataset
from attsvm.norms import Frobenius, MaxEntry, Norm, Nuclear, Spectral, direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, margin_efficiency
from attsvm.sweep.manifest import to_plain
from attsvm.theory import LocalOptimality, is_locally_optimal

# By the names that the page uses.
NORMS: dict[str, type[Norm]] = {
    "frobenius": Frobenius, "nuclear": Nuclear, "spectral": Spectral, "max-entry": MaxEntry,
}  # fmt: skip

# One solve at a time: each takes milliseconds, and fifty at once would compete for the same cores.
_ONE_AT_A_TIME = threading.Lock()


def certify(request: object) -> dict[str, Any]:
    """Solve the max-margin problem of a selection and say what is proved, as plain JSON.

    Arguments:
        request: ``{"problem": ..., "selected": [token of each input], "norm": "frobenius" | "nuclear" | "spectral" |
            "max-entry", "weights": [W or p of a run, row by row]}``; the norm is Frobenius where it is left out, and
            without weights nothing is said about a run.

    Returns:
        `status` ("solved", "separable", "infeasible", "numerically_infeasible", "no_rows", "not_converged") and its
        `sentence`; `weights`, row by row, or None; `value`, the norm of the weights; `relative_gap` and `min_margin` of
        the certificate, None where infinite; `solver`, `norm`, `seconds`; `locally_optimal`; `optimal`: whether every
        selected token scores highest in its input; `run`, None without weights: the tokens these weights select,
        their `margins` (the smallest of each input for the selection asked about), `size` in the norm, `margin` (the
        smallest over size), `efficiency` (that over the best), and `cosine` to the solution.

    Raises:
        ValueError: if an entry is missing or wrong; the message names it, what was expected and what came.
    """
    asked = Given(request, "the request")
    problem, chosen = asked.entry("problem").value, asked.entry("selected").value
    name = asked.entry("norm", "frobenius").value
    if not isinstance(name, str) or name not in NORMS:
        Given(name, "norm").refuse(f"one of {', '.join(NORMS)}")
    data, norm = problem_to_data(problem), NORMS[name]()
    selected = selection(chosen, data)
    weights = _weights(asked.entry("weights", None).value, data)
    with _ONE_AT_A_TIME:
        local = is_locally_optimal(data, selected=selected, norm=norm)
    best, solution = optimal_token_set(data), local.solution
    flat, proof = solution.weights.flatten().tolist(), solution.certificate
    return {
        "status": solution.status.name.lower(),
        "sentence": f"{solution.sentences}; {_local(local)}",
        "weights": flat if all(map(math.isfinite, flat)) else None,
        "value": to_plain(proof.primal_value) if bool(solution.separable) else None,
        "relative_gap": to_plain(proof.relative_gap),
        "min_margin": to_plain(proof.min_margin),
        "solver": solution.solver,
        "norm": name,
        "locally_optimal": bool(local),
        "optimal": bool(best.gather(-1, selected[:, None]).all()),
        "seconds": solution.seconds,
        "run": None if weights is None else _measured(data, selected, weights, solution),
    }


def _weights(given: object, data: TokenDataset) -> Tensor | None:
    """The weights of a run as a matrix, checked."""
    if given is None:
        return None
    count, weights = data.d * data.dq, Given(given, "weights")
    if not isinstance(given, list) or len(given) != count:
        weights.refuse(f"a list of {count} numbers, row by row")
    flat = torch.tensor([each.number(1e300) for each in weights.parts(count)], dtype=torch.float64)
    return flat.reshape(data.d, data.dq)


def _measured(data: TokenDataset, selected: Tensor, weights: Tensor, solution: SVMSolution) -> dict[str, Any]:
    """What is measured on a run, for the selection that `solution` belongs to."""
    problem = AttentionSVM(data, selected)
    smallest = torch.where(problem.inequalities, problem.margins(weights), torch.inf).amin(-1)
    size = solution.norm.value(weights)
    solved = bool(solution.solved) and bool(size > 0)
    found: dict[str, Any] = {"selected": evaluate(data, weights).selected, "margins": smallest, "size": size}
    found["margin"] = smallest.amin() / size if bool(size > 0) else None
    found["efficiency"] = margin_efficiency(weights, problem, solution.norm, solution=solution) if solved else None
    found["cosine"] = direction_cosine(weights, solution.weights) if solved else None
    return {name: to_plain(value) for name, value in found.items()}


def _local(local: LocalOptimality) -> str:
    if bool(local):
        return "the selection is locally optimal"
    if bool(local.undecided):
        return "whether the selection is locally optimal is not known"
    if not bool(local.feasible):
        return "so the selection is not locally optimal"
    named = ", ".join(f"token {t} of input {i}" for i, t in local.offenders)
    return f"the selection is not locally optimal: support tokens score at least as high as the selected ones ({named})"
