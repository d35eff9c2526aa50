"""How fast logits grow: the law of the gap, its plateau under weight decay, and bounds that hold for every run.

Normalized steps of sizes eta_t, decayed by lambda, reach no farther than

    r(t+1) = (1 - eta_t lambda) r(t) + eta_t,    r(0) = 0,    so r = sum of step sizes without decay, r -> 1/lambda with

in the norm of the steps. The gap is the least margin of the selected tokens; gamma is the largest one of weights of
norm one, a certified number of `solve`:

    on W: gap = gamma r (1 + o(1))       on (K, Q): gap = c gamma r^2 (1 + o(1))

c = 1 where K and Q are normalized each, 1/2 where jointly, and rank times that for steps that normalize entries or
columns. That the gap follows is derived, and only where a step changes the logits little (`stride`); that it never
lies above, with the norms of the start added to r, is elementary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm import descent
from attsvm.attention import KeyQuery, Parameterization, Weights, logits, optimal_tokens
from attsvm.data import Seed, TokenDataset
from attsvm.data.checks import ArrayLike, check_count, check_kind, check_positive, check_shape
from attsvm.descent import NormalizedGradientDescent, Optimizer, Run, SteepestDescent
from attsvm.descent.fingerprint import data_digest, same_digest, setting_object, start_digest
from attsvm.descent.initial import Initial
from attsvm.norms import Gamma2, LargestColumn, MaxEntry, Norm, Projective
from attsvm.svm import AttentionSVM, SVMSolution, solve
from attsvm.theory.diagnosis.implicit_bias import implicit_bias
from attsvm.theory.diagnosis.tables import median

_FARTHEST = 10**8  # steps up to which a passing of the threshold is looked for
_LITTLE = 1.0  # changes of a logit in one step beyond which the gap was seen to stay far below the law


@dataclass(frozen=True, eq=False)
class Growth:
    """Predicted gap and logits of a run; ``*lead`` is ``[times, *batch]``, NaN where the SVM has no solution."""

    training: str  #: the optimizer and what it trains, as they print themselves
    step: Int[Tensor, "times"]  #: number of steps taken
    reach: Float[Tensor, "times"]  #: r
    stride: Float[Tensor, "*lead"]  #: how much a step can change a logit there; the law needs it small
    gap: Float[Tensor, "*lead"]  #: the law
    #: no run from this start has a larger gap; NaN where the start or the length of steps is not known
    gap_bound: Float[Tensor, "*lead"]
    #: of the largest |logit|: the law times that of the max-margin solution, or of the direction of a given run
    logit: Float[Tensor, "*lead"]
    logit_bound: Float[Tensor, "*lead"]  #: no run from this start has a larger |logit|; NaN as `gap_bound`
    plateau: Float[Tensor, "*batch"]  #: the law at r = 1/weight_decay, a bound in the long run; inf without decay
    logit_plateau: Float[Tensor, "*batch"]  #: the bound on every |logit| in the long run
    passes: Float[Tensor, "*batch"] | None  #: first step past the threshold by the law; inf if never, None without one
    determined: Bool[Tensor, "*batch"]  #: the direction is that of the only solution, or of a run
    constant: float  #: c
    power: int  #: 1 for W, 2 for (K, Q)
    solution: SVMSolution  #: SVM of the selection, in the norm that belongs to the training

    @property
    def sentence(self) -> str:
        """What to expect, in a sentence; over several data sets medians, and the largest of the bounds."""
        if not bool((self.solution.solved & (self.solution.certificate.primal_value > 0)).any()):
            empty = bool(self.solution.solved.all())
            why = "every input has one token" if empty else "the selected tokens have no certified max-margin solution"
            return f"Nothing is predicted: {why}."
        law = f"{'' if self.constant == 1 else f'{self.constant:g} '}gamma r{'^2' if self.power == 2 else ''}"
        said = f"After {int(self.step[-1]):,} steps the gap should be near {median(self.gap[-1], 4)} and the largest"
        said += f" logit near {median(self.logit[-1], 4)} ({law}, {self.solution.norm.name} norm; derived, not proved)"
        bounds = (self.logit_bound[-1], self.plateau, self.logit_plateau)
        bound, plateau, logit_plateau = (float(each.masked_fill(each.isnan(), -1.0).max()) for each in bounds)
        said += f"; no logit can be above {bound:.4g}" if bound >= 0 else ""
        if 0 <= plateau < math.inf:
            said += f"; weight decay ends the gap's growth below {plateau:.4g}"
            said += f" and that of every logit at {logit_plateau:.4g}" if logit_plateau >= 0 else ""
        if self.passes is not None:
            passed = torch.isfinite(self.passes)
            said += f"; by the law the threshold is passed on {int(passed.sum())} of {passed.numel()} data sets"
            said += f", near step {median(self.passes, 4)}" if bool(passed.any()) else ""
        if float(self.stride[-1].nan_to_num().max()) > _LITTLE:
            said += f"; steps that change logits by {median(self.stride[-1], 4)} are long: the gap may stay far below"
        return f"{said}."


@dataclass(frozen=True, eq=False)
class GrowthCheck:
    """A run held against the law; ``*lead`` is ``[times, *batch]``."""

    predicted: Growth  #: the law at the recorded steps
    gap: Float[Tensor, "*lead"]  #: measured
    logit: Float[Tensor, "*lead"]  #: the largest |logit|, measured
    tolerance: float  #: relative

    @property
    def ratio(self) -> Float[Tensor, "*lead"]:
        """Measured gap over the law."""
        return self.gap / self.predicted.gap

    @property
    def holds(self) -> Bool[Tensor, "*batch"]:
        """Whether the gap stays within the tolerance of the law from a tenth of the last step on."""
        late = 10 * self.predicted.step >= self.predicted.step[-1]
        return ((self.ratio[late] - 1).abs() <= self.tolerance).all(0)

    @property
    def within_bounds(self) -> Bool[Tensor, "*batch"]:
        """Whether gap and logits stay below their bounds, mere triangle inequalities; True where none is known."""
        gap, logit = (bound * (1 + 1e-6) for bound in (self.predicted.gap_bound, self.predicted.logit_bound))
        return ~((self.gap > gap) | (self.logit > logit)).any(0)

    @property
    def sentence(self) -> str:
        """One sentence for all data sets."""
        said = f"Over the last decade of {int(self.predicted.step[-1]):,} steps the gap stays within"
        said += f" {100 * self.tolerance:g} % of the law on {int(self.holds.sum())} of {self.holds.numel()} data sets"
        said += f" (in the end {median(self.ratio[-1], 4)} of it)"
        return f"{said}, and within its bounds on {int(self.within_bounds.sum())}."


def growth(
    data: TokenDataset,
    run: Run | None = None,
    *,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    selected: ArrayLike | None = None,
    steps: int | Sequence[int] | None = None,
    threshold: float | None = None,
    seed: Seed = 0,
    initial: Initial = None,
) -> Growth:
    """Predict gap and largest logit of a run against its steps.

    Arguments:
        run: of one start on these data, whose optimizer, parameterization, selection and steps are taken unless given.
        parameterization, optimizer, seed, initial: as for `fit`.
        selected: tokens ``[*batch, n]``; those of the run, or the optimal ones.
        steps: how many, or at which; those recorded, or 10,000.
        threshold: of the largest |logit|, such as the tau of QK-clip; the optimizer's own `clip` by default.

    A `ValueError` for optimizers whose steps are not normalized, or of which no norm is known.

    >>> tokens = torch.tensor([[[1.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)
    >>> data = TokenDataset(tokens, torch.ones(1, 1).double(), [1], head=tokens[0, 0])
    >>> found = growth(data, optimizer=NormalizedGradientDescent(0.5), steps=[100], threshold=25.0)
    >>> [round(float(each), 6) for each in (found.gap, found.passes)]  # the gap of W = (S, 0) is S
    [50.0, 50.0]
    """
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    check_kind(run, Run | None, "run", "a Run or None")
    kind, rule = parameterization, optimizer
    if run is not None:
        check_shape(run.selected, "run.selected", (*data.batch_shape, data.n), "batch, n: the run's data, one start")
        said, digest = run.configuration, data_digest(data)
        if not same_digest(said.get("fingerprint", {}).get("data", digest), digest):
            raise ValueError("the run was trained on other data of the same shape")
        kind = kind or setting_object(said["parameterization"], Parameterization, "parameterization=")  # type: ignore[type-abstract]
        rule = rule or setting_object(said["optimizer"], Optimizer, "optimizer=")  # type: ignore[type-abstract]
        seed, selected = [tuple(each) for each in said["seed"]], run.selected if selected is None else selected
    kind, rule = kind or Weights(), rule or NormalizedGradientDescent(0.1)
    norm, columns, joint, bounded = _law(kind, rule, data)
    constant, power = columns / 2 if joint else columns, 1 if isinstance(kind, Weights) else 2
    times = _times(steps, run)
    threshold = rule.clip if threshold is None else threshold
    if threshold is not None:
        check_positive(threshold, "threshold")
    problem = AttentionSVM(data, optimal_tokens(data) if selected is None else selected)
    solution = solve(problem, norm)
    value = solution.certificate.primal_value.masked_fill(~solution.solved, torch.nan)
    double = data.to(dtype=torch.float64)
    direction = solution.weights if run is None else run.weights.to(device=data.device, dtype=torch.float64)
    ratio = _largest(double, direction) / problem.smallest_ratio(problem.margins(direction))
    ratio = torch.where(ratio > 0, ratio, torch.nan)

    def law(reach: Tensor) -> Tensor:
        return constant * (_beside(reach, value) ** power) / value

    decay, sizes = rule.weight_decay, rule.schedule.sizes(0, int(times[-1]))
    along = (_reach(sizes, decay), np.append(sizes, sizes[-1:]))
    reach, step = (torch.from_numpy(each[times.numpy()]).to(data.device) for each in along)
    dual = _largest_dual(double, norm)
    start = descent.initial_parameters(data, kind, seed, initial=initial)
    size = torch.full_like(law(reach), torch.nan)
    flat = {name: each.reshape(1, -1, *each.shape[-2:]) for name, each in start.items()}
    if bounded and (run is None or run.configuration.get("fingerprint", {}).get("start") == start_digest(flat)):
        size = columns * _held(start, rule, joint, reach)
    limit = torch.full_like(value, math.inf) if decay == 0 else law(torch.tensor([1 / decay]).double())[0]
    return Growth(
        training=f"{rule!r} on {kind!r}", step=times, reach=reach,
        stride=constant * power * _beside(reach ** (power - 1) * step, value) * dual,
        gap=law(reach), gap_bound=size / solution.certificate.dual_value.masked_fill(~solution.solved, torch.nan),
        logit=law(reach) * ratio, logit_bound=size * dual, plateau=limit,
        logit_plateau=(constant / decay**power if decay else math.inf) * dual * (1.0 if bounded else math.nan),
        passes=None if threshold is None else _passes(rule, threshold / (ratio * constant / value), power),
        determined=solution.unique | (run is not None), constant=constant, power=power, solution=solution,
    )  # fmt: skip


def verify_growth(
    data: TokenDataset,
    run: Run,
    *,
    tolerance: float = 0.05,
    optimizer: Optimizer | None = None,
    initial: Initial = None,
) -> GrowthCheck:
    """Hold the gap and the largest logit of a run, at every recorded step but 0, against the law and its bounds.

    The run must have recorded weights; `tolerance` is relative, `optimizer` says whose law it is (the run's own by
    default), and `initial` where the run began, if `fit` was given it: only the bounds need it.
    """
    check_kind(run, Run, "run", "a Run")
    check_positive(tolerance, "tolerance")
    history = run.history
    if history.weights is None or int(history.step[-1]) == 0:
        raise ValueError("verify_growth needs recorded weights of at least one step; pass keep=('weights',) to fit")
    later = history.step > 0
    predicted = growth(data, run, optimizer=optimizer, steps=history.step[later].tolist(), initial=initial)
    problem, double = AttentionSVM(data, run.selected.to(data.device)), data.to(dtype=torch.float64)
    walked = history.weights[later.to(history.weights.device)].to(device=data.device, dtype=torch.float64)
    gap = problem.smallest_ratio(problem.margins(walked))
    return GrowthCheck(predicted, gap, _largest(double, walked), tolerance)


def _law(kind: Parameterization, rule: Optimizer, data: TokenDataset) -> tuple[Norm, float, bool, bool]:
    """The norm; how many columns add up; whether K and Q share a length; whether steps have length at most one."""
    if not isinstance(rule, (NormalizedGradientDescent, SteepestDescent, descent.NormalizedMirrorDescent)):
        known = "normalized gradient, sign, Muon and other steepest descent have one"
        raise ValueError(f"the law of growth is one of normalized steps, and {rule!r} takes others; {known}")
    norm = implicit_bias(kind, replace(rule, weight_decay=0.0, clip=None)).norm
    decaying_mirror = isinstance(rule, descent.NormalizedMirrorDescent) and rule.weight_decay > 0
    bounded = not isinstance(rule, descent.NewtonSchulzDescent) and not decaying_mirror
    columns, joint = 1.0, False
    if isinstance(kind, KeyQuery):
        joint = isinstance(rule, descent.JointSteepestDescent)
        if isinstance(rule, SteepestDescent) and isinstance(rule.norm, (MaxEntry, LargestColumn)):
            columns = float(kind.rank or data.d)
    return norm, columns, joint, bounded


def _times(steps: int | Sequence[int] | None, run: Run | None) -> Tensor:
    if steps is None:
        steps = 10_000 if run is None else run.step
    if isinstance(steps, int):
        last = check_count(steps, "steps", 1)
        return torch.unique(torch.from_numpy(np.geomspace(1, last, 50).round().astype(np.int64)))
    given = sorted({check_count(each, "steps", 1) for each in steps})
    if not given:
        raise ValueError("steps must name at least one step")
    return torch.tensor(given)


def _reach(sizes: np.ndarray, decay: float) -> np.ndarray:
    """r before the first step and after each: 1 / decay - r shrinks by 1 - eta decay."""
    if decay == 0:
        return np.concatenate([[0.0], np.cumsum(sizes)])
    if sizes.max(initial=0.0) * decay >= 1:
        raise ValueError(f"step sizes must stay below 1 / weight_decay = {1 / decay:g}; the largest is {sizes.max():g}")
    return np.concatenate([[0.0], -np.expm1(np.cumsum(np.log1p(-decay * sizes))) / decay])


def _passes(rule: Optimizer, wanted: Tensor, power: int) -> Tensor:
    """The first step after which r^power is at least `wanted`; infinity where it never is."""
    goal = wanted.cpu().numpy().reshape(-1) ** (1 / power)
    found, count = np.full(goal.shape, np.inf), 10_000
    found[np.isnan(goal)] = np.nan
    while count <= _FARTHEST:
        reach = _reach(rule.schedule.sizes(0, count), rule.weight_decay)
        passed = goal <= reach[-1]
        found[passed] = np.searchsorted(reach, goal[passed])
        if bool((passed | np.isnan(goal)).all()) or rule.weight_decay * reach[-1] > 1 - 1e-12:
            break
        count *= 10
    return torch.from_numpy(found).to(wanted).reshape(wanted.shape)


def _held(start: dict[str, Tensor], rule: Optimizer, joint: bool, reach: Tensor) -> Tensor:
    """A bound on N(K) N(Q), or N(W), where r is `reach`: the start, decayed, and r."""
    norm = implicit_bias(Weights(), replace(rule, weight_decay=0.0, clip=None)).norm
    sizes = [norm.value(value.to(torch.float64)) for value in start.values()]

    def grown(size: Tensor) -> Tensor:
        return _beside(1 - rule.weight_decay * reach, size) * size + _beside(reach, size)

    if joint:
        return grown((sizes[0] ** 2 + sizes[1] ** 2).sqrt()) ** 2 / 2
    return torch.stack([grown(size) for size in sizes]).prod(0)


def _beside(values: Tensor, batch: Tensor) -> Tensor:
    """``[times]`` shaped to go with ``[*batch]``."""
    return values.reshape(-1, *[1] * batch.ndim)


def _largest_dual(data: TokenDataset, norm: Norm) -> Tensor:
    """max N°(x z^T) over tokens and their queries ``[*batch]``: no logit is larger at norm one."""
    order = 1 if isinstance(norm, (Projective, Gamma2)) else 2
    if order == 1 or norm.unitarily_invariant:
        tokens = data.fill_masked(torch.linalg.vector_norm(data.input_tokens, order, dim=-1), 0.0).amax(-1)
        return (tokens * torch.linalg.vector_norm(data.queries, order, dim=-1)).amax(-1)
    outer = data.input_tokens[..., :, None] * data.queries[..., None, None, :]
    return data.fill_masked(norm.dual_value(outer), 0.0).amax((-1, -2))


def _largest(data: TokenDataset, weights: Tensor) -> Tensor:
    """The largest |logit| ``[*batch]``."""
    return data.fill_masked(logits(data, weights), 0.0).abs().amax((-1, -2))
