"""The max-margin problem of a head whose positions are inside its logits, through the kernel of its channels.

A pair (token j, query i) has the features of every channel (`attsvm.heads.form`), which are never written out. With p
the model's cosines and sines at the distance of the pair, and 1 for the coordinates that are not turned,

    < pair , pair' > = <x, x'> <z, z'> (<p, p'> + 1)  +  1[same bucket]

is all that the Frobenius norm needs. The solvers see rows of the problem, a selected pair minus another of the same
query, in coordinates that have these products, some rows at a time; what is reported is then computed from the kernel
itself, over all rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.heads.analysis.selections import Choices, SentenceView
from attsvm.heads.analysis.settings import Settings
from attsvm.heads.form import HeadWeights
from attsvm.svm import AttentionSVM, solve

MOST_PAIRS = 4000  # largest number of pairs in a problem; the kernel of that many takes 128 MB, and is held a few times
_NEW = 2  # most rows that a query adds between two solves
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
    queries: Float[Tensor, "n E"]  # what the query projection sees, ``[n, E]``
    query: Int[Tensor, " N"]  # number of the query of each pair, ``[N]``
    token: Int[Tensor, " N"]  # position of its token, ``[N]``
    keys: Float[Tensor, "N D"]  # what the key projection sees, ``[N, D]``
    phases: Complex[Tensor, "N F"] | None  # cos + i sin of every angle at its distance, for rotary positions
    buckets: Int[Tensor, " N"] | None  # of its distance, ``[N]``; None without learned biases by distance

    @classmethod
    def of(cls, form: HeadWeights, views: Sequence[SentenceView], drawn: Choices) -> Pairs:
        """All candidates of the queries of `drawn`."""
        queries, query, token, keys, phases, buckets = [], [], [], [], [], []
        for number, (index, position, _) in enumerate(drawn.triples):
            view = views[index]
            tokens = torch.nonzero(view.candidates[position])[:, 0]
            queries.append(view.queries[position])
            query.append(torch.full_like(tokens, number))
            token.append(tokens)
            keys.append(view.keys[tokens])
            if form.pairs is not None and view.phases is not None:
                phases.append(view.phases[tokens] * view.phases[position].conj())
            if form.relative is not None and view.buckets is not None:
                buckets.append(view.buckets[position, tokens])
        turned, marks = (torch.cat(part) if part else None for part in (phases, buckets))
        return cls(form, torch.stack(queries), torch.cat(query), torch.cat(token), torch.cat(keys), turned, marks)

    def __len__(self) -> int:
        return len(self.query)

    def __getitem__(self, index: Tensor) -> Pairs:
        phases, buckets = (None if part is None else part[index] for part in (self.phases, self.buckets))
        return Pairs(self.form, self.queries, self.query[index], self.token[index], self.keys[index], phases, buckets)

    def channel_logits(self) -> Float[Tensor, "N channels"]:
        """What every frequency, the coordinates that are not turned, and learned biases add to the head's logits."""
        form, count = self.form, len(self)
        keys = form.turned(self.keys @ form.key, self.phases)
        parts = keys * (self.queries @ form.query)[self.query]
        turned = parts.new_zeros(count, 0) if form.pairs is None else parts[:, form.pairs].sum(-1)
        bias = parts.new_zeros(count) if form.relative is None else form.relative[self.buckets]
        return torch.cat([turned, parts[:, form.unturned].sum(-1, keepdim=True), bias[:, None]], -1)

    def logits(self) -> Float[Tensor, " N"]:
        """The logits of the head itself, without a fixed bias."""
        return self.channel_logits().sum(-1)

    def token_kernel(self, other: Pairs) -> Float[Tensor, "N M"]:
        """<x, x'> (<p, p'> + 1): products of lifted tokens."""
        content = self.keys @ other.keys.T
        if self.phases is None or other.phases is None:
            return content
        turned = torch.view_as_real(self.phases).flatten(1) @ torch.view_as_real(other.phases).flatten(1).T
        return content * (turned + 1 if bool(self.form.unturned.any()) else turned)

    def kernel(self, other: Pairs, tokens: Tensor) -> Float[Tensor, "N M"]:
        """Products of all channels; `tokens` is the `token_kernel`."""
        found = tokens * (self.queries @ other.queries.T)[self.query][:, other.query]
        if self.buckets is not None and other.buckets is not None:
            found += self.buckets[:, None] == other.buckets
        return found

    def seen_size(self, tokens: Tensor) -> float:
        """Norm of the head's weights projected on the spans of lifted candidates' differences and of queries.

        With u the lifted tokens, k their keys after rotation and G the products of the u, centred for each query:
        ``||P_u W P_z||^2 = tr(k^T G^+ k Q^T P_z Q)``.
        """
        form = self.form
        keys = self._centred(form.turned(self.keys @ form.key, self.phases))
        gram = self._centred(self._centred(tokens).T)
        gram.diagonal().add_(_ROUNDING * float(gram.diagonal().max()) * len(gram))
        factor, failed = torch.linalg.cholesky_ex(gram)
        if bool(failed):
            return math.nan
        left = keys.T @ torch.cholesky_solve(keys, factor)
        basis = torch.linalg.qr(self.queries.T).Q
        right = basis.T @ form.query
        square = float((left * (right.T @ right)).sum())
        if form.relative is not None and self.buckets is not None:
            marks = self._centred(torch.nn.functional.one_hot(self.buckets, len(form.relative)).double())
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
    seen_size: float  # norm of the head's weights projected on the spans of the data
    seconds: float  # of the solve

    @property
    def memory(self) -> int:
        """Bytes of the kernel, held three times."""
        return 24 * len(self.pairs) ** 2

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
        few, shares = self.support
        return other.kernel(few, other.token_kernel(few)) @ shares

    @property
    def stacked(self) -> Float[Tensor, "n E"]:
        """A matrix with the singular values of the stack W_mm / N(W_mm), without learned biases.

        It is ``sum_i u_i z_i^T`` with u_i a combination of lifted tokens of query i; only products of the u count.
        """
        few, shares = self.support
        sums = shares.new_zeros(len(few.queries), len(few)).index_put_((few.query, torch.arange(len(few))), shares)
        values, vectors = torch.linalg.eigh(sums @ few.token_kernel(few) @ sums.T)
        return (vectors * values.clamp(min=0.0).sqrt()).T @ few.queries

    @property
    def energies(self) -> Float[Tensor, " channels"]:
        """Squared norms of the channels of W_mm / N(W_mm), in the order of `HeadWeights.energies`; their sum is 1."""
        few, shares = self.support
        content = (few.keys @ few.keys.T) * (few.queries @ few.queries.T)[few.query][:, few.query]
        still = (shares @ content @ shares * few.form.unturned.any())[None]
        turned, bias = still[:0], torch.zeros_like(still)
        if few.form.pairs is not None and few.phases is not None:
            sides = torch.view_as_real(few.phases) * shares[:, None, None]
            turned = (sides * (content @ sides.flatten(1)).view_as(sides)).sum((0, 2))
        if few.form.relative is not None and few.buckets is not None:
            bias = torch.zeros_like(few.form.relative).index_add(0, few.buckets, shares).square().sum()[None]
        return torch.cat([turned, still, bias])


def solve_lifted(
    form: HeadWeights, views: Sequence[SentenceView], drawn: Choices, settings: Settings
) -> LiftedSolution:
    """The max-margin solution of the selections `drawn` in the Frobenius norm over all channels of `form`."""
    began = time.perf_counter()
    pairs = Pairs.of(form, views, drawn)
    chosen = pairs.token == drawn.selected[pairs.query]
    selected, rows = torch.nonzero(chosen)[:, 0], torch.nonzero(~chosen)[:, 0]
    tokens = pairs.token_kernel(pairs)
    seen = pairs.seen_size(tokens)
    gram = pairs.kernel(pairs, tokens)
    del tokens
    query = pairs.query[rows]
    gram = gram[selected[query]] - gram[rows]
    gram = gram[:, selected[query]] - gram[:, rows]
    found, value, gap, status = _by_working_rows(gram, query, settings)
    multipliers = torch.zeros(len(pairs), dtype=torch.float64).index_copy(0, rows, found)
    seconds = round(time.perf_counter() - began, 3)
    return LiftedSolution(pairs, selected, multipliers, value, gap, status, seen, seconds)


def _by_working_rows(
    gram: Float[Tensor, "R R"], query: Int[Tensor, " R"], settings: Settings
) -> tuple[Tensor, float, float, str]:
    """Multipliers of norm 1, N(W_mm), relative gap and status, from the products of all rows.

    Rows that the solution of those at work violates join them, so that most rows never meet a solver. Multipliers
    lam >= 0 prove ``N(W_mm) >= sum lam / ||sum lam row||``, and W in the direction of their combination, scaled to the
    smallest margin, is feasible.
    """
    chosen = _worst(gram.sum(1), query)
    multipliers = torch.zeros(len(gram), dtype=torch.float64)
    value = gap = math.inf
    for _ in range(settings.rounds):
        rows = torch.nonzero(chosen)[:, 0]
        solution = solve(_rows_problem(gram[rows][:, rows]))
        if bool(solution.barred):
            return multipliers, math.nan, math.nan, _BARRED
        lam = solution.duals[:, 1].clamp(min=0.0)
        image = gram[:, rows] @ lam
        size = math.sqrt(max(float(lam @ image[rows]), 0.0))
        if not size > 0:
            break
        multipliers.zero_()[rows] = lam / size
        margins, bound = image / size, float(lam.sum()) / size
        smallest = float(margins.min())
        value = 1 / smallest if smallest > 0 else math.inf
        gap = value / bound - 1
        if gap <= settings.accuracy:
            return multipliers, value, max(gap, 0.0), _SOLVED
        short = margins * bound < 1 - settings.accuracy / 4
        for _ in range(_NEW):
            chosen |= _worst(margins.masked_fill(~short | chosen, torch.inf), query)
    return multipliers, math.nan, gap, "not converged: the rounds ran out"


def _worst(margins: Float[Tensor, " R"], query: Int[Tensor, " R"]) -> Tensor:
    """The row with the smallest finite margin of each query, as a mask."""
    least = torch.full((int(query.max()) + 1,), torch.inf, dtype=torch.float64)
    least = least.scatter_reduce(0, query, margins, "amin")
    return (margins == least[query]) & margins.isfinite()


def _rows_problem(gram: Float[Tensor, "S S"]) -> AttentionSVM:
    """Rows with these products: one input for each, with two tokens, the row and zero."""
    factor, failed = torch.linalg.cholesky_ex(gram)
    if bool(failed):  # rows that depend on each other
        values, vectors = torch.linalg.eigh(gram)
        kept = values >= _ROUNDING * values[-1]
        kept[-1] = True
        factor = vectors[:, kept] * values[kept].clamp(min=0.0).sqrt()
    tokens = torch.stack([factor, torch.zeros_like(factor)], 1)
    ones = torch.ones(len(gram), dtype=torch.float64)
    return AttentionSVM(TokenDataset(tokens, ones[:, None], ones), torch.zeros(len(gram), dtype=torch.int64))
