"""The max-margin problem of a head whose positions are inside its logits, through the kernel of its channels.

A pair (token j, query i) has the features of every channel (`attsvm.heads.form`), which are never written out. With p
the model's cosines and sines at the distance of the pair, and 1 for the coordinates that are not turned,

    < pair , pair' > = <x, x'> <z, z'> (<p, p'> + 1)  +  1[same bucket]

is all that the Frobenius norm needs. The solvers see rows of the problem, a selected pair minus another of the same
query, in coordinates that have these products, some rows at a time; what is reported is then computed from the kernel
itself, over all rows, in blocks that are not kept.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.heads.analysis.selections import Choices, Views
from attsvm.heads.form import HeadWeights, LayerStates
from attsvm.heads.report.records import Settings
from attsvm.svm import AttentionSVM, BatchedFrobenius, solve

MOST_PAIRS = 6000  # largest number of pairs whose whole kernel is held; it takes 288 MB
_BLOCK = 2**24  # entries of the kernel that are computed at once
_NEW = 1000  # most rows that join between two solves
_ROUNDING = 1e-12  # of the kernel, relative to its largest entry
_SOLVED = "solved: the kernel over all rows proves the solution optimal to the tolerance"
_BARRED = (
    "numerically infeasible: in coordinates of the kernel, whose rounding no proof covers, nothing separates these"
    " selections"
)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Candidates of some queries, pair after pair."""

    form: HeadWeights  # of the head, whose channels make the kernel
    queries: Float[Tensor, "n E"]  # what the query projection sees
    query: Int[Tensor, " N"]  # number of the query of each pair
    token: Int[Tensor, " N"]  # position of its token
    states: Float[Tensor, "U D"]  # what the key projection sees of the tokens of all sentences, each once
    place: Int[Tensor, " N"]  # which of them belongs to a pair
    phases: Complex[Tensor, "N F"] | None  # cos + i sin of every angle at its distance, for rotary positions
    buckets: Int[Tensor, " N"] | None  # of its distance; None without learned biases by distance

    @classmethod
    def of(cls, form: HeadWeights, views: Sequence[LayerStates], selections: Sequence[tuple[int, int, int]]) -> Pairs:
        """All candidates of queries, each given by its sentence, its position and the token that it selects."""
        query, token, place, phases, buckets = [], [], [], [], []
        used = sorted({index for index, _, _ in selections})
        starts = dict(zip(used, itertools.accumulate((len(views[n].keys) for n in used), initial=0), strict=False))
        for number, (index, position, _) in enumerate(selections):
            view = views[index]
            tokens = torch.nonzero(view.allowed[position])[:, 0]
            query.append(torch.full_like(tokens, number))
            token.append(tokens)
            place.append(tokens + starts[index])
            if form.pairs is not None and view.phases is not None:
                phases.append(view.phases[tokens] * view.phases[position].conj())
            if form.relative is not None and view.buckets is not None:
                buckets.append(view.buckets[position, tokens])
        queries = torch.stack([views[index].queries[position] for index, position, _ in selections])
        states = torch.cat([views[index].keys for index in used])
        turned, marks = (torch.cat(part) if part else None for part in (phases, buckets))
        return cls(form, queries, torch.cat(query), torch.cat(token), states, torch.cat(place), turned, marks)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, index: Tensor) -> Pairs:
        parts = {name: getattr(self, name) for name in ("query", "token", "place", "phases", "buckets")}
        return replace(self, **{name: part[index] for name, part in parts.items() if part is not None})

    def to(self, device: torch.device | str) -> Pairs:
        """The same pairs on a device."""
        parts: dict[str, Any] = {name: part.to(device) for name, part in vars(self).items() if part is not None}
        return replace(self, **parts)

    def turned_keys(self) -> Float[Tensor, "N m"]:
        """The head's own keys, turned by their distance to the query."""
        return self.form.turned((self.states @ self.form.key)[self.place], self.phases)

    def logits(self) -> Float[Tensor, " N"]:
        """The logits of the head itself, without a fixed bias."""
        found = (self.turned_keys() * (self.queries @ self.form.query)[self.query]).sum(-1)
        return found if self.buckets is None else found + self.form.bias(self.buckets)

    def token_kernel(self, other: Pairs) -> Float[Tensor, "N M"]:
        """<x, x'> (<p, p'> + 1): products of lifted tokens."""
        own, place = torch.unique(other.place, return_inverse=True)
        content = (self.states @ other.states[own].T)[self.place][:, place]
        if self.phases is None or other.phases is None:
            return content
        turned = torch.view_as_real(self.phases).flatten(1) @ torch.view_as_real(other.phases).flatten(1).T
        return content * (turned + 1 if bool(self.form.unturned.any()) else turned)

    def kernel(self, other: Pairs) -> Float[Tensor, "N M"]:
        """Products of all channels."""
        found = self.token_kernel(other) * (self.queries @ other.queries.T)[self.query][:, other.query]
        if self.buckets is not None and other.buckets is not None:
            found += (self.buckets[:, None] == other.buckets) & (other.buckets >= 0)
        return found

    def images(self, few: Pairs, shares: Float[Tensor, " S"]) -> Float[Tensor, " N"]:
        """The sum of `shares` times the products with `few`, for each pair."""
        size = max(1, _BLOCK // max(1, len(few)))
        parts = (self[torch.arange(at, min(at + size, len(self)))] for at in range(0, len(self), size))
        return torch.cat([part._needed().kernel(few) @ shares for part in parts])

    def _needed(self) -> Pairs:
        """The same pairs, with no more states than theirs."""
        own, place = torch.unique(self.place, return_inverse=True)
        return replace(self, states=self.states[own], place=place)

    def seen_size(self) -> float:
        """Norm of the head's weights projected on the spans of lifted candidates' differences and of queries.

        With u the lifted tokens, k their keys after rotation and G the products of the u, centred for each query:
        ``||P_u W P_z||^2 = tr(k^T G^+ k Q^T P_z Q)``. For more than `MOST_PAIRS` pairs u is projected on a larger
        space, of which no more is known than that the data see nothing beyond: all frequencies of all tokens.
        """
        form, basis = self.form, torch.linalg.qr(self.queries.T).Q
        if len(self) > MOST_PAIRS:
            seen = torch.linalg.qr(self.states.T).Q
            narrow = replace(form, key=seen.T @ form.key, query=basis.T @ form.query)
            return math.sqrt(float(narrow.energies.sum()))
        keys = self._centred(self.turned_keys())
        gram = self._centred(self._centred(self.token_kernel(self)).T)
        gram.diagonal().add_(_ROUNDING * float(gram.diagonal().max()) * len(gram))
        factor, failed = torch.linalg.cholesky_ex(gram)
        if bool(failed):
            return math.nan
        left = keys.T @ torch.cholesky_solve(keys, factor)
        right = basis.T @ form.query
        square = float((left * (right.T @ right)).sum())
        if form.relative is not None and self.buckets is not None:
            marks = self._centred((self.buckets[:, None] == torch.arange(len(form.relative)).to(self.buckets)).double())
            square += float((torch.linalg.pinv(marks) @ (marks @ form.relative)).square().sum())
        return math.sqrt(max(square, 0.0))

    def _centred(self, rows: Float[Tensor, "N k"]) -> Float[Tensor, "N k"]:
        """Minus the mean over the candidates of the same query."""
        counts = torch.bincount(self.query)[:, None]
        sums = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, self.query, rows)
        return rows - (sums / counts)[self.query]


@dataclass(frozen=True, eq=False)
class LiftedSolution:
    """W_mm of a head with positions, as multipliers of the rows of its problem."""

    pairs: Pairs  # of the problem
    selected: Int[Tensor, " n"]  # number of the selected pair of each query, ``[n]``
    multipliers: Float[Tensor, " N"]  # 0 for the selected pairs; the combination of the rows has norm 1
    value: float  # N(W_mm); NaN where there is none
    gap: float  # of `value` over the bound that the multipliers prove, relative, from the kernel over all rows
    status: str  # in a sentence
    seconds: float  # of the solve

    @property
    def memory(self) -> int:
        """Bytes of the pairs and of the parts of the kernel that are held at once."""
        held = (self.pairs.states, self.pairs.queries, self.pairs.phases)
        kernel = 3 * max(min(len(self.pairs) ** 2, _BLOCK), min(len(self.pairs), MOST_PAIRS) ** 2)
        return 8 * kernel + sum(part.numel() * part.element_size() for part in held if part is not None)

    def margins(self, logits: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Logit of the selected pair minus that of each pair of the same query."""
        return logits[self.selected][self.pairs.query] - logits

    @cached_property
    def support(self) -> tuple[Pairs, Float[Tensor, " S"]]:
        """The pairs whose features make up W_mm / N(W_mm), and the factor of each."""
        shares = (-self.multipliers).index_add(0, self.selected[self.pairs.query], self.multipliers)
        used = torch.nonzero(shares)[:, 0]
        return self.pairs[used], shares[used]

    def logits(self, other: Pairs) -> Float[Tensor, " M"]:
        """The logits of W_mm / N(W_mm) at other pairs."""
        return other.to(self.pairs.states.device).images(*self.support).cpu()

    @property
    def stacked(self) -> Float[Tensor, "n E"]:
        """A matrix with the singular values of the stack W_mm / N(W_mm), without learned biases.

        It is ``sum_i u_i z_i^T`` with u_i a combination of lifted tokens of query i; only products of the u count.
        """
        few, shares = self.support
        sums = shares.new_zeros(len(few.queries), len(few)).index_put_((few.query, torch.arange(len(few))), shares)
        values, vectors = torch.linalg.eigh(sums @ few.token_kernel(few) @ sums.T)
        return (vectors * values.clamp(min=0.0).sqrt()).T @ few.queries


def solve_lifted(form: HeadWeights, views: Views, drawn: Choices, settings: Settings) -> LiftedSolution:
    """The max-margin solution of the selections `drawn` in the Frobenius norm over all channels of `form`.

    Rows that the solution of those at work violates join them, so that most rows never meet a solver, and rows without
    a multiplier leave. Multipliers lam >= 0 prove ``N(W_mm) >= sum lam / ||sum lam row||``, and W in the direction of
    their combination, scaled to the smallest margin over all rows, is feasible.
    """
    began = time.perf_counter()
    pairs = Pairs.of(form, views, drawn.triples).to(settings.device)
    chosen = pairs.token == drawn.selected.to(pairs.token)[pairs.query]
    selected, others = torch.nonzero(chosen)[:, 0], ~chosen

    def found(lam: Tensor, value: float = math.nan, gap: float = math.nan, status: str = "") -> LiftedSolution:
        return LiftedSolution(pairs, selected, lam, value, gap, status, round(time.perf_counter() - began, 3))

    own = pairs.logits()
    work = _worst((own[selected][pairs.query] - own).masked_fill(chosen, torch.inf), pairs.query, _NEW)
    multipliers = torch.zeros(len(pairs), dtype=torch.float64, device=work.device)
    gap = math.inf
    for _ in range(settings.rounds):
        rows = torch.nonzero(work)[:, 0]
        solution = solve(_problem(pairs, selected, rows), solver=BatchedFrobenius() if rows.is_cuda else None)
        if bool(solution.barred):
            return found(torch.zeros_like(multipliers), status=_BARRED)
        multipliers.zero_()[rows] = solution.duals[:, 1].clamp(min=0.0)
        trial = found(multipliers)
        margins = trial.margins(pairs.images(*trial.support))
        size = math.sqrt(max(float(multipliers @ margins), 0.0))
        if not size > 0:
            break
        bound, smallest = float(multipliers.sum()) / size, float(margins[others].min()) / size
        value = 1 / smallest if smallest > 0 else math.inf
        if (gap := value / bound - 1) <= settings.accuracy:
            return found(multipliers / size, value, max(gap, 0.0), _SOLVED)
        short = others & (margins * (bound / size) < 1 - settings.accuracy / 4)
        work = multipliers > 0
        for _ in range(2):  # up to two rows of a query
            work |= _worst(margins.masked_fill(~short | work, torch.inf), pairs.query, _NEW // 2)
    return found(multipliers, math.nan, gap, "not converged: the rounds ran out")


def _worst(margins: Float[Tensor, " R"], query: Int[Tensor, " R"], most: int) -> Tensor:
    """The row with the smallest finite margin of each query, at most `most` of them, as a mask."""
    least = margins.new_full((int(query.max()) + 1,), torch.inf).scatter_reduce(0, query, margins, "amin")
    bound = least.topk(min(most, len(least)), largest=False).values[-1]
    return (margins == least[query]) & margins.isfinite() & (margins <= bound)


def _problem(pairs: Pairs, selected: Int[Tensor, " n"], rows: Int[Tensor, " S"]) -> AttentionSVM:
    """The problem of some rows, each given by the number of the pair that is not selected.

    It has an input for each, with two tokens: a vector, whose products with the others are those of the rows, and zero.
    """
    asked, place = torch.unique(pairs.query[rows], return_inverse=True)
    both = pairs[torch.cat([selected[asked], rows])]._needed()
    kernel = both.kernel(both)
    own = torch.arange(len(rows), device=rows.device) + len(asked)
    kernel = kernel[place] - kernel[own]
    gram = kernel[:, place] - kernel[:, own]
    factor, failed = torch.linalg.cholesky_ex(gram)
    if bool(failed):  # rows that depend on each other
        values, vectors = torch.linalg.eigh(gram)
        kept = values >= _ROUNDING * values[-1]
        kept[-1] = True
        factor = vectors[:, kept] * values[kept].clamp(min=0.0).sqrt()
    tokens = torch.stack([factor, torch.zeros_like(factor)], 1)
    ones = torch.ones_like(factor[:, 0])
    return AttentionSVM(TokenDataset(tokens, ones[:, None], ones), torch.zeros_like(ones, dtype=torch.int64))
