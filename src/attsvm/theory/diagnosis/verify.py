"""A run held against its diagnosis, part by part: the same problem, trained, saturated, selection, direction."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.data.checks import check_positive, check_shape, check_share
from attsvm.descent import Run
from attsvm.descent.fingerprint import data_digest, head_digest, same_setting
from attsvm.norms import Nuclear, direction_cosine
from attsvm.svm import AttentionSVM, SVMSolution, distance_to_solution_set, margin_efficiency, solve
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
    UNDECIDED = "leans to a selection whose max-margin problem was not solved"
    NOT_TRAINED = "has taken no step"
    ANOTHER_PROBLEM = "is a run of another problem than the diagnosed one"


OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)


@dataclass(frozen=True, eq=False)
class Verification:
    """A run held against its diagnosis, with one entry per data set."""

    reached: Int[Tensor, "*batch n"]  #: argmax of the final attention
    codes: Int[Tensor, "*batch"]  #: index into `OUTCOMES`
    same_problem: Bool[Tensor, "*batch"]  #: nothing was found in which the run differs from what was diagnosed
    problem_known: Bool[Tensor, "*batch"]  #: everything could be compared; False for runs saved without a fingerprint
    trained: Bool[Tensor, "*batch"]  #: at least one step was taken
    saturated_at_start: Bool[Tensor, "*batch"]  #: so that training may have changed nothing; False if not recorded
    saturated: Bool[Tensor, "*batch"]  #: every input gives one token at least the threshold
    selection: Bool[Tensor, "*batch"]  #: the reached selection is the predicted one
    locally_optimal: Bool[Tensor, "*batch"]  #: whether the reached selection attracts, in the norm predicted
    direction_holds: Bool[Tensor, "*batch"]  #: efficiency and cosine, or what `verify` asks in its place, suffice
    by_efficiency: Bool[Tensor, "*batch"]  #: where the cosine does not count, since several solutions may exist
    still_improving: Bool[Tensor, "*batch"]  #: a remark: margin efficiency grew over the second half of the records
    cosine: Float[Tensor, "*batch"]  #: of the run's weights and the max-margin solution of the reached selection
    #: from W / N(W) to the set of nuclear-norm solutions over their norm; NaN where the solution is unique, the norm is
    #: another, or the cosine suffices (it is a conic program for each data set)
    distance: Float[Tensor, "*batch"]
    efficiency: Float[Tensor, "*batch"]  #: margin of the run's direction over the best one
    growth: Float[Tensor, "*batch"]  #: final norm over the norm half-way through the recorded steps
    solution: SVMSolution  #: SVM of the reached selection
    differences: tuple[str, ...]  #: in what the run differs from the diagnosis, in words
    unknown: tuple[str, ...]  #: what could not be compared
    thresholds: dict[str, float]  #: of attention, cosine, distance and efficiency, by name

    @property
    def holds(self) -> Bool[Tensor, "*batch"]:
        """Where a trained run of the same problem saturated on the predicted selection and that is locally optimal.

        What could not be compared (`unknown`) does not count against it; the sentence says it.
        """
        return self.same_problem & self.trained & self.saturated & self.selection & self.locally_optimal

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many runs ended in each way; none is left out."""
        return {outcome: int((self.codes == code).sum()) for code, outcome in enumerate(OUTCOMES)}

    @property
    def sentences(self) -> tuple[str, ...]:
        """One sentence for each data set, in row-major order."""
        return tuple(self._sentence(element) for element in range(self.codes.numel()))

    @property
    def sentence(self) -> str:
        """One sentence for all of them."""
        total = self.codes.numel()
        if total == 1:
            return self._sentence(0)
        said = f"{int(self.holds.sum())} of {total} runs went as predicted, and {int(self.direction_holds.sum())} of"
        said += f" {total} are within the thresholds of the max-margin direction"
        said += f"; the run is of another problem: {', '.join(self.differences)}" if self.differences else ""
        return said + self._rest

    @property
    def _rest(self) -> str:
        return f"; not known to be the same: {', '.join(self.unknown)}." if self.unknown else "."

    def _sentence(self, element: int) -> str:
        def at(value: Tensor) -> float:
            return float(value.reshape(-1)[element])

        said = f"The run {OUTCOMES[int(at(self.codes))].value}"
        said += f" ({', '.join(self.differences)})" if self.differences else ""
        said += "; its start was saturated already" if at(self.saturated_at_start) and at(self.trained) else ""
        if not math.isnan(at(self.efficiency)):
            near = "within" if at(self.direction_holds) else "not within"
            said += f"; margin efficiency {at(self.efficiency):.4g} and cosine {at(self.cosine):.4g}, {near} their"
            said += " thresholds"
            said += " (efficiency alone decides: there may be several solutions)" if at(self.by_efficiency) else ""
            said += ", still improving" if at(self.still_improving) else ""
        return said + self._rest

    def to_json(self) -> str:
        """Every part, the reached selections, how many runs ended in each way, and medians, as JSON."""
        content = {
            "reached": self.reached, "outcomes": self.outcomes,
            "parts": {name: value for name, value, _ in self._parts()}, "holds": self.holds,
            "thresholds": self.thresholds, "differences": self.differences, "unknown": self.unknown,
            "sentence": self.sentence, "median_cosine": self.cosine.nanmedian(),
            "median_efficiency": self.efficiency.nanmedian(),
        }  # fmt: skip
        return json.dumps(to_plain(content), indent=1, allow_nan=False)

    def _parts(self) -> tuple[tuple[str, Tensor, str], ...]:
        limit, other = self.thresholds, [*self.differences, *(f"{name} not known" for name in self.unknown)]
        same = "data, head, parameterization, optimizer, loss and, where given, start"
        near = (
            f"efficiency at least {limit['efficiency']:g}, cosine at least {limit['cosine']:g} (or distance to the"
            f" solutions at most {limit['distance']:.3g}); {int(self.by_efficiency.sum())} by efficiency alone, since"
            f" there may be several solutions; {int(self.still_improving.sum())} still improving"
        )
        return (
            ("same_problem", self.same_problem, ", ".join(other) or same),
            ("trained", self.trained, f"{int(self.saturated_at_start.sum())} began saturated"),
            ("saturated", self.saturated, f"attention of every winner at least {limit['attention']:g}"),
            ("selection", self.selection, "the predicted one"),
            ("locally_optimal", self.locally_optimal, f"in the {self.solution.norm.name} norm"),
            ("direction_holds", self.direction_holds, near),
        )

    def __str__(self) -> str:
        parts = table("Predicted against reached", ("part", "holds", "meaning"), right=("holds",))
        total = self.codes.numel()
        for name, value, meaning in self._parts():
            parts.add_row(name.replace("_", " "), f"{int(value.sum())} of {total}", meaning)
        numbers = ("runs", "median cosine", "median efficiency", "median growth")
        made = table("\nOutcomes", ("outcome", *numbers), right=numbers)
        codes = self.codes.reshape(-1)
        for code, (outcome, count) in enumerate(self.outcomes.items()):
            if count:
                here = codes == code
                medians = [median(value.reshape(-1)[here], 4) for value in (self.cosine, self.efficiency, self.growth)]
                made.add_row(outcome.value, str(count), *medians)
        return f"{printed(parts, made)}\n{self.sentence}"


def verify(
    diagnosis: Diagnosis,
    run: Run,
    *,
    threshold: float = 0.99,
    least_cosine: float = 0.99,
    least_efficiency: float = 0.9,
) -> Verification:
    """Compare a run with what was predicted of it, part by part: see `Verification`.

    Arguments:
        run: of one start, on the data of the diagnosis.
        threshold: attention on the winner from which an input counts as saturated.
        least_cosine: with the max-margin direction from which the direction counts as reached. Where the solution is
            not the only one, the distance to the set of nuclear-norm solutions must be at most
            ``sqrt(2 (1 - least_cosine))``, the distance of two unit vectors of that cosine; in other norms the
            efficiency, 1 exactly on that set, decides alone.
        least_efficiency: share of the largest margin, in the norm predicted, that the direction must have.
    """
    if not isinstance(diagnosis, Diagnosis) or not isinstance(run, Run):
        kinds = f"{type(diagnosis).__name__} and {type(run).__name__}"
        raise ValueError(f"verify needs a Diagnosis and a Run, in this order; got {kinds}")
    check_positive(threshold, "threshold")
    check_share(least_cosine, "least_cosine")
    check_share(least_efficiency, "least_efficiency")
    data, norm = diagnosis.data, diagnosis.bias.norm
    check_shape(run.selected, "run.selected", (*data.batch_shape, data.n), "batch, n")
    differences, unknown = _compared(diagnosis, run)
    reached = run.selected.to(data.device)
    problem = AttentionSVM(data, reached)
    solution = solve(problem, norm)
    weights = run.weights.to(device=data.device, dtype=torch.float64)
    cosine = direction_cosine(weights, torch.nan_to_num(solution.weights)).masked_fill(~solution.solved, torch.nan)
    efficiency = margin_efficiency(weights, problem, norm, solution=solution)
    farthest = math.sqrt(2 * (1 - least_cosine))
    limits = {"attention": threshold, "cosine": least_cosine, "distance": farthest, "efficiency": least_efficiency}
    distance = _distance(weights, problem, solution, cosine < least_cosine)
    several = solution.solved & ~solution.unique & (not isinstance(norm, Nuclear))
    near = torch.where(torch.isnan(distance), (cosine >= least_cosine) | several, distance <= farthest)
    everywhere = torch.ones(data.batch_shape, dtype=torch.bool, device=data.device)

    def saturated(attention: Float[Tensor, "*batch n T"]) -> Bool[Tensor, "*batch"]:
        return (attention.amax(-1) >= threshold).all(-1).to(data.device)

    history, half = run.history, max(int((run.history.step <= run.step / 2).sum()) - 1, 0)
    at_start, improving, growth = ~everywhere, ~everywhere, torch.full_like(run.risk, torch.nan)
    if history.attention is not None and len(history) > 0 and int(history.step[0]) == 0:
        at_start = saturated(history.attention[0])
    if history.weights is not None and len(history.weights) >= 3:
        before = history.weights[half].to(device=data.device, dtype=torch.float64)
        improving = efficiency > margin_efficiency(before, problem, norm, solution=solution) + 1e-6
    if history.norm is not None and len(history.norm) >= 2:
        growth = history.norm[-1] / history.norm[half]
    parts = {
        "same_problem": everywhere & (not differences),
        "problem_known": everywhere & (not unknown),
        "trained": run.steps_taken.to(data.device) > 0,
        "saturated": saturated(run.attention),
        "selection": (reached == diagnosis.predicted).all(-1),
        "locally_optimal": is_locally_optimal(data, diagnosis.head, reached, solution=solution).holds,
    }
    codes = torch.zeros_like(everywhere, dtype=torch.int64)
    for outcome, where in (  # the later lines have the last word
        (Outcome.ANOTHER_LOCAL, ~parts["selection"]),
        (Outcome.NOT_LOCAL, ~parts["locally_optimal"]),
        (Outcome.UNDECIDED, ~solution.solved),
        (Outcome.NOT_SEPARABLE, solution.infeasible),
        (Outcome.NOT_SATURATED, ~parts["saturated"]),
        (Outcome.NOT_TRAINED, ~parts["trained"]),
        (Outcome.ANOTHER_PROBLEM, ~parts["same_problem"]),
    ):
        codes[where] = OUTCOMES.index(outcome)
    return Verification(
        reached=reached, codes=codes, **parts, saturated_at_start=at_start,
        direction_holds=solution.solved & (efficiency >= least_efficiency) & near, by_efficiency=several,
        still_improving=improving, cosine=cosine, distance=distance, efficiency=efficiency, growth=growth,
        solution=solution, differences=differences, unknown=unknown, thresholds=limits,
    )  # fmt: skip


def _compared(diagnosis: Diagnosis, run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """In what a run differs from what was diagnosed, and what it does not say."""
    plain = {name: value for name, value in diagnosis.configuration.items() if name != "start"}
    differences = [
        f"{name} {run.configuration[name]} instead of {value}"
        for name, value in plain.items()
        if name in run.configuration and not same_setting(run.configuration[name], value)
    ]
    unknown = [name for name in plain if name not in run.configuration and name != "ridge"]
    digests = {"data": data_digest(diagnosis.data), "head": head_digest(diagnosis.head)}
    if diagnosis.configuration["start"] is not None:
        digests["start"] = str(diagnosis.configuration["start"])
    stored = run.configuration.get("fingerprint", {})
    differing = [name for name, digest in digests.items() if stored.get(name, digest) != digest]
    differences += ["other data" if name == "data" else f"another {name}" for name in differing]
    return tuple(differences), tuple(unknown + [name for name in digests if name not in stored])


def _distance(weights: Tensor, problem: AttentionSVM, solution: SVMSolution, asked: Tensor) -> Tensor:
    """Distance to the set of nuclear-norm solutions where it is asked for and there may be several; NaN elsewhere."""
    asked = asked & solution.solved & ~solution.unique & (torch.linalg.matrix_norm(weights) > 0)
    found = torch.full_like(solution.certificate.primal_value, torch.nan)
    if isinstance(solution.norm, Nuclear) and bool(asked.any()):
        if asked.ndim == 0:
            return distance_to_solution_set(weights, problem, solution.norm, solution=solution)
        found[asked] = distance_to_solution_set(weights[asked], problem[asked], solution.norm, solution=solution[asked])
    return found
