"""[TaSVM] W and (K, Q) against both SVMs of the selection they reach.

Two inputs in the plane (hyperplanes, trajectories), random data (local convergence), and sequences whose every position
predicts from its prefix, so that the rows of all prefixes unite (causal). The pictures of the plane show one data set
that was chosen for its clarity; the tables hold many that were not chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attsvm.attention import KeyQuery, Weights, optimal_token_set, optimal_tokens
from attsvm.data import TokenDataset, example, random_sphere
from attsvm.data.streams import Purpose, streams
from attsvm.descent import NormalizedGradientDescent, Run, fit
from attsvm.experiments.base import Check, DataSets, Verdict, allowance, claim, turning
from attsvm.experiments.common import NORMS, long_table, offsets_of, path_steps, recorded, scored, spread_steps, stacked
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.sweep import Piece, SweepResult, Task
from attsvm.theory import is_locally_optimal

PICTURE = -1  # the number of the picture's data set
PUBLIC_RIDGE = 2.2e-16
"""What the public code adds to the gradient of K and Q: half of it an explicit penalty on their squared norms."""
_PUBLIC, _PUBLIC_OPTIMAL, _PUBLIC_COUNT = 0.996, 0.75, 100
"""Mean cosine of the public runs, W and (K, Q); their share of optimal selections; how many runs there are."""
_OWN = {"W": "frobenius", "KQ": "nuclear"}  # the norm whose SVM each parameterization is known, or thought, to tend to
_CLAIMS = {
    "W": ("W", "Frobenius", "all (proved for plain gradient descent)"),
    "KQ": ("(K,Q)", "nuclear", "all (conjecture)"),
}
_EQUAL = 1e-3  # cosines that differ by less say nothing about which solution is nearer
_LONG = 20_000  # steps that are enough to judge directions of causal runs


def _both_svms(data: TokenDataset, run: Run) -> dict[str, SVMSolution]:
    """Both SVMs of the selection that a run reached."""
    return {name: solve(AttentionSVM(data, run.selected), norm) for name, norm in NORMS.items()}


def _rows(
    run: Run, kind: str, numbers: Sequence[int], solutions: Mapping[str, SVMSolution], /, **own: object
) -> dict[str, np.ndarray]:
    """A row for each record and data set: the cosines to both solutions, and `own` columns."""
    cosines = {f"cosine_{name}": direction_cosine(recorded(run), each.weights) for name, each in solutions.items()}
    return long_table({"step": run.history.step, "dataset": numbers}, parameterization=kind, **cosines, **own)


def selected_attention(run: Run) -> Float[Tensor, "records *batch n"]:
    """Attention at every recorded step on the tokens that are selected in the end."""
    return recorded(run, "attention").take_along_dim(run.selected[None, ..., None], -1).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class PlaneRuns(DataSets):
    """From W(0) = 0, or Q(0) = 0 and K(0) Gaussian; `steps` is the paper's figure, `long_steps` follows it further."""

    steps: int = 2000
    long_steps: int = 20_000
    step_size: float = 0.1
    key_scale: float = 0.1
    picture_seed: int = 0

    example: ClassVar[str]

    def tasks(self) -> Sequence[Task]:
        return [Task("picture"), *self.chunks()]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train W and (K, Q), solve both SVMs of what each selects, follow the cosines."""
        drawn = task.name == "picture"
        seeds = [(self.picture_seed, 0)] if drawn else self.seeds(task)
        numbers = [PICTURE] if drawn else self.numbers(task)
        data = example(self.example, batch=len(seeds), seed=seeds).to(device)
        steps = self.steps if drawn else self.long_steps
        record = path_steps(steps) if drawn else spread_steps(10, steps, 60, self.steps)
        sources = streams(seeds, (len(seeds),), purpose=Purpose.PLANE_START)
        key = torch.from_numpy(np.stack([self.key_scale * stream.standard_normal((2, 2)) for stream in sources]))
        factors = {"key": key.to(device), "query": torch.zeros_like(data.queries)}
        train = partial(fit, data, optimizer=NormalizedGradientDescent(self.step_size), steps=steps, record=record)
        tables: list[dict[str, np.ndarray]] = []
        arrays: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        for kind, norm in _OWN.items():
            run = train(initial="zeros") if kind == "W" else train(parameterization=KeyQuery(), initial=factors)
            solutions = _both_svms(data, run)
            local = is_locally_optimal(data, None, run.selected, NORMS[norm], solution=solutions[norm])
            tables.append(_rows(
                run, kind, numbers, solutions, norm=torch.linalg.matrix_norm(recorded(run)),
                least_probability=selected_attention(run).amin(-1), locally_optimal=local.holds,
                optimal=(run.selected == optimal_tokens(data)).all(-1),
            ))  # fmt: skip
            for name, each in solutions.items():
                counts[f"{kind}: {name} SVM of the reached selection not solved"] = int((~each.solved).sum())
            changed = recorded(run, "attention")[run.history.step == self.steps][0].argmax(-1) != run.selected
            counts[f"{kind}: selection changed after the paper's steps"] = int(changed.any(-1).sum())
            if drawn:
                own = solutions[norm].weights
                arrays |= {
                    f"{kind}_paths": torch.einsum("rde,ie->rid", recorded(run)[:, 0], data.queries[0]),
                    f"{kind}_rays": torch.einsum("de,ie->id", own[0], data.queries[0]),
                    f"{kind}_offsets": offsets_of(AttentionSVM(data, run.selected), own)[0],
                    f"{kind}_selected": run.selected[0],
                }
        if drawn:
            arrays |= {name: value[0] for name, value in scored(data).items()}
        return Piece({"history": stacked(tables)}, arrays, counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Each parameterization against its own SVM and the other's: the picture, then all data sets."""
        found = []
        steps = self.steps
        marks, far = np.unique(result.column("history", "step", dataset=0)), self.long_steps >= 10 * steps
        for (kind, (name, own, said)), other in zip(_CLAIMS.items(), ("nuclear", "Frobenius"), strict=True):
            columns = [f"cosine_{norm.lower()}" for norm in (own, other)]
            where = {"dataset": PICTURE, "parameterization": kind, "step": steps}
            picture = [float(result.column("history", column, **where)[0]) for column in columns]
            every, crossed = (_unchosen(result, column, kind, self.long_steps) for column in columns)
            # Where both SVMs have one solution the cosines agree up to rounding.
            nearer = every >= crossed - _EQUAL
            found += [
                claim(f"picture: {name} to the {own} SVM and to the {other} one", "nearer to its own",
                      f"{picture[0]:.5f}, {picture[1]:.5f}", picture[0] > picture[1],
                      f"the cosine to the {other} SVM is the larger one at {steps:,}"),
                claim(f"all data sets: {name} nearer to the {own} SVM", said,
                      f"{nearer.sum()} of {len(every)}; medians {np.median(every):.5f}, {other}"
                      f" {np.median(crossed):.5f}", nearer.all(),
                      f"the cosine to the {other} SVM is larger by {_EQUAL:g} on a data set in the end"),
                turning(f"all data sets: {name} turns to the {own} SVM", said,
                        partial(_unchosen, result, columns[0], kind), marks, self.long_steps, enough=far),
            ]  # fmt: skip
        return found


def _unchosen(result: SweepResult, column: str, kind: str, step: int) -> np.ndarray:
    """The column at this step, of all data sets but the picture's."""
    own = partial(result.column, "history", parameterization=kind, step=step)
    return own(column)[own("dataset") != PICTURE]


@dataclass(frozen=True, kw_only=True)
class Hyperplanes(PlaneRuns, identity="hyperplanes"):
    """First tokens (1, .5) and (1, -.5), the others 0.5 N around (-1, 0), random unit queries and head."""

    picture_seed: int = 13
    example: ClassVar[str] = "hyperplanes"


@dataclass(frozen=True, kw_only=True)
class Trajectories(PlaneRuns, identity="trajectories"):
    """Tokens 0.3 N around (-1, 0) and (1, 0), random unit queries and head."""

    picture_seed: int = 29
    example: ClassVar[str] = "trajectories"


@dataclass(frozen=True, kw_only=True)
class LocalConvergence(DataSets, identity="local-convergence"):
    """Random data on the sphere; normalized descent with step 0.1 from PyTorch's default start.

    `steps` is the paper's figure; `long_steps` follows the same runs further, and K and Q also with the public ridge.
    """

    n: int = 6
    T: int = 8
    d: int = 10
    steps: int = 2000
    record: int = 50
    long_steps: int = 20_000
    smaller: ClassVar = {"datasets": 20, "long_steps": 4000}

    def tasks(self) -> Sequence[Task]:
        runs = [(kind, 0.0, run) for run in ("paper", "long") for kind in _OWN] + [("KQ", PUBLIC_RIDGE, "long")]
        return [
            task
            for kind, ridge, run in runs
            for task in self.chunks(f"{run}-{kind.lower()}{'-ridge' if ridge else ''}", kind=kind, ridge=ridge, run=run)
        ]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train a chunk of data sets, solve both SVMs of what each run selects, follow the cosines along the run."""
        kind, ridge, length = (task.values[name] for name in ("kind", "ridge", "run"))
        seeds, paper = self.seeds(task), length == "paper"
        data = random_sphere(n=self.n, T=self.T, d=self.d, batch=len(seeds), seed=seeds).to(device)
        # At equal distances in the paper's run; ever farther apart in a long one.
        equal = sorted({*range(0, self.steps, self.record), self.steps})
        apart = spread_steps(10, self.long_steps, 80, self.steps)
        run = fit(
            data, parameterization=Weights() if kind == "W" else KeyQuery(), ridge=ridge, seed=seeds,
            steps=self.steps if paper else self.long_steps, record=equal if paper else apart,
        )  # fmt: skip
        probability = selected_attention(run)
        solutions = _both_svms(data, run)
        table = _rows(
            run, kind, self.numbers(task), solutions, ridge=ridge, run=length,
            least_probability=probability.amin(-1), mean_probability=probability.mean(-1),
            optimal=(run.selected == optimal_tokens(data)).all(-1),
        )  # fmt: skip
        why = "SVM of the reached selection not solved"
        counts = {f"{name} {why}": int((~each.solved).sum()) for name, each in solutions.items()}
        return Piece({"history": table}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Cosines at the end of the paper's run, what the ridge does, the share of optima."""
        steps, long_steps = self.steps, self.long_steps

        def values(column: str, kind: str, run: str = "paper", step: int = steps, ridge: float = 0.0) -> np.ndarray:
            return result.column("history", column, parameterization=kind, run=run, ridge=ridge, step=step)

        w, kq = values("cosine_frobenius", "W"), values("cosine_nuclear", "KQ")
        public = values("cosine_nuclear", "KQ", "long", ridge=PUBLIC_RIDGE)
        bare, ridged = (values("cosine_nuclear", "KQ", "long", long_steps, ridge) for ridge in (0.0, PUBLIC_RIDGE))
        optimal = float(values("optimal", "W").mean())
        last, early = ([float(values("mean_probability", kind, step=step).mean()) for kind in _OWN]
                       for step in (steps, 2 * self.record))  # fmt: skip
        chance = allowance(np.sqrt(_PUBLIC_OPTIMAL * (1 - _PUBLIC_OPTIMAL)), len(w), _PUBLIC_COUNT)
        means = [
            (name, own, allowance(own.std(), len(own), _PUBLIC_COUNT))
            for name, own in (("W to the Frobenius SVM", w), ("(K,Q) with the public ridge to the nuclear SVM", public))
        ]
        pairs = (("W nearer to the Frobenius SVM", w, values("cosine_nuclear", "W"), ".86"),
                 ("(K,Q) nearer to the nuclear SVM", kq, values("cosine_frobenius", "KQ"), ".85"))  # fmt: skip
        marks, far = np.unique(result.column("history", "step", run="long")), long_steps >= 10 * steps
        return [
            *(Check(f"{name}, mean cosine", f"public {_PUBLIC:.3f} at {LocalConvergence.steps:,}",
                    f"{own.mean():.4f} +- {own.std():.4f}; least {own.min():.3f}; chance explains {allowed:.4f}",
                    Verdict.of(own.mean() >= _PUBLIC - allowed, enough=steps >= LocalConvergence.steps),
                    "it is below the public mean by more than three standard errors",
                    "the public runs also stop at 1e-9 and walk along round-off")
              for name, own, allowed in means),
            *(claim(f"{name} than to the other", f"on all data sets; public mean to the other {other}",
                    f"{np.sum(own > crossed)} of {len(own)}; means {own.mean():.3f}, other {crossed.mean():.3f}",
                    (own > crossed).all(), f"the other one is nearer on a data set at {steps:,}")
              for name, own, crossed, other in pairs),
            *(turning(f"all data sets: {name} turns to the {norm} SVM", said,
                      partial(values, f"cosine_{norm.lower()}", kind, "long"), marks, long_steps, enough=far)
              for kind, name, norm, said in (("W", *_CLAIMS["W"]), ("KQ", "(K,Q) without ridge", *_CLAIMS["KQ"][1:]))),
            claim("(K,Q): the ridge brings it nearer to the nuclear SVM", f"yes, at {long_steps:,}",
                  f"medians {np.median(bare):.4f}, with it {np.median(ridged):.4f}; least {bare.min():.3f}, with"
                  f" it {ridged.min():.3f}", np.median(ridged) > np.median(bare) and ridged.min() > bare.min(),
                  "the median or the least cosine with the ridge is not above that without"),
            claim("probability of the selected token", "to 1 for W and (K,Q)", f"means {last[0]:.4f}, {last[1]:.4f}",
                  min(last) > 0.99, "a mean is at most .99 at the end of the paper's run"),
            claim("probability of the selected token, early", "(K,Q) faster than W",
                  f"{early[0]:.2f}, (K,Q) {early[1]:.2f}", early[1] > early[0],
                  "the mean of (K,Q) is not above that of W at the second record"),
            claim("runs of W that reach the optimal selection", "public: about 3 in 4", f"{optimal:.0%} of {len(w)}",
                  abs(optimal - _PUBLIC_OPTIMAL) <= chance,
                  "the share differs from 3/4 by more than three standard errors"),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Causal(DataSets, identity="causal"):
    """Sequences on the sphere, fair labels at every position, normalized descent with step 0.1."""

    sequences: int = 2
    length: int = 6
    d: int = 10
    steps: int = 20_000
    smaller: ClassVar = {"datasets": 20, "steps": 4000}

    def tasks(self) -> Sequence[Task]:
        return [task for kind in _OWN for task in self.chunks(kind.lower(), kind=kind)]

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train on all prefixes at once; compare with the SVM of the united constraints."""
        kind, seeds = task.values["kind"], self.seeds(task)
        # The sphere draws one label per input, so as many inputs are drawn as there are positions.
        positions = self.sequences * self.length
        drawn = random_sphere(n=positions, T=self.length, d=self.d, batch=len(seeds), seed=seeds)
        labels = drawn.labels.reshape(len(seeds), self.sequences, self.length)
        shared = TokenDataset.causal(drawn.tokens[:, : self.sequences], labels, head=drawn.head)
        # Every prefix with tokens of its own: larger, but the compiled engine does not share them between queries.
        own = TokenDataset(shared.input_tokens, shared.queries, shared.labels, mask=shared.mask, head=shared.head)
        data, trained = own.to(device), Weights() if kind == "W" else KeyQuery()
        record, keep = spread_steps(10, self.steps, 60), ("weights", "attention")
        run = fit(data, parameterization=trained, steps=self.steps, record=record, keep=keep, seed=seeds)
        solutions = _both_svms(data, run)
        table = _rows(
            run, kind, self.numbers(task), solutions, separable=solutions["frobenius"].solved,
            least_attention=recorded(run, "attention").amax(-1).amin(-1),
            optimal=optimal_token_set(data).gather(-1, run.selected.unsqueeze(-1)).squeeze(-1).all(-1),
            locally_optimal=is_locally_optimal(data, None, run.selected, solution=solutions["frobenius"]).holds,
        )  # fmt: skip
        counts = {f"{name} SVM not separable": int(each.infeasible.sum()) for name, each in solutions.items()}
        counts |= {f"{n} SVM not decided": int((~s.solved & ~s.infeasible).sum()) for n, s in solutions.items()}
        return Piece({"history": table}, counts=counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """W tends to the Frobenius SVM of the united constraints, (K, Q) to the nuclear one."""
        column = partial(result.column, "history")
        marks = np.unique(column("step"))
        separable, attention = (column(name, step=self.steps) for name in ("separable", "least_attention"))
        chosen = attention > 0.5
        local = column("locally_optimal", parameterization="W", step=self.steps, separable=True)
        return [
            *(turning(f"all data sets: {name} turns to the united {norm} SVM", said,
                      partial(column, f"cosine_{norm.lower()}", parameterization=kind, separable=True), marks,
                      self.steps, enough=self.steps >= _LONG)
              for kind, (name, norm, said) in _CLAIMS.items()),
            claim("selections with more than half of the attention that can be separated", "all: the weights do it",
                  f"{separable[chosen].sum()} of {chosen.sum()}", separable[chosen].all(),
                  "the SVM of one is not solved", enough=chosen.any()),
            claim("separable selections of W that are locally optimal", "nearly all (all in the limit)",
                  f"{local.sum()} of {len(local)}", local.sum() > 0.95 * len(local), "95 % of them or fewer are",
                  enough=len(local) > 0),
        ]  # fmt: skip
