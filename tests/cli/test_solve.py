from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch

import attsvm
from attsvm import SVMSolution, TokenDataset
from attsvm.cli import solve as command
from attsvm.cli.common.report import status_line
from attsvm.svm import Status
from cases import CASES
from cli.runner import invoke, refused, shell


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def data():
    return attsvm.data.random_sphere(n=3, T=4, d=5, seed=2)


@pytest.fixture
def file(tmp_path, data):
    return data.save(tmp_path / "data.npz")


@pytest.fixture
def infeasible(tmp_path):
    """Eight tokens of twenty inputs in the plane: far more rows than the four entries of W can satisfy."""
    return attsvm.data.random_sphere(n=20, T=8, d=2, seed=0).save(tmp_path / "infeasible.safetensors")


def saved(out):
    return SVMSolution.load(out / "solution.safetensors")


@pytest.mark.parametrize(
    ("arguments", "norm"),
    [
        (("frobenius",), attsvm.Frobenius()),
        (("nuclear",), attsvm.Nuclear()),
        (("spectral",), attsvm.Spectral()),
        (("max-entry",), attsvm.MaxEntry()),
        (("sum-entry",), attsvm.SumEntry()),
        (("l3",), attsvm.Entrywise(3)),
        (("l1.75",), attsvm.Entrywise(1.75)),
        (("entrywise", "--p", 3), attsvm.Entrywise(3)),
    ],
)
def test_a_solution_is_the_same_as_in_python(file, data, out, arguments, norm):
    result = invoke("solve", file, "--norm", *arguments, "--out", out)
    assert result.exit_code == 0, result.output
    expected = attsvm.solve(attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)), norm)
    found = saved(out)
    assert found.norm == norm
    assert found.solver == expected.solver
    for name in ("weights", "duals", "support"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.status is Status.SOLVED


def test_the_table_shows_the_certificate(file, out):
    result = invoke("solve", file, "--out", out)
    for heading in (
        "Primal value", "Dual value", "Relative gap", "Smallest margin", "Largest violation", "Support tokens",
        "Rank of W", "Solver", "Iterations", "Time", "1 problem of 9 rows, Frobenius norm",
    ):  # fmt: skip
        assert heading in result.stdout, heading
    assert "Solved: the certificate proves the solution optimal to the tolerance." in result.stdout
    assert str(out) in result.stdout
    shown = next(line.split()[-1] for line in result.stdout.splitlines() if "Primal value" in line)
    assert float(shown) == pytest.approx(float(saved(out).certificate.primal_value), rel=1e-8)


def test_the_manifest_says_how_it_was_made(file, out):
    invoke("solve", file, "--norm", "nuclear", "--out", out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["command"].startswith("attsvm solve ")
    assert manifest["settings"]["norm"] == "Nuclear()"
    assert manifest["settings"]["select"] == "optimal"
    assert manifest["counts"] == {status.name.lower(): int(status is Status.SOLVED) for status in Status}
    assert manifest["ran"] == "NuclearInteriorPoint"
    assert "seed" not in manifest  # solving draws nothing
    assert sorted(path.name for path in out.iterdir()) == sorted(manifest["files"])


def test_json_is_one_object_and_nothing_else(file, out):
    result = invoke("solve", file, "--out", out, "--json")
    assert result.stderr == ""
    found = json.loads(result.stdout)
    solution = saved(out)
    assert found["problems"] == 1
    assert found["exit_code"] == result.exit_code == 0
    assert found["certificate"]["relative_gap"]["highest"] == float(solution.certificate.relative_gap)
    assert found["ray"] == {"ray_residual": None, "dual_value": None}
    (element,) = found["elements"]
    assert element["status"] == "solved"
    assert element["support"] == int(solution.support.sum())
    assert element["rank"] == int(solution.rank())
    assert found["files"] == [str(out / "solution.safetensors"), str(out / "manifest.json")]


def test_quiet_is_one_line(file, out):
    result = invoke("solve", file, "--out", out, "--quiet")
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1
    assert "1 problem: 1 solved" in result.stdout


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "l3", "max-entry"])
def test_infeasible_is_exit_code_3_and_the_saved_ray_is_a_proof(infeasible, out, norm):
    result = invoke("solve", infeasible, "--norm", norm, "--out", out)
    assert result.exit_code == 3, result.output
    assert "Infeasible: the duals hold a ray" in result.stdout
    assert "Residual of the ray" in result.stdout
    assert "No solution has a norm below" in result.stdout
    assert "Primal value" not in result.stdout
    solution, data = saved(out), TokenDataset.load(infeasible)
    problem = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data))
    proof = attsvm.svm.certify(problem, solution.norm, torch.zeros(2, 2), solution.duals)
    assert bool(proof.holds_ray(1e-10))
    assert float(proof.dual_value) > 1e9
    assert bool(solution.weights.isnan().all())
    guess = torch.ones_like(solution.duals)  # not every vector is a ray
    assert not bool(attsvm.svm.certify(problem, solution.norm, torch.zeros(2, 2), guess).holds_ray(1e-10))


def test_infeasible_as_json(infeasible, out):
    result = invoke("solve", infeasible, "--out", out, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == found["exit_code"] == 3
    assert found["status"]["infeasible"] == 1
    assert found["certificate"]["primal_value"] is None
    assert found["ray"]["ray_residual"]["highest"] < 1e-10


def test_a_batch_counts_every_status(tmp_path, out):
    good = attsvm.data.random_sphere(n=2, T=3, d=4, batch=3, seed=0)
    tokens = good.tokens.clone()
    tokens[1, 0, 1:] = tokens[1, 0, :1]  # three equal tokens: none can be separated
    data = TokenDataset(tokens, good.queries, good.labels)
    np.save(tmp_path / "selected.npy", np.zeros((3, 2), dtype=int))
    result = invoke("solve", data.save(tmp_path / "d.npz"), "--select", tmp_path / "selected.npy", "--out", out)
    assert result.exit_code == 3
    assert "2 of 3 solved: " in result.stdout
    assert "1 of 3 infeasible: " in result.stdout
    for word in ("Median", "Lowest", "Highest", "3 problems of up to 4 rows"):
        assert word in result.stdout
    assert saved(out).infeasible.tolist() == [False, True, False]


def test_one_token_an_input(tmp_path, out):
    data = TokenDataset(np.ones((2, 1, 3)), np.ones((2, 3)), [1, -1], head=np.ones(3))
    path = data.save(tmp_path / "one.npz")
    result = invoke("solve", path, "--out", out)
    assert result.exit_code == 0
    assert "No constraints: every input has one token" in result.stdout
    assert "infinite" in result.stdout
    found = json.loads(invoke("solve", path, "--out", out, "--json").stdout)
    assert found["status"]["no_rows"] == 1
    assert found["elements"][0]["min_margin"] is None  # infinite, which JSON cannot hold
    assert float(saved(out).certificate.min_margin) == math.inf


def test_not_converged_is_exit_code_4(monkeypatch, file, out):
    real = attsvm.solve

    def open_ended(*arguments, **options):
        solution = real(*arguments, **options)
        solution.codes.fill_(Status.NOT_CONVERGED.code)
        return solution

    monkeypatch.setattr("attsvm.solve", open_ended)
    result = invoke("solve", file, "--out", out)
    assert result.exit_code == command.NOT_CONVERGED == 4
    assert "Not converged: " in result.stdout
    assert "The certificate had to hold to 1e-10; another --solver may get there." in result.stdout


@pytest.mark.parametrize("case", [case for case in CASES if case.unique], ids=lambda case: case.name)
def test_every_case_ends_in_0_or_3(case, tmp_path, out):
    result = invoke("solve", case.data.save(tmp_path / "d.npz"), "--out", out)
    assert result.exit_code == (0 if case.feasible else 3), result.output


@pytest.mark.slow
def test_the_shell_sees_exit_codes(infeasible, tmp_path):
    assert shell("solve", "two-inputs", "--out", tmp_path / "a").returncode == 0
    assert shell("solve", infeasible, "--out", tmp_path / "b").returncode == 3
    assert shell("solve", infeasible, "--out", tmp_path / "c", "--norm", "no").returncode == 2


def test_solvers_by_name(file, out):
    result = invoke("solve", file, "--solver", "block-descent", "--out", out)
    assert result.exit_code == 0
    assert saved(out).solver == "BlockDescent"
    refused(invoke("solve", file, "--solver", "conic", "--out", out), "Conic cannot solve this problem")
    refused(invoke("solve", file, "--solver", "simplex", "--out", out), "no solver is called 'simplex'")


def test_right_hand_sides(file, data, out, tmp_path):
    invoke("solve", file, "--rhs", 2, "--out", out)
    twice = saved(out)
    invoke("solve", file, "--out", out)
    assert torch.allclose(twice.weights, 2 * saved(out).weights, atol=1e-12)
    (tmp_path / "rhs.txt").write_text("1 2 3")
    assert invoke("solve", file, "--rhs", tmp_path / "rhs.txt", "--out", out).exit_code == 0
    margins = saved(out).margins
    rows = attsvm.AttentionSVM(data, attsvm.optimal_tokens(data)).rows
    assert all(float(margins[i][rows[i]].min()) >= i + 1 - 1e-9 for i in range(3))
    (tmp_path / "short.json").write_text("[1, 2]")
    refused(
        invoke("solve", file, "--rhs", tmp_path / "short.json", "--out", out), "right_hand_side must be", "[3]", "[2]"
    )
    refused(invoke("solve", file, "--rhs", "one", "--out", out), "--rhs must be a number")
    refused(invoke("solve", file, "--rhs", "nan", "--out", out), "right_hand_side must be finite")


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "spectral", "max-entry"])
def test_nothing_is_asked_for(norm, file, out, tmp_path):
    """Where W = 0 meets every row it is the solution, the only one in every norm, and words say so."""
    result = invoke("solve", file, "--rhs", -1, "--norm", norm, "--out", out)
    assert result.exit_code == 0
    assert "\nNothing is asked for, since W = 0 meets every row: it is the solution.\n" in result.output
    assert "not known to be the only one" not in result.output
    assert not bool(saved(out).weights.any())
    attsvm.data.random_sphere(n=2, T=3, d=4, batch=3, seed=0).save(tmp_path / "three.npz")
    np.save(tmp_path / "sides.npy", np.array([[1.0, 1.0], [0.0, -1.0], [-1.0, 1.0]]))
    several = ("solve", tmp_path / "three.npz", "--rhs", tmp_path / "sides.npy", "--norm", norm, "--out", out)
    assert "In 1 of 3 problems nothing is asked for, since W = 0" in invoke(*several).output
    assert json.loads(invoke(*several, "--json").stdout)["nothing_asked"] == 1
    assert "asked for" not in invoke("solve", file, "--norm", norm, "--out", out).output


def test_names_that_are_not_there(file, out):
    refused(
        invoke("solve", file, "--norm", "nucular", "--out", out), "no norm is called 'nucular'", "did you mean nuclear?"
    )
    refused(invoke("solve", file, "--norm", "l0.5", "--out", out), "needs p of at least 1, or inf; got l0.5")
    refused(invoke("solve", file, "--norm", "entrywise", "--out", out), "--norm entrywise needs --p")
    refused(invoke("solve", file, "--norm", "nuclear", "--p", 3, "--out", out), "--p does nothing with --norm nuclear")
    refused(invoke("solve", "two-input", "--out", out), "did you mean two-inputs?")


def test_a_solution_replaces_an_older_one(out):
    assert invoke("solve", "two-inputs", "--out", out).exit_code == 0
    before = (out / "solution.safetensors").read_bytes()
    assert invoke("solve", "two-inputs", "--norm", "nuclear", "--out", out).exit_code == 0
    assert (out / "solution.safetensors").read_bytes() != before


def test_progress_is_a_line_for_terminals_only(monkeypatch, capsys):
    with status_line("Solving", quiet=False) as report:
        assert report is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with status_line("Solving", quiet=True) as report:
        assert report is None
    monkeypatch.setenv("TERM", "xterm")
    with status_line("Solving", quiet=False) as report:
        report("round 3: 17 rows violated")
    assert capsys.readouterr().out == ""


def test_solving_reports_its_rounds(monkeypatch, file, out):
    said = []

    class Spy:
        def __init__(self, title, quiet):
            said.append(title)

        def __enter__(self):
            return said.append

        def __exit__(self, *_):
            return None

    monkeypatch.setattr("attsvm.cli.solve.status_line", Spy)
    invoke("solve", file, "--solver", "block-descent", "--out", out)
    assert said[0] == "Solving 9 rows in the Frobenius norm"
    assert any("rows violated" in line for line in said[1:])
