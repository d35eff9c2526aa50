"""A study as data: random data sets over a grid of sizes, seeds, heads, trainings and norms, one row for each run."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

import attsvm
from attsvm.attention.gradient import attend
from attsvm.attention.prediction_heads import as_head
from attsvm.cli.common import registry
from attsvm.cli.common.report import number, print_table
from attsvm.data.checks import check_count
from attsvm.svm.solve import choose_solver
from attsvm.sweep import Configuration, Piece, Sweep, SweepResult, Task, chunked

DATA = {
    "sphere": "random_sphere",
    "gaussian": "random_gaussian",
    "orthonormal": "orthonormal_tokens",
    "equal-scores": "equal_scores",
}
_KNOWN = {
    "data": tuple(DATA), "stream": ("numpy", "counter"), "initial": ("zeros", "drawn"),
    "head": ("linear", "relu", "quadratic"), "store": ("", "selected", "weights", "diagnosis"),
}  # fmt: skip
_POSITIVE = ("n", "T", "d", "seeds", "chunk", "steps", "every")
CELL = ("n", "T", "d", "seed", "head", "parameterization", "optimizer")  # what tells the cells of the grid apart
_MOST_CHUNKS = 10**6
_LARGEST_D = 2**17
_APART = 2**32  # the elements of one cell's stream lie so far from those of the next


@dataclass(frozen=True, kw_only=True)
class Grid(Configuration):
    """What `attsvm sweep` computes: every combination of the fields that are tuples, for each of the seeds."""

    n: tuple[int, ...] = (6,)  # inputs
    T: tuple[int, ...] = (8,)  # tokens
    d: tuple[int, ...] = (10,)  # dimensions
    seeds: int = 1  # how many, each a cell of its own
    runs: int = 1000  # data sets in a cell
    chunk: int = 1000  # data sets that are computed and stored together
    data: str = "sphere"  # sphere, gaussian, orthonormal or equal-scores
    stream: str = "numpy"  # draws on the CPU what `random_sphere(..., seed=)` draws; "counter" draws on the device
    head: tuple[str, ...] = ("linear",)  # or relu, with as many hidden units as d, or quadratic
    parameterization: tuple[str, ...] = ("w",)  # this and what follows as `attsvm train` has them; 0 is the default
    rank: int = 0
    optimizer: tuple[str, ...] = ("ngd",)
    step_size: float = 0.0
    loss: str = "logistic"
    initial: str = "zeros"  # or drawn
    steps: int = 2000
    every: int = 50
    saturated: float = 1e-3  # a run stops once every input gives all but this share of its attention to one token
    norm: tuple[str, ...] = ("frobenius",)  # of the SVM of what was reached; the first decides what is locally optimal
    # Any of selected and weights: arrays, one for each size such as selected-n6-T8-d10; and diagnosis: the tables
    # diagnoses and conditions, what `diagnose` says of each run before it is trained.
    store: tuple[str, ...] = ("",)

    runs_field: ClassVar[str | None] = "runs"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in vars(self).items():
            values = given if isinstance(given, tuple) else (given,)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must list every value once; got {list(values)}")
            for value in values:
                if name in _KNOWN and value not in _KNOWN[name]:
                    raise ValueError(f"{name} must be one of {', '.join(filter(None, _KNOWN[name]))}; got {value!r}")
                if name in _POSITIVE and not 0 < value < 2**31:
                    raise ValueError(f"{name} must be positive{' and below 2^31' * (value > 0)}; got {value}")
        if not 0 < self.saturated < 1:
            raise ValueError(f"saturated must lie strictly between 0 and 1; got {self.saturated}")
        if self.seed + self.seeds > 2**63:
            raise ValueError(f"seed must be below 2^63, and so must all seeds from it on; got {self.seed}")
        if max(self.d) > _LARGEST_D:
            raise ValueError(f"d must be at most {_LARGEST_D:,}, since W has d x d entries; got {max(self.d)}")
        check_count(self.rank, "rank", 0)
        if isinstance(registry.loss_named(self.loss), attsvm.attention.Log):
            raise ValueError(f"loss must be defined for margins of either sign, such as logistic; got {self.loss}")
        if self.data == "orthonormal" and max(self.T) > min(self.d):
            raise ValueError(f"T must be at most d for orthonormal tokens; got {max(self.T)} and {min(self.d)}")
        norms = [registry.norm_named(name) for name in self.norm]
        for (name, norm), d in itertools.product(zip(self.norm, norms, strict=True), self.d):
            tiny = attsvm.data.random_sphere(1, 2, d, batch=1, seed=0)
            try:  # a norm may have no solver for matrices of this size
                choose_solver(None, attsvm.AttentionSVM(tiny, [[0]]), norm)
            except ValueError:
                raise ValueError(f"norm must have a solver for every d; {name} has none for d = {d}") from None
        kinds = [self.parameterization_of(kind) for kind in self.parameterization]
        factors = [kind for kind in kinds if isinstance(kind, attsvm.KeyQuery)]
        if factors and self.initial == "zeros":
            raise ValueError('initial must be "drawn" where K and Q are trained: descent never leaves K = Q = 0')
        if self.rank and not factors:
            raise ValueError(f'rank belongs to parameterization "kq"; got {self.rank}')
        for name in self.optimizer:
            rule = registry.OPTIMIZERS.get(name)
            if rule is not None and rule.needs is not None:
                raise ValueError(f"optimizer {name} needs {rule.needs}, which a sweep does not have")
        rules = [self.optimizer_of(name) for name in self.optimizer]
        for made, names in ((norms, self.norm), (kinds, self.parameterization), (rules, self.optimizer)):
            if twice := [name for k, name in enumerate(names) if made[k] in made[:k]]:
                raise ValueError(f"every value must be listed once; {twice[0]} means the same as one before it")
        for kind, (name, rule) in itertools.product(kinds, zip(self.optimizer, rules, strict=True)):
            try:  # refuses those about which nothing is known
                _ = "diagnosis" in self.store and attsvm.theory.implicit_bias(kind, rule)
            except ValueError as error:
                raise ValueError(f'store = "diagnosis" needs a known limit for optimizer {name}: {error}') from None
        chunks = math.prod(len(getattr(self, name)) for name in CELL if name != "seed") * self.seeds
        chunks *= -(-self.runs // self.chunk)
        if chunks > _MOST_CHUNKS:
            raise ValueError(f"runs must make at most {_MOST_CHUNKS:,} chunks, and make {chunks:,}: enlarge chunk")

    def parameterization_of(self, kind: str) -> Any:
        """`Weights()`, or `KeyQuery` of the rank that is asked for."""
        return registry.parameterization_named(kind, (self.rank or None) if kind in ("kq", "key-query") else None)

    def optimizer_of(self, name: str) -> Any:
        """The optimizer of this name with the step size that is asked for."""
        return registry.optimizer_named(name, registry.OptimizerOptions(step_size=self.step_size or None))


def read_grid(path: Path) -> Grid:
    """The grid that a file describes; a ValueError names the line that is wrong."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    kinds = {field.name: str(field.type) for field in dataclasses.fields(Grid)}
    if unknown := [name for name in given if name not in kinds]:
        raise ValueError(f"{path} sets {unknown[0]!r}, which a sweep does not have; it has {', '.join(kinds)}")
    if empty := [name for name, value in given.items() if value == []]:
        raise ValueError(f"{path}: {empty[0]} must have a value; got an empty list")
    spanning = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    try:
        return Grid(**given | {name: tuple(spanning[name]) for name in given if kinds[name].startswith("tuple")})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def tasks(configuration: Grid) -> Sequence[Task]:
    """Chunks of every cell; cells of one size draw the same data sets."""
    found: list[Task] = []
    sizes = list(itertools.product(configuration.n, configuration.T, configuration.d))
    seeds = range(configuration.seed, configuration.seed + configuration.seeds)
    kinds = itertools.product(sizes, seeds, *(getattr(configuration, name) for name in CELL[4:]))
    for place, (size, *rest) in enumerate(kinds):
        values = dict(zip(CELL, (*size, *rest), strict=True))
        start = _APART * sizes.index(size)
        found += chunked(f"cell-{place:04d}", configuration.runs, configuration.chunk, start=start, **values)
    return found


def largest_first(_: Grid, missing: Sequence[Task]) -> Sequence[Task]:
    """The order in which chunks are begun: a long one that is begun last keeps all other processes waiting."""
    return sorted(missing, key=lambda task: math.prod(task.values[name] for name in CELL[:3]), reverse=True)


def compute(configuration: Grid, task: Task, device: torch.device) -> Piece:
    """Draw, train, solve and certify one chunk."""
    cell = {name: task.values[name] for name in CELL}
    first, last = (task.values["start"] + task.values[name] for name in ("first", "last"))
    seeds = [(cell["seed"], element) for element in range(first, last)]
    draw = getattr(attsvm.data, DATA[configuration.data])
    stream = attsvm.data.Counter(cell["seed"], first) if configuration.stream == "counter" else seeds
    data = draw(cell["n"], cell["T"], cell["d"], batch=len(seeds), seed=stream, device=device)
    head = _head(cell, data, seeds)
    training: dict[str, Any] = {
        "parameterization": configuration.parameterization_of(cell["parameterization"]),
        "optimizer": configuration.optimizer_of(cell["optimizer"]),
        "loss": registry.loss_named(configuration.loss),
        "initial": "zeros" if configuration.initial == "zeros" else None,
    }
    steps, stop = configuration.steps, attsvm.descent.Saturated(configuration.saturated, configuration.every)
    run = attsvm.fit(data, head, **training, seed=seeds, steps=steps, record=steps, keep=(), stop=stop)
    selected, rows = run.selected, torch.arange(task.values["first"], task.values["last"])
    # As exact as the rule that stops: 1 less the largest share would be round-off below 1e-16.
    attended = attend(data, as_head(head, data), attsvm.attention.logits(data, run.weights)[None])
    best = attsvm.optimal_token_set(data, head).gather(-1, selected.unsqueeze(-1)).squeeze(-1).all(-1)
    norms = [registry.norm_named(name) for name in configuration.norm]
    solved = [attsvm.solve(attsvm.AttentionSVM(data, selected), norm) for norm in norms]
    local = attsvm.is_locally_optimal(data, head, selected, norms[0], solved[0])
    left = int(sum((~one.solved & ~one.infeasible).sum() for one in solved))
    solutions = {
        **cell, "element": rows.repeat(len(norms)), "norm": np.repeat(configuration.norm, len(rows)),
        "solved": torch.cat([one.solved for one in solved]), "margin": torch.cat([_margin(one) for one in solved]),
        "infeasible": torch.cat([one.infeasible for one in solved]),
        "gap": torch.cat([one.certificate.relative_gap for one in solved]),
        "cosine": torch.cat([_cosine(run.weights, one) for one in solved]),
    }  # fmt: skip
    runs = {
        **cell, "element": rows, "optimal": best, "saturated": stop.done(run.weights[None], attended, {})[0],
        "steps": run.steps_taken, "locally_optimal": local.holds, "undecided": local.undecided,
    }  # fmt: skip
    size = f"n{cell['n']}-T{cell['T']}-d{cell['d']}"
    arrays = {f"{name}-{size}": getattr(run, name) for name in configuration.store if name in ("selected", "weights")}
    tables = {"runs": runs, "solutions": solutions}
    if "diagnosis" in configuration.store:
        if training["initial"] is None:
            training["initial"] = attsvm.initial_parameters(data, training["parameterization"], seed=seeds)
        tables |= _diagnosed(attsvm.diagnose(data, head, **training), {**cell, "element": rows}, selected)
    return Piece(tables, arrays, {"not solved and not proved infeasible": left})


def _diagnosed(diagnosis: Any, own: Mapping[str, Any], selected: torch.Tensor) -> dict[str, dict[str, Any]]:
    """One row for each run, and one for each run and condition."""
    limit, tested = diagnosis.limit, diagnosis.conditions
    diagnoses = {
        **own, "standing": np.array([one.name.lower() for one in diagnosis.standing]),
        "as_predicted": (diagnosis.predicted == selected).all(-1), "predicted_locally_optimal": limit.locally_optimal,
        "predicted_margin": _margin(limit.solution),
    }  # fmt: skip
    conditions = {
        **own, "element": own["element"].repeat(len(tested)),
        "condition": np.repeat([one.name for one in tested], len(selected)),
        **{name: torch.cat([getattr(one, name) for one in tested]) for name in ("holds", "certain", "margin")},
    }  # fmt: skip
    return {"diagnoses": diagnoses, "conditions": conditions}


def _margin(solution: attsvm.SVMSolution) -> torch.Tensor:
    return (1 / solution.certificate.primal_value).masked_fill(~solution.solved, math.nan)


def _cosine(weights: torch.Tensor, solution: attsvm.SVMSolution) -> torch.Tensor:
    """NaN where it is not solved, or where either is zero and has no direction."""
    directed = (weights != 0).any(-1).any(-1) & (solution.weights != 0).any(-1).any(-1)
    return attsvm.direction_cosine(weights, solution.weights).masked_fill(~(solution.solved & directed), math.nan)


def cells(result: SweepResult) -> Iterator[dict[str, Any]]:
    """One row for each cell of a result: shares with Wilson's 95 % intervals, and medians.

    Medians of margins and cosines are those of what was solved, whose number stands beside them. That of the steps is
    over all runs, of which those that did not saturate need more than were taken: None if it is one of them.
    """
    from scipy.stats import binomtest

    shares = ("optimal", "saturated", "locally_optimal")
    solved: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in _grouped(result.tables["solutions"], (*CELL, "norm"), ("margin", "cosine", "solved", "infeasible")):
        one = solved.setdefault(tuple(row[name] for name in CELL), {})
        one |= {f"{name}_{row['norm']}": _median(row[name]) for name in ("margin", "cosine")}
        one |= {f"{name}_{row['norm']}": int(row[name].sum()) for name in ("solved", "infeasible")}
    for row in _grouped(result.tables["runs"], CELL, (*shares, "undecided", "steps")):
        found: dict[str, Any] = {name: row[name] for name in CELL}
        found |= {"runs": len(row["steps"]), "undecided": int(row["undecided"].sum())}
        for name in shares:
            hits = int(row[name].sum())
            interval = binomtest(hits, found["runs"]).proportion_ci(method="wilson")
            found |= {name: hits / found["runs"], f"{name}_interval": tuple(map(float, interval))}
        middle = np.median(np.where(row["saturated"], row["steps"], np.inf))
        found["steps"] = float(middle) if np.isfinite(middle) else None
        yield found | solved[tuple(row[name] for name in CELL)]


def print_cells(found: Sequence[Mapping[str, Any]]) -> None:
    """One line for each cell: what tells them apart, shares with their intervals, medians."""
    differ = [name for name in CELL if len({cell[name] for cell in found}) > 1] or ["n", "T", "d"]
    medians = {"steps": "steps"} | {name: name.replace("_", ", ") for name in found[0] if name.startswith("margin_")}
    counts = {name: name.replace("_", ", ") for name in found[0] if name.startswith("solved_")}
    counts = counts if any(cell[name] < cell["runs"] for cell in found for name in counts) else {}
    rows = []
    for cell in found:
        intervals = {name: cell[f"{name}_interval"] for name in ("optimal", "locally_optimal")}
        shares = [
            f"{100 * cell[name]:.2f} ({100 * low:.2f} to {100 * high:.2f}) %" for name, (low, high) in intervals.items()
        ]
        shares.append(f"{100 * cell['saturated']:.2f} %")
        middle = ["none" if cell[name] is None else number(cell[name], 4) for name in medians]
        solved = [f"{cell[name]:,}" for name in counts]
        rows.append([*(str(cell[name]) for name in differ), f"{cell['runs']:,}", *shares, *middle, *solved])
    named = [*differ, "runs", "optimal", "locally optimal", "saturated", *medians.values(), *counts.values()]
    print_table("Shares of runs with 95 % intervals, and medians", [(name, "right") for name in named], rows)


def _head(cell: Mapping[str, Any], data: Any, seeds: Sequence[tuple[int, int]]) -> Any:
    """None for the vector v of the data; a ReLU head has d random unit columns, a quadratic one the penalty 1/2."""
    if cell["head"] == "linear":
        return None
    if cell["head"] == "quadratic":
        return attsvm.QuadraticHead(data.head, 0.5)
    d = cell["d"]
    apart = [(seed, element + _APART // 2) for seed, element in seeds]
    columns = attsvm.data.random_sphere(1, d, d, batch=len(seeds), seed=apart, device=data.device)
    return attsvm.ReluHead(columns.tokens[:, 0].mT)


def _grouped(table: Any, keys: Sequence[str], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The columns as arrays, for each combination of the keys in the order in which they first occur."""
    groups = table.group_by(list(keys), use_threads=False).aggregate([(name, "list") for name in columns])
    for k, own in enumerate(groups.select(list(keys)).to_pylist()):
        lists = {name: groups[f"{name}_list"][k].values for name in columns}
        yield own | {name: values.to_numpy(zero_copy_only=False) for name, values in lists.items()}


def _median(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


_CELL_COLUMNS = {
    "n": "inputs", "T": "tokens of an input", "d": "dimension", "seed": "seed of the data",
    "head": "prediction head", "parameterization": "what was trained", "optimizer": "how it was trained",
    "element": "number of the data set in its cell",
}  # fmt: skip
_OWN_COLUMNS = {
    "runs": {
        "optimal": "every input selects a token of the highest score",
        "saturated": "every input gives one token all but the tolerance of its attention",
        "steps": "taken until it stopped",
        "locally_optimal": "the selection reached is locally optimal, in the first norm",
        "undecided": "its SVM was neither solved nor proved infeasible, in the first norm",
    },
    "solutions": {
        "norm": "of the SVM",
        "solved": "to the accuracy of the certificate",
        "infeasible": "proved by a certificate",
        "margin": "1 / norm of the max-margin solution; NaN where it is not solved",
        "gap": "relative gap of the certificate",
        "cosine": "between trained weights and solution; NaN where it is not solved, or one of them is zero",
    },
    "diagnoses": {
        "standing": "of the prediction: proved, proved_locally or predicted",
        "as_predicted": "training reached the selection that was predicted",
        "predicted_locally_optimal": "the predicted selection is locally optimal, in the norm of the training",
        "predicted_margin": "of its max-margin solution in that norm; NaN where it is not solved",
    },
    "conditions": {
        "condition": "of a theorem",
        "holds": "on this data set and for this training",
        "certain": "the answer is proved by what was computed",
        "margin": "by how much it holds (positive) or fails (negative)",
    },
}
TABLES = {name: _CELL_COLUMNS | own for name, own in _OWN_COLUMNS.items()}
GRID: Sweep[Grid] = Sweep(
    id="sweep", default=Grid(), columns=TABLES, tasks=tasks, compute=compute, prepare=largest_first
)
