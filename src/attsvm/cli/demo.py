"""`attsvm demo`: the first thing to run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer

import attsvm
from attsvm.cli.common.files import checked_folder
from attsvm.cli.common.inputs import checked_device
from attsvm.cli.common.options import Device, Json, Out, Quiet, Seed
from attsvm.cli.common.registry import norm_named
from attsvm.cli.common.report import number, print_json, print_table, progress_bar, tiny

_STEPS = 2000
# Every step while the paths are among the tokens, then now and then.
_RECORD = (*range(200), *range(200, _STEPS + 1, 20))
_NORMS = ("frobenius", "nuclear")
# The SVM that each run's direction is known, or thought, to tend to.
_EXPECTED = {"W": "frobenius", "K Q^T": "nuclear"}
_TITLE = "Training turns attention onto the max-margin directions"
_CAPTION = (
    "A token's logit is its inner product with the path, so the token farthest along it wins.\n"
    "$W$ bends onto the Frobenius solution; $K$ and $Q$ onto the nuclear one, of low rank."
)


def demo(
    out: Out = Path("out"), seed: Seed = 0, device: Device = "cpu", quiet: Quiet = False, json: Json = False
) -> None:
    """Train W and (K, Q) on two inputs in the plane, solve for what they select, compare, draw FOLDER/demo.png."""
    where = checked_device(device)
    folder = checked_folder(out)
    data = attsvm.data.example("two-inputs").to(where)
    runs = _train(data, seed, quiet or json)
    solutions: dict[str, dict[str, attsvm.SVMSolution]] = {}  # for a run's selection, by run and norm
    for name, run in runs.items():
        problem = attsvm.AttentionSVM(data, run.selected)
        solutions[name] = {norm: attsvm.solve(problem, norm_named(norm)).require_solved() for norm in _NORMS}
    named = dict(zip(("W", r"K Q^{\mathsf{T}}"), runs.values(), strict=True))
    tended = [solutions[name][kind] for name, kind in _EXPECTED.items()]
    figure = attsvm.plots.plot_trajectory_2d(data, named, solutions=tended, title=_TITLE, caption=_CAPTION)
    picture = attsvm.plots.style.save(figure, folder / "demo.png", "png", dpi=200)
    told = [{"run": name, **_run(data, run), **_svm(name, run, solutions[name])} for name, run in runs.items()]
    result = {"best_risk": float(attsvm.best_risk(data)), "runs": told}
    if json:
        print_json({**result, "picture": str(picture)})
        return
    if not quiet:
        _print(result)
    typer.echo(f"The picture is in {picture}")


def _train(data: attsvm.TokenDataset, seed: int, quiet: bool) -> dict[str, attsvm.Run]:
    key = 0.1 * attsvm.data.streams(seed, ())[0].standard_normal((data.d, data.d))
    start = {"key": data.tokens.new_tensor(key), "query": data.tokens.new_zeros(data.dq, data.d)}
    # The compiled engine would spend longer on compiling than these two runs take.
    shared: dict[str, Any] = {"steps": _STEPS, "record": _RECORD, "engine": attsvm.descent.TorchEngine()}
    with progress_bar("Training W, then K and Q", 2 * _STEPS, quiet=quiet) as report:
        weights = attsvm.fit(data, initial="zeros", progress=lambda done, _: report(done), **shared)
        shared |= {"parameterization": attsvm.KeyQuery(), "initial": start}
        factors = attsvm.fit(data, progress=lambda done, _: report(_STEPS + done), **shared)
    return {"W": weights, "K Q^T": factors}


def _run(data: attsvm.TokenDataset, run: attsvm.Run) -> dict[str, Any]:
    # What the selected token leaves to the others, as a logarithm.
    left = run.log_attention.scatter(-1, run.selected.unsqueeze(-1), -math.inf).logsumexp(-1)
    chosen, optimal = run.selected.tolist(), attsvm.optimal_tokens(data).tolist()
    inputs = [
        {"input": i, "selected": token, "attention": float(run.attention[i, token]), "log_remaining": float(left[i]),
         "optimal": optimal[i], "is_optimal": token == optimal[i]}
        for i, token in enumerate(chosen)
    ]  # fmt: skip
    return {"risk": float(run.risk), "norm": float(run.norm), "steps": run.step, "inputs": inputs, "notes": run.notes}


def _svm(name: str, run: attsvm.Run, solved: dict[str, attsvm.SVMSolution]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind, solution in solved.items():
        cosine, proof = attsvm.direction_cosine(run.weights, solution.weights), solution.certificate
        found[kind] = {"cosine": cosine, "relative_gap": proof.relative_gap, "min_margin": proof.min_margin}
        found[kind] = {name: float(value) for name, value in found[kind].items()} | {"solver": solution.solver}
    return {"expected": _EXPECTED[name], "svm": found}


def _print(result: dict[str, Any]) -> None:
    columns = (
        ("Run", "left"), ("Risk", "right"), ("Norm", "right"), ("Input", "right"), ("Selected", "left"),
        ("Attention on it", "right"), ("Left to others", "right"), ("Optimal", "left"),
    )  # fmt: skip
    rows: list[list[str]] = []
    for run in result["runs"]:
        first = [run["run"], number(run["risk"]), number(run["norm"])]
        for one in run["inputs"]:
            optimal = "yes" if one["is_optimal"] else f"no, token {one['optimal']} is"
            attention = (f"{one['attention']:.6f}", tiny(one["log_remaining"]))
            rows.append([*first, str(one["input"]), f"token {one['selected']}", *attention, optimal])
            first = ["", "", ""]
        rows.append([])
    print_table(f"Two inputs of four tokens in the plane, {_STEPS} steps of normalized gradient descent", columns, rows)
    typer.echo(f"The best possible risk is {number(result['best_risk'])}; no finite weights reach it.\n")
    rows = [
        [run["run"], *(f"{run['svm'][kind]['cosine']:.6f}" for kind in _NORMS), norm_named(run["expected"]).name]
        for run in result["runs"]
    ]
    narrow = (("Run", "left"), ("Frobenius SVM", "right"), ("Nuclear SVM", "right"), ("Expected", "left"))
    print_table("Cosine with the max-margin solutions", narrow, rows)
    gap = max(run["svm"][kind]["relative_gap"] for run in result["runs"] for kind in _NORMS)
    typer.echo(f"Each solution is proved optimal: the largest relative gap is {gap:.1g}.")
    for run in result["runs"]:
        for note in run["notes"]:
            typer.echo(f"{run['run']}: {note}")
