"""[TaSVM, sequence output] every position of a sequence predicts from its prefix with one W: the rows unite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch

from attsvm.attention import KeyQuery, Weights, optimal_token_set
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, cosine_columns, long_column, own_svms, seeds_of, spread_steps, turning
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import is_locally_optimal

_LONG = 20_000  # steps that are enough to judge directions


@dataclass(frozen=True, kw_only=True)
class Causal(DataSets):
    """Sequences on the sphere, fair labels at every position, normalized descent with step 0.1."""

    sequences: int = 2
    length: int = 6
    d: int = 10
    steps: int = 20_000

    def quick(self) -> Self:
        return self.with_values(datasets=20, steps=4000)


def tasks(configuration: Causal) -> Sequence[Task]:
    """Chunks of data sets for W and for (K, Q)."""
    return [task for kind in ("W", "KQ") for task in configuration.chunks(kind.lower(), kind=kind)]


def compute(configuration: Causal, task: Task, device: torch.device) -> Piece:
    """Train on all prefixes at once; compare with the SVM of the united constraints."""
    kind, seeds = task.values["kind"], seeds_of(configuration, task)
    positions = configuration.sequences * configuration.length
    # The sphere draws one label per input, so as many inputs are drawn as there are positions.
    drawn = random_sphere(n=positions, T=configuration.length, d=configuration.d, batch=len(seeds), seed=seeds)
    labels = drawn.labels.reshape(len(seeds), configuration.sequences, configuration.length)
    shared = TokenDataset.causal(drawn.tokens[:, : configuration.sequences], labels, head=drawn.head)
    # Every prefix with tokens of its own: larger, but the compiled engine does not share them between queries.
    own = TokenDataset(shared.input_tokens, shared.queries, shared.labels, mask=shared.mask, head=shared.head)
    data = own.to(device)
    trained, steps = Weights() if kind == "W" else KeyQuery(), configuration.steps
    record, keep = spread_steps(10, steps, 60), ("weights", "attention")
    run = fit(data, parameterization=trained, steps=steps, record=record, keep=keep, seed=seeds)
    solutions = own_svms(data, run)
    local = is_locally_optimal(data, None, run.selected, solution=solutions["frobenius"])
    best = optimal_token_set(data).gather(-1, run.selected.unsqueeze(-1)).squeeze(-1).all(-1)
    assert run.history.attention is not None
    shape = (len(run.history), len(seeds))
    table = {
        "parameterization": kind,
        "dataset": long_column([number for _, number in seeds], shape, axis=1),
        "step": long_column(run.history.step, shape, axis=0),
        **cosine_columns(run, solutions, shape),
        "least_attention": long_column(run.history.attention.amax(-1).amin(-1), shape),
        "optimal": long_column(best, shape, axis=1),
        "locally_optimal": long_column(local.holds, shape, axis=1),
        "separable": long_column(solutions["frobenius"].solved, shape, axis=1),
    }
    counts = {f"{name} SVM not separable": int(each.infeasible.sum()) for name, each in solutions.items()}
    counts |= {f"{n} SVM not decided": int((~s.solved & ~s.infeasible).sum()) for n, s in solutions.items()}
    return Piece(tables={"history": table}, counts=counts)


def checks(result: SweepResult) -> Sequence[Check]:
    """W tends to the Frobenius SVM of the united constraints, (K, Q) to the nuclear one."""
    last = result.configuration["steps"]

    def end(column: str, kind: str, step: int = last, **where: object) -> np.ndarray:
        return result.column("history", column, parameterization=kind, step=step, **where)

    steps = np.unique(result.column("history", "step"))
    found = []
    for kind, name, norm, claim in (("W", "W", "Frobenius", "all (proved for plain gradient descent)"),
                                    ("KQ", "(K,Q)", "nuclear", "all (conjecture)")):  # fmt: skip
        what = f"all data sets: {name} turns to the united {norm} SVM"
        cosines = partial(end, f"cosine_{norm.lower()}", kind, separable=True)
        found.append(turning(what, claim, cosines, steps, last, enough=last >= _LONG))
    separable, attention = (np.concatenate([end(column, kind) for kind in ("W", "KQ")])
                            for column in ("separable", "least_attention"))  # fmt: skip
    chosen = attention > 0.5
    local = end("locally_optimal", "W", separable=True)
    return [
        *found,
        Check("selections with more than half of the attention that can be separated", "all: the weights do it",
              f"{separable[chosen].sum()} of {chosen.sum()}",
              Verdict.of(bool(separable[chosen].all()), enough=bool(chosen.any())),
              "the SVM of one is not solved"),
        Check("separable selections of W that are locally optimal", "nearly all (all in the limit)",
              f"{local.sum()} of {len(local)}", Verdict.of(local.sum() > 0.95 * len(local), enough=len(local) > 0),
              "95 % of them or fewer are"),
    ]  # fmt: skip


CAUSAL = Experiment(
    id="causal",
    source="TaSVM",
    title="Causal attention",
    shows="with every prefix a sample, one W tends to the SVM of the united constraints",
    seconds=8,
    default=Causal(),
    columns={
        "history": {
            "parameterization": "what was trained: W, or K and Q",
            "dataset": "number of the data set",
            "step": "steps taken",
            "cosine_frobenius": "direction cosine to the Frobenius SVM of the united rows of the final selection",
            "cosine_nuclear": "direction cosine to the nuclear SVM of the united rows of the final selection",
            "least_attention": "largest attention of a position, least over all positions",
            "optimal": "whether the final selection is optimal at every position",
            "locally_optimal": "whether the final selection is locally optimal",
            "separable": "whether some weights separate the final selection",
        }
    },
    tasks=tasks,
    compute=compute,
    checks=checks,
)
