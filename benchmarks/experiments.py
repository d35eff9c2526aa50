"""What the experiments show in several seeds: judges stored results, and puts them into the pages.

    attsvm figure run all --seeds 8 --jobs 16 --out out/seeds --format png
    python -m benchmarks.experiments out/seeds

Nothing is computed. For every experiment in FOLDER the checks of all its seeds are written to
results/experiments/ID.json, with the further numbers that its page quotes, and the tables between the two comments in
docs/experiments/ID.md are made anew. `tests/pages` holds the pages against the files. The command in each file says how
it was made: the two longest experiments have fewer data sets in each seed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attsvm.experiments import EXPERIMENTS, AcrossSeeds, Judged, SweepResult, Verdict
from attsvm.experiments.multi_token import followed, used
from attsvm.experiments.seeds import SeedRow, judge
from benchmarks.record import RESULTS

PAGES = RESULTS.parent.parent / "docs" / "experiments"
BEGIN, END = "<!-- Made by python -m benchmarks.experiments -->", "<!-- End of what it made -->"

Numbers = Mapping[str, float]
Found = Mapping[str, Any]
"""What a file in results/experiments holds."""


def summarize(folder: Path) -> dict[str, Any]:
    """All seeds of one experiment in `folder`: checks side by side, further numbers, versions, CPU time.

    Where the public code was timed, the time is that of the same work.
    """
    judged: list[Judged] = []
    numbers: dict[str, list[float]] = {}
    seconds: list[float] = []
    versions: dict[str, str] = {}
    for path in sorted(folder.glob("seed-*"), key=lambda path: int(path.name.removeprefix("seed-"))):
        result = SweepResult.load(path)
        judged.append(judge(EXPERIMENTS[result.id], result))
        for name, value in (FURTHER[result.id](result) if result.id in FURTHER else {}).items():
            numbers.setdefault(name, []).append(float(f"{value:.6g}"))
        seconds.append(round(result.cpu_seconds(EXPERIMENTS[result.id].public_tasks), 1))
        versions = dict(result.manifest["versions"])
    found = AcrossSeeds.of(judged).to_json()
    for check in found["checks"]:
        del check["numbers"], check["range"]  # `measured` has them
    cells = re.compile(r"n=\d+ T=\d+ d=\d+: ")  # of `rank`, which are too many to be told apart
    totals: dict[str, Any] = {}
    for reason, values in found["counts"].items():
        totals[cells.sub("", reason)] = np.add(totals.get(cells.sub("", reason), 0), values).tolist()
    found["counts"] = totals
    default = EXPERIMENTS[found["experiment"]].default
    runs = found["configuration"].get(default.runs_field)
    fewer = f" --runs {runs}" if runs != getattr(default, default.runs_field or "", None) else ""
    command = f"attsvm figure run {found['experiment']} --seeds {len(judged)}{fewer}"
    return {"command": command, **found, "numbers": numbers, "cpu_seconds": seconds, "versions": versions}


def compact(found: Found) -> str:
    """JSON with one line for each list of numbers or texts."""
    text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return re.sub(r"\[\n[^\[\]{}]*\]", lambda values: re.sub(r"\n *", " ", values[0]), text)


# ------------------------------------------------------------------------- further numbers that pages quote


def convergence_types(result: SweepResult) -> Numbers:
    """Shares of run types and of B1, for every d."""
    found = {}
    for d in result.configuration["dimensions"]:
        kind = result.column("runs", "type", d=d)
        found[f"global, d = {d}"] = (kind == "global").mean()
        found[f"B1, optimal SVM, d = {d}"] = result.column("runs", "all_support", d=d, start="zero").mean()
        found[f"B1, every SVM, d = {d}"] = np.nanmean(
            result.column("runs", "all_support_everywhere", d=d, start="zero")
        )
        found[f"not saturated, d = {d}"] = (kind == "not saturated").mean()
        found[f"not local, d = {d}"] = (kind == "not local").sum()
    return found


def first_gradient(result: SweepResult) -> Numbers:
    """Shares for every d, and what becomes of the data sets that are not favourable."""
    found = {}
    for d in result.configuration["dimensions"]:
        found[f"favourable, d = {d}"] = result.column("datasets", "favourable", d=d).mean()
        found[f"optimal tokens, d = {d}"] = result.column("datasets", "small_optimal", d=d).mean()
    for name in ("small", "large"):
        found[f"not favourable, {name} steps"] = result.column("datasets", f"{name}_optimal", favourable=False).mean()
    missed = ~result.column("datasets", "small_optimal", favourable=True)
    return found | {"favourable": len(missed), "favourable, small steps elsewhere": missed.sum()}


def cones(result: SweepResult) -> Numbers:
    """Shares that return, for the cones and norms of the table."""
    rows = (("global", 1e-5), ("global", 1.0), ("local", 1e-5), ("local", 0.1), ("not local", 1e-5))
    found = {
        f"{kind}, mu = {opening:g}, norm {radius:g}": result.column(
            "cells", "returned", kind=kind, opening=opening, radius=radius
        ).mean()
        for kind, opening in rows
        for radius in result.configuration["radii"]
    }
    return found | {"no other local optimum": result.counts["local: no such separable selection"]}


def rank(result: SweepResult) -> Numbers:
    """Mean ranks at the largest d, and how many draws the ranks of many inputs rest on."""
    found = {}
    for n in (5, 10, 15):
        for norm in ("frobenius", "nuclear"):
            found[f"{norm}, n = {n}"] = result.column(
                "solutions", "rank_1e-06", norm=norm, n=n, T=5, d=20, feasible=True
            ).mean()
    for d in (2, 3, 4):
        feasible = result.column("solutions", "feasible", norm="frobenius", n=15, T=5, d=d)
        found |= {f"separable, d = {d}": feasible.sum(), f"drawn, d = {d}": len(feasible)}
    spectra = result.arrays["spectra"][result.column("solutions", "feasible")]
    relative = spectra / spectra.max(-1, keepdims=True)
    between = relative[(relative > 1e-13) & (relative < 1e-6)]
    found |= {"solutions": len(spectra), "values between 1e-13 and 1e-6": between.size}
    return found | {"largest of the rest": relative[relative < 1e-13].max(), "least": between.min(initial=1e-6)}


def plane_runs(result: SweepResult) -> Numbers:
    """How many runs are near their own SVM, at the paper's last step and at ours."""
    steps, long_steps = result.configuration["steps"], result.configuration["long_steps"]
    found = {}
    for kind, norm in (("W", "frobenius"), ("KQ", "nuclear")):
        for step in (steps, long_steps):
            where = {"parameterization": kind, "step": step}
            chosen = result.column("history", "dataset", **where) >= 0
            cosine = result.column("history", f"cosine_{norm}", **where)[chosen]
            found[f"{kind}, above .99 at {step}"] = (cosine > 0.99).sum()
            found[f"{kind}, least at {step}"] = cosine.min()
        for reached in ("optimal", "locally_optimal"):
            found[f"{kind}, {reached}"] = result.column("history", reached, **where)[chosen].sum()
    return found


def local_convergence(result: SweepResult) -> Numbers:
    """Distances and cosines to their own SVMs that no check quotes."""

    def cosines(kind: str, run: str, step: int) -> np.ndarray:
        where = {"parameterization": kind, "run": run, "ridge": 0.0, "step": step}
        return result.column("history", "cosine_frobenius" if kind == "W" else "cosine_nuclear", **where)

    return {
        "W, mean cosine at 1000": cosines("W", "paper", 1000).mean(),
        "W, median 1 - cosine at 2000": np.median(1 - cosines("W", "paper", 2000)),
        "W, median 1 - cosine at 20000": np.median(1 - cosines("W", "long", 20_000)),
        "KQ, mean cosine at 2000": cosines("KQ", "paper", 2000).mean(),
        "KQ, median cosine at 2000": np.median(cosines("KQ", "paper", 2000)),
    }


def quadratic_head(result: SweepResult) -> Numbers:
    """On how many data sets and penalties some probability is off by as much as that of a token called dropped."""
    off = np.abs(result.column("tokens", "attention") - result.column("tokens", "predicted"))
    far = off >= result.configuration["dropped"]
    pairs = zip(result.column("tokens", "dataset")[far], result.column("tokens", "penalty")[far], strict=True)
    return {"off": len(set(pairs)), "of": result.configuration["datasets"] * len(result.configuration["penalties"])}


def attention_sparsity(result: SweepResult) -> Numbers:
    """Means over heads and models, for each layer, before and after."""
    found = {}
    last = max(result.configuration["recorded"])
    for layer in range(result.configuration["layers"]):
        for epoch in (0, 10, last):
            for column in ("entropy", "top_mass", "norm", "margin_median"):
                values = result.column("heads", column, epoch=epoch, layer=layer)
                found[f"{column}, layer {layer}, epoch {epoch}"] = values.mean()
    return found


def causal(result: SweepResult) -> Numbers:
    """Selections that are locally optimal and optimal, and cosines to the other SVM."""
    last = result.configuration["steps"]
    found = {}
    for kind in ("W", "KQ"):
        where = {"parameterization": kind, "step": last}
        found[f"{kind}, locally optimal"] = result.column("history", "locally_optimal", **where).sum()
        found[f"{kind}, optimal"] = result.column("history", "optimal", **where).sum()
    for kind, norm in (("W", "nuclear"), ("KQ", "frobenius")):
        found[f"{kind} to the {norm} SVM"] = np.median(
            result.column("history", f"cosine_{norm}", parameterization=kind, step=last)
        )
    return found


def optimizer_geometry(result: SweepResult) -> Numbers:
    """How far mirror descent with the smallest power has come."""
    least = result.column("pairs", "least_attention", optimizer="mirror 1.1", norm="l_1.1")
    return {"mirror 1.1, least attention": least.min()}


_KEPT = {
    "paper's protocol, mean": ("paper", "distance_generalized", np.mean),
    "paper's protocol, median": ("paper", "distance_generalized", np.median),
    "paper's protocol, median, W_svm alone": ("paper", "distance_svm", np.median),
    "paper's protocol, median, one token": ("paper", "distance_one_token", np.median),
    "with the public 1e-9, mean": ("public constant", "distance_generalized", np.mean),
    "decaying steps, median": ("decaying", "distance_generalized", np.median),
}


def multi_token(result: SweepResult) -> Numbers:
    """Means and medians of 1 - cosine for every d, and how many of the runs that went on keep several tokens."""
    found = {
        f"{name}, d = {d}": measure(used(result, column, d, protocol))
        for d in result.configuration["dimensions"]
        for name, (protocol, column, measure) in _KEPT.items()
    }
    several = followed(result, 0.0, "kept") > result.configuration["n"]
    return found | {"followed, all pull, several kept": several.sum()}


FURTHER: Mapping[str, Callable[[SweepResult], Numbers]] = {
    "optimizer-geometry": optimizer_geometry,
    "convergence-types": convergence_types,
    "first-gradient": first_gradient,
    "cones": cones,
    "rank": rank,
    "local-convergence": local_convergence,
    "quadratic-head": quadratic_head,
    "trajectories": plane_runs,
    "hyperplanes": plane_runs,
    "attention-sparsity": attention_sparsity,
    "causal": causal,
    "multi-token": multi_token,
}


# ------------------------------------------------------------------------- tables of the pages


def page_block(found: Found) -> str:
    """The tables of a page: in how many seeds each check holds, and the experiment's own ones."""
    seeds = len(found["seeds"])
    rows = [
        f"`{found['command']}`; where the {seeds} seeds differ, the least and the largest number:", "",
        "| | expected | measured | holds in |", "|---|---|---|---|",
    ]  # fmt: skip
    for check in found["checks"]:
        counts = check["counts"]
        held = f"{counts.get('holds', 0)} of {seeds}"
        if counts.get(Verdict.MEASURED.value) == seeds:
            held = ""
        elif counts.get("not judged"):
            held += f", {counts['not judged']} not judged"
        cells = (check["what"], check["expected"], _joined(check), held)
        rows.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    own = TABLES.get(found["experiment"])
    return "\n".join([*rows, *(["", *own(found["numbers"])] if own else [])])


def _joined(check: Found) -> str:
    """What was measured in all seeds; where another norm comes next in some of them, that norm is not named."""
    texts = check["measured"]
    if len({re.sub(r"\d", "", text) for text in texts}) > 1:
        texts = [re.sub(r"next (?:max )?[A-Za-z]\S* ", "next ", text) for text in texts]
    joined = SeedRow(check["what"], check["expected"], "", texts, []).range
    every = all(re.fullmatch(r"(\S+) of \1", text) for text in texts)
    return re.sub(r"^(.* to .*) of \1$", r"all of \1", joined) if every else joined


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The least and the largest of all seeds, without a zero before the point."""
    least, largest = (re.sub(r"^0(?=\.)", "", f"{value:{form}}") for value in (min(values), max(values)))
    return least if least == largest else f"{least} to {largest}"


def _table_of_types(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    rows = ["| d | global, both starts | not saturated | B1, optimal SVM | B1, every SVM |", "|---|---|---|---|---|"]
    dimensions = [int(name.split("= ")[1]) for name in numbers if name.startswith("global")]
    kinds = ("global", "not saturated", "B1, optimal SVM", "B1, every SVM")
    return rows + [f"| {d} | {' | '.join(spread(numbers[f'{kind}, d = {d}']) for kind in kinds)} |" for d in dimensions]


def _table_of_gradients(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    rows = ["| d | favourable | optimal tokens reached in small steps, all data sets |", "|---|---|---|"]
    dimensions = [int(name.split("= ")[1]) for name in numbers if name.startswith("favourable, d")]
    kinds = ("favourable", "optimal tokens")
    return rows + [f"| {d} | {' | '.join(spread(numbers[f'{kind}, d = {d}']) for kind in kinds)} |" for d in dimensions]


def _table_of_cones(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    starts = list(dict.fromkeys(name.rpartition(", norm")[0] for name in numbers if ", norm" in name))
    radii = list(dict.fromkeys(name.rpartition("norm ")[2] for name in numbers if ", norm" in name))
    words = {"global": "optimal", "local": "locally optimal", "not local": "not locally optimal"}
    rows = [f"| share that returns | {' | '.join(f'norm {radius}' for radius in radii)} |", "|---" * 5 + "|"]
    for start in starts:
        kind, _, opening = start.partition(", ")
        shares = " | ".join(spread(numbers[f"{start}, norm {radius}"]) for radius in radii)
        rows.append(f"| {words[kind]}, {opening} | {shares} |")
    return rows


def _table_of_ranks(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    rows = ["| mean rank at T = 5, d = 20 | Frobenius | nuclear |", "|---|---|---|"]
    for n in (5, 10, 15):
        rows.append(
            f"| n = {n} | {' | '.join(spread(numbers[f'{norm}, n = {n}']) for norm in ('frobenius', 'nuclear'))} |"
        )
    return rows


def _table_of_planes(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    steps = list(dict.fromkeys(int(name.rpartition(" ")[2]) for name in numbers if " at " in name))
    rows = [f"| above .99 to its own SVM | {' | '.join(f'at {step:,}' for step in steps)} |", "|---|---|---|"]
    for kind, name in (("W", "W"), ("KQ", "(K,Q)")):
        cells = [
            f"{spread(numbers[f'{kind}, above .99 at {step}'], '.0f')} of 100, least"
            f" {spread(numbers[f'{kind}, least at {step}'], '.4f')}"
            for step in steps
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def _table_of_layers(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    epochs = list(dict.fromkeys(int(name.rpartition(" ")[2]) for name in numbers))
    rows = [
        f"| mean over heads and models | layer | {' | '.join(f'epoch {epoch}' for epoch in epochs)} |",
        "|---" * (len(epochs) + 2) + "|",
    ]
    words = {"entropy": "entropy of [CLS] over that of even attention", "top_mass": "mass on the top token",
             "norm": "norm of K Q^T", "margin_median": "median margin"}  # fmt: skip
    for column, what in words.items():
        for layer in (0, 1):
            cells = [spread(numbers[f"{column}, layer {layer}, epoch {epoch}"]) for epoch in epochs]
            rows.append(f"| {what} | {layer} | {' | '.join(cells)} |")
    return rows


def _table_of_kept(numbers: Mapping[str, Sequence[float]]) -> list[str]:
    dimensions = list(dict.fromkeys(name.rpartition("= ")[2] for name in numbers if ", d = " in name))
    rows = [f"| 1 - cosine | {' | '.join(f'd = {d}' for d in dimensions)} |", "|---" * (len(dimensions) + 1) + "|"]
    return rows + [
        f"| {name} | {' | '.join(spread(numbers[f'{name}, d = {d}'], '.2g') for d in dimensions)} |" for name in _KEPT
    ]


TABLES: Mapping[str, Callable[[Mapping[str, Sequence[float]]], list[str]]] = {
    "convergence-types": _table_of_types,
    "first-gradient": _table_of_gradients,
    "cones": _table_of_cones,
    "rank": _table_of_ranks,
    "trajectories": _table_of_planes,
    "hyperplanes": _table_of_planes,
    "attention-sparsity": _table_of_layers,
    "multi-token": _table_of_kept,
}


def put_into(page: str, block: str) -> str:
    """The page with `block` between its two comments.

    Raises:
        ValueError: if it does not have them.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs a line {BEGIN!r}, and {END!r} after it")
    return f"{before}{BEGIN}\n\n{block}\n\n{END}{after}"


def main() -> None:
    """Judge every experiment in a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the --out of `attsvm figure run --seeds`")
    parser.add_argument("--only", action="append", help="an experiment; all by default")
    options = parser.parse_args()
    folders = [path for path in sorted(options.folder.iterdir()) if path.name in (options.only or EXPERIMENTS)]
    (RESULTS / "experiments").mkdir(exist_ok=True)
    for folder in folders:
        found = summarize(folder)
        (RESULTS / "experiments" / f"{folder.name}.json").write_text(compact(found), encoding="utf-8")
        page = PAGES / f"{folder.name}.md"
        page.write_text(put_into(page.read_text(encoding="utf-8"), page_block(found)), encoding="utf-8")
        print(f"{folder.name}: {len(found['checks'])} checks in {len(found['seeds'])} seeds")


if __name__ == "__main__":
    main()
