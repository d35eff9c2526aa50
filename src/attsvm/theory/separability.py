"""Can some weights select these tokens? The verdict, the theorem on dimensions with its construction, and ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike
from attsvm.svm import AttentionSVM, SVMSolution
from attsvm.theory.conditions import Condition
from attsvm.theory.optimality import solve_or_retry

_MISS = 1e-6


@dataclass(frozen=True, eq=False)
class Separability:
    """Whether weights can give every selected token a margin over the others, and the proof."""

    separable: Bool[Tensor, "*batch"]  #: True only where weights with positive margins are in hand
    undecided: Bool[Tensor, "*batch"]  #: where neither was proved
    weights: Float[Tensor, "*batch d dq"]  #: with margins >= 1, the smallest where `solution` is solved; NaN if none
    #: lam >= 0 with ``sum lam_it (x_i,alpha - x_it) z_i^T = 0`` and sum 1, which no W can meet; 0 where separable
    ray: Float[Tensor, "*batch n T"]
    #: no W of Frobenius norm below this separates; inf where it is proved that no W at all does, 0 without a ray
    bound: Float[Tensor, "*batch"]
    solution: SVMSolution  #: the SVM behind it

    def __bool__(self) -> bool:
        if self.separable.ndim:
            raise ValueError("a batch of verdicts has no single truth value; use .separable")
        return bool(self.separable)


def separability(data: TokenDataset, selected: ArrayLike) -> Separability:
    """Whether some W selects these tokens: weights as certificate, or a ray that excludes them (Farkas).

    By Farkas' lemma exactly one of the two exists: W with ``(x_i,alpha_i - x_it)^T W z_i >= 1`` for all rows, or
    ``lam >= 0``, not 0, with ``sum lam_it (x_i,alpha_i - x_it) z_i^T = 0``. The norm does not matter.

    >>> line = TokenDataset(torch.tensor([[[-1.0], [0.0], [1.0]]]).double(), torch.ones(1, 1).double(), [1])
    >>> bool(separability(line, [0])), bool(separability(line, [1])), separability(line, [1]).ray.tolist()
    (True, False, [[0.5, 0.0, 0.5]])
    """
    solution = solve_or_retry(AttentionSVM(data, selected))
    barred = solution.barred
    weights = solution.weights.masked_fill(~solution.separable[..., None, None], torch.nan)
    ray = solution.duals.masked_fill(~barred[..., None, None], 0.0)
    bound = solution.certificate.dual_value.masked_fill(~barred, 0.0).masked_fill(solution.infeasible, torch.inf)
    return Separability(solution.separable, solution.undecided, weights, ray, bound, solution)


def separable_by_dimension(data: TokenDataset) -> Condition:
    """Whether the dimensions alone make every selection of almost every such data set separable [TaSVM, separability].

    Sufficient: ``d >= T - 1 and dq >= n`` (cross-attention; for self-attention, where dq = d, this is
    ``d >= max(T - 1, n)``), or ``d >= n (T - 1)`` (prompts, dq = 1; with its own tokens for each input it suffices for
    any dq). Ragged inputs count their real tokens, inputs of one token ask for nothing. "Almost every" excludes
    coincidences such as equal tokens, parallel or zero queries; `constructive_weights` checks a given data set.

    Margin: the number of dimensions to spare (negative: lacking) in the clause that comes closest.
    """
    asks = data.real.sum(-1) - 1
    longest, inputs, rows = asks.amax(-1), (asks > 0).sum(-1), asks.sum(-1)
    cross = torch.minimum(data.d - longest, data.dq - inputs)
    # Inputs that share tokens also share rows, which are then no longer independent.
    alone = data.d - rows if data.queries_per_sequence == 1 else torch.full_like(rows, -(10**9))
    # With dq = 1 the clauses agree where n = 1, and a prompt has no query dimensions to gain.
    spare = alone if data.dq == 1 and data.queries_per_sequence == 1 else torch.maximum(cross, alone)
    spare = spare.masked_fill(inputs == 0, min(data.d, data.dq))
    said = f"d = {data.d}, dq = {data.dq}, n = {data.n}, T = {data.T}: every selection of almost every data set can be"
    said += " separated if d >= T - 1 and dq >= n, or d >= n (T - 1)"
    return Condition("separable by dimension", spare >= 0, spare.double(), said, "[TaSVM, separability]")


def constructive_weights(data: TokenDataset, selected: ArrayLike) -> Float[Tensor, "*batch d dq"]:
    """The weights of the proof of `separable_by_dimension`, every margin exactly 1.

    With ``d >= T - 1`` the rows of an input are independent, so some w_i has ``(x_i,alpha - x_it)^T w_i = 1`` for all
    t; with ``dq >= n`` the queries are, so some W has ``W z_i = w_i``. Otherwise, with ``d >= n (T - 1)``, all rows
    ``(x_i,alpha - x_it) z_i^T`` are independent and one linear system gives W. Both take the solution of least norm.

    NaN for elements whose rows or queries are dependent after all (their margins miss 1 by more than 1e-6), which the
    theorem excludes as a set of measure zero; a `ValueError` if the dimensions of an element do not suffice.

    >>> pair = TokenDataset(torch.tensor([[[2.0], [0.0]]]).double(), torch.ones(1, 1).double(), [1])
    >>> constructive_weights(pair, [0]).item()
    0.5
    """
    condition = separable_by_dimension(data)
    if not bool(condition.holds.all()):
        lacking = int(-condition.margin.min())
        raise ValueError(f"the dimensions do not suffice, {lacking} are lacking: {condition.sentence}")
    problem, pinv = AttentionSVM(data, selected), torch.linalg.pinv
    differences, rows, ones = problem.differences(), problem.rows, problem.rows.double()
    free = rows.any(-1)
    queries = problem.data.queries * free.unsqueeze(-1)  # an input of one token asks for nothing
    weights = (pinv(differences) @ ones.unsqueeze(-1)).squeeze(-1).mT @ pinv(queries).mT
    enough = (data.d >= rows.sum(-1).amax(-1)) & (data.dq >= free.sum(-1))
    if not bool(enough.all()):
        flat, long = differences.flatten(-3, -2), problem.data.queries.repeat_interleave(data.T, -2)
        gram = (flat @ flat.mT) * (long @ long.mT)
        lam = pinv(gram, hermitian=True) @ ones.flatten(-2).unsqueeze(-1)
        jointly = problem.combine(lam.squeeze(-1).reshape(rows.shape))
        weights = torch.where(enough[..., None, None], weights, jointly)
    miss = (problem.margins(weights) - ones).abs().amax((-1, -2))
    return weights.masked_fill(~(miss <= _MISS)[..., None, None], torch.nan)


def rank_bound(data: TokenDataset, selected: ArrayLike | None = None) -> Int[Tensor, "*batch"]:
    """An upper bound on the rank of the Frobenius solution, and of some nuclear solution [TaSVM, rank].

    The row space lies in span{z_i} and the column space in span{x_i,alpha - x_it}: projecting W onto both keeps every
    margin and grows neither norm. So rank W <= min(n, d, dq), and with `selected` the dimensions of the two spans.
    Singular values below 1e-10 of the largest count as zero.
    """
    if selected is None:
        asking = (data.real.sum(-1) > 1).sum(-1)
        return asking.clamp(max=min(data.d, data.dq))
    problem = AttentionSVM(data, selected)
    asking = problem.data.queries * problem.rows.any(-1).unsqueeze(-1)
    spans = problem.differences().flatten(-3, -2), asking
    return torch.minimum(*(torch.linalg.matrix_rank(vectors, rtol=1e-10) for vectors in spans))
