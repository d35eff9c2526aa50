"""`attsvm sweep`: a study described by a file, held against the same steps taken by hand."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

import attsvm
from attsvm.cli.common.grid import _APART, Grid, cells, print_cells, tasks
from attsvm.sweep import SweepResult
from cli.runner import COMMAND, ENVIRONMENT, invoke, refused

SMALL = """
n = [2, 3]
T = 3
d = 4
runs = 30
chunk = 20
parameterization = ["w", "kq"]
initial = "drawn"
steps = 300
norm = ["frobenius", "nuclear"]
store = "selected"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    result = invoke("sweep", written(folder, SMALL), "--out", folder / "out")
    assert result.exit_code == 0, result.output
    assert "120 runs in 4 cells" in result.output
    assert "locally optimal" in result.output
    return folder / "out"


def test_rows_are_those_of_fit_and_solve(finished: Path) -> None:
    result = SweepResult.load(finished)
    assert result.tables["runs"].num_rows == 120
    assert result.tables["solutions"].num_rows == 240
    cell = {"n": 3, "parameterization": "kq"}
    seeds = [(0, _APART + element) for element in range(30)]  # (3, 3, 4) is the second size
    data = attsvm.data.random_sphere(3, 3, 4, batch=30, seed=seeds)
    run = attsvm.fit(
        data, parameterization=attsvm.KeyQuery(), seed=seeds, steps=300, stop=attsvm.descent.Saturated(1e-3, 50)
    )
    solution = attsvm.solve(attsvm.svm.AttentionSVM(data, run.selected), attsvm.Nuclear())
    assert result.column("runs", "steps", **cell).tolist() == run.steps_taken.tolist()
    best = (run.selected == attsvm.optimal_tokens(data)).all(-1)
    assert result.column("runs", "optimal", **cell).tolist() == best.tolist()
    margin = torch.from_numpy(result.column("solutions", "margin", norm="nuclear", **cell))
    torch.testing.assert_close(margin, 1 / attsvm.Nuclear().value(solution.weights), rtol=1e-6, atol=0)
    assert (result.arrays["selected-n3-T3-d4"][30:] == run.selected.numpy()).all()


def test_a_relu_head_is_drawn_as_the_page_says(tmp_path: Path) -> None:
    text = 'n = 2\nT = [3, 4]\nd = 4\nruns = 5\nhead = "relu"\nsteps = 200\nstream = "counter"\nstore = "weights"'
    assert invoke("sweep", written(tmp_path, text), "--out", tmp_path / "out", "--json").exit_code == 0
    weights = SweepResult.load(tmp_path / "out").arrays["weights-n2-T4-d4"]
    element = 2**32 * 1 + 3
    data = attsvm.data.random_sphere(2, 4, 4, batch=1, seed=attsvm.data.Counter(0, first=element))
    columns = attsvm.data.random_sphere(1, 4, 4, batch=1, seed=[(0, element + 2**31)])
    run = attsvm.fit(
        data, attsvm.ReluHead(columns.tokens[:, 0].mT), initial="zeros", steps=200,
        stop=attsvm.descent.Saturated(1e-3, 50),
    )  # fmt: skip
    assert weights[3].tolist() == pytest.approx(run.weights[0].numpy(), abs=1e-9)


@pytest.mark.parametrize("initial", ["zeros", "drawn"])
def test_diagnoses_are_those_of_diagnose(tmp_path: Path, initial: str) -> None:
    text = f'n = 2\nT = 3\nd = 4\nruns = 12\nchunk = 8\nsteps = 100\ninitial = "{initial}"\nstore = "diagnosis"'
    assert invoke("sweep", written(tmp_path, text), "--out", tmp_path / "out", "--json").exit_code == 0
    result = SweepResult.load(tmp_path / "out")
    data = attsvm.data.random_sphere(2, 3, 4, batch=12, seed=0)
    start = "zeros" if initial == "zeros" else attsvm.initial_parameters(data, seed=0)
    diagnosis = attsvm.diagnose(data, initial=start)
    reached = attsvm.fit(data, initial=start, steps=100, stop=attsvm.descent.Saturated(1e-3, 50)).selected
    right = (diagnosis.predicted == reached).all(-1)
    assert result.column("diagnoses", "as_predicted").tolist() == right.tolist()
    assert result.column("diagnoses", "standing").tolist() == [one.name.lower() for one in diagnosis.standing]
    assert result.tables["conditions"].num_rows == 12 * len(diagnosis.conditions)
    for condition in diagnosis.conditions:
        rows = {"condition": condition.name}
        assert result.column("conditions", "element", **rows).tolist() == list(range(12))
        assert result.column("conditions", "holds", **rows).tolist() == condition.holds.tolist()
        margin = result.column("conditions", "margin", **rows).tolist()
        assert margin == pytest.approx(condition.margin.tolist(), rel=1e-6, abs=1e-9, nan_ok=True)


def test_the_summary_counts_the_rows(finished: Path) -> None:
    result = SweepResult.load(finished)
    stored = json.loads((finished / "cells.json").read_text())
    assert [cell["n"] for cell in stored["cells"]] == [2, 2, 3, 3]
    for cell, again in zip(stored["cells"], cells(result), strict=True):
        rows = {"n": cell["n"], "parameterization": cell["parameterization"]}
        assert cell["optimal"] == pytest.approx(result.column("runs", "optimal", **rows).mean())
        low, high = again["optimal_interval"]
        assert 0 <= low < cell["optimal"] < high <= 1
    assert stored["files"] == result.manifest["files"]


def test_the_table_shows_both_ends_of_an_interval(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    found = json.loads((finished / "cells.json").read_text())["cells"]
    print_cells(found)
    shown = capsys.readouterr().out
    for cell in found:  # neither end is as far from the share as the other
        low, high = (f"{100 * end:.2f}" for end in cell["optimal_interval"])
        assert f"{100 * cell['optimal']:.2f} ({low} to {high}) %" in shown


def test_it_goes_on_where_it_was_stopped(finished: Path, tmp_path: Path) -> None:
    config = written(tmp_path, SMALL)
    before = (finished / "runs.parquet").read_bytes()
    chunk = sorted(finished.glob("chunks/*/*.chunk"))[3]
    chunk.unlink()
    assert invoke("sweep", config, "--out", finished, "--resume", "--quiet").exit_code == 0
    assert (finished / "runs.parquet").read_bytes() == before
    refused(invoke("sweep", config, "--out", finished), "--resume")


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "ending"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_an_interrupted_sweep_goes_on_to_the_same_bytes(tmp_path: Path, jobs: int, ending: signal.Signals) -> None:
    background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"] if ending == signal.SIGTERM else []  # as `attsvm ... &`
    config = written(tmp_path, "n = 2\nT = 3\nd = [3, 4]\nruns = 80\nchunk = 2\nsteps = 100")
    options = ("sweep", config, "--jobs", jobs, "--out", tmp_path / "cut")
    process = subprocess.Popen(
        [*background, *COMMAND, *map(str, options)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cut/chunks/*/*.chunk")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(ending)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "attsvm: interrupted; finished chunks are kept, add --resume\n"
    assert 0 < len(list(tmp_path.glob("cut/chunks/*/*.chunk"))) < 80
    refused(invoke("sweep", config, "--out", tmp_path / "cut"), "unfinished; go on from it with --resume")
    assert invoke(*options, "--resume", "--quiet").exit_code == 0
    assert invoke("sweep", config, "--out", tmp_path / "whole", "--quiet").exit_code == 0
    for name in ("runs.parquet", "solutions.parquet", "cells.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_counters_draw_the_same_data_in_every_chunk_size(tmp_path: Path) -> None:
    found = []
    for chunk in (7, 20):
        text = f'n = 2\nT = 3\nd = 4\nruns = 20\nchunk = {chunk}\nsteps = 100\nstream = "counter"\nhead = "relu"'
        out = tmp_path / str(chunk)
        assert invoke("sweep", written(tmp_path, text), "--out", out, "--json").exit_code == 0
        found.append(SweepResult.load(out).column("solutions", "margin"))
    assert found[0].tolist() == pytest.approx(found[1].tolist(), rel=1e-9, nan_ok=True)


def test_cells_of_one_size_share_their_data() -> None:
    grid = Grid(n=(2, 3), optimizer=("ngd", "gd"), head=("linear", "quadratic"), seeds=2, runs=10, chunk=10)
    starts = {(task.values["n"], task.values["start"]) for task in tasks(grid)}
    assert starts == {(2, 0), (3, _APART)}
    assert len(tasks(grid)) == 2 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("k = 3", "sets 'k', which a sweep does not have"),
        ("n = [", "is not TOML"),
        ("n = [0]", "n must be positive"),
        ("n = 99999999999999999999999", "n must be positive and below 2^31"),
        ("d = 200000000", "d must be at most 131,072, since W has d x d entries; got 200000000"),
        ("step_size = 1" + 400 * "0", "step_size must be a positive finite number; got 1000"),
        ("seed = 18446744073709551616", "seed must be below 2^63"),
        ("seed = 9223372036854775806\nseeds = 3", "seed must be below 2^63"),
        ("runs = 1000000000000", "at most 1,000,000 chunks, and make 1,000,000,000: enlarge chunk"),
        ('data = "orthonormal"\nd = [10, 5]', "T must be at most d for orthonormal tokens; got 8 and 5"),
        (
            'norm = ["frobenius", "projective"]\nd = [10, 20]',
            "norm must have a solver for every d; projective has none for d = 20",
        ),
        ('loss = "log"', "loss must be defined for margins of either sign"),
        ('store = "diagnosis"\noptimizer = "lion"', 'store = "diagnosis" needs a known limit for optimizer lion: '),
        ('parameterization = ["kq", "key-query"]\ninitial = "drawn"', "key-query means the same as one before it"),
        ("n = []", "n must have a value; got an empty list"),
        ("n = [2, 3, 2]", "n must list every value once; got [2, 3, 2]"),
        ('norm = ["l2", "l2"]', "norm must list every value once"),
        ("saturated = 2.0", "saturated must lie strictly between 0 and 1; got 2.0"),
        ("saturated = nan", "saturated must lie strictly between 0 and 1; got nan"),
        ("rank = 2", 'rank belongs to parameterization "kq"; got 2'),
        ('rank = -1\nparameterization = "kq"\ninitial = "drawn"', "rank must be a non-negative integer"),
        ('optimizer = "steepest"', "optimizer steepest needs norm, which a sweep does not have"),
        ('optimizer = ["ngd", "mirror"]', "optimizer mirror needs p, which a sweep does not have"),
        ("runs = 0", "runs must be a positive integer"),
        ("runs = true", "runs must be an integer; got True"),
        ('loss = ["logistic"]', "loss must be a string"),
        ("n = 2.5", "every part of n must be an integer"),
        ('optimizer = "adm"', "did you mean adam"),
        ('norm = "nucler"', "did you mean nuclear"),
        ('norm = "l0.5"', "norm l<p> needs p of at least 1, or inf; got l0.5"),
        ('data = "cube"', "data must be one of sphere"),
        ('parameterization = "kq"', 'initial must be "drawn"'),
    ],
)
def test_bad_input(tmp_path: Path, text: str, words: str) -> None:
    refused(invoke("sweep", written(tmp_path, text), "--out", tmp_path / "out"), "study.toml", words)
    assert not (tmp_path / "out").exists()


def test_a_grid_that_fits_into_no_memory_is_one_sentence(tmp_path: Path) -> None:
    config = written(tmp_path, "n = [2, 1999999999]")
    words = (
        "a chunk of 1,000 data sets of n, T, d = 1999999999, 8, 10 needs at least",
        "make chunk or the sizes smaller",
    )
    refused(invoke("sweep", config, "--out", tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_else(finished: Path, tmp_path: Path) -> None:
    other = written(tmp_path, SMALL.replace("[2, 3]", "[2, 4]"))
    for resume in ((), ("--resume",)):
        refused(invoke("sweep", other, "--out", finished, *resume), "n [2, 4] instead of [2, 3]", "--overwrite")
    assert invoke("train", "two-inputs", "--steps", 5, "--out", tmp_path / "run", "--quiet").exit_code == 0
    refused(invoke("sweep", other, "--out", tmp_path / "run", "--overwrite"), "holds another result")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    refused(invoke("sweep", tmp_path / "no.toml"), "cannot be read")


def test_files_of_somebody_else_are_kept(tmp_path: Path) -> None:
    """A folder without a manifest is not a sweep's, whatever its files are called; only chunks are ever removed."""
    config = written(tmp_path, "runs = 3\nsteps = 20\nd = 4")
    for name in ("runs.parquet", "cells.json"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text("mine")
        for resume in ((), ("--resume",)):
            words = f"holds {name}, but no manifest", "--overwrite"
            refused(invoke("sweep", config, "--out", folder, *resume), *words)
        assert (folder / name).read_text() == "mine"
    mine = tmp_path / "out/chunks/raw/data.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for _ in range(2):
        assert invoke("sweep", config, "--out", tmp_path / "out", "--overwrite").exit_code == 0
        assert mine.read_text() == "mine"


def test_saturation_is_judged_as_exactly_as_it_stops_runs(tmp_path: Path) -> None:
    """1 less the largest share is round-off below 1e-16; no run of 500 steps comes to 1e-100."""
    config = written(tmp_path, "runs = 5\nsteps = 500\nsaturated = 1e-100")
    assert invoke("sweep", config, "--out", tmp_path / "out").exit_code == 0
    result = SweepResult.load(tmp_path / "out")
    assert (result.column("runs", "steps") == 500).all()
    assert not result.column("runs", "saturated").any()
    assert next(cells(result))["steps"] is None  # they need more


def test_everything_is_counted() -> None:
    """Four runs of a cell in two norms, one not solved, one proved infeasible; two of them saturate."""
    cell = {"n": 2, "T": 3, "d": 4, "seed": 0, "head": "linear", "parameterization": "w", "optimizer": "ngd"}
    runs = [{**cell, "optimal": True, "locally_optimal": True, "undecided": False, "saturated": saturated,
             "steps": steps} for saturated, steps in ((True, 10), (True, 20), (False, 50), (False, 7))]  # fmt: skip
    solutions = [{**cell, "norm": norm, "solved": solved, "infeasible": infeasible, "margin": margin, "cosine": margin}
                 for norm in ("a", "b") for solved, infeasible, margin in (
                     (True, False, 1.0), (True, False, 2.0), (norm == "a", False, 4.0 if norm == "a" else np.nan),
                     (False, norm == "a", np.nan))]  # fmt: skip
    tables = {"runs": pa.Table.from_pylist(runs), "solutions": pa.Table.from_pylist(solutions)}
    (found,) = cells(SimpleNamespace(tables=tables))
    assert (found["saturated"], found["steps"]) == (0.5, None)
    assert [found[f"{name}_a"] for name in ("solved", "infeasible", "margin")] == [3, 1, 2.0]
    assert [found[f"{name}_b"] for name in ("solved", "infeasible", "margin")] == [2, 0, 1.5]
    tables["runs"] = pa.Table.from_pylist([*runs, {**runs[0], "steps": 30}])
    assert next(cells(SimpleNamespace(tables=tables)))["steps"] == 30


def test_directions_that_are_none_and_problems_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One token leaves W = 0; a solver that stops at once leaves every problem of the second norm."""
    text = "n = 2\nT = [1, 3]\nd = 3\nruns = 20\nsteps = 100\nnorm = ['frobenius', 'l3']"
    solve, lazy = attsvm.solve, attsvm.svm.Conic(tolerance=0.5)
    monkeypatch.setattr(attsvm, "solve", lambda problem, norm: solve(
        problem, norm, solver=None if isinstance(norm, attsvm.Frobenius) else lazy))  # fmt: skip
    result = invoke("sweep", written(tmp_path, text), "--out", tmp_path / "out")
    found = SweepResult.load(tmp_path / "out")
    alone, several = cells(found)
    assert (alone["solved_frobenius"], alone["cosine_frobenius"], several["solved_frobenius"]) == (20, None, 20)
    assert np.isnan(found.column("solutions", "cosine", T=1)).all()
    left = 20 - several["solved_l3"]
    assert left > 0
    assert f"40 runs in 2 cells in {tmp_path / 'out'}; {left} problems neither solved" in result.output
    assert sum(found.counts.values()) == left
    assert "solved, l3" in result.output


def test_a_file_of_notepad(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_bytes(b"\xef\xbb\xbfruns = 3\nsteps = 20\nd = 4")
    assert invoke("sweep", tmp_path / "study.toml", "--out", tmp_path / "out").exit_code == 0


def test_the_page_names_every_line_and_what_it_is_unless_given() -> None:
    page = (Path(__file__).parents[2] / "docs/sweeps.md").read_text()
    told: dict[str, str] = {}
    for line in page.splitlines():
        names, *cells = line.strip("|").split(" | ") if line.startswith("| `") else ("",)
        told |= zip(re.findall("`(\\w+)`", names), cells[0].split(", "), strict=True) if cells else {}
    usual = {name: value[0] if isinstance(value, tuple) else value for name, value in vars(Grid()).items()}
    assert told == {name: f'"{value}"' if isinstance(value, str) else told[name] for name, value in usual.items()}
    assert all(float(told[name]) == value for name, value in usual.items() if not isinstance(value, str))


def test_a_row_is_drawn_again_as_the_page_says(tmp_path: Path) -> None:
    text = 'n = [2, 3]\nT = 3\nd = [4, 5]\nruns = 4\nsteps = 40\nstore = "selected"\n'
    text += 'parameterization = "kq"\ninitial = "drawn"'
    assert invoke("sweep", written(tmp_path, text), "--out", tmp_path / "out").exit_code == 0
    result = SweepResult.load(tmp_path / "out")
    stream = [(0, 2**32 * 2 + 3)]
    data = attsvm.data.random_sphere(n=3, T=3, d=4, batch=1, seed=stream)
    run = attsvm.fit(data, parameterization=attsvm.KeyQuery(), seed=stream, steps=40)
    solution = attsvm.solve(attsvm.AttentionSVM(data, run.selected))
    assert result.arrays["selected-n3-T3-d4"][3].tolist() == run.selected[0].tolist()
    margin = result.column("solutions", "margin", n=3, d=4, element=3)
    assert float(margin[0]) == pytest.approx(1 / float(solution.certificate.primal_value[0]))


def test_a_folder_without_a_name(tmp_path: Path) -> None:
    refused(invoke("sweep", written(tmp_path, "runs = 3"), "--out", ""), "--out", "it must name a folder")
