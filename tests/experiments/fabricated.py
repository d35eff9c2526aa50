"""Results in which every claim of an experiment is true, made up row by row, and how to damage them.

`true_result` makes a result without running anything. `DAMAGE` says for every check which rows to change so that its
claim is false, mostly of one run alone: a check that only looks at the middle would not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attsvm.experiments import EXPERIMENTS, SweepResult
from attsvm.experiments.bent_prompts import finite_part
from attsvm.experiments.cones import KINDS
from attsvm.experiments.dimensions import TOLERANCES
from attsvm.experiments.factor_laws import FOLLOWING, RULES
from attsvm.experiments.fused_heads import STORED
from attsvm.experiments.geometry import GEOMETRIES
from attsvm.experiments.multi_token import ACCEPTED, AMBIGUOUS, PROTOCOLS
from attsvm.experiments.next_token import GRADIENTS
from attsvm.experiments.regularization import PATHS
from attsvm.experiments.weights_and_factors import PICTURE, PUBLIC_RIDGE

Columns = dict[str, np.ndarray]
STARTS = (1.0, 0.5, 0.0, -0.5, -1.0, -1.5)
KEPT = ("W", "KQ")


def grid(**keys: Any) -> Columns:
    """The columns of a table with a row for every combination of the keys' values, the last key fastest."""
    rows = list(product(*keys.values()))
    return {name: np.array([row[place] for row in rows]) for place, name in enumerate(keys)}


def cosine_at(step: np.ndarray, first: float = 0.05) -> np.ndarray:
    """A cosine that tends to 1 like 1 - 1/step^2, and is 1 - `first` at step 200."""
    return 1 - first * (200 / step) ** 2


def single_input(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(variant=("global", "local"), gradient=("exact", "naive"), start=STARTS, step=(200, c["steps"]))
    far = (table["variant"] == "local") & (table["start"] <= -1)
    near = cosine_at(table["step"], 0.001)
    left = np.where(table["gradient"] == "naive", 0.2, near)
    return table | {"cosine_first": np.where(far, 0.1, near), "cosine_second": np.where(far, left, 0.1)}, {}


def multi_input(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(dataset=range(10), gradient=("exact", "naive"), start=STARTS, step=(200, c["steps"]))
    return table | {"cosine": np.where(table["gradient"] == "naive", 0.995, cosine_at(table["step"], 0.005))}, {}


def descent_vs_normalized(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(dataset=range(10), rule=("gradient", "normalized"), start=STARTS, step=(200, c["steps"]))
    ahead = table["rule"] == "normalized"
    missing = np.where(ahead, 1e-9, 0.021 + 0.002 * table["dataset"])
    return table | {"probability": 1 - missing, "missing": missing, "norm": np.where(ahead, 20.0, 4.0)}, {}


def joint_training(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(variant=("tight", "relaxed"), gradient=("exact", "naive"), step=(200, c["steps"]))
    near = cosine_at(table["step"], 0.001)
    left = (table["gradient"] == "naive") & (table["step"] > 200)
    sure = dict.fromkeys(("cosine_head", "softmax_probability", "logistic_probability"), near)
    rays = {"tight_prompt_ray": np.array([4 / 3, 1 / 3]), "relaxed_prompt_ray": np.array([1.0, 0.0])}
    return table | {"cosine_prompt": np.where(left, 0.98, near), **sure}, rays


def loss_comparison(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    losses = ("linear", "logistic", "exponential")
    steps = (300, 1000, c["steps"])
    table = grid(loss=losses, gradient=("exact", "naive"), C=c["scores"], step=steps)
    late = (table["C"] == 100) & (table["loss"] != "linear")
    held = late & ((table["step"] < c["steps"]) | (table["gradient"] == "naive"))
    paths = {
        f"{loss}_paths": np.array([[[2000.0, y] for y in finite_part(loss, np.array(c["scores"]))]]) for loss in losses
    }
    return table | {"cosine": np.where(held, np.sqrt(0.5), cosine_at(table["step"], 1e-3))}, paths


def attention_sparsity(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    ends = (min(c["recorded"]), max(c["recorded"]))
    table = grid(model=range(c["models"]), epoch=ends, layer=range(c["layers"]), head=range(c["heads"]))
    late = table["epoch"] > 0
    ends_of = {"accuracy": (0.1, 0.96), "entropy": (0.99, 0.5), "top_mass": (0.08, 0.5), "norm": (0.3, 0.4)}
    return table | {name: np.where(late, after, before) for name, (before, after) in ends_of.items()}, {}


def plane_runs(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(dataset=(PICTURE, *range(10)), parameterization=KEPT, step=(c["steps"], c["long_steps"]))
    near, w = cosine_at(table["step"], 1.0), table["parameterization"] == "W"
    return table | {"cosine_frobenius": np.where(w, near, 0.9), "cosine_nuclear": np.where(w, 0.9, near)}, {}


def convergence_types(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(d=c["dimensions"], dataset=range(c["datasets"]), start=("zero", "random"))
    many = table["d"] >= 40
    supported = np.where(many, table["dataset"] % 100 < np.log2(table["d"]) * 12.5, False)
    everywhere = np.where(table["dataset"] < c["everywhere"], (table["d"] == 320).astype(float), np.nan)
    local = ~many & (table["dataset"] % 2 == 0)
    kinds = {"type": np.where(local, "local", "global"), "all_support": supported}
    return table | kinds | {"all_support_everywhere": everywhere}, {}


def local_convergence(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    runs = [
        ("W", 0.0, "paper"),
        ("KQ", 0.0, "paper"),
        ("W", 0.0, "long"),
        ("KQ", 0.0, "long"),
        ("KQ", PUBLIC_RIDGE, "long"),
    ]
    steps = (2 * c["record"], c["steps"], c["long_steps"])
    table = grid(run=range(len(runs)), step=steps, dataset=range(100))
    w, ridge, run = (np.array([runs[k][place] for k in table["run"]]) for place in range(3))
    kind = {"parameterization": w, "ridge": ridge, "run": run}
    spread = 0.002 * (table["dataset"] % 5 - 2)
    own = cosine_at(table["step"], 0.5) + np.where(table["step"] == c["steps"], spread, 0)
    own = np.where((table["step"] == c["long_steps"]) & (ridge == 0), own - 0.001, own)
    first, frobenius = table["step"] == steps[0], w == "W"
    probability = np.where(first, np.where(frobenius, 0.6, 0.9), 0.999)
    cosines = {"cosine_frobenius": np.where(frobenius, own, 0.85), "cosine_nuclear": np.where(frobenius, 0.85, own)}
    return table | kind | cosines | {"mean_probability": probability, "optimal": table["dataset"] % 4 > 0}, {}


def rank(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(shape=range(len(c["shapes"])), d=c["dimensions"], norm=("frobenius", "nuclear"), draw=range(16))
    shapes = np.array([c["shapes"][k] for k in table.pop("shape")])
    table |= {"n": shapes[:, 0], "T": shapes[:, 1], "stage": np.full(len(shapes), "paper")}
    few = table["d"] < 4  # one dimension of eight with nothing, two with a quarter: 5/16 are infeasible
    feasible = (table["d"] > 1) & (~few | (table["draw"] < 4))
    bound = np.minimum(table["n"], table["d"])
    ranks = np.where(feasible, np.where(table["norm"] == "nuclear", (bound + 1) // 2, bound), 0)
    gaps = {"feasible": feasible, "infeasible": ~feasible, "relative_gap": np.full(len(ranks), 1e-10)}
    return table | gaps | {f"rank_{tolerance:g}": ranks for tolerance in TOLERANCES}, {}


def multi_token(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(protocol=PROTOCOLS, d=c["dimensions"], draw=range(2 * c["accepted"]))
    kept = (table["draw"] % 2 == 0) | ((table["protocol"] == "decaying") & (table["draw"] == 1))
    apart = {"distance_generalized": 0.004, "distance_svm": 0.006, "distance_one_token": 0.1}
    far = {name: np.where(kept, value * (1 + table["draw"] % 8 / 32), np.nan) for name, value in apart.items()}
    exact = {"distance_outside": np.where(kept, 1e-8, np.nan), "silent": np.where(kept, table["draw"] % 4 / 2, np.nan)}
    return table | far | exact | {"outcome": np.where(kept, ACCEPTED, AMBIGUOUS)}, {}


def next_token(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(
        shape=range(len(c["shapes"])), gradient=GRADIENTS, step=(200, c["steps"] // 2, c["steps"]), dataset=range(8)
    )
    shapes = np.array([c["shapes"][k] for k in table.pop("shape")])
    table |= {name: shapes[:, place] for place, name in enumerate("KdnT")}
    clash = (table["d"] < table["K"]) & (table["dataset"] == 3)
    off = np.where((table["gradient"] == "split") | (c["alike"] == 1), 1e-5, 0.3)
    numbers = {
        "cosine": 1 - off * (200 / table["step"]) ** 2,
        "growth": 2.0 * table["step"],
        "finite_distance": off / 1e5,
    }
    kinds = {"feasible": ~clash, "infeasible": clash, "finite_certified": np.ones(len(clash), bool)}
    return table | kinds | {name: np.where(clash, np.nan, values) for name, values in numbers.items()}, {}


def next_token_text(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(d=c["dimensions"], draw=range(c["draws"]))
    enough = table["d"] > 40
    sizes = {"K": 94, "samples": 390, "relations": 1269, "strict": 1222, "components": 500, "shared": 5}
    table |= {name: np.full(len(enough), value) for name, value in sizes.items()}
    kinds = {"feasible": enough, "infeasible": ~enough}
    asked = {"cosine": 0.999, "growth": 100.0, "finite_distance": 1e-8, "largest_seen": 1e-6, "largest_by_graph": 1e-6,
             "largest_by_svm": 1e-3, "by_graph": 50.0, "by_svm": 50.0, "open": 9.0}  # fmt: skip
    there = enough & (table["draw"] == 0)
    return table | kinds | {name: np.where(there, value, np.nan) for name, value in asked.items()}, {}


def quadratic_head(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    n, T = c["n"], c["T"]
    table = grid(penalty=c["penalties"], dataset=range(c["datasets"]), input=range(n), place=range(T))
    number = np.searchsorted(c["penalties"], table["penalty"]) // 2 + 1
    kept = table["place"] < np.minimum(number, T)
    attention = kept / np.minimum(number, T)
    return table | {"attention": attention, "predicted": attention, "kept": kept, "predicted_kept": kept}, {}


def regularization_path(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(path=PATHS, source=("path", "descent"), point=range(4), dataset=range(5))
    return table | {"distance": 0.5 * 10.0 ** -table["point"]}, {}


def first_gradient(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(d=c["dimensions"], dataset=range(c["datasets"]))
    favourable = table["dataset"] % 10 < 1 + np.log2(table["d"])
    yes = np.ones(len(favourable), bool)
    small = {"small_optimal": favourable | (table["dataset"] % 20 < 19), "small_stayed": table["dataset"] > 0}
    return table | {"favourable": favourable, "large_stayed": yes, "large_optimal": yes} | small, {}


def cones(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(kind=KINDS, dataset=range(10), opening=c["openings"], radius=c["radii"])
    norm = np.log10(table["radius"])
    shares = {
        "global": np.where(table["opening"] < 0.5, 1.0, 0.9 - 0.3 * norm),
        "local": 0.2 + 0.25 * norm,
        "not local": 0.01 * norm,
    }
    return table | {
        "returned": np.select([table["kind"] == kind for kind in KINDS], [shares[kind] for kind in KINDS])
    }, {}


def causal(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(parameterization=KEPT, dataset=range(20), step=(200, c["steps"] // 10, c["steps"]))
    near, yes = cosine_at(table["step"], 0.5), np.ones(len(table["step"]), bool)
    table |= {"cosine_frobenius": near, "cosine_nuclear": near, "least_attention": np.full(len(near), 0.999)}
    return table | {"separable": yes, "locally_optimal": yes}, {}


def geometry(name: str) -> Callable[[Mapping[str, Any]], tuple[Columns, Columns]]:
    setup = GEOMETRIES[name].default
    matches = {label: row.match or next(iter(setup.norms())) for label, row in setup.rows().items()}

    def made(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
        table = grid(optimizer=tuple(matches), norm=tuple(setup.norms()), dataset=range(6))
        own = np.array([matches[label] for label in table["optimizer"]]) == table["norm"]
        gap = np.full(len(own), 1e-9)
        return table | {
            "cosine": np.where(own, 0.97, 0.9), "efficiency": np.where(own, 0.8, 0.7), "relative_gap": gap
        }, {}  # fmt: skip

    return made


def logit_growth(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    last = c["steps"]
    table = grid(rule=RULES, steps=("falling", "constant", "decayed"), dataset=range(4), step=(last // 10, last))
    law = 100.0 * table["step"] / last
    gap = law * (1 - 0.02 * last / table["step"])  # .8 of it at a tenth of the steps, .98 in the end
    sizes = {"gap": gap, "law": law, "bound": 1.5 * law, "logit": 1.2 * gap, "logit_bound": 3 * law}
    plateau = np.where(table["steps"] == "decayed", 120.0, np.inf)
    return table | sizes | {"plateau": plateau, "passing": 0 * law + 200, "passed": 0 * law + 210}, {}


def weight_decay(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(rule=RULES, radius=tuple(c["radii"]), dataset=range(3))
    known = np.isin(table["rule"], RULES[:3])
    one = np.ones(len(known))
    return table | {
        "norm": one, "gap": np.where(table["rule"] == "sign", 0.2, 1e-8), "risk": one / 2,
        "path_risk": np.where(known, 0.5, np.nan), "cosine": np.where(known, 1.0, np.nan),
    }, {}  # fmt: skip


def fused_heads(c: Mapping[str, Any]) -> tuple[Columns, Columns]:
    table = grid(stored=STORED, step=(c["steps"],), dataset=range(4), head=range(c["heads"]))
    own = table["stored"] == "fused"
    one = np.ones(len(own))
    return table | {
        "gap": 98 * one, "law": 100 * one, "norm": 10 * one, "low": 9.9 * one, "high": 10.1 * one, "price": 1.1 * one,
        "efficiency_fused": np.where(own, 0.97, 0.6), "efficiency_per_head": np.where(own, 0.9, 0.96),
    }, {}  # fmt: skip


MADE: dict[str, tuple[str, Callable[[Mapping[str, Any]], tuple[Columns, Columns]]]] = {
    "single-input": ("history", single_input),
    "multi-input": ("history", multi_input),
    "descent-vs-normalized": ("history", descent_vs_normalized),
    "joint-training": ("history", joint_training),
    "loss-comparison": ("history", loss_comparison),
    "attention-sparsity": ("heads", attention_sparsity),
    "trajectories": ("history", plane_runs),
    "hyperplanes": ("history", plane_runs),
    "convergence-types": ("runs", convergence_types),
    "local-convergence": ("history", local_convergence),
    "rank": ("solutions", rank),
    "multi-token": ("draws", multi_token),
    "quadratic-head": ("tokens", quadratic_head),
    "regularization-path": ("points", regularization_path),
    "first-gradient": ("datasets", first_gradient),
    "cones": ("cells", cones),
    "causal": ("history", causal),
    **{name: ("pairs", geometry(name)) for name in GEOMETRIES},
    "next-token-acyclic": ("runs", next_token),
    "next-token-cyclic": ("runs", next_token),
    "next-token-text": ("texts", next_token_text),
    "logit-growth": ("history", logit_growth),
    "weight-decay": ("points", weight_decay),
    "fused-heads": ("history", fused_heads),
}
"""For every experiment its table, and what makes true rows and arrays for a configuration."""


@dataclass(frozen=True)
class Damage:
    """`value` in the rows of `column` whose other columns have the values `where`; or in a whole array."""

    column: str
    value: Any
    where: Mapping[str, Any]


def put(column: str, value: Any, **where: Any) -> Damage:
    """The damage that writes `value` into `column` where the other columns say so."""
    return Damage(column, value, where)


def made(name: str, quick: bool = False, damage: Damage | None = None) -> SweepResult:
    """A made-up result of this experiment, true unless damaged.

    Raises:
        ValueError: if no row is damaged.
    """
    configuration, columns, arrays = _true(name, quick)
    columns = dict(columns)
    if damage is not None and damage.column in arrays:
        arrays = arrays | {damage.column: np.asarray(damage.value)}
    elif damage is not None:
        rows = np.ones(len(columns[damage.column]), bool)
        for key, value in damage.where.items():
            rows &= columns[key] == value
        if not rows.any():
            raise ValueError(f"no row of {name} has {damage.where}")
        kind = columns[damage.column].dtype
        columns[damage.column] = np.where(rows, damage.value, columns[damage.column])
        if kind.kind != "U":
            columns[damage.column] = columns[damage.column].astype(kind)
    manifest = {"configuration": configuration, "counts": {}}
    return SweepResult(name, Path(), {MADE[name][0]: pa.table(columns)}, arrays, manifest)


@cache
def _true(name: str, quick: bool) -> tuple[Mapping[str, Any], Columns, Columns]:
    default = EXPERIMENTS[name].default
    configuration = (default.quick() if quick else default).to_json()
    return configuration, *MADE[name][1](configuration)


_END = {"gradient": "exact", "step": 1000}
_LAST = {"step": 20_000, "dataset": 3}
_PAPER = {"run": "paper", "ridge": 0.0, "step": 2000}
_LONG = {"run": "long", "ridge": 0.0, "step": 20_000, "dataset": 7}


def _plane() -> dict[str, Damage]:
    found = {}
    for kind, name, own, other in (("W", "W", "Frobenius", "nuclear"), ("KQ", "(K,Q)", "nuclear", "Frobenius")):
        mine, theirs = f"cosine_{own.lower()}", f"cosine_{other.lower()}"
        at = {"parameterization": kind}
        found |= {
            f"picture: {name} to the {own} SVM and to the {other} one":
                put(mine, 0.8, dataset=PICTURE, step=2000, **at),
            f"all data sets: {name} nearer to the {own} SVM": put(theirs, 1.001, **_LAST, **at),
            f"all data sets: {name} turns to the {own} SVM": put(mine, 0.95, **_LAST, **at),
        }  # fmt: skip
    return found


def _regularization() -> dict[str, Damage]:
    found = {}
    for path in PATHS:
        measure = "distance to the nuclear solution set" if path == "KQ" else "1 - cosine"
        at = {"path": path, "point": 3, "dataset": 2}
        found[f"{path}: {measure} along the path"] = put("distance", 0.06, source="path", **at)
        found[f"{path}: {measure} of descent in the end"] = put("distance", 0.2, source="descent", **at)
    return found


_LIMIT = {"gradient": "split", "step": 1000, "K": 8, "d": 8}


def _next_token() -> dict[str, Damage]:
    return {
        "neither solved nor proved infeasible": put("feasible", False, dataset=2, K=8, d=8),
        "clashes with independent embeddings": put("infeasible", True, dataset=2, **_LIMIT),
        "outside S_fin at 100 ||W_svm||: cosine with W_svm": put("cosine", 0.998, dataset=2, **_LIMIT),
        "all data sets turn to W_svm outside S_fin": put("cosine", 0.98, dataset=2, **_LIMIT),
    }


def _growth() -> dict[str, Damage]:
    found = {}
    for rule in RULES:
        end = {"rule": rule, "dataset": 2, "step": 3000}
        found[f"{rule}: gap and logits over their bounds"] = put("logit", 301.0, steps="constant", **end)
        found[f"{rule}: gap over its plateau, under decay"] = put("gap", 121.0, steps="decayed", **end)
        if rule in FOLLOWING:
            found[f"{rule}: gap over its law in the end"] = put("gap", 75.0, steps="falling", **end)
            passed = f"{rule}: step at which the largest logit passes the threshold"
            found[passed] = put("passed", 160.0, steps="falling", **end)
    return found


def _decay() -> dict[str, Damage]:
    found = {}
    for rule in RULES:
        at = {"rule": rule, "dataset": 1, "radius": 4.0}
        found[f"{rule}: norm of W over the radius"] = put("norm", 1.002, **at)
        if rule in FOLLOWING:
            found[f"{rule}: Frank-Wolfe gap over the ball"] = put("gap", 0.06, **at)
        if rule in RULES[:3]:
            found[f"{rule}: risk above that of the path"] = put("risk", 0.4999, **at)
    return found


DAMAGE: dict[str, dict[str, Damage]] = {
    "logit-growth": _growth(),
    "weight-decay": _decay(),
    "fused-heads": {
        "fused: margin efficiency in its own norm": put("efficiency_fused", 0.89, stored="fused"),
        "per head: margin efficiency in its own norm": put("efficiency_per_head", 0.59, stored="per head"),
        "fused: gap over its law in the end": put("gap", 89.0, stored="fused"),
        "per head: gap over its law in the end": put("gap", 111.0, stored="per head"),
        "norm of fused heads between its bounds": put("norm", 9.8, stored="per head", dataset=2),
        "smallest fused norm over the largest of the heads alone": put("price", 2.1, stored="fused", dataset=2),
    },
    "single-input": {
        "third score .9: all six starts on the optimal ray":
            put("cosine_first", 0.999, variant="global", start=-1.5, **_END),
        "third score 0: the first four starts on the optimal ray":
            put("cosine_first", 0.999, variant="local", start=-0.5, **_END),
        "third score 0: the last two starts on the ray of token 1":
            put("cosine_second", 0.999, variant="local", start=-1.5, **_END),
        "third score 0: the last two starts stay on that ray":
            put("cosine_second", 0.9999999, variant="local", gradient="exact", start=-1.0, step=200),
        "third score 0: the naive float32 loop leaves that ray":
            put("cosine_second", 0.9995, variant="local", gradient="naive", start=-1.0, step=1000),
    },
    "multi-input": {
        "the picture's data set: all six starts on the SVM ray": put("cosine", 0.998, dataset=0, start=0.5, **_END),
        "all data sets and starts: cosine above .99": put("cosine", 0.98, dataset=7, start=0.5, **_END),
        "all data sets and starts: the naive float32 loop": put("cosine", 0.99999, gradient="naive", step=1000),
    },
    "descent-vs-normalized": {
        "gradient descent: softmax probability at the paper's last step":
            put("probability", 0.98, rule="gradient", step=200, start=0.0),
        "normalized descent: softmax probability at the paper's last step":
            put("missing", 0.002, rule="normalized", step=200, start=0.0, dataset=4),
        "data sets on which normalized descent is ahead":
            put("probability", 0.9, rule="normalized", step=200, start=0.0, dataset=4),
        "data sets on which normalized descent has the longer prompt":
            put("norm", 3.0, rule="normalized", step=200, start=0.0, dataset=4),
    },
    "joint-training": {
        "the SVMs of the theory": put("relaxed_prompt_ray", [1.0, 1e-6]),
        "tight: p to (4/3, 1/3)": put("cosine_prompt", 0.99, variant="tight", **_END),
        "relaxed: p to (1, 0)": put("cosine_prompt", 0.99, variant="relaxed", **_END),
        "relaxed: p holds there": put("cosine_prompt", 0.99999999, variant="relaxed", gradient="exact", step=200),
        "relaxed: the naive float32 loop leaves it":
            put("cosine_prompt", 0.9995, variant="relaxed", gradient="naive", step=1000),
        "v to (0, 1), both": put("cosine_head", 0.99, variant="relaxed", **_END),
        "softmax and logistic probabilities, both": put("logistic_probability", 0.99, variant="tight", **_END),
    },
    "loss-comparison": {
        "C <= 10, all losses: p to (1, 0)": put("cosine", 0.99, loss="linear", C=7.0, **_END),
        "every C and loss: p to (1, 0)": put("cosine", 0.99, loss="logistic", C=100.0, step=20_000, gradient="exact"),
        "every C and loss: second coordinate of p": put("linear_paths", np.zeros((1, 11, 2))),
        "C = 100, logistic and exponential: p first along (1, -1)":
            put("cosine", 0.72, loss="exponential", C=100.0, step=300, gradient="exact"),
        "C = 100, logistic: the naive float32 loop":
            put("cosine", 0.87, loss="logistic", C=100.0, step=1000, gradient="naive"),
    },
    "attention-sparsity": {
        "test accuracy of the worst model": put("accuracy", 0.5, model=2, epoch=100),
        "norm of the key-query weights, every layer of every model": put("norm", 0.3, model=1, layer=0, epoch=100),
        "number of tokens that [CLS] spreads over (exp of the entropy)":
            put("entropy", 0.9, model=1, layer=1, epoch=100),
        "mass on the top token": put("top_mass", 0.15, model=0, layer=1, epoch=100),
    },
    "trajectories": _plane(),
    "hyperplanes": _plane(),
    "convergence-types": {
        "global, at the largest d": put("type", "local", d=320, start="random", all_support_everywhere=1.0),
        "share of global, over all d": put("type", "local", d=120),
        "saturated runs that are not locally optimal": put("type", "not local", d=10, start="zero"),
        "B1, all tokens support the optimal SVM, at the largest d": put("all_support", False, d=320, start="zero"),
        "share of B1, over all d": put("all_support", True, d=2),
        "all tokens support every SVM: runs that end at another local optimum":
            put("type", "local", d=320, dataset=17, start="zero"),
    },
    "local-convergence": {
        "W to the Frobenius SVM, mean cosine": put("cosine_frobenius", 0.99, parameterization="W", **_PAPER),
        "(K,Q) with the public ridge to the nuclear SVM, mean cosine":
            put("cosine_nuclear", 0.99, ridge=PUBLIC_RIDGE, step=2000),
        "W nearer to the Frobenius SVM than to the other":
            put("cosine_nuclear", 1.0, parameterization="W", dataset=5, **_PAPER),
        "(K,Q) nearer to the nuclear SVM than to the other":
            put("cosine_frobenius", 1.0, parameterization="KQ", dataset=5, **_PAPER),
        "all data sets: W turns to the Frobenius SVM": put("cosine_frobenius", 0.98, parameterization="W", **_LONG),
        "all data sets: (K,Q) without ridge turns to the nuclear SVM":
            put("cosine_nuclear", 0.98, parameterization="KQ", **_LONG),
        "(K,Q): the ridge brings it nearer to the nuclear SVM":
            put("cosine_nuclear", 0.5, ridge=PUBLIC_RIDGE, step=20_000, dataset=5),
        "probability of the selected token": put("mean_probability", 0.98, parameterization="W", **_PAPER),
        "probability of the selected token, early": put("mean_probability", 0.5, parameterization="KQ", step=100),
        "runs of W that reach the optimal selection": put("optimal", False, parameterization="W"),
    },
    "rank": {
        "infeasible among the paper's draws": put("infeasible", True, d=5),
        "separable draws at d = 1": put("feasible", True, d=1, n=15, draw=3, norm="frobenius"),
        "neither solved nor proved infeasible": put("infeasible", False, d=2, n=15, draw=9, norm="nuclear"),
        "rank above min(n, d)": put("rank_1e-06", 6, n=5, T=15, d=10, draw=9, norm="nuclear"),
        "mean Frobenius rank over min(n, d), at the largest d": put("rank_1e-06", 4, n=5, T=10, d=20, norm="frobenius"),
        "Frobenius minus nuclear mean rank, over the cells": put("rank_1e-06", 1, n=5, T=10, d=10, norm="frobenius"),
        "solutions whose rank depends on the tolerance": put("rank_1e-08", 5, n=10, d=10, draw=3, norm="frobenius"),
    },
    "multi-token": {
        "1 - cosine to W_fin + C W_svm, means": put("distance_generalized", 0.1, protocol="paper", d=8),
        "1 - cosine to W_svm, means": put("distance_svm", 0.1, protocol="paper", d=8),
        "1 - cosine to one-token SVM, means": put("distance_one_token", 0.3, protocol="paper", d=10),
        "1 - cosine to W_fin + C W_svm with the public 1e-9, means":
            put("distance_generalized", 0.1, protocol="public constant", d=4),
        "medians: generalized, SVM alone, one token": put("distance_one_token", 0.001, protocol="paper", d=6),
        "decaying steps: medians, generalized and SVM alone": put("distance_svm", 0.001, protocol="decaying", d=6),
        "split gradient, every input that drops a token has a gradient: 1 - cosine to W_svm outside S_fin":
            put("distance_outside", 0.002, protocol="split", d=6, draw=4),
        "split gradient, an input that drops a token is silent: 1 - cosine to W_svm outside S_fin":
            put("distance_outside", 0.002, protocol="split", d=6, draw=6),
        "share accepted, decaying steps": put("outcome", AMBIGUOUS, protocol="decaying", d=6, draw=1),
        "accepted instances, paper's protocol": put("outcome", AMBIGUOUS, protocol="paper", d=6, draw=0),
    },
    "quadratic-head": {
        "largest error of a probability": put("attention", 0.5, penalty=0.5, dataset=3, input=1, place=0),
        "tokens kept or dropped as predicted": put("predicted_kept", True, penalty=0.02, dataset=3, input=1, place=5),
        "tokens kept per input, as lambda grows": put("kept", False, penalty=2.0),
    },
    "regularization-path": _regularization(),
    "first-gradient": {
        "share of favourable first gradients, over all d": put("favourable", True, d=5),
        "favourable, one large step: stay in the margin cone": put("large_stayed", False, d=80, dataset=0),
        "favourable, one large step: reach the optimal selection": put("large_optimal", False, d=80, dataset=0),
        "favourable, small steps: leave the cone for a while": put("small_stayed", True),
        "optimal selection reached from zero: favourable, not favourable":
            put("small_optimal", False, d=5, favourable=True),
    },
    "cones": {
        "global: returned from the narrowest cone and largest norm":
            put("returned", 0.9375, kind="global", opening=1e-5, radius=1000.0, dataset=3),
        "local: returned from the narrowest cone, as the norm grows":
            put("returned", 0.45, kind="local", opening=1e-5, radius=100.0),
        "local and not local: returned from the narrowest cone and largest norm":
            put("returned", 0.6, kind="not local", opening=1e-5, radius=1000.0),
        "not local: stayed in the narrowest cone with the smallest norm":
            put("returned", 0.0625, kind="not local", opening=1e-5, radius=1.0, dataset=3),
        "global: returned from the narrowest and the widest cone, largest norm":
            put("returned", 1.0, kind="global", opening=1.0, radius=1000.0),
        "global: returned from the smallest and the largest norm, widest cone":
            put("returned", 0.0, kind="global", opening=1.0),
    },
    "causal": {
        "all data sets: W turns to the united Frobenius SVM":
            put("cosine_frobenius", 0.95, parameterization="W", **_LAST),
        "all data sets: (K,Q) turns to the united nuclear SVM":
            put("cosine_nuclear", 0.95, parameterization="KQ", **_LAST),
        "selections with more than half of the attention that can be separated":
            put("separable", False, parameterization="KQ", dataset=3),
        "separable selections of W that are locally optimal":
            put("locally_optimal", False, parameterization="W", **_LAST),
    },
    "optimizer-geometry": {
        f"{name}: {column} to the {norm} solution": put(column, 0.5, optimizer=name, norm=norm)
        for column in ("cosine", "efficiency")
        for name, norm in ((name, row.match) for name, row in GEOMETRIES["optimizer-geometry"].default.rows().items())
    },
    **{
        experiment: {
            **{
                f"{name}: largest efficiency in the {row.match} norm":
                    put("efficiency", 0.5, optimizer=name, norm=row.match, dataset=3)
                for name, row in GEOMETRIES[experiment].default.rows().items() if row.share == 0.95
            },
            **{
                f"{name}: largest efficiency in the {row.match} norm":
                    put("efficiency", 0.5, optimizer=name, norm=row.match)
                for name, row in GEOMETRIES[experiment].default.rows().items() if row.share == 0.5
            },
            "relative gap of the solutions, largest": put("relative_gap", 1e-5, dataset=3),
        }
        for experiment in ("factor-geometry", "adam")
    },
    "next-token-acyclic": {
        **_next_token(),
        "summed first: largest difference of the cosine":
            put("cosine", 0.9, gradient="summed first", step=1000, dataset=2),
    },
    "next-token-cyclic": {
        **_next_token(),
        "W_fin with a certificate": put("finite_certified", False, dataset=2, **_LIMIT),
        "inside S_fin at 100 ||W_svm||: ||Pi_fin W - W_fin|| / (1 + ||W_fin||)":
            put("finite_distance", 1e-5, dataset=2, **_LIMIT),
        "summed first: median of 1 - cosine, split and summed first": put("cosine", 1.0, gradient="summed first"),
    },
    "next-token-text": {
        "neither solved nor proved to clash": put("infeasible", False, d=8, draw=3),
        "clashes with independent embeddings, d >= K": put("infeasible", True, d=96, draw=3),
        "share of draws without a clash, over all d": put("feasible", False, d=96, draw=3),
        "trained layers: cosine with W_svm outside S_fin": put("cosine", 0.98, d=64, draw=0),
        "trained layers: distance from W_fin over 1 + ||W_fin||": put("finite_distance", 1e-5, d=64, draw=0),
        "windows of the text: trained attention against the automaton, total variation":
            put("largest_seen", 0.01, d=64, draw=0),
        "fresh windows that the graph decides: the same": put("largest_by_graph", 0.01, d=64, draw=0),
    },
}  # fmt: skip
"""For every check of every experiment, damage that makes its claim false; rows that are only measured have none."""
