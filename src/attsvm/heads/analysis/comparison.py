"""The max-margin problem of selections, and how close weights are to its solution: margins, direction, spectrum."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attsvm.data import TokenDataset
from attsvm.heads.analysis.lifted import Pairs, solve_lifted
from attsvm.heads.analysis.selections import Choices, Views
from attsvm.heads.form import HeadWeights
from attsvm.heads.report.records import Closeness, Efficiency, Settings, Spectrum
from attsvm.norms import Frobenius, Norm, Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, BlockDescent, NuclearInteriorPoint, Solver, SVMSolution, solve

_CONTRADICTION = "infeasible: equal queries ask for opposite choices between equal tokens, so no weights separate them"
# Directions whose share of the data is below this, as a singular value relative to the largest, are float32 rounding.
_SPAN = 1e-6
# A gap of g leaves singular values below about sqrt(g) of the largest undetermined; they do not count in a rank.
_RANK = 1e-2


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """The SVM of some selections; the tokens of a sentence are stored once for all its queries.

    Every sentence has as many inputs of the problem, one for each query, as the sentence with the most queries. Those
    that are left over have one token, and therefore no rows.
    """

    problem: AttentionSVM  # of all these inputs, sentence after sentence
    inputs: Int[Tensor, " n"]  # which of them belong to the selections, in their order
    asked: float = 1.0  # by how much the logit of a selected token must exceed the others, fixed biases included

    @property
    def rows(self) -> int:
        """Number of constraints."""
        return int(self.problem.inequalities.sum())

    @property
    def memory(self) -> int:
        """Bytes of tokens, queries, and four numbers for each row (right-hand sides, margins, multipliers, kinds)."""
        data = self.problem.data
        return 8 * (data.tokens.numel() + data.queries.numel() + 4 * data.n * data.T)

    def contradiction(self) -> tuple[int, int] | None:
        """Two selections, by their numbers, that no weights can both make, if some are easily seen.

        The same query asks for token a above b and elsewhere for b above a: embeddings repeat where neither token nor
        position differ. A solver would find out, but slowly.
        """
        data, shared = self.problem.data, self.problem.data.queries_per_sequence
        names: dict[bytes, int] = {}
        asked: dict[tuple[int, int, int], int] = {}
        for index, place in enumerate(self.inputs.tolist()):
            tokens = data.tokens[place // shared]
            query = names.setdefault(data.queries[place].numpy().tobytes(), len(names))
            above = names.setdefault(tokens[self.problem.reference[place]].numpy().tobytes(), len(names))
            for token in torch.nonzero(self.problem.inequalities[place])[:, 0].tolist():
                below = names.setdefault(tokens[token].numpy().tobytes(), len(names))
                other = asked.get((query, below, above))
                if other is not None or below == above:
                    return (index if other is None else other), index
                asked[query, above, below] = index
        return None

    def query_margins(self, weights: Float[Tensor, "D E"]) -> Float[Tensor, " n"]:
        """Smallest margin of every query, in the units of `weights`; fixed biases included, over `asked`."""
        margins = (self.problem.margins(weights) - self.problem.right_hand_side) / self.asked + 1
        return margins.masked_fill(~self.problem.inequalities, torch.inf).amin(-1)[self.inputs]


def selection_problem(views: Views, drawn: Choices, form: HeadWeights | None = None) -> SelectionProblem:
    """Build the problem that asks for `drawn.selected` above every other candidate of its query.

    Where `form` has a fixed bias, logits do not scale with W: the problem asks for the smallest gap that the head
    itself has on these selections, if that is positive, and else for 1.
    """
    used, inverse = torch.unique(drawn.sentence, return_inverse=True)
    shared = int(torch.bincount(inverse).max())
    free = [itertools.count(place * shared) for place in range(len(used))]  # inputs of each sentence not taken yet
    inputs = torch.tensor([next(free[place]) for place in inverse.tolist()])
    tokens = pad_sequence([views[index].keys for index in used.tolist()], batch_first=True)
    n, length = len(used) * shared, tokens.shape[1]
    queries = torch.zeros(n, views[0].queries.shape[-1], dtype=torch.float64)
    mask = torch.zeros(n, length, dtype=torch.bool)
    mask[:, 0] = True
    for place, (index, position, _) in zip(inputs.tolist(), drawn.triples, strict=True):
        view = views[index]
        queries[place] = view.queries[position]
        mask[place, : len(view.sentence)] = view.allowed[position]
    selected = torch.zeros(n, dtype=torch.int64)
    selected[inputs] = drawn.selected
    asked, offsets = 1.0, None
    if form is not None and form.slope:
        offsets = form.fixed_logits(length)[0].expand(n, length)  # a constant for each query changes nothing
        logits = [(views[index].logits(form)[position], token) for index, position, token in drawn.triples]
        least = min(float(row[token] - torch.cat([row[:token], row[token + 1 :]]).max()) for row, token in logits)
        asked = least if least > 0 else 1.0
    data = TokenDataset(tokens, queries, torch.ones(n, dtype=torch.float64), mask=mask, queries_per_sequence=shared)
    return SelectionProblem(AttentionSVM(data, selected, right_hand_side=asked, offsets=offsets), inputs, asked)


@dataclass(frozen=True, eq=False)
class Compared:
    """How close the weights are, the selections this is about, and what holds the solution in place."""

    closeness: Closeness
    drawn: Choices
    shares: Float[Tensor, "n T"]  # of each constraint in the sum of all multipliers; 0 where nothing is solved
    solution: SVMSolution | None = None  # of a plain head


def compare_with_max_margin(
    form: HeadWeights, views: Views, drawn: Choices, held_out: Choices, norm: Norm, settings: Settings
) -> Compared:
    """How close W is to W_mm, the solution of the max-margin problem of `drawn`, which is asked for `held_out` too."""
    if not form.plain or (settings.device != "cpu" and isinstance(norm, Frobenius) and not form.slope):
        return _compare_lifted(form, views, drawn, held_out, norm, settings)
    began = time.perf_counter()
    weights = form.weights
    made = selection_problem(views, drawn, form)
    seen = projected(weights, views, drawn)
    size, seen_size = float(norm.value(weights)), float(norm.value(seen))
    result = partial(
        Closeness, norm=norm.name, queries=len(drawn), rows=made.rows, memory=made.memory,
        in_span=seen_size / size if size > 0 else math.nan,
    )  # fmt: skip
    shares = torch.zeros(len(drawn), made.problem.data.T, dtype=torch.float64)
    if not form.slope and made.contradiction() is not None:
        seconds = round(time.perf_counter() - began, 3)
        return Compared(result(status=_CONTRADICTION, solved=False, gap=math.nan, seconds=seconds), drawn, shares)
    solution = solve(made.problem, norm, solver=_solver(norm, settings))
    result = partial(result, status=solution.sentences, seconds=round(solution.seconds, 3))
    gap, ran_out = float(solution.certificate.relative_gap), not bool(solution.solved | solution.barred)
    if bool(solution.barred) or not math.isfinite(gap) or (ran_out and isinstance(norm, Frobenius)):
        return Compared(result(solved=False, gap=gap if ran_out else math.nan), drawn, shares)
    best, value = solution.weights, float(norm.value(solution.weights))
    free = solve(selection_problem(views, drawn).problem, norm, solver=_solver(norm, settings)) if form.slope else None
    far = None if free is None or not bool(free.solved) else free.weights
    duals = solution.duals[made.inputs].clamp(min=0.0)
    closeness = result(
        solved=bool(solution.solved),
        gap=gap,
        max_margin=made.asked / value if value > 0 else math.nan,
        cosine=float(direction_cosine(weights, best)),
        cosine_projected=float(direction_cosine(seen, best)),
        cosine_large_gap=math.nan if far is None else float(direction_cosine(seen, far)),
        turned_by_bias=math.nan if far is None else float(direction_cosine(best, far)),
        spectrum=spectrum(best),
        support_rows=int((duals > 0).sum()),
        support_queries=int((duals > 0).any(-1).sum()),
        agreement=agreement(replace(form, key=best, query=torch.eye(best.shape[1]).to(best)), views, held_out),
        **_efficiencies(made.query_margins(weights) * value, size, seen_size, settings),
    )
    return Compared(closeness, drawn, duals / duals.sum().clamp(min=1e-300), solution)


def _compare_lifted(
    form: HeadWeights, views: Views, drawn: Choices, held_out: Choices, norm: Norm, settings: Settings
) -> Compared:
    """The same for a head whose logits depend on positions; W is the stack of its channels."""
    if not isinstance(norm, Frobenius):
        raise ValueError(f"norms must be Frobenius for heads whose logits depend on positions; got {norm.name}")
    found = solve_lifted(form, views, drawn, settings)
    pairs, lam, value = found.pairs.to("cpu"), found.multipliers.cpu(), found.value
    shares = torch.zeros(len(drawn), max(len(view.sentence) for view in views), dtype=torch.float64)
    size, seen_size = form.size, found.pairs.seen_size()
    result = partial(
        Closeness, norm=norm.name, queries=len(drawn), rows=len(pairs) - len(drawn), status=found.status,
        gap=found.gap, seconds=found.seconds, memory=found.memory,
        in_span=seen_size / size if size > 0 else math.nan,
    )  # fmt: skip
    if math.isnan(value):
        return Compared(result(solved=False), drawn, shares)
    shares[pairs.query, pairs.token] = lam / lam.sum()
    margins = found.margins(found.pairs.logits()).cpu()
    others = margins.index_fill(0, found.selected.cpu(), torch.inf)
    smallest = margins.new_full((len(drawn),), torch.inf).scatter_reduce(0, pairs.query, others, "amin")
    product = float(lam @ margins)  # of W and the direction of W_mm
    hits = math.nan
    if len(held_out):
        tested = Pairs.of(form, views, held_out.triples)
        logits = torch.full((len(held_out), shares.shape[1]), -torch.inf, dtype=torch.float64)
        logits[tested.query, tested.token] = found.logits(tested)
        hits = float((logits.argmax(-1) == held_out.selected).double().mean())
    closeness = result(
        solved=True,
        max_margin=1 / value,
        cosine=product / size if size > 0 else math.nan,
        cosine_projected=product / seen_size if seen_size > 0 else math.nan,
        spectrum=spectrum(found.stacked),
        support_rows=int((lam > 0).sum()),
        support_queries=len(torch.unique(pairs.query[lam > 0])),
        agreement=hits,
        **_efficiencies(smallest * value, size, seen_size, settings),
    )
    return Compared(closeness, drawn, shares)


def _efficiencies(margins: Tensor, size: float, seen_size: float, settings: Settings) -> dict[str, Any]:
    """Margins of W over the max margin, from those of every query times N(W_mm), N(W), and N of the projected W."""
    if not size > 0:
        return {"margins": tuple(0.0 for _ in margins)}

    def efficiency(relative: Tensor) -> Efficiency:
        return Efficiency(*(float(relative.quantile(share)) for share in (0.0, settings.quantile, 0.5)))

    seen = margins / seen_size
    return {
        "efficiency": efficiency(margins / size),
        "efficiency_projected": efficiency(seen),
        "margins": tuple(round(margin, 6) for margin in seen.tolist()),
    }


def _solver(norm: Norm, settings: Settings) -> Solver | None:
    """A solver that stops at the accuracy asked for; None leaves the choice to `solve`."""
    if isinstance(norm, Frobenius):
        return BlockDescent(accuracy=settings.accuracy, rounds=settings.rounds)
    return NuclearInteriorPoint(accuracy=settings.accuracy) if isinstance(norm, Nuclear) else None


def spectrum(weights: Float[Tensor, "d dq"]) -> Spectrum:
    """The spectrum of a matrix.

    >>> spectrum(torch.diag(torch.tensor([3.0, 3.0, 0.0])).double())
    Spectrum(values=(1.0, 1.0), rank=2, effective_rank=2.0)
    """
    values = torch.linalg.svdvals(weights)
    total = float(values.sum())
    if total == 0:
        return Spectrum((), 0, 0.0)
    entropy = float(torch.special.entr(values / total).sum())
    relative = values / values[0]
    return Spectrum(
        values=tuple(round(value, 9) for value in relative[relative > _SPAN].tolist()),
        rank=int((relative > _RANK).sum()),
        effective_rank=round(math.exp(entropy), 9),
    )


def projected(weights: Float[Tensor, "D E"], views: Views, drawn: Choices) -> Float[Tensor, "D E"]:
    """The part of `weights` that the data can see: P_x W P_z.

    P_x projects on the span of the differences of candidates, P_z on that of the queries; margins do not change. The
    rest of W only adds to its norm, and no margin on these queries depends on it.
    """
    width = weights.shape[0]
    left = torch.zeros(width, width, dtype=torch.float64)
    for index in torch.unique(drawn.sentence).tolist():
        view = views[index]
        for candidates in torch.unique(view.allowed[drawn.position[drawn.sentence == index]], dim=0):
            tokens = view.keys[candidates]
            centred = tokens - tokens.mean(0)
            left += centred.T @ centred
    queries = torch.stack([views[index].queries[position] for index, position, _ in drawn.triples])
    return _onto(left) @ weights @ _onto(queries.T @ queries)


def _onto(gram: Tensor) -> Tensor:
    """Projection on the span of the rows that have this Gram matrix."""
    values, vectors = torch.linalg.eigh(gram)
    kept = vectors[:, values > _SPAN**2 * values[-1].clamp(min=0.0)]
    return kept @ kept.T


def agreement(form: HeadWeights, views: Views, drawn: Choices) -> float:
    """Share of `drawn` on which the largest logit of `form` is that of the selected token; NaN if there are none."""
    if len(drawn) == 0:
        return math.nan
    hits = 0
    for index in torch.unique(drawn.sentence).tolist():
        here = drawn.sentence == index
        hits += int((views[index].logits(form)[drawn.position[here]].argmax(-1) == drawn.selected[here]).sum())
    return hits / len(drawn)
