"""`attsvm demo`: the first thing to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import typer

from attsvm.attention import KeyQuery, best_risk, optimal_tokens
from attsvm.cli.options import Device, Json, Out, Quiet, SeedOption, checked_device, checked_folder
from attsvm.cli.report import number, print_json, print_table, progress_bar, tiny
from attsvm.data import TokenDataset, example, streams
from attsvm.descent import Run, TorchEngine, fit

_STEPS = 2000
# Every step while the paths are among the tokens, then now and then.
_RECORD = (*range(200), *range(200, _STEPS + 1, 20))
_CAPTION = (
    "A token's logit is its inner product with the path, so the token farthest along it wins.\n"
    "Training $W$ turns each query its own way; $K$ and $Q$ favour low rank and turn both alike."
)


def demo(
    out: Out = Path("out"), seed: SeedOption = 0, device: Device = "cpu", quiet: Quiet = False, json: Json = False
) -> None:
    """Train W and (K, Q) on two inputs in the plane, print what was selected, draw FOLDER/demo.png."""
    where = checked_device(device)
    folder = checked_folder(out)
    data = example("two-inputs").to(where)
    runs = _train(data, seed, quiet or json)
    picture = _draw(data, runs, folder)
    result = _result(data, runs)
    if json:
        print_json({**result, "picture": str(picture)})
        return
    if not quiet:
        _print(result)
    typer.echo(f"The picture is in {picture}")


def _train(data: TokenDataset, seed: int, quiet: bool) -> dict[str, Run]:
    key = 0.1 * streams(seed, ())[0].standard_normal((data.d, data.d))
    start = {"key": data.tokens.new_tensor(key), "query": data.tokens.new_zeros(data.dq, data.d)}
    # The compiled engine would spend longer on compiling than these two runs take.
    engine = TorchEngine()
    with progress_bar("Training W, then K and Q", 2 * _STEPS, quiet=quiet) as report:
        weights = fit(
            data, steps=_STEPS, record=_RECORD, initial="zeros", engine=engine, progress=lambda done, _: report(done)
        )
        factors = fit(
            data, steps=_STEPS, record=_RECORD, initial=start, parameterization=KeyQuery(), engine=engine,
            progress=lambda done, _: report(_STEPS + done),
        )  # fmt: skip
    return {"W": weights, "K Q^T": factors}


def _draw(data: TokenDataset, runs: dict[str, Run], folder: Path) -> Path:
    from attsvm.plots import plot_trajectory_2d  # matplotlib starts only where something is drawn

    named = dict(zip(("W", r"K Q^{\mathsf{T}}"), runs.values(), strict=True))
    figure = plot_trajectory_2d(
        data, named, title="Training turns attention to the best token of every input", caption=_CAPTION
    )
    picture = folder / "demo.png"
    figure.savefig(picture, dpi=200, metadata={"Software": "attsvm"})
    return picture


def _result(data: TokenDataset, runs: dict[str, Run]) -> dict[str, Any]:
    optimal = optimal_tokens(data).tolist()
    return {
        "best_risk": float(best_risk(data)),
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
                "notes": run.notes,
            }
            for name, run in runs.items()
        ],
    }


def _log_remaining(run: Run) -> torch.Tensor:
    """Logarithm of the attention that the selected token leaves to the others."""
    return run.log_attention.scatter(-1, run.selected.unsqueeze(-1), -torch.inf).logsumexp(-1)


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
    typer.echo(f"The best possible risk is {number(result['best_risk'])}; no finite weights reach it.")
    for run in result["runs"]:
        for note in run["notes"]:
            typer.echo(f"{run['run']}: {note}")
