"""What a solution is worth, in a few numbers: for the table and for JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor

from attsvm.cli.report import number, print_table
from attsvm.svm import AttentionSVM, Status, SVMSolution

SOLVED, INFEASIBLE, NOT_CONVERGED = 0, 3, 4
"""Exit codes; infeasible if any problem is, and not converged if any is left open and none is infeasible."""

# Names in JSON, what the table calls them, and digits.
_PROOF = (
    ("primal_value", "Primal value N(W)", 10),
    ("dual_value", "Dual value, a lower bound on it", 10),
    ("relative_gap", "Relative gap", 3),
    ("min_margin", "Smallest margin", 10),
    ("largest_violation", "Largest violation", 3),
    ("dual_violation", "Largest violation of the duals", 3),
    ("support", "Support tokens", 6),
    ("rank", "Rank of W", 6),
)
_RAY = (
    ("ray_residual", "Residual of the ray", 3),
    ("dual_value", "No solution has a norm below", 6),
)
_MOST_ELEMENTS = 100


def verdict(problem: AttentionSVM, solution: SVMSolution) -> dict[str, Any]:
    """Status, certificate, support and rank, JSON-able; over many problems as median, lowest and highest."""
    found = _numbers(solution)
    codes = solution.codes.flatten()
    none = solution.infeasible.flatten()
    proof = [name for name, _, _ in _PROOF if name in vars(solution.certificate)]
    result: dict[str, Any] = {
        "problems": codes.numel(),
        "rows": _spread(problem.rows.sum((-1, -2)).flatten()),
        "norm": repr(solution.norm),
        "solver": solution.solver,
        "tolerance": solution.tolerance,
        "status": {status.name.lower(): int((codes == code).sum()) for code, status in enumerate(Status)},
        "certificate": {name: _spread(found[name][~none]) for name in proof},
        "ray": {name: _spread(found[name][none]) for name, _, _ in _RAY},
        "support": _spread(found["support"][~none]),
        "rank": _spread(found["rank"][~none]),
        "ambiguous_rows": int(solution.ambiguous.sum()),
        "unique": int(solution.unique.sum()),
        "iterations": _spread(solution.iterations.flatten()),
        "seconds": solution.seconds,
        "exit_code": exit_code(solution),
    }
    if codes.numel() <= _MOST_ELEMENTS:
        result["elements"] = [
            {"status": list(Status)[int(codes[b])].name.lower(), "unique": bool(solution.unique.flatten()[b])}
            | {name: values[b].item() for name, values in found.items()}
            for b in range(codes.numel())
        ]
    return result


def exit_code(solution: SVMSolution) -> int:
    """0, 3 or 4; see above."""
    if bool(solution.infeasible.any()):
        return INFEASIBLE
    return SOLVED if bool(solution.solved.all()) else NOT_CONVERGED


def print_verdict(result: dict[str, Any], norm: str, folder: Path, *, quiet: bool) -> None:
    """The verdict as a table, or, if `quiet`, in one line."""
    count = result["problems"]
    if quiet:
        typer.echo(f"{_counted(result)}; {norm}, {result['solver']}, {result['seconds']:.3g} s; in {folder}")
        return
    several = count > 1
    kinds = ("median", "lowest", "highest") if several else ("median",)
    columns = [("", "left"), *((kind.capitalize() if several else "Value", "right") for kind in kinds)]
    groups = ({**result["certificate"], "support": result["support"], "rank": result["rank"]}, result["ray"])
    rows: list[list[str]] = []
    for group, lines in zip(groups, (_PROOF, _RAY), strict=True):
        shown = [(label, group[name], digits) for name, label, digits in lines if group[name] is not None]
        rows += [[label, *(_shown(values[kind], digits) for kind in kinds)] for label, values, digits in shown]
        rows += [[]] if shown else []
    blank = [""] * (len(kinds) - 1)
    rows.append(["Solver", result["solver"], *blank])
    rows.append(["Iterations", *(_shown(result["iterations"][kind], 6) for kind in kinds)])
    rows.append(["Time", f"{result['seconds']:.3g} s", *blank])
    most = int(result["rows"]["highest"])
    print_table(f"{_plural(count, 'problem')} of {_most(several, most)}, {norm} norm", columns, rows)
    for status in Status:
        number_of = result["status"][status.name.lower()]
        if number_of:
            typer.echo(f"{number_of} of {count} {status.value}" if several else _capital(status.value))
    for sentence in _remarks(result):
        typer.echo(sentence)
    typer.echo(f"The solution, its certificate and its manifest are in {folder}")


def _remarks(result: dict[str, Any]) -> list[str]:
    """What a reader of the numbers should know."""
    said = []
    status, several = result["status"], result["problems"] > 1
    if status["infeasible"]:
        said.append("The duals hold the ray: it proves that no W of a norm below the bound separates the selection.")
    if status["not_converged"]:
        said.append(f"The certificate had to hold to {result['tolerance']:.0e}; another --solver may get there.")
    if result["ambiguous_rows"]:
        rows = _plural(result["ambiguous_rows"], "row")
        said.append(f"{rows} so near the margin that only the tolerance decides between support and not.")
    solved = status["solved"] + status["no_rows"]
    if solved and result["unique"] < solved:
        which = f"{solved - result['unique']} of {solved} solutions are" if several else "The solution is"
        said.append(f"{which} not known to be the only one.")
    return said


def _numbers(solution: SVMSolution) -> dict[str, Tensor]:
    """Everything the tables show, one number a problem."""
    found = {name: value.flatten() for name, value in vars(solution.certificate).items()}
    found["support"] = solution.support.sum((-1, -2)).flatten()
    found["rank"] = solution.rank().flatten()
    found["iterations"] = solution.iterations.flatten()
    return found


def _spread(values: Tensor) -> dict[str, float] | None:
    if values.numel() == 0:
        return None
    flat = values.to(torch.float64)
    return {"median": float(flat.median()), "lowest": float(flat.min()), "highest": float(flat.max())}


def _counted(result: dict[str, Any]) -> str:
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in result["status"].items() if count]
    return f"{_plural(result['problems'], 'problem')}: {', '.join(parts)}"


def _shown(value: float, digits: int) -> str:
    return "infinite" if math.isinf(value) else number(value + 0.0, digits)  # + 0.0: never -0


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _most(several: bool, rows: int) -> str:
    return f"up to {_plural(rows, 'row')}" if several else _plural(rows, "row")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:] + "."
