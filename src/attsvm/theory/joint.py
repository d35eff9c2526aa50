"""Joint training of attention and head: the label margin decides which separation attention still has to make."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, check_share
from attsvm.descent import Run
from attsvm.norms import Frobenius, Norm, direction_cosine
from attsvm.svm import AttentionSVM, LabelSVM, SVMSolution, label_svm, solve


@dataclass(frozen=True, eq=False)
class JointPrediction:
    """Where joint training of attention and a linear head should go, for one selection."""

    selected: Int[Tensor, "*batch n"]  #: alpha, the selection
    label: LabelSVM  #: the label SVM of the selected values: v_mm, its support inputs S, its solution
    support_inputs: Bool[Tensor, "*batch n"]  #: S, the inputs whose selected token is tight in the label SVM
    tight: Bool[Tensor, "*batch"]  #: every input supports the label margin; where not, the relaxed problem is predicted
    growth_ratio: Float[Tensor, "*batch"]  #: ||v|| / N(W) in the limit, inf for the theorem's relaxed problem
    problem: AttentionSVM  #: the attention SVM: right-hand side 1 for inputs in S, and between 0 and 1 outside S
    solution: SVMSolution  #: its solution in the norm asked for

    @property
    def weights(self) -> Float[Tensor, "*batch d dq"]:
        """The predicted direction of attention; NaN where there is none."""
        return self.solution.weights

    @property
    def head(self) -> Float[Tensor, "*batch dv"]:
        """v_mm, the predicted direction of the head; NaN where the labels cannot be separated."""
        return self.label.vector

    @property
    def predicted(self) -> Bool[Tensor, "*batch"]:
        """Where both problems are solved, so that there is something to compare a run with."""
        return self.label.solution.solved & self.solution.solved


def joint_prediction(
    data: TokenDataset, selected: ArrayLike, norm: Norm | None = None, *, growth_ratio: ArrayLike | float = math.inf
) -> JointPrediction:
    """The directions to which joint training tends if it selects `selected` [MMTS, joint training].

    With v_mm the label SVM and S its support inputs,

        v_mm = argmin ||v||   s.t.  Y_i v^T x_i,alpha >= 1
        W    = argmin N(W)    s.t.  (x_i,alpha - x_it)^T W z_i >= b_i,   b_i = 1 for i in S,  0 outside S.

    Where every input supports the label margin (tight) this is the SVM of the selection; elsewhere it is the relaxed
    one: the logistic loss of an input outside S vanishes faster than that of S, so its attention need not sharpen.
    Proved for the regularization path of (v, p) if any admixture of other tokens strictly lowers the label margin.

    Descent grows v and W together, and then the relaxation is only partial (derived here, measured in the tests). Row
    (i, t) pulls like ``exp(-N(W) margin_it - ||v|| slack_i / ||v_mm||)``, W of norm 1 in the margins and
    ``slack_i = Y_i v_mm^T x_i,alpha - 1``. With ``rho = ||v|| / N(W)`` the rows that pull equally are the tight rows of

        b_i = max(0, 1 - rho N(W) slack_i / ||v_mm||),

    a fixed point in N(W), found by bisection: the right-hand side falls as N grows, and N with it. rho = inf is the
    theorem, rho = 0 the SVM of the selection. Normalized descent with one step size has rho = 1 for (v, p) and (v, W),
    and 0 for (v, K, Q), whose product grows like the square of the number of steps.

    Arguments:
        norm: of the attention problem: `Frobenius()` (default) for (v, p) and (v, W), `Nuclear()` for (v, K, Q).
        growth_ratio: rho, one number or ``[*batch]``; `growth_ratio` measures it on a run.

    Where the labels of the selected values cannot be separated there is no label margin: the head is NaN, `predicted`
    is False, and the attention problem is the SVM of the selection.

    >>> from attsvm.data import example
    >>> relaxed = joint_prediction(example("joint-training-relaxed"), [1, 1, 1])
    >>> relaxed.support_inputs.tolist(), bool(relaxed.tight)
    ([True, True, False], False)
    >>> [round(x, 6) + 0.0 for x in relaxed.weights.flatten().tolist()], [round(x, 6) for x in relaxed.head.tolist()]
    ([1.0, 0.0], [0.0, 1.0])
    """
    whole = data.to(dtype=torch.float64)
    norm = norm or Frobenius()
    ratio = torch.as_tensor(growth_ratio, dtype=torch.float64, device=data.device)
    if tuple(ratio.shape) not in ((), data.batch_shape) or not bool((ratio >= 0).all()):
        expected = f"one number or {list(data.batch_shape)}, not negative"
        raise ValueError(f"growth_ratio must be {expected}; got {growth_ratio!r}")
    ratio = ratio.expand(data.batch_shape)
    label = label_svm(whole, selected)
    separable = label.solution.solved
    supports = label.support & separable.unsqueeze(-1)
    # Where there is no label margin there is no slack either.
    slack = torch.where(supports | ~separable.unsqueeze(-1), 0.0, label.solution.margins[..., 1] - 1)
    length = torch.linalg.vector_norm(label.vector, dim=-1, keepdim=True).nan_to_num(1.0).clamp(min=1e-300)
    # inf * 0 is NaN: inputs without slack keep the right-hand side 1 whatever the ratio.
    pull = torch.where(slack > 0, ratio.unsqueeze(-1) * slack / length, 0.0)
    problem, solution = _balanced(whole, selected, norm, pull)
    return JointPrediction(problem.reference, label, supports, supports.all(-1), ratio, problem, solution)


def growth_ratio(run: Run, norm: Norm | None = None) -> Float[Tensor, "*lead"]:
    """||v|| / N(W) at the end of a run that trained a linear head; `Frobenius()` by default."""
    _check_trained_head(run)
    size = (norm or Frobenius()).value(run.weights.to(torch.float64))
    return torch.linalg.vector_norm(run.parameters["head"].to(torch.float64), dim=-1) / size


def _balanced(data: TokenDataset, selected: ArrayLike, norm: Norm, pull: Tensor) -> tuple[AttentionSVM, SVMSolution]:
    """The problem with b_i = max(0, 1 - pull_i N(W)) at its own solution's N(W)."""

    def posed(value: Tensor) -> tuple[AttentionSVM, SVMSolution]:
        # An infinite pull asks for nothing (b_i = 0) even at N = 0.
        drop = torch.where(torch.isinf(pull), 1.0, pull.nan_to_num(posinf=0.0) * value.unsqueeze(-1))
        problem = AttentionSVM(data, selected, right_hand_side=(1 - drop).clamp(min=0.0))
        return problem, solve(problem, norm)

    zero = torch.zeros(pull.shape[:-1], dtype=pull.dtype, device=pull.device)
    problem, hardest = posed(zero)
    if not bool(((pull > 0) & torch.isfinite(pull)).any()):
        return problem, hardest
    low, high = zero, norm.value(hardest.weights.nan_to_num(0.0))
    for _ in range(60):
        middle = (low + high) / 2
        _, solution = posed(middle)
        below = middle < norm.value(solution.weights.nan_to_num(0.0))
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        if bool((high - low <= 1e-12 * high).all()):
            break
    return posed(high)


@dataclass(frozen=True, eq=False)
class JointComparison:
    """A run of joint training beside its prediction; ``*lead`` is ``[*starts, *batch]``."""

    same_selection: Bool[Tensor, "*lead"]  #: most probable tokens as predicted, where the right-hand side is positive
    attention_cosine: Float[Tensor, "*lead"]  #: of the run's W and the predicted one; NaN where nothing is predicted
    head_cosine: Float[Tensor, "*lead"]  #: of the run's v and v_mm; NaN where nothing is predicted
    holds: Bool[Tensor, "*lead"]  #: both cosines are at least `threshold`, and the selection is the predicted one
    threshold: float  #: what the cosines were held against

    def __str__(self) -> str:
        said = f"{int(self.holds.sum())} of {self.holds.numel()} runs reach the prediction (cosines of attention and"
        said += f" head at least {self.threshold:g}); {int(self.same_selection.sum())} reach its selection"
        attention, head = (each.nanmedian().item() for each in (self.attention_cosine, self.head_cosine))
        return f"{said}; median cosines: attention {attention:.6f}, head {head:.6f}"


def verify_joint(prediction: JointPrediction, run: Run, threshold: float = 0.99) -> JointComparison:
    """Compare a run of ``fit(..., train_head=True)`` with a prediction: (v, p), (v, W) and (v, K, Q) alike.

    The run has a linear head and may have an axis of starts; `threshold` is the cosine from which both directions count
    as reached.
    """
    check_share(threshold, "threshold")
    _check_trained_head(run)
    expected, came = tuple(prediction.weights.shape), tuple(run.weights.shape)
    inputs = prediction.selected.shape[-1]
    if came[max(len(came) - len(expected), 0) :] != expected or run.attention.shape[-2] != inputs:
        raise ValueError(
            f"run must be of the predicted data, weights {list(expected)} with any axis of starts before and {inputs}"
            f" inputs; got weights {list(came)} and {run.attention.shape[-2]} inputs"
        )
    vector = run.parameters["head"].to(torch.float64).unsqueeze(-1)
    unknown = ~prediction.predicted
    attention = direction_cosine(run.weights.to(torch.float64), prediction.weights).masked_fill(unknown, torch.nan)
    head = direction_cosine(vector, prediction.head.unsqueeze(-1)).masked_fill(unknown, torch.nan)
    free = (prediction.problem.right_hand_side <= 0).all(-1)
    same = ((run.selected == prediction.selected) | free).all(-1) & ~unknown
    holds = same & (attention >= threshold) & (head >= threshold)
    return JointComparison(same, attention, head, holds, threshold)


def _check_trained_head(run: Run) -> None:
    if "head" not in run.parameters or run.configuration.get("head") != "LinearHead":
        raise ValueError(
            "run must have trained a linear head, fit(data, v, train_head=True);"
            f" its trained parameters are {', '.join(run.parameters)}, its head a {run.configuration.get('head')}"
        )
