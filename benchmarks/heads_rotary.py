"""A rotary head trained from scratch on a planted positional task: ``python -m benchmarks.heads_rotary``.

The right token lies a fixed distance, one to three, before the query; the loss is -log(attention on it), summed over
queries. What is trained is K and Q, or the stack of all (A_f, B_f), from the same small random weights, by normalized
descent. Both are compared with the max-margin solution in the group norm over frequencies and with that in the
Frobenius norm of the stack: margin efficiency (smallest normalized margin over the largest possible one) and cosine.
In the second setting frequencies are few and states wide, so that the solution in the group norm often needs a rank
that one pair of columns does not have. Writes results/heads_rotary.json, data set after data set; a run that was
stopped goes on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from attsvm import AttentionSVM, Conic, TokenDataset, solve
from attsvm.norms import Frobenius, Norm, NuclearByFrequency, direction_cosine
from benchmarks.record import RESULTS, machine

COMMAND = "python -m benchmarks.heads_rotary"
TARGET = RESULTS / "heads_rotary.json"
LENGTH, SEQUENCES, BASE, STEPS = 8, 3, 100.0, 3000
STEP_SIZES = {"factors": 0.005, "stack": 0.02}


@dataclass(frozen=True)
class Setting:
    """How many coordinates a state has besides a constant one, how many frequencies, how many data sets."""

    width: int
    frequencies: int
    data_sets: int

    @property
    def norms(self) -> dict[str, Norm]:
        """The two norms of the comparison."""
        return {"group": NuclearByFrequency(self.frequencies), "Frobenius": Frobenius()}


SETTINGS = {"many frequencies": Setting(2, 8, 100), "few frequencies": Setting(4, 4, 30)}


def data_set(setting: Setting, seed: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """Lifted tokens ``[n, T, 2 F D]``, queries ``[n, D]``, selected tokens, and the distance of the task."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(SEQUENCES, LENGTH, setting.width, generator=generator, dtype=torch.float64)
    states = torch.cat([states / states.norm(dim=-1, keepdim=True), torch.ones(SEQUENCES, LENGTH, 1).double()], -1)
    back = int(torch.randint(1, 4, (), generator=generator))
    angles = BASE ** (-torch.arange(setting.frequencies, dtype=torch.float64) / setting.frequencies)
    tokens, queries, selected = [], [], []
    for sequence in states:
        for position in range(back, LENGTH):
            turns = angles * (torch.arange(LENGTH)[:, None] - position)
            lift = torch.stack([turns.cos(), turns.sin()], -1).flatten(1)  # [T, 2 F]
            tokens.append((lift[:, :, None] * sequence[:, None]).flatten(1))
            queries.append(sequence[position])
            selected.append(position - back)
    return torch.stack(tokens), torch.stack(queries), torch.tensor(selected), back


def stack_of(key: Tensor, query: Tensor) -> Tensor:
    """The stack of A_f = k1 q1^T + k2 q2^T and B_f = k1 q2^T - k2 q1^T, from factors ``[F, 2, D]``."""
    (k1, k2), (q1, q2) = key.unbind(1), query.unbind(1)

    def outer(one: Tensor, other: Tensor) -> Tensor:
        return one[:, :, None] * other[:, None]

    both = torch.stack([outer(k1, q1) + outer(k2, q2), outer(k1, q2) - outer(k2, q1)], 1)
    return both.flatten(0, 2)


def trained(tokens: Tensor, queries: Tensor, selected: Tensor, start: list[Tensor], step_size: float) -> Tensor:
    """The stack after training; `start` is the stack alone, or K and Q."""
    parameters = [part.clone().requires_grad_() for part in start]
    for _ in range(STEPS):
        weights = parameters[0] if len(parameters) == 1 else stack_of(*parameters)
        logits = ((tokens @ weights) * queries[:, None]).sum(-1)
        loss = torch.nn.functional.cross_entropy(logits, selected, reduction="sum")
        gradients = torch.autograd.grad(loss, parameters)
        length = torch.stack([part.norm() for part in gradients]).norm()
        with torch.no_grad():
            for part, gradient in zip(parameters, gradients, strict=True):
                part -= step_size * gradient / length
    return (parameters[0] if len(parameters) == 1 else stack_of(*parameters)).detach()


def compared(setting: Setting, seed: int) -> dict[str, Any]:
    """Both trainings of one data set against both solutions."""
    tokens, queries, selected, back = data_set(setting, seed)
    problem = AttentionSVM(TokenDataset(tokens, queries, torch.ones(len(queries)).double()), selected)
    solutions = {
        "group": solve(problem, setting.norms["group"], solver=Conic(accuracy=1e-6)),
        "Frobenius": solve(problem),
    }
    record: dict[str, Any] = {"seed": seed, "back": back, "queries": len(queries)}
    record["solved"] = {name: bool(found.solved) for name, found in solutions.items()}
    record["gap"] = {name: float(found.certificate.relative_gap) for name, found in solutions.items()}
    if not all(record["solved"].values()):
        return record
    parts = NuclearByFrequency(setting.frequencies).complex_parts(solutions["group"].weights)
    sizes = torch.linalg.svdvals(parts)
    record["active"] = int((sizes[:, 0] > 1e-4 * sizes.max()).sum())
    record["rank_one"] = bool((sizes[:, 1] <= 1e-4 * sizes.max()).all())
    record["solutions_cosine"] = float(direction_cosine(*(found.weights for found in solutions.values())))
    generator = torch.Generator().manual_seed(10_000 + seed)
    shape = (setting.frequencies, 2, setting.width + 1)
    factors = [0.01 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    for name, start in (("factors", factors), ("stack", [stack_of(*factors)])):
        weights = trained(tokens, queries, selected, start, STEP_SIZES[name])
        smallest = float(problem.margins(weights)[problem.inequalities].min())
        record[name] = {"norm": float(weights.norm())}
        for kind, norm in setting.norms.items():
            best = solutions[kind].weights
            record[name][kind] = {
                "efficiency": smallest / float(norm.value(weights)) * float(norm.value(best)),
                "cosine": float(direction_cosine(weights, best)),
            }
    return record


def main() -> None:
    """Measure what is missing, write after every data set, print the counts."""
    torch.set_num_threads(1)
    record: dict[str, Any] = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    fixed = {"length": LENGTH, "sequences": SEQUENCES, "base": BASE, "steps": STEPS, "step_sizes": STEP_SIZES}
    if record.get("fixed") != fixed:
        record = {"command": COMMAND, "machine": machine(), "fixed": fixed, "settings": {}}
    for name, setting in SETTINGS.items():
        found = record["settings"].setdefault(name, {**asdict(setting), "rows": []})
        for seed in range(len(found["rows"]), setting.data_sets):
            found["rows"].append(compared(setting, seed))
            TARGET.write_text(json.dumps(record, indent=1) + "\n")
            print(name, found["rows"][-1], flush=True)
        summary(name, found["rows"])


def summary(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the counts."""
    known = [row for row in rows if "factors" in row]
    print(f"{name}: {len(known)} of {len(rows)} data sets solved in both norms")
    for part, own, other in (("factors", "group", "Frobenius"), ("stack", "Frobenius", "group")):
        for measure in ("efficiency", "cosine"):
            nearer = sum(row[part][own][measure] > row[part][other][measure] for row in known)
            print(f"{part}: {measure} larger for {own} than for {other} in {nearer} of {len(known)}")


if __name__ == "__main__":
    main()
