"""Which selections attention can be attracted to: effective scores and local optimality."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import LinearHead, token_scores
from attsvm.attention.prediction_heads import as_head
from attsvm.attention.scores import tie_line
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayOrList, check_kind, check_shape, place
from attsvm.norms import Frobenius, Norm
from attsvm.svm import ActiveSet, AttentionSVM, SVMSolution, solve


def effective_scores(data: TokenDataset, head: object, selected: ArrayOrList) -> Float[Tensor, "*batch n T"]:
    """What each token is worth to a model that has selected alpha: ``u_it = Y_i x_it^T grad h(x_i,alpha_i)``.

    Near the selection the output moves by ``Y_i df_i = sum_t u_it ds_it``, so u plays the part that the scores play for
    a linear head; only differences within an input matter. For a linear head u is `token_scores` itself; for other
    heads the two differ, and not by a constant. In float64; -inf at masked tokens.

    >>> from attsvm import QuadraticHead
    >>> one = TokenDataset(torch.eye(2).double()[None], torch.ones(1, 1).double(), [1])
    >>> effective_scores(one, QuadraticHead(torch.tensor([3.0, 1.0]).double(), 0.5), [0]).tolist()
    [[2.0, 1.0]]
    """
    chosen = AttentionSVM(data, selected).reference  # says what is wrong with the selection
    own = as_head(head, data)
    if isinstance(own, LinearHead):
        return token_scores(data, own).double()
    flat, flat_head = data.flatten(), own.flatten()
    slopes = flat_head.input_gradient(chosen_values(flat, chosen.reshape(-1, data.n)))
    scores = (torch.einsum("bntd,bnd->bnt", flat.input_values, slopes) * flat.labels.unsqueeze(-1)).double()
    return flat.fill_masked(scores, -math.inf).reshape(*data.batch_shape, data.n, data.T)


def chosen_values(data: TokenDataset, chosen: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n dv"]:
    """The value of the chosen token of every input, for data of one batch axis."""
    return data.input_values.take_along_dim(chosen[..., None, None], 2).squeeze(2)


def solve_or_retry(problem: AttentionSVM, norm: Norm | None = None) -> SVMSolution:
    """`solve`, with a second attempt at 1e-8 where Frobenius problems miss its 1e-10, as badly scaled ones do.

    Support is decided at 1e-6, so the second answer is accurate enough for it; its `tolerance` says which it is.
    """
    norm = norm or Frobenius()
    found = solve(problem, norm)
    if isinstance(norm, Frobenius) and bool((~found.solved & ~found.barred).any()):
        found = solve(problem, norm, solver=ActiveSet(accuracy=1e-8))
    return found


@dataclass(frozen=True, eq=False, repr=False)
class LocalOptimality:
    """Whether each selection of a batch is locally optimal, and why not."""

    holds: Bool[Tensor, "*batch"]  #: False where the selection cannot be separated and where that is undecided
    violations: Bool[Tensor, "*batch n T"]  #: support tokens that score at least as high as the selected one
    gap: Float[Tensor, "*batch"]  #: smallest score lead over a support token; inf without one, NaN if not solved
    solution: SVMSolution  #: the `SVMSolution` of the selection

    @property
    def feasible(self) -> Bool[Tensor, "*batch"]:
        """Where weights that separate the selection are in hand."""
        return self.solution.separable

    @property
    def undecided(self) -> Bool[Tensor, "*batch"]:
        """Where the SVM was neither solved, so that its support is not known, nor proved infeasible."""
        return ~self.solution.solved & ~self.solution.infeasible

    @property
    def offenders(self) -> list[tuple[int, ...]]:
        """`violations` as tuples: batch indices, input, token."""
        return [tuple(where) for where in torch.nonzero(self.violations).tolist()]

    def __bool__(self) -> bool:
        if self.holds.ndim:
            raise ValueError("local optimality was checked on a batch of selections; use .holds")
        return bool(self.holds)

    def __repr__(self) -> str:
        return f"LocalOptimality({int(self.holds.sum())} of {self.holds.numel()} locally optimal)"

    def __str__(self) -> str:
        """One sentence for each selection that is not locally optimal, with every offending token."""
        lines = []
        for where in torch.nonzero(~self.holds).tolist():
            at = tuple(where)
            if bool(self.undecided[at]):
                sentence = f"not known: the SVM of the selection is {self.solution[at].sentences}"
            elif not bool(self.feasible[at]):
                sentence = "no weights separate this selection"
            else:
                named = ", ".join(f"input {i} token {t}" for i, t in torch.nonzero(self.violations[at]).tolist())
                sentence = f"support tokens score at least as high as the selected ones: {named}"
            lines.append(f"{place(where, ())}: {sentence}" if where else sentence)
        return "\n".join(lines) or "locally optimal"


def is_locally_optimal(
    data: TokenDataset,
    head: object = None,
    selected: ArrayOrList | None = None,
    norm: Norm | None = None,
    solution: SVMSolution | None = None,
) -> LocalOptimality:
    """Whether every selected token out-scores its support tokens [TaSVM, local convergence].

    With T_i the tokens whose constraint is tight at W_mm(alpha) (margin <= 1 + 1e-6), alpha is locally optimal iff

        u_i,alpha_i > u_it   for every t in T_i and every input i,

    u the `effective_scores` at alpha (the token scores for a linear head). Tokens outside T_i may score higher. Ties
    count as violations; a selection that no weights separate is not locally optimal. Where the solution is not unique
    (nuclear and the like) T_i belongs to the solution that comes back.

    `solution` is that of ``AttentionSVM(data, selected)``, in its own norm, if at hand.

    >>> from attsvm.data import example
    >>> bool(is_locally_optimal(example("single-input-local"), selected=[1]))
    True
    >>> is_locally_optimal(example("single-input-global"), selected=[1]).offenders
    [(0, 2)]
    """
    if selected is None:
        raise ValueError("selected must hold one token index per input; got None")
    problem = AttentionSVM(data, selected)
    scores = effective_scores(data, head, selected)
    check_kind(solution, SVMSolution | None, "solution", "an SVMSolution or None")
    if solution is None:
        solution = solve_or_retry(problem, norm)
    check_shape(solution.support, "solution.support", tuple(problem.rows.shape), "batch, n, T")
    if norm is not None and norm != solution.norm:
        raise ValueError(f"solution is in the {solution.norm.name} norm; leave norm out, or ask for that one")
    own = torch.isclose(problem.margins(solution.weights), solution.margins, rtol=1e-6, atol=1e-6).all(-1).all(-1)
    if bool((solution.solved & ~own).any()):
        raise ValueError("solution must be that of AttentionSVM(data, selected); its margins are another's")
    own = scores.gather(-1, problem.reference.unsqueeze(-1)).squeeze(-1)
    support = solution.support & solution.solved[..., None, None]
    line = tie_line(data, scores, as_head(head, data))
    violations = support & (scores >= (own - line).unsqueeze(-1))
    lead = (own.unsqueeze(-1) - scores).masked_fill(~support, math.inf)
    gap = lead.amin((-1, -2)).masked_fill(~solution.solved, math.nan)
    return LocalOptimality(solution.solved & ~violations.any(-1).any(-1), violations, gap, solution)
