"""[TaSVM, sequence output] every position of a sequence predicts from its prefix with one W: the rows unite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from attsvm.attention import KeyQuery, Weights, optimal_token_set
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import Check, Experiment, Verdict
from attsvm.experiments.common import DataSets, cosine_columns, long_column, own_svms, seeds_of, spread_steps
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import is_locally_optimal


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
    run = fit(
        data,
        parameterization=Weights() if kind == "W" else KeyQuery(),
        steps=configuration.steps,
        record=spread_steps(10, configuration.steps, 60),
        keep=("weights", "attention"),
        seed=seeds,
    )
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

    def end(column: str, kind: str, step: int = last) -> np.ndarray:
        return result.column("history", column, parameterization=kind, step=step, separable=True)

    steps = np.unique(result.column("history", "step"))
    tenth = int(steps[np.searchsorted(steps, last / 10)])
    w, kq = end("cosine_frobenius", "W"), end("cosine_nuclear", "KQ")
    w_before, kq_before = end("cosine_frobenius", "W", tenth), end("cosine_nuclear", "KQ", tenth)
    return [
        Check("W to the united Frobenius SVM, median cosine", "tends to 1",
              f"{np.median(w_before):.4f} at {tenth:,}, {np.median(w):.5f} at {last:,}",
              Verdict.of(np.median(w) > 0.99 and np.median(w) > np.median(w_before))),
        Check("(K,Q) to the united nuclear SVM, median cosine", "tends to 1",
              f"{np.median(kq_before):.4f} at {tenth:,}, {np.median(kq):.5f} at {last:,}",
              Verdict.of(np.median(kq) > 0.99 and np.median(kq) > np.median(kq_before))),
        Check("runs of W whose selection can be separated", "all that saturate",
              f"{len(w)} of {result.configuration['datasets']}", Verdict.OPEN, "the others are counted, not dropped"),
        Check("of these, locally optimal", "nearly all", f"{end('locally_optimal', 'W').mean():.1%}",
              Verdict.of(end("locally_optimal", "W").mean() > 0.95)),
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
