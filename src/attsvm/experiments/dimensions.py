"""[TaSVM, over-parameterization, rank] Where runs end as d grows, when all tokens support, first gradients, ranks.

docs/experiments/convergence-types.md defines the types of runs. A selection that no weights separate is not local.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from attsvm import theory
from attsvm.attention import gradient, optimal_tokens, token_scores
from attsvm.data import TokenDataset, random_sphere
from attsvm.descent import fit
from attsvm.experiments.base import NOT_RISING, Check, DataSets, Study, allowance, claim, reported, rises
from attsvm.experiments.common import NORMS, recorded, so_far, stacked, streams_apart
from attsvm.svm import AttentionSVM, solve
from attsvm.sweep import Done, Piece, SweepResult, Task
from attsvm.theory.paths.landscapes import reduced_spans

TYPES = ("global", "local", "not local", "not saturated")
_MANY = 500  # favourable data sets among which a run that leaves the cone should be found
TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8)  # thresholds relative to the largest singular value at which ranks are counted
TOLERANCE = 1e-6
"""The one that is drawn: hardly any relative singular value of a certified solution lies between it and rounding."""
FEASIBLE = "feasible"
_PUBLIC_INFEASIBLE, _PUBLIC_DRAWS = 1253, 4000  # of the paper's draws, as the public code solves them


@dataclass(frozen=True, kw_only=True)
class _Dimensions(DataSets):
    """Random data on the sphere in growing dimensions."""

    n: int = 4
    T: int = 6
    dimensions: tuple[int, ...] = ()
    datasets: int = 400  # for each dimension

    def tasks(self) -> Sequence[Task]:
        return [task for d in self.dimensions for task in self.chunks(f"d{d:04d}", d=d)]

    def _drawn(self, task: Task, device: torch.device) -> tuple[TokenDataset, TokenDataset, Tensor, Tensor]:
        """The data of a chunk; the same in the spans of token differences and of queries; bases of these spans.

        Gradients lie in these spans: there the run is the same, and far smaller.
        """
        seeds = self.seeds(task)
        data = random_sphere(n=self.n, T=self.T, d=task.values["d"], batch=len(seeds), seed=seeds)
        small, left, right = reduced_spans(data)
        spanned = TokenDataset(small.tokens, small.queries, data.labels, values=data.tokens, head=data.head)
        return data, spanned.to(device), left, right


@dataclass(frozen=True, kw_only=True)
class ConvergenceTypes(_Dimensions, identity="convergence-types"):
    """W(0) = 0 and W(0) random."""

    dimensions: tuple[int, ...] = (2, 5, 10, 20, 40, 60, 84, 120, 160, 240, 320)
    everywhere: int = 50  # data sets of each dimension: do all tokens support *every* SVM?
    steps: int = 20_000
    saturation: float = 0.999  # least attention on the selected token of every input that counts as saturated
    smaller: ClassVar = {"dimensions": (2, 10, 20, 84, 320), "datasets": 40, "everywhere": 8, "steps": 5000}

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Train from zero and from a random start, and tell the types of the selections that were reached."""
        d, seeds = task.values["d"], self.seeds(task)
        data, spanned, left, right = self._drawn(task, device)
        bound = 1 / np.sqrt(d)
        drawn = [stream.uniform(-bound, bound, (d, d)) for stream in streams_apart(seeds)]
        starts = {
            "zero": torch.zeros(len(seeds), spanned.d, spanned.dq, dtype=torch.float64),
            "random": left.mT @ torch.from_numpy(np.stack(drawn)) @ right,
        }
        best = optimal_tokens(data)
        supported = theory.all_tokens_support(data).holds
        asked = max(0, min(task.values["last"], self.everywhere) - task.values["first"])
        everywhere = torch.full((len(seeds),), float("nan"), dtype=torch.float64)
        if asked:
            everywhere[:asked] = theory.all_tokens_support_everywhere(spanned[:asked].to("cpu")).holds.double()
        tables: list[dict[str, object]] = []
        undecided = 0
        for name, start in starts.items():
            run = fit(spanned, steps=self.steps, record=[0], keep=(), initial=start.to(device), seed=seeds)
            selected, largest = run.selected.cpu(), run.attention.cpu().amax(-1)
            local = theory.is_locally_optimal(data, None, selected)
            undecided += int(local.undecided.sum())
            kind = np.where((selected == best).all(-1), TYPES[0], np.where(local.holds.numpy(), TYPES[1], TYPES[2]))
            tables.append({
                "d": d, "dataset": self.numbers(task), "start": name,
                "type": np.where((largest >= self.saturation).all(-1).numpy(), kind, TYPES[3]),
                "least_attention": largest.amin(-1), "separable": local.feasible, "all_support": supported,
                "all_support_everywhere": everywhere,
            })  # fmt: skip
        return Piece({"runs": stacked(tables)}, counts={"local optimality not decided": undecided})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Shares of global runs and of B1 rise to one; nearly every saturated run is locally optimal."""
        most = max(self.dimensions)
        types = {d: result.column("runs", "type", d=d) for d in self.dimensions}
        shares = [float((types[d] == TYPES[0]).mean()) for d in self.dimensions]
        supported = [float(result.column("runs", "all_support", d=d, start="zero").mean()) for d in self.dimensions]
        stray = [int((types[d] == TYPES[2]).sum()) for d in self.dimensions]
        saturated = [int((types[d] != TYPES[3]).sum()) for d in self.dimensions]
        worst = max(each / max(whole, 1) for each, whole in zip(stray, saturated, strict=True))
        elsewhere = result.column("runs", "type", all_support_everywhere=1.0)
        return [
            claim("global, at the largest d", "tends to 1 (paper)", f"{shares[-1]:.1%} at d = {most}",
                  shares[-1] > 0.99, "99 % of the runs or fewer are global"),
            claim("share of global, over all d", "rises with d (paper)", _listed(shares),
                  rises(shares, self.datasets), NOT_RISING),
            claim("saturated runs that are not locally optimal", "nearly none (paper)",
                  f"{sum(stray)} of {sum(saturated):,}; worst d {worst:.1%}", worst <= 0.05,
                  "they are more than 5 % of the saturated runs of a d", enough=min(saturated) >= 100,
                  why="asked of 100 saturated runs for each d"),
            claim("B1, all tokens support the optimal SVM, at the largest d", "tends to 1 (paper)",
                  f"{supported[-1]:.1%} at d = {most}", supported[-1] > 0.95,
                  "it holds of 95 % of the data sets or fewer", enough=most >= 320, why="asked at d = 320"),
            claim("share of B1, over all d", "rises with d (paper)", _listed(supported),
                  rises(supported, self.datasets), NOT_RISING),
            claim("all tokens support every SVM: runs that end at another local optimum", "none (theorem)",
                  f"{np.sum(elsewhere == TYPES[1])} of {len(elsewhere)}", not (elsewhere == TYPES[1]).any(),
                  "there is such a run", enough=len(elsewhere) > 0, why="there is no such data set"),
        ]  # fmt: skip


def _listed(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}" for share in shares)


@dataclass(frozen=True, kw_only=True)
class FirstGradient(_Dimensions, identity="first-gradient"):
    """Normalized descent with step 0.1."""

    dimensions: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)
    steps: int = 2000
    record: int = 5  # steps from one look to the next: is the run where the optimal tokens are ranked first?
    large_step: float = 100.0  # norm of W(1) where the first step is a large one
    chunk_size: int = 100
    smaller: ClassVar = {"dimensions": (5, 20, 80, 320), "datasets": 60, "chunk_size": 60}

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Judge the first gradient, then run from zero in small steps and after one large step along it."""
        spanned = self._drawn(task, device)[1]
        condition = theory.favourable_first_gradient(spanned)
        best = optimal_tokens(spanned)
        zero = torch.zeros(*spanned.batch_shape, spanned.d, spanned.dq, dtype=torch.float64, device=device)
        ahead = -self.large_step * gradient(spanned, zero)["weights"].normalized().double()
        problem = AttentionSVM(spanned, best)
        table = {"favourable": condition.holds, "margin": condition.margin}
        for name, start in (("small", zero), ("large", ahead)):
            run = fit(spanned, steps=self.steps, initial=start, record=self.record, keep=("weights",))
            table[f"{name}_optimal"] = (run.selected == best).all(-1)
            table[f"{name}_stayed"] = theory.in_margin_cone(recorded(run)[1:], problem, 0.0).all(0)
        return Piece({"datasets": {"d": task.values["d"], "dataset": self.numbers(task), **table}})

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """Favourable gradients become likely with d; after a large first step such runs stay in the cone."""
        column = partial(result.column, "datasets")
        favourable = [column("favourable", d=d) for d in self.dimensions]
        shares = [float(each.mean()) for each in favourable]
        reached_from_zero = [column("small_optimal", d=d) for d in self.dimensions]
        stayed, reached = (column(name, favourable=True) for name in ("large_stayed", "large_optimal"))
        left = ~column("small_stayed", favourable=True)
        both = [
            (reach[good].mean(), reach[~good].mean())
            for good, reach in zip(favourable, reached_from_zero, strict=True)
            if 0 < good.sum() < len(good)
        ]
        good, reach = np.concatenate(favourable), np.concatenate(reached_from_zero)
        return [
            claim("share of favourable first gradients, over all d", "rises with d", _listed(shares),
                  rises(shares, self.datasets), NOT_RISING),
            claim("favourable, one large step: stay in the margin cone", "all (theorem)",
                  f"{stayed.sum()} of {len(stayed)}", stayed.all(), "a run leaves it", enough=len(stayed) > 0),
            claim("favourable, one large step: reach the optimal selection", "all (theorem)",
                  f"{reached.sum()} of {len(reached)}", reached.all(), "a run selects other tokens",
                  enough=len(stayed) > 0),
            claim("favourable, small steps: leave the cone for a while",
                  "some: the theorem asks for a large first step", f"{left.sum()} of {len(left)}", left.any(),
                  "no run does", enough=len(left) >= _MANY or left.any(),
                  why=f"asked of {_MANY} favourable data sets"),
            claim("optimal selection reached from zero: favourable, not favourable",
                  "at least as often where favourable",
                  f"{reach[good].mean():.1%}, {reach[~good].mean():.1%}" if both else "all favourable, or none",
                  all(yes >= no for yes, no in both), "it is rarer at a d", enough=bool(both)),
        ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rank(Study, identity="rank"):
    """Random data on the sphere with the optimal selection; first n varies, then T.

    Solutions are certified; what cannot be separated is counted, not ranked.
    """

    dimensions: tuple[int, ...] = (1, 2, 3, 4, 5, 10, 15, 20)  # values of d
    shapes: tuple[tuple[int, int], ...] = ((5, 5), (10, 5), (15, 5), (5, 10), (5, 15))  # pairs (n, T)
    draws: int = 100  # data sets of each cell; where fewer are separable, more are drawn up to `cap` (not for d = 1)
    cap: int = 2000
    batch: int = 100  # how many more are drawn at a time

    runs_field = "draws"
    smaller: ClassVar = {"draws": 20, "cap": 100, "batch": 20}

    def tasks(self) -> Sequence[Task]:
        return [_task("paper", n, T, d, 0, self.draws) for n, T in self.shapes for d in self.dimensions]

    def more(self, done: Sequence[Done]) -> Sequence[Task]:
        """Draw on in the cells that lack separable data sets, up to the cap."""
        further = []
        for (n, T), d in product(self.shapes, self.dimensions):
            drawn, feasible = so_far(done, _named(n, T, d, FEASIBLE), n=n, T=T, d=d)
            if d > 1 and feasible < self.draws and drawn < self.cap:
                further.append(_task("more", n, T, d, drawn, min(drawn + self.batch, self.cap)))
        return further

    def compute(self, task: Task, device: torch.device) -> Piece:
        """Solve both SVMs of the optimal selection; the spectra lie in the order of the rows, zeros beyond d."""
        n, T, d = (task.values[name] for name in ("n", "T", "d"))
        seeds = self.seeds(task)
        data = random_sphere(n=n, T=T, d=d, batch=len(seeds), seed=seeds).to(device)
        # In one dimension all tokens are +1 or -1 and best tokens tie; the first of them is taken.
        problem = AttentionSVM(data, token_scores(data).argmax(-1))
        tables: list[dict[str, object]] = []
        spectra = []
        solutions = {name: solve(problem, norm) for name, norm in NORMS.items()}
        counts = {_named(n, T, d, FEASIBLE): int(solutions["frobenius"].solved.sum())}
        for name, solution in solutions.items():
            spectrum = torch.linalg.svdvals(solution.weights.nan_to_num())
            spectra.append(torch.nn.functional.pad(spectrum, (0, max(self.dimensions) - d)).cpu())
            tables.append({
                "n": n, "T": T, "d": d, "stage": task.values["stage"], "norm": name,
                "draw": self.numbers(task), "feasible": solution.solved,
                "infeasible": solution.infeasible, "relative_gap": solution.certificate.relative_gap,
                **{f"rank_{tolerance:g}": solution.rank(tolerance) for tolerance in TOLERANCES},
            })  # fmt: skip
            undecided = ~solution.solved & ~solution.infeasible
            counts[_named(n, T, d, f"{name} not solved, not proved infeasible")] = int(undecided.sum())
        return Piece({"solutions": stacked(tables)}, {"spectra": torch.cat(spectra)}, counts)

    def checks(self, result: SweepResult) -> Sequence[Check]:
        """What holds of the ranks of solutions that exist, and how much they depend on the tolerance."""
        largest = max(self.dimensions)
        paper_cells = self.dimensions == Rank.dimensions and self.shapes == Rank.shapes

        def ranks(norm: str, n: int, T: int, d: int) -> np.ndarray:
            return result.column("solutions", f"rank_{TOLERANCE:g}", norm=norm, n=n, T=T, d=d, feasible=True)

        every = [(n, T, d) for n, T in self.shapes for d in self.dimensions if d >= 2]
        cells = [cell for cell in every if len(ranks("frobenius", *cell))]
        bounds = np.array([min(n, d) for n, _, d in cells])
        frobenius, nuclear = (np.array([ranks(norm, *cell).mean() for cell in cells]) for norm in NORMS)
        over = sum(int((ranks(norm, n, T, d) > min(n, d)).sum()) for norm in NORMS for n, T, d in cells)
        least = (frobenius / bounds)[np.array([d == largest for *_, d in cells])].min()
        lower = frobenius - nuclear
        by_tolerance = {t: result.column("solutions", f"rank_{t:g}", feasible=True) for t in TOLERANCES}
        changed = {t: int((by_tolerance[t] != by_tolerance[TOLERANCES[-1]]).sum()) for t in TOLERANCES[:-1]}
        gaps = result.column("solutions", "relative_gap", feasible=True)
        undecided = int((~result.column("solutions", "feasible") & ~result.column("solutions", "infeasible")).sum())
        paper = result.column("solutions", "infeasible", stage="paper", norm="frobenius")
        one = result.column("solutions", "feasible", d=1, norm="frobenius")
        public = _PUBLIC_INFEASIBLE / _PUBLIC_DRAWS
        allowed = allowance(np.sqrt(public * (1 - public)), len(paper), _PUBLIC_DRAWS)
        return [
            claim("infeasible among the paper's draws",
                  f"public: {_PUBLIC_INFEASIBLE:,} of {_PUBLIC_DRAWS:,}, ranked 1",
                  f"{paper.sum():,} of {len(paper):,}, not ranked", abs(paper.mean() - public) <= allowed,
                  "the share differs from the public one by more than three standard errors", enough=paper_cells,
                  why="asked of the paper's n, T and d"),
            claim("separable draws at d = 1", "none", f"{one.sum()} of {len(one)}", not one.any(), "there is one",
                  enough=len(one) > 0),
            claim("neither solved nor proved infeasible", "none", f"{undecided}", undecided == 0, "there is one"),
            reported("largest certified relative gap", "(a gap of 1e-8 counts as solved)", f"{gaps.max():.1e}"),
            claim("rank above min(n, d)", "never (theorem)", f"{over}", over == 0, "there is such a solution"),
            claim("mean Frobenius rank over min(n, d), at the largest d", "tends to 1 (paper)",
                  f"least {least:.3f} at d = {largest}", least > 0.98, "it is at most .98 for a pair of n and T",
                  enough=largest >= 20, why="asked at d = 20"),
            reported("largest shortfall of the mean Frobenius rank", "(the paper names no size)",
                     f"{(bounds - frobenius).max():.2f}"),
            claim("Frobenius minus nuclear mean rank, over the cells", "public curve: positive",
                  f"least {lower.min():.2f}, largest {lower.max():.2f}", lower.min() >= 0,
                  "the nuclear mean is the larger one in a cell"),
            claim("solutions whose rank depends on the tolerance", f"none between {TOLERANCE:g} and {TOLERANCES[-1]:g}",
                  ", ".join(f"{count} at {tolerance:g}" for tolerance, count in changed.items()),
                  changed[TOLERANCE] == 0, f"one has another rank at {TOLERANCE:g} than at {TOLERANCES[-1]:g}"),
        ]  # fmt: skip


def _task(stage: str, n: int, T: int, d: int, first: int, last: int) -> Task:
    values = {"stage": stage, "n": n, "T": T, "d": d, "first": first, "last": last}
    return Task(f"{stage}-n{n:02d}-t{T:02d}-d{d:02d}-{first:05d}", values)


def _named(n: int, T: int, d: int, reason: str) -> str:
    return f"n={n} T={T} d={d}: {reason}"
