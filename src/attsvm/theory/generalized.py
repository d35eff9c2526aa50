"""Several tokens kept: the finite and the SVM component of trained weights, and what a quadratic head keeps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import QuadraticHead
from attsvm.attention.linear_maps import folded
from attsvm.data import TokenDataset, checks
from attsvm.data.checks import ArrayLike, as_floating, check_kind, check_shape, check_share, place
from attsvm.data.dataset import repeated
from attsvm.norms import Frobenius, Norm, direction_cosine
from attsvm.norms.sizes import project_onto_simplex
from attsvm.svm import AttentionSVM, SVMSolution, finite_component, solve


@dataclass(frozen=True, eq=False)
class GeneralizedComponents:
    """Trained weights taken apart; ``*lead`` is ``[*starts, *batch]``."""

    selected_set: Bool[Tensor, "*lead n T"]  #: O, the tokens of probability at least the threshold
    ambiguous_tokens: Bool[Tensor, "*lead n T"]  #: between the thresholds: the run has not decided if it keeps them
    finite_solution: SVMSolution  #: W_fin with its status and certificate
    svm_solution: SVMSolution  #: W_svm with its status and certificate
    one_token_solution: SVMSolution  #: the SVM of the most probable token of each input
    keeps_everything: Bool[Tensor, "*lead"]  #: every input keeps all its tokens: nothing is separated, W_svm = 0
    scale: Float[Tensor, "*lead"]  #: C, by least squares; 0 where W_svm = 0
    prediction: Float[Tensor, "*lead d dq"]  #: W_fin + C W_svm
    cosine: Float[Tensor, "*lead"]  #: of the weights and the prediction; NaN where a component does not exist
    svm_cosine: Float[Tensor, "*lead"]  #: of the weights and W_svm alone; NaN where W_svm is 0 or does not exist
    one_token_cosine: Float[Tensor, "*lead"]  #: of the weights and the one-token SVM; NaN if infeasible or without rows

    @property
    def finite_component(self) -> Float[Tensor, "*lead d dq"]:
        """W_fin; NaN where no weights give the selected tokens their probabilities."""
        return self.finite_solution.weights

    @property
    def svm_component(self) -> Float[Tensor, "*lead d dq"]:
        """W_svm; 0 where every token is kept, NaN where the sets cannot be separated."""
        return self.svm_solution.weights

    @property
    def ambiguous(self) -> Bool[Tensor, "*lead"]:
        """Where the selected set is in doubt."""
        return self.ambiguous_tokens.any(-1).any(-1)

    @property
    def accepted(self) -> Bool[Tensor, "*lead"]:
        """What the papers' protocol keeps: no ambiguous token, something dropped, both components solved."""
        solved = self.finite_solution.solved & self.svm_solution.solved
        return ~self.ambiguous & ~self.keeps_everything & solved

    def __str__(self) -> str:
        return (
            f"{self.scale.numel()} runs: {int(self.accepted.sum())} accepted, {int(self.ambiguous.sum())} ambiguous,"
            f" {int(self.keeps_everything.sum())} keep every token (W_svm = 0),"
            f" {int((~self.finite_solution.solved).sum())} without W_fin,"
            f" {int((~self.svm_solution.solved).sum())} without W_svm"
        )


def generalized_components(
    data: TokenDataset,
    attention: ArrayLike,
    weights: ArrayLike,
    threshold: float = 1e-3,
    ambiguous: float = 1e-6,
    norm: Norm | None = None,
    selected_set: ArrayLike | None = None,
) -> GeneralizedComponents:
    """Take trained weights apart into W_fin + C W_svm [TaSVM, generalized SVM], a conjecture of the paper.

    With O_i the tokens that keep probability,

        W_svm = argmin N(W)  s.t. (x_it - x_iu)^T W z_i  = 0  for t, u in O_i,   >= 1 for t in O_i, u outside O_i
        W_fin = argmin N(W)  s.t. (x_it - x_iu)^T W z_i  = log(s_it / s_iu)      for t, u in O_i
        C     = argmin_C ||W - W_fin - C W_svm||_F  =  <W - W_fin, W_svm> / ||W_svm||_F^2.

    For the Frobenius norm <W_fin, W_svm> = 0, so that C = <W, W_svm> / ||W_svm||_F^2; for the nuclear norm it is not.
    An input that keeps all its tokens adds equality rows only. Any head and any parameterization: only the trained
    attention s, ``[*starts, *batch, n, T]``, the trained W, ``[*starts, *batch, d, dq]``, and the tokens are read.

    Arguments:
        threshold: tokens with s >= threshold, at most 1/2, are selected; every input must keep one.
        ambiguous: tokens with s in (ambiguous, threshold] are marked as ambiguous.
        norm: `Frobenius()` (default) for W, `Nuclear()` for (K, Q).
        selected_set: O as a mask ``[*starts, *batch, n, T]``, where something better than a threshold decides, such as
            the trend of the probabilities along the run; nothing is ambiguous then.

    >>> from attsvm.data import TokenDataset
    >>> data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    >>> W = torch.tensor([[10.0], [10.0], [-20.0]]).double()
    >>> parts = generalized_components(data, torch.tensor([[0.5, 0.5, 0.0]]).double(), W)
    >>> [round(x, 6) for x in parts.svm_component.flatten().tolist()], round(float(parts.scale), 6)
    ([0.333333, 0.333333, -0.666667], 30.0)
    """
    check_share(ambiguous, "ambiguous")
    check_share(threshold, "threshold")
    if not 0 < ambiguous <= threshold <= 0.5:
        raise ValueError(f"thresholds must satisfy 0 < ambiguous <= threshold <= 0.5; got {ambiguous} and {threshold}")
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    norm, double = norm or Frobenius(), data.to(dtype=torch.float64)
    probabilities = as_floating(attention, "attention").to(double.tokens)
    matrix = as_floating(weights, "weights").to(double.tokens)
    _, lead = folded(double, probabilities, (data.n, data.T), "attention", "n, T")
    check_shape(matrix, "weights", (*lead, data.d, data.dq), "as attention, then d, dq")
    checks.check_finite(probabilities, "attention", ("input", "token"))
    checks.check_finite(matrix, "weights", ("row", "column"))
    if bool(((probabilities < 0) | (probabilities > 1 + 1e-6)).any()):
        low, high = float(probabilities.min()), float(probabilities.max())
        raise ValueError(f"attention must hold probabilities; got values in {low:g}..{high:g}")
    whole = repeated(double, lead)  # along the axes of starts
    real = whole.real
    kept = (probabilities >= threshold) & real
    doubtful = (probabilities > ambiguous) & (probabilities <= threshold) & real
    asked = f"of probability at least {threshold:g}"
    if selected_set is not None:
        mask = checks.as_mask(selected_set, "selected_set").to(real.device)
        check_shape(mask, "selected_set", tuple(real.shape), "lead, n, T")
        kept, doubtful, asked = mask & real, torch.zeros_like(real), "in selected_set"
    if not bool(kept.any(-1).all()):
        where = torch.nonzero(~kept.any(-1))[0].tolist()
        raise ValueError(f"every input must keep a token {asked}; {where} keeps none")
    finite = finite_component(whole, probabilities, kept, norm)
    # Elements that keep every token have equality rows alone, and the solution 0.
    problem = AttentionSVM(whole, selected_set=kept, rows=real)
    full = ~problem.inequalities.any(-1).any(-1)
    svm = solve(problem, norm)
    single = solve(AttentionSVM(whole, probabilities.masked_fill(~real, -1.0).argmax(-1)), norm)
    size = svm.weights.square().sum((-1, -2))
    scale = ((matrix - finite.weights) * svm.weights).sum((-1, -2)) / torch.where(size == 0, 1.0, size)
    prediction = finite.weights + scale[..., None, None] * svm.weights
    no_rows = (single.weights == 0).all(-1).all(-1)
    return GeneralizedComponents(
        selected_set=kept, ambiguous_tokens=doubtful, finite_solution=finite, svm_solution=svm,
        one_token_solution=single, keeps_everything=full, scale=scale, prediction=prediction,
        cosine=direction_cosine(matrix, prediction),
        svm_cosine=direction_cosine(matrix, svm.weights).masked_fill(size == 0, torch.nan),
        one_token_cosine=direction_cosine(matrix, single.weights).masked_fill(no_rows, torch.nan),
    )  # fmt: skip


_ORTHONORMAL = {torch.float64: 1e-8, torch.float32: 1e-5}


@dataclass(frozen=True, eq=False)
class QuadraticAttention:
    """Optimum attention of a quadratic head."""

    attention: Float[Tensor, "*batch n T"]  #: the optimum s
    selected_set: Bool[Tensor, "*batch n T"]  #: O, the tokens of positive probability
    #: what moving probability to a token costs, ``max_u worth_iu - worth_it`` with ``worth_it = gamma_it - 2 Y_i lambda
    #: s_it``: 0 on O, positive outside unless degenerate
    gaps: Float[Tensor, "*batch n T"]
    #: probability 0 and gap 0: a little costs nothing to first order, and descent separates these at half the rate
    degenerate: Bool[Tensor, "*batch n T"]

    @property
    def count(self) -> Int[Tensor, "*batch n"]:
        """How many tokens each input selects."""
        return self.selected_set.sum(-1)


def quadratic_attention(data: TokenDataset, head: QuadraticHead) -> QuadraticAttention:
    """The attention that minimises the loss of each input under h(x) = v^T x - lambda ||x||^2, tokens orthonormal.

    Derived here from [TaSVM, nonlinear heads]. Orthonormal values make ||X_i^T s||^2 = ||s||^2, so with
    gamma_it = Y_i v^T x_it the margin Y_i h is ``gamma_i^T s - Y_i lambda ||s||^2`` on the simplex, and every
    decreasing loss asks for its maximum:

        Y_i = +1:   s_i = projection of gamma_i / (2 lambda) onto the simplex; more tokens as lambda grows
        Y_i = -1:   the margin is convex in s, so s_i is a corner, the token of largest gamma_it.

    For Y_i = -1 the corner of token t is a local maximum whenever gamma_it + 2 lambda exceeds every other score, so
    descent may end at another corner. lambda = 0 is the linear head, whose optimum is a corner for both labels. Inputs
    need not be separable for this optimum; whether one W reaches it for all inputs at once is the question of W_fin and
    W_svm (`generalized_components`).

    A `ValueError` if the values of an input are not orthonormal (to 1e-8, in float32 to 1e-5), the head is no quadratic
    one or does not fit, or a corner is asked for and two tokens tie.

    >>> data = TokenDataset(torch.eye(3).double()[None], torch.ones(1, 1).double(), [1])
    >>> quadratic_attention(data, QuadraticHead(torch.tensor([0.75, 0.25, -1.0]).double(), 0.5)).attention.tolist()
    [[0.75, 0.25, 0.0]]
    """
    check_kind(head, QuadraticHead, "head", "a QuadraticHead")
    head.check(data)
    whole = data.to(dtype=torch.float64)
    values, real = whole.input_values, whole.real
    tolerance, pairs = _ORTHONORMAL[data.dtype], real.unsqueeze(-1) & real.unsqueeze(-2)
    gram = values @ values.mT
    off = (gram - torch.eye(data.T).to(gram)).abs().masked_fill(~pairs, 0.0)
    if bool((off > tolerance).any()):
        where = torch.nonzero(off > tolerance)[0].tolist()
        raise ValueError(
            f"the values of each input must be orthonormal to {tolerance:g}; <x_t, x_u> is"
            f" {gram[tuple(where)].item():.6g} at {place(where, ('input', 'token', 'token'))}"
        )
    labels, vector = whole.labels.unsqueeze(-1), head.vector.to(torch.float64)
    penalty = head.penalty.to(torch.float64).expand(data.batch_shape)[..., None, None]
    gamma = labels * (values * vector[..., None, None, :]).sum(-1)
    corner = (labels < 0) | (penalty == 0)
    best = gamma.masked_fill(~real, -torch.inf)
    tied = ((best == best.amax(-1, keepdim=True)).sum(-1) > 1) & corner.expand_as(best)[..., 0]
    if bool(tied.any()):
        at = place(torch.nonzero(tied)[0].tolist(), ("input",))
        raise ValueError(f"the optimum is a corner that is not unique: two tokens tie at {at}")
    at_corner = torch.zeros_like(gamma).scatter(-1, best.argmax(-1, keepdim=True), 1.0)
    # A masked token far below every real one keeps probability 0; -inf would make the projection's sums NaN.
    scaled = gamma / torch.where(penalty == 0, 1.0, 2 * penalty)
    low = scaled.masked_fill(~real, torch.inf).amin(-1, keepdim=True)
    projected = project_onto_simplex(torch.where(real, scaled, low - 2), torch.ones_like(scaled[..., 0]))
    attention = torch.where(corner, at_corner, projected).masked_fill(~real, 0.0)
    worth, kept = gamma - 2 * labels * penalty * attention, attention > 0
    top = worth.masked_fill(~kept, -torch.inf).amax(-1, keepdim=True)
    gaps = (top - worth).masked_fill(~real | kept, 0.0)
    size = gamma.abs().masked_fill(~real, 0.0).amax(-1, keepdim=True) + 2 * penalty
    return QuadraticAttention(attention, kept, gaps, real & ~kept & (gaps <= 1e-12 * size))
