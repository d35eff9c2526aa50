"""All locally optimal selections of a small problem, and a sample of them for a large one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import Head, LinearHead, optimal_token_set, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.attention.scores import tie_line
from attsvm.data import Seed, TokenDataset
from attsvm.data.checks import check_count
from attsvm.data.streams import Purpose, streams
from attsvm.descent import fit
from attsvm.norms import Frobenius, Norm
from attsvm.svm import AttentionSVM, solve
from attsvm.svm.solution import SUPPORT_TOLERANCE
from attsvm.theory.optimality import solve_or_retry

Progress = Callable[[int, int], None]

# Size of the rows of a chunk of candidates; a solve holds a handful of such arrays at once.
_CHUNK_BYTES = 16e6
_SCALES = (1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False, repr=False)
class LocalOptima:
    """The locally optimal selections of one data set."""

    selections: Int[Tensor, "k n"]  #: by growing norm of their SVM
    norms: Float[Tensor, " k"]  #: N(W_mm) of each
    weights: Float[Tensor, "k d dq"]  #: W_mm of each
    is_optimal: Bool[Tensor, " k"]  #: which one selects a best token of every input
    reached: Int[Tensor, " k"] | None  #: how many starts ended there where the selections are a sample, else None
    exhaustive: bool  #: True if these are all there are, apart from `failed`; False if they are a sample
    norm: Norm  #: the norm in which the SVMs were solved
    candidates: int  #: number of selections of the data set, the product of the numbers of tokens
    pruned: int  #: of these, how many were excluded because some of their inputs alone cannot be separated
    tried: int  #: how many were put to the test
    infeasible: int  #: of these, how many were proved inseparable
    rejected: int  #: of these, how many are not locally optimal though their relaxed problem has a solution
    failed: Int[Tensor, "f n"]  #: selections whose solve proved nothing; the list is complete only if there are none
    ambiguous: int  #: number of tried selections with a row too close to the line between support and not
    unsaturated: int  #: of a sample, the number of starts whose attention was still spread (a winner below 0.9)
    seconds: float  #: wall time

    def __len__(self) -> int:
        return self.selections.shape[0]

    def __repr__(self) -> str:
        kind = "all" if self.exhaustive else "a sample of the"
        parts = f"{self.pruned} pruned, {self.tried} tried, {self.infeasible} infeasible"
        parts += f", {len(self.failed)} failed" if len(self.failed) else ""
        found = f"{kind} {len(self)} locally optimal among {self.candidates} selections ({parts})"
        return f"LocalOptima({found}, {self.norm.name}, {self.seconds:.3g} s)"


def locally_optimal_selections(
    data: TokenDataset,
    head: object = None,
    norm: Norm | None = None,
    limit: int = 200_000,
    progress: Progress | None = None,
    *,
    starts: int = 256,
    steps: int = 2000,
    seed: Seed = 0,
) -> LocalOptima:
    """Every selection that descent can be attracted to, by exact enumeration where that is affordable.

    For each candidate alpha the SVM is solved with the rows of lower-scoring tokens only; alpha is accepted iff that
    relaxed problem has a solution W and every other margin of W exceeds 1 (by more than 1e-6, the line of support).

    *Proof.* Let alpha be locally optimal: every row tight at W_mm(alpha) belongs to a lower-scoring token, so W_mm is
    also optimal without the others (its multipliers vanish there), it is the relaxed solution, and the rows left out
    are not tight: margins above 1. Conversely let all margins of rows left out exceed 1 at the relaxed solution W.
    Then W is feasible for the whole problem, hence optimal for it, and the rows left out are not tight: every support
    token scores lower. (Where the norm has several solutions, nuclear and the like, the converse holds for the W found,
    and "locally optimal" means: at that W.) Ties, within round-off, count as higher-scoring.

    Two cuts are sound for the same reason and need no scores: a selection whose first k inputs cannot be separated
    cannot be separated, so the tree over inputs is cut there; and a relaxed problem without a solution has none with
    more rows.

    If the tree outgrows `limit` candidates, the selections reached by normalized gradient descent from `starts` random
    starts (norms 1, 10 and 100 times PyTorch's default) and the optimal one are tested instead; the result then says
    ``exhaustive=False`` and is a sample.

    Arguments:
        head: nonlinear ones are judged by their effective scores at each selection.
        limit: the most candidates to hold at any level of the tree; beyond a quarter of it the tree is also given up
            if pruning at its last rate would leave more than `limit` in the end.
        progress: called with (candidates done, candidates in all).
        starts, steps, seed: of the sample.

    >>> from attsvm.data import example
    >>> locally_optimal_selections(example("single-input-local")).selections.tolist()
    [[0], [1]]
    >>> locally_optimal_selections(example("single-input-global")).selections.tolist()
    [[0]]
    """
    if data.batch_shape:
        shape = list(data.batch_shape)
        raise ValueError(f"data must be one data set; got a batch {shape}: use locally_optimal_selections_of_each")
    limit, starts = check_count(limit, "limit"), check_count(starts, "starts")
    began = time.perf_counter()
    own, norm = as_head(head, data), norm or Frobenius()
    exact = data.to(dtype=torch.float64)
    found, pruned = _candidates(exact, limit)
    tried, reached, unsaturated = (found, None, 0) if found is not None else _sampled(data, own, starts, steps, seed)
    higher, done = _higher_scoring(data, own), 0
    parts: list[tuple[Tensor, ...]] = []
    for copies, part in _chunks(exact, tried):
        parts.append(_judged(copies, part, higher, norm))
        done += len(part)
        if progress is not None and done:
            progress(done, len(tried))
    accepted, infeasible, undecided, ambiguous, weights = (torch.cat(each) for each in zip(*parts, strict=True))
    norms = norm.value(weights)
    order = norms.argsort(stable=True)
    selections = tried[accepted][order]
    return LocalOptima(
        selections=selections, norms=norms[order], weights=weights[order],
        is_optimal=optimal_token_set(data, own)[torch.arange(data.n, device=data.device), selections].all(-1),
        reached=None if reached is None else reached[accepted][order], exhaustive=found is not None, norm=norm,
        candidates=_count(data), pruned=pruned, tried=len(tried), infeasible=int(infeasible.sum()),
        rejected=int((~accepted & ~infeasible & ~undecided).sum()), failed=tried[undecided],
        ambiguous=int(ambiguous.sum()), unsaturated=unsaturated, seconds=time.perf_counter() - began,
    )  # fmt: skip


def locally_optimal_selections_of_each(
    data: TokenDataset,
    head: object = None,
    norm: Norm | None = None,
    limit: int = 200_000,
    progress: Progress | None = None,
    *,
    starts: int = 256,
    steps: int = 2000,
    seed: int = 0,
) -> list[LocalOptima]:
    """`locally_optimal_selections` of every data set of a batch, in row-major order, with the same arguments.

    `progress` is called with (data sets done, data sets in all) or, for a single data set, with (candidates done,
    candidates in all).
    """
    flat, own = data.flatten(), as_head(head, data).flatten()
    inner, results = progress if len(flat) == 1 else None, []
    for element in range(len(flat)):
        one = locally_optimal_selections(
            flat[element], own[element], norm, limit, inner, starts=starts, steps=steps, seed=[(seed, element)]
        )
        results.append(one)
        if progress is not None and inner is None:
            progress(element + 1, len(flat))
    return results


def every_separable_selection(
    data: TokenDataset, norm: Norm | None = None, limit: int = 200_000
) -> tuple[Int[Tensor, "k n"], Float[Tensor, "k n T"], int]:
    """The separable selections of one data set, the margins of their SVMs, and how many others stay undecided."""
    exact = data.to(dtype=torch.float64)
    candidates, _ = _candidates(exact, limit)
    if candidates is None:
        raise ValueError(f"limit must be at least the number of candidates, up to {_count(data)}; got {limit}")
    kept, margins, undecided = [], [], 0
    for copies, part in _chunks(exact, candidates):
        solution = solve_or_retry(AttentionSVM(copies, part), norm)
        kept.append(part[solution.solved])
        margins.append(solution.margins[solution.solved])
        undecided += int((~solution.solved & ~solution.infeasible).sum())
    return torch.cat(kept), torch.cat(margins), undecided


def _count(data: TokenDataset) -> int:
    """How many selections there are."""
    return math.prod(data.real.sum(-1).tolist())


def _chunks(data: TokenDataset, selections: Int[Tensor, "k n"]) -> Iterator[tuple[TokenDataset, Tensor]]:
    """As many selections at a time as fit into memory, each with as many copies of the data set."""
    size = max(16, int(_CHUNK_BYTES / (8 * data.n * data.T * (data.d + 4) + 8 * data.d * data.dq)))
    for part in selections.split(size):
        yield data.flatten()[torch.zeros(len(part), dtype=torch.int64, device=data.device)], part


def _candidates(data: TokenDataset, limit: int) -> tuple[Tensor | None, int]:
    """Selections whose first n - 1 inputs can be separated, and how many others there are; None if above `limit`."""
    real = data.real
    prefixes = torch.zeros(1, 0, dtype=torch.int64, device=data.device)
    later = _count(data)
    pruned, rate = 0, 1.0
    for i in range(data.n):
        tokens = torch.nonzero(real[i]).flatten()
        later //= len(tokens)
        count = len(prefixes) * len(tokens)
        # Give up before the expensive levels if pruning at its last rate would leave too many in the end.
        if count > limit or (count > limit / 4 and count * later * rate ** (data.n - 1 - i) > limit):
            return None, 0
        prefixes = torch.cat([prefixes.repeat_interleave(len(tokens), 0), tokens.repeat(len(prefixes))[:, None]], 1)
        if i < data.n - 1:
            chunks = _chunks(data.take_inputs(torch.arange(i + 1, device=data.device)), prefixes)
            proved = [solve(AttentionSVM(copies, part)).infeasible for copies, part in chunks]
            keep = ~torch.cat(proved)
            pruned += int((~keep).sum()) * later
            rate = float(keep.double().mean()) if len(keep) else 0.0
            prefixes = prefixes[keep]
    return prefixes, pruned


def _higher_scoring(data: TokenDataset, head: Head) -> Bool[Tensor, "n T T"]:
    """Entry (i, a, t): whether token t counts at least as much as token a to a model that selected a in input i."""
    if isinstance(head, LinearHead):
        alone = token_scores(data, head).double()
        line = tie_line(data, alone, head).unsqueeze(-1)
        scores = alone.unsqueeze(-2).expand(-1, data.T, -1)
    else:
        values = data.input_values
        slopes = head.input_gradient(values.flatten(0, 1)).reshape(values.shape)
        scores = (torch.einsum("nad,ntd->nat", slopes, values) * data.labels[:, None, None]).double()
        scores = scores.masked_fill(~data.real.unsqueeze(-2), -torch.inf)
        line = tie_line(data, scores, head)
    return scores >= (scores.diagonal(dim1=-2, dim2=-1) - line).unsqueeze(-1)


def _sampled(data: TokenDataset, head: Head, starts: int, steps: int, seed: Seed) -> tuple[Tensor, Tensor, int]:
    """Selections that descent reaches from random starts and the optimal one, how often, and how many were spread."""
    stream = streams(seed, (), purpose=Purpose.SAMPLED_SELECTIONS)[0]
    scales = torch.tensor(_SCALES).repeat(-(-starts // len(_SCALES)))[:starts, None, None] / data.d**0.5
    drawn = torch.from_numpy(stream.uniform(-1.0, 1.0, (starts, data.d, data.dq))) * scales
    run = fit(data, head, initial=drawn.to(data.device, data.dtype), steps=steps, keep=())
    best = optimal_token_set(data, head).to(torch.int64).argmax(-1)
    selections, counts = torch.unique(torch.cat([run.selected, best[None]]), dim=0, return_counts=True)
    counts[(selections == best).all(-1)] -= 1
    return selections, counts, int((run.attention.amax(-1).amin(-1) < 0.9).sum())


def _judged(data: TokenDataset, selected: Tensor, higher: Tensor, norm: Norm) -> tuple[Tensor, ...]:
    """Accepted, infeasible, undecided, ambiguous, by the relaxed problem, and the weights of the accepted ones."""
    full = AttentionSVM(data, selected)
    above = higher[torch.arange(data.n, device=data.device), selected]
    solution = solve_or_retry(AttentionSVM(full.data, selected, rows=~above), norm)
    slack = full.margins(torch.nan_to_num(solution.weights)) - 1
    tight = full.inequalities & above & (slack <= SUPPORT_TOLERANCE)
    close = full.inequalities & (slack > SUPPORT_TOLERANCE / 10) & (slack <= SUPPORT_TOLERANCE * 10)
    accepted = solution.solved & ~tight.any(-1).any(-1)
    undecided, near = ~solution.solved & ~solution.infeasible, close.any(-1).any(-1) & solution.solved
    return accepted, solution.infeasible, undecided, near, solution.weights[accepted]
