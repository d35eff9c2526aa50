"""What is known of a training on next-token data before it runs, the training itself, and whether it came true."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attsvm.attention import Log, Loss, Parameterization, TwoScales, Weights
from attsvm.attention.linear_maps import SharedPairs
from attsvm.attention.losses import as_loss
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_shape
from attsvm.data.dataset import together
from attsvm.descent import Constant, GradientDescent, Optimizer, Run, TwoPartDescent, fit
from attsvm.descent.fingerprint import data_digest, same_digest
from attsvm.next_token.data import NextTokenData
from attsvm.next_token.graph import PriorityGraph, priority_graph
from attsvm.next_token.limit import SOURCE, LimitPrediction, predict_limit
from attsvm.norms import Frobenius, direction_cosine
from attsvm.svm.solvers.base import ProgressReport, Solver
from attsvm.sweep.manifest import to_plain
from attsvm.theory.diagnosis.implicit_bias import Standing, implicit_bias
from attsvm.theory.diagnosis.tables import printed, table
from attsvm.theory.diagnosis.theorems import CONSTANT, PLAIN, constant_steps, everywhere

COSINE = 0.999  # what the cosine outside S_fin must reach for a prediction to hold
DISTANCE = 1e-6  # how far Pi_fin W may be from W_fin, as a share of 1 + ||W_fin||, for a prediction to hold


def diagnose(
    data: NextTokenData | PriorityGraph,
    parameterization: Parameterization | None = None,
    optimizer: Optimizer | None = None,
    *,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    solver: Solver | None = None,
    progress: ProgressReport = None,
) -> LimitPrediction:
    """Which conditions of the theorem hold, how well the limit is founded, and what it is.

    As `attsvm.diagnose` for other data. The limit is "proved" where every condition, those on the training included,
    was checked on this input and holds.

    Arguments:
        parameterization: `Weights()` (default), `TwoScales`, or `KeyQuery()`, which belongs to the nuclear norm.
        optimizer: by default gradient descent with steps of 1/L, L = max ||x||^2 ||z||^2, a bound on the curvature.
        solver, progress: as in `predict_limit`.

    A `ValueError` if nothing is known about this way of training, such as another loss than `attention.Log()`.

    >>> import numpy as np
    >>> from attsvm.next_token import from_ids
    >>> found = diagnose(from_ids([[0, 1, 2], [0, 2]], [0, 0], np.eye(3)))
    >>> found.standing.value, found.verdict
    ('proved', 'W tends to W_fin + C W_svm with W_fin = 0, ||W_svm|| = 0.8165 and C growing')
    """
    own = as_loss(loss or Log())
    if not isinstance(own, Log):
        raise ValueError(f"loss must be the log loss, attention.Log(), of which alone a limit is known; got {own!r}")
    graph = data if isinstance(data, PriorityGraph) else priority_graph(data)
    kind, largest = parameterization or Weights(), 1 / curvature(graph.data)
    steps = optimizer or GradientDescent(largest)
    trains_weights = isinstance(kind, (Weights, TwoScales))  # TwoScales is W in two parts
    two_parts = isinstance(steps, TwoPartDescent)
    norm = Frobenius() if two_parts else implicit_bias(Weights() if trains_weights else kind, steps).norm
    limit = predict_limit(graph, norm, solver=solver, progress=progress)
    whole, schedule = graph.problem.data, steps.schedule
    size = float(schedule.size) if isinstance(schedule, Constant) else math.nan
    short = None if math.isnan(size) else size <= largest
    trained = (
        everywhere(whole, "log loss", True, "the loss must be the log of the attention on the label", SOURCE),
        everywhere(whole, "W is trained", trains_weights, "W itself must be trained", SOURCE),
        everywhere(whole, "plain gradient descent", isinstance(steps, GradientDescent), PLAIN, SOURCE),
        everywhere(whole, "constant steps", constant_steps(steps), CONSTANT, SOURCE),
        everywhere(whole, "steps at most 1/L", short, "no step size may exceed 1 / L", SOURCE, largest - size),
    )
    standing = limit.standing
    if standing is Standing.PROVED and not all(bool(one.proved) for one in trained):
        standing = Standing.CONJECTURED
    return replace(limit, conditions=limit.conditions + trained, standing=standing)


def curvature(data: NextTokenData) -> float:
    """L = max ||x||^2 ||z||^2: the log loss is convex, and nowhere curved more."""
    return float(data.embeddings.square().sum(1).max()) ** 2


def train(
    limit: LimitPrediction | Sequence[LimitPrediction],
    steps: int = 2000,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Run:
    """Train W on the data of a prediction with the log loss, by `fit`.

    Where the Graph-SVM has a solution, finite and growing part have their own gradient, scale and steps (`TwoScales`,
    `TwoPartDescent`): the sets that keep probability are known. Where relations clash they are not, and plain gradient
    descent runs.

    Several limits, of data of one size without clashes, are trained at once as a batch. `options` are further arguments
    of `fit`, which replace those chosen here, such as ``optimizer=``.
    """
    kind: TwoScales | None = None
    if not isinstance(limit, LimitPrediction):
        several, (data, kept, pairs) = limit, _together(limit)
        kind = TwoScales(data, kept, pairs)
    else:
        several, data = [limit], limit.data.dataset
        if limit.finite is not None:
            kind = TwoScales(data, limit.graph.kept, limit.data.pairs, limit.finite.space)
    size = max(curvature(one.data) for one in several)
    chosen: dict[str, Any] = {
        "parameterization": kind, "record": [steps], "keep": ("risk", "norm"),
        "optimizer": GradientDescent(1 / size) if kind is None else TwoPartDescent(0.25 / size, 1 / size),
    }  # fmt: skip
    return fit(data, loss=Log(), steps=steps, seed=seed, progress=progress, **{**chosen, **options})


def _together(limits: Sequence[LimitPrediction]) -> tuple[TokenDataset, Tensor, SharedPairs]:
    """Data, kept sets and pairs of several predictions as a batch."""
    each = [one.data for one in limits]
    one_size = len({(*one.ids.shape, one.K, one.d) for one in each}) == 1 and all(bool(one.mask.all()) for one in each)
    if not one_size or any(one.finite is None for one in limits):
        raise ValueError("several limits are trained at once only if all have a solution and their data one size")
    pairs = SharedPairs(torch.cat([one.pairs.embeddings for one in each]), torch.cat([one.pairs.pair for one in each]))
    return together([one.dataset for one in each]), torch.stack([one.graph.kept for one in limits]), pairs


def respond(data: NextTokenData, weights: ArrayLike, context: str | Sequence[str] | Sequence[int]) -> dict[str, float]:
    """What a layer with these weights attends to in a context: each different token with its share, largest first."""
    matrix = as_floating(weights, "weights").to(torch.float64)
    check_shape(matrix, "weights", (data.d, data.d), "d, d")
    given = data.encode(context)
    shares = torch.softmax(data.embeddings[given] @ (matrix @ data.embeddings[given[-1]]), 0)
    total: dict[str, float] = {}
    for token, share in zip(given, shares.tolist(), strict=True):
        total[data.words[token]] = total.get(data.words[token], 0.0) + share
    return dict(sorted(total.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Comparison:
    """Trained weights beside the predicted limit."""

    cosine: float  #: of W and W_svm outside S_fin; NaN where W_svm = 0
    finite_distance: float  #: ||Pi_fin W - W_fin||
    finite_norm: float  #: ||W_fin||
    growth: float  #: norm of W outside S_fin over ||W_svm||; infinite where that is 0
    whole_cosine: float  #: of W itself and W_fin + C W_svm, C by least squares

    @property
    def holds(self) -> bool:
        """Whether both parts came true: a cosine of at least 0.999, and Pi_fin W within 1e-6 (1 + ||W_fin||)."""
        return all(holds for *_, holds in self._parts())

    def to_json(self) -> str:
        """The numbers, null where there is none."""
        return json.dumps(to_plain({**vars(self), "holds": self.holds}), indent=1)

    @property
    def sentence(self) -> str:
        """Whether the prediction came true, in one sentence."""
        if self.holds:
            grown = "" if math.isnan(self.cosine) else f", at {self.growth:.3g} times the norm of W_svm"
            return f"The prediction holds in both parts{grown}."
        missed = [name for name, *_, holds in self._parts() if not holds]
        return f"The prediction does not hold yet, or not at all: {' and '.join(missed)} did not come true."

    def _parts(self) -> Iterator[tuple[str, str, str, str, bool]]:
        """What is compared, where, what was measured, what is needed, and whether it holds."""
        if not math.isnan(self.cosine):
            needed, holds = f"at least {COSINE:g}", self.cosine >= COSINE
            yield "direction", "outside S_fin: cosine with W_svm", f"{self.cosine:.6f}", needed, holds
        bound = DISTANCE * (1 + self.finite_norm)
        yield (
            "finite part", "inside S_fin: ||Pi_fin W - W_fin||", f"{self.finite_distance:.2g}", f"at most {bound:.2g}",
            self.finite_distance <= bound,
        )  # fmt: skip

    def __str__(self) -> str:
        columns = ("part", "compared", "measured", "needed", "holds")
        made = table("Predicted against trained", columns, right=("measured", "needed"))
        for *row, holds in self._parts():
            made.add_row(*row, "yes" if holds else "no")
        return f"{printed(made)}\n{self.sentence}"


def verify(limit: LimitPrediction, trained: Run | ArrayLike) -> Comparison:
    """Compare a run on the same data with the log loss, or weights ``[d, d]``, with both parts of the limit."""
    if limit.finite is None:
        raise ValueError(f"there is no limit to compare with: {limit.verdict}")
    if isinstance(trained, Run):
        loss = trained.configuration.get("loss")
        if loss != repr(Log()):
            raise ValueError(f"the prediction is about the log loss, Log(); the run was made with {loss}")
        digest = data_digest(limit.data.dataset)
        if not same_digest(trained.configuration.get("fingerprint", {}).get("data", digest), digest):
            raise ValueError("the run was trained on other data than the prediction is about")
        given: Tensor = trained.weights
    else:
        given = as_floating(trained, "trained").to(torch.float64)
    check_shape(given, "trained", (limit.data.d, limit.data.d), "d, d")
    svm, finite = limit.svm_component, limit.finite_component
    inside = limit.finite.space.project(given[None])[0]
    outside = given - inside
    size, distance, finite_size, grown = (float(each.norm()) for each in (svm, inside - finite, finite, outside))
    scale = float((outside * svm).sum()) / size**2 if size else 0.0
    cosine = float(direction_cosine(outside, svm)) if size else math.nan
    whole = float(direction_cosine(given, finite + scale * svm))
    return Comparison(cosine, distance, finite_size, grown / size if size else math.inf, whole)
