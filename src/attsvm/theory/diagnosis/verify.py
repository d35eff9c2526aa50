"""A run held against its diagnosis: what was predicted, and what was reached."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data.checks import check_positive, check_shape
from attsvm.descent import Run
from attsvm.norms import direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, margin_efficiency, solve
from attsvm.sweep.manifest import to_plain
from attsvm.theory.diagnosis.diagnose import Diagnosis
from attsvm.theory.diagnosis.tables import median, printed, table
from attsvm.theory.optimality import is_locally_optimal


class Outcome(Enum):
    """What came of a prediction; the value is the sentence a person reads."""

    AS_PREDICTED = "reached the predicted selection"
    ANOTHER_LOCAL = "reached another locally optimal selection"
    NOT_LOCAL = "reached a selection that is not locally optimal"
    NOT_SATURATED = "has not saturated: some input still divides its attention"
    NOT_SEPARABLE = "leans to a selection that no weights separate"


OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)


@dataclass(frozen=True, eq=False)
class Verification:
    """A run held against its diagnosis, with one entry per data set.

    Attributes:
        reached: argmax of the final attention ``[*batch, n]``.
        codes: index into `OUTCOMES`.
        saturated: every input gives one token at least the threshold.
        locally_optimal: whether the reached selection attracts.
        cosine: between the run's weights and the max-margin direction of the reached selection, in the norm predicted.
        efficiency: margin of the run's direction over the best one.
        growth: final norm over the norm half-way through the recorded steps.
        solution: SVM of the reached selection.
    """

    reached: Int[Tensor, "*batch n"]
    codes: Int[Tensor, "*batch"]
    saturated: Bool[Tensor, "*batch"]
    locally_optimal: Bool[Tensor, "*batch"]
    cosine: Float[Tensor, "*batch"]
    efficiency: Float[Tensor, "*batch"]
    growth: Float[Tensor, "*batch"]
    solution: SVMSolution

    @property
    def holds(self) -> Bool[Tensor, "*batch"]:
        """Where the predicted selection was reached."""
        return self.codes == OUTCOMES.index(Outcome.AS_PREDICTED)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many runs ended in each way; none is left out."""
        return {outcome: int((self.codes == code).sum()) for code, outcome in enumerate(OUTCOMES)}

    def to_json(self) -> str:
        """The reached selections, how many runs ended in each way, and medians, as JSON."""
        content = {
            "reached": self.reached,
            "outcomes": self.outcomes,
            "median_cosine": self.cosine.nanmedian(),
            "median_efficiency": self.efficiency.nanmedian(),
        }
        return json.dumps(to_plain(content), indent=1, allow_nan=False)

    def __str__(self) -> str:
        numbers = ("runs", "median cosine", "median efficiency", "median growth")
        made = table("Predicted against reached", ("outcome", *numbers), right=numbers)
        codes = self.codes.reshape(-1)
        for code, (outcome, count) in enumerate(self.outcomes.items()):
            if count:
                here = codes == code
                medians = [median(value.reshape(-1)[here], 4) for value in (self.cosine, self.efficiency, self.growth)]
                made.add_row(outcome.value, str(count), *medians)
        return printed(made)


def verify(diagnosis: Diagnosis, run: Run, *, threshold: float = 0.99) -> Verification:
    """Compare a run with what was predicted of it: selection, cosine, norm growth, and a plain verdict.

    Arguments:
        diagnosis: of the data the run was trained on.
        run: with shapes ``[*batch]`` (one start).
        threshold: attention on the winner from which an input counts as saturated.

    Raises:
        ValueError: if the run does not belong to data of this shape.
    """
    if not isinstance(diagnosis, Diagnosis) or not isinstance(run, Run):
        kinds = f"{type(diagnosis).__name__} and {type(run).__name__}"
        raise ValueError(f"verify needs a Diagnosis and a Run, in this order; got {kinds}")
    check_positive(threshold, "threshold")
    data = diagnosis.data
    check_shape(run.selected, "run.selected", (*data.batch_shape, data.n), "batch, n")
    reached = run.selected.to(data.device)
    saturated = (run.attention.amax(-1) >= threshold).all(-1)
    norm = diagnosis.bias.norm
    problem = AttentionSVM(data, reached)
    solution = solve(problem, norm)
    attracts = is_locally_optimal(data, diagnosis.head, reached, solution=solution).holds
    as_predicted = (reached == diagnosis.predicted).all(-1)
    codes = torch.full_like(saturated, 0, dtype=torch.int64)
    codes[~as_predicted] = OUTCOMES.index(Outcome.ANOTHER_LOCAL)
    codes[~as_predicted & ~attracts] = OUTCOMES.index(Outcome.NOT_LOCAL)
    codes[~as_predicted & ~solution.solved] = OUTCOMES.index(Outcome.NOT_SEPARABLE)
    codes[~saturated] = OUTCOMES.index(Outcome.NOT_SATURATED)
    weights = run.weights.to(device=data.device, dtype=torch.float64)
    return Verification(
        reached=reached,
        codes=codes,
        saturated=saturated,
        locally_optimal=attracts,
        cosine=direction_cosine(weights, torch.nan_to_num(solution.weights)).masked_fill(~solution.solved, torch.nan),
        efficiency=margin_efficiency(weights, problem, norm, solution=solution),
        growth=_growth(run),
        solution=solution,
    )


def _growth(run: Run) -> Tensor:
    """Final norm over the norm half-way; NaN where norms were not recorded."""
    norms = run.history.norm
    if norms is None or len(norms) < 2:
        return torch.full_like(run.risk, torch.nan)
    half = int((run.history.step <= run.step / 2).sum()) - 1
    return norms[-1] / norms[max(half, 0)]
