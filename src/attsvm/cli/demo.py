"""`attsvm demo`: the first thing to run."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import attsvm
from attsvm.cli.common.files import checked_folder
from attsvm.cli.common.inputs import checked_device
from attsvm.cli.common.options import Device, Json, Out, Quiet, Seed
from attsvm.cli.common.registry import norm_named
from attsvm.cli.common.report import number, print_json, print_table, progress_bar, tiny

if TYPE_CHECKING:
    from torch import Tensor

_STEPS = 2000
# Every step while the paths are among the tokens, then now and then.
_RECORD = (*range(200), *range(200, _STEPS + 1, 20))
_NORMS = ("frobenius", "nuclear")
# The SVM that each run's direction is known, or thought, to tend to.
_EXPECTED = {"W": "frobenius", "K Q^T": "nuclear"}
_CAPTION = (
    "A token's logit is its inner product with the path, so the token farthest along it wins.\n"
    "$W$ bends onto the Frobenius solution; $K$ and $Q$ onto the nuclear one, of low rank."
)

Solutions = Mapping[str, Mapping[str, "attsvm.SVMSolution"]]  # the solution for a run's selection, by run and norm


def demo(
    out: Out = Path("out"), seed: Seed = 0, device: Device = "cpu", quiet: Quiet = False, json: Json = False
) -> None:
    """Train W and (K, Q) on two inputs in the plane, solve for what they select, compare, draw FOLDER/demo.png."""
    where = checked_device(device)
    folder = checked_folder(out)
    data = attsvm.data.example("two-inputs").to(where)
    runs = _train(data, seed, quiet or json)
    problems = {name: attsvm.AttentionSVM(data, run.selected) for name, run in runs.items()}
    solutions = {
        name: {norm: attsvm.solve(problem, norm_named(norm)).require_solved() for norm in _NORMS}
        for name, problem in problems.items()
    }
    picture = _draw(data, runs, solutions, folder)
    result = _result(data, runs, solutions)
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
    engine = attsvm.descent.TorchEngine()
    with progress_bar("Training W, then K and Q", 2 * _STEPS, quiet=quiet) as report:
        weights = attsvm.fit(
            data, steps=_STEPS, record=_RECORD, initial="zeros", engine=engine, progress=lambda done, _: report(done)
        )
        factors = attsvm.fit(
            data, steps=_STEPS, record=_RECORD, initial=start, parameterization=attsvm.KeyQuery(), engine=engine,
            progress=lambda done, _: report(_STEPS + done),
        )  # fmt: skip
    return {"W": weights, "K Q^T": factors}


def _draw(data: attsvm.TokenDataset, runs: dict[str, attsvm.Run], solutions: Solutions, folder: Path) -> Path:
    named = dict(zip(("W", r"K Q^{\mathsf{T}}"), runs.values(), strict=True))
    figure = attsvm.plots.plot_trajectory_2d(
        data,
        named,
        solutions=[solutions[name][kind] for name, kind in _EXPECTED.items()],
        title="Training turns attention onto the max-margin directions",
        caption=_CAPTION,
    )
    from attsvm.data.files import write_atomically

    picture = folder / "demo.png"
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=200, metadata={"Software": "attsvm"})
    return write_atomically(picture, content.getvalue())


def _result(data: attsvm.TokenDataset, runs: dict[str, attsvm.Run], solutions: Solutions) -> dict[str, Any]:
    optimal = attsvm.optimal_tokens(data).tolist()
    return {
        "best_risk": float(attsvm.best_risk(data)),
        "runs": [
            {
                "run": name,
                "risk": float(run.risk),
                "norm": float(run.norm),
                "steps": run.step,
                "inputs": [
                    {
                        "input": i,
                        "selected": int(run.selected[i]),
                        "attention": float(run.attention[i, run.selected[i]]),
                        "log_remaining": float(_log_remaining(run)[i]),
                        "optimal": optimal[i],
                        "is_optimal": int(run.selected[i]) == optimal[i],
                    }
                    for i in range(data.n)
                ],
                "expected": _EXPECTED[name],
                "svm": {
                    kind: {
                        "cosine": float(attsvm.direction_cosine(run.weights, solution.weights)),
                        "relative_gap": float(solution.certificate.relative_gap),
                        "min_margin": float(solution.certificate.min_margin),
                        "solver": solution.solver,
                    }
                    for kind, solution in solutions[name].items()
                },
                "notes": run.notes,
            }
            for name, run in runs.items()
        ],
    }


def _log_remaining(run: attsvm.Run) -> Tensor:
    """Logarithm of the attention that the selected token leaves to the others."""
    return run.log_attention.scatter(-1, run.selected.unsqueeze(-1), -math.inf).logsumexp(-1)


def _print(result: dict[str, Any]) -> None:
    columns = (
        ("Run", "left"), ("Risk", "right"), ("Norm", "right"), ("Input", "right"), ("Selected", "left"),
        ("Attention on it", "right"), ("Left to others", "right"), ("Optimal", "left"),
    )  # fmt: skip
    rows: list[list[str]] = []
    for run in result["runs"]:
        for place, one in enumerate(run["inputs"]):
            first = place == 0
            rows.append([
                run["run"] if first else "", number(run["risk"]) if first else "", number(run["norm"]) if first else "",
                str(one["input"]), f"token {one['selected']}", f"{one['attention']:.6f}", tiny(one["log_remaining"]),
                "yes" if one["is_optimal"] else f"no, token {one['optimal']} is",
            ])  # fmt: skip
        rows.append([])
    print_table(f"Two inputs of four tokens in the plane, {_STEPS} steps of normalized gradient descent", columns, rows)
    typer.echo(f"The best possible risk is {number(result['best_risk'])}; no finite weights reach it.\n")
    _print_cosines(result["runs"])
    for run in result["runs"]:
        for note in run["notes"]:
            typer.echo(f"{run['run']}: {note}")


def _print_cosines(runs: list[dict[str, Any]]) -> None:
    """The table of cosines; every row names the SVM that its run should tend to."""
    rows = [
        [run["run"], *(f"{run['svm'][kind]['cosine']:.6f}" for kind in _NORMS), norm_named(run["expected"]).name]
        for run in runs
    ]
    columns = (("Run", "left"), ("Frobenius SVM", "right"), ("Nuclear SVM", "right"), ("Expected", "left"))
    print_table("Cosine with the max-margin solutions", columns, rows)
    gap = max(run["svm"][kind]["relative_gap"] for run in runs for kind in _NORMS)
    typer.echo(f"Each solution is proved optimal: the largest relative gap is {gap:.0e}.")
