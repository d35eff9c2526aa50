"""Files that attsvm 0.1 wrote open today: data, runs, solutions, results of experiments, links of the playground.

The files under ``0.1`` were written by that version and are not to be made anew. Each is checked against what can be
computed again from other files, not only for being readable.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attsvm
from attsvm.experiments import EXPERIMENTS, SweepResult
from attsvm.svm import Status
from cli.runner import invoke, refused

OLD = Path(__file__).parent / "0.1"
RUNS = {  # data, and the options of the command that wrote it
    "train-kq": ("data.npz", "--parameterization kq --rank 2 --record 30"),
    "train-adam": ("masked.npz", "--optimizer adam --record 20 --starts 2"),
    "train-head": ("data.safetensors", "--record 30 --train-head --batch-size 2 --stop settled"),
}


def data_of(name: str) -> attsvm.TokenDataset:
    return attsvm.TokenDataset.load(OLD / name)


def copied(name: str, folder: Path) -> Path:
    """A copy of a stored folder, which commands may write into."""
    return Path(shutil.copytree(OLD / name, folder / name))


def manifest_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return found


def test_the_files_are_of_the_version_they_claim() -> None:
    found = [manifest_of(path.parent)["versions"]["attsvm"] for path in OLD.glob("*/manifest.json")]
    assert found == ["0.1.0"] * 8


def test_data() -> None:
    plain, safe, masked = (data_of(name) for name in ("data.npz", "data.safetensors", "masked.npz"))
    again = attsvm.data.random_sphere(n=3, T=4, d=3, batch=2, seed=0)  # the same seed draws the same data
    for field in ("tokens", "queries", "labels", "head"):
        assert torch.equal(getattr(plain, field), getattr(safe, field))
        assert torch.equal(getattr(plain, field), getattr(again, field))
    assert masked.values.shape == (2, 3, 4, 5)
    assert masked.mask is not None
    assert (~masked.mask).nonzero().tolist() == [[0, 0, 3], [1, 0, 3], [1, 2, 2]]


@pytest.mark.parametrize("name", RUNS)
def test_runs_say_what_they_reached(name: str) -> None:
    data, run = data_of(RUNS[name][0]), attsvm.Run.load(OLD / name / "run.safetensors")
    torch.testing.assert_close(
        torch.softmax(data.fill_masked(attsvm.logits(data, run.weights), -torch.inf), -1), run.attention
    )


@pytest.mark.parametrize("name", RUNS)
def test_runs_go_on_where_they_were(name: str, tmp_path: Path) -> None:
    """`train --resume` continues a run of 0.1, to the numbers of a run that was never interrupted."""
    source, words = RUNS[name]
    folder = copied(name, tmp_path)
    steps = manifest_of(folder)["steps"] + 25
    command = ("train", OLD / source, *words.split(), "--steps", steps, "--quiet", "--out")
    refused(invoke(*command, folder), "holds a finished run", "--resume")
    done = invoke(*command, folder, "--resume")
    assert done.exit_code == 0, done.output
    assert invoke(*command, tmp_path / "fresh").exit_code == 0
    went_on, fresh = (attsvm.Run.load(tmp_path / each / "run.safetensors") for each in (name, "fresh"))
    assert went_on.step == fresh.step == steps
    torch.testing.assert_close(went_on.weights, fresh.weights, rtol=1e-6, atol=1e-8)


def test_a_run_goes_on_in_python() -> None:
    run = attsvm.Run.load(OLD / "train-kq" / "run.safetensors")
    settings = {"parameterization": attsvm.KeyQuery(rank=2), "optimizer": attsvm.NormalizedGradientDescent(0.1)}
    went_on = attsvm.fit(data_of("data.npz"), steps=80, resume=run, **settings)
    fresh = attsvm.fit(data_of("data.npz"), steps=80, **settings)
    torch.testing.assert_close(went_on.weights, fresh.weights, rtol=1e-6, atol=1e-8)


def test_a_run_is_held_against_a_diagnosis_of_today() -> None:
    data, run = data_of("data.npz"), attsvm.Run.load(OLD / "train-kq" / "run.safetensors")
    verdict = attsvm.verify(attsvm.diagnose(data, parameterization=attsvm.KeyQuery(rank=2)), run)
    assert verdict.differences == ()
    assert set(verdict.unknown) >= {"data", "head"}  # 0.1 kept no digests of them
    assert bool(verdict.same_problem.all())
    other = attsvm.diagnose(data, parameterization=attsvm.KeyQuery(rank=2), optimizer=attsvm.GradientDescent(0.1))
    assert len(attsvm.verify(other, run).differences) == 1


def test_solutions() -> None:
    solution = attsvm.SVMSolution.load(OLD / "solve" / "solution.safetensors")
    run = attsvm.Run.load(OLD / "train-kq" / "run.safetensors")
    problem = attsvm.AttentionSVM(data_of("data.npz"), selected=run.selected)
    assert solution.solved.all()
    again = attsvm.svm.certify(problem, attsvm.Nuclear(), solution.weights, solution.duals)
    assert (again.relative_gap < 1e-8).all()
    warm = attsvm.solve(problem, attsvm.Nuclear(), initial=solution)
    torch.testing.assert_close(warm.weights, solution.weights, rtol=1e-5, atol=1e-7)


def test_what_was_called_infeasible_is_not_called_proved() -> None:
    solution = attsvm.SVMSolution.load(OLD / "solve-infeasible" / "solution.safetensors")
    assert solution.status is Status.NUMERICALLY_INFEASIBLE
    data = attsvm.TokenDataset.load(OLD / "inside.npz")
    selected = torch.as_tensor(np.load(OLD / "inside.npy"))
    assert attsvm.solve(attsvm.AttentionSVM(data, selected=selected)).status is Status.INFEASIBLE


def test_solve_reads_what_a_run_selected(tmp_path: Path) -> None:
    reached = f"reached:{OLD / 'train-kq' / 'run.safetensors'}"
    result = invoke("solve", OLD / "data.npz", "--select", reached, "--norm", "nuclear", "--out", tmp_path, "--quiet")
    assert result.exit_code == 0, result.output
    old, new = (attsvm.SVMSolution.load(each / "solution.safetensors") for each in (OLD / "solve", tmp_path))
    torch.testing.assert_close(new.weights, old.weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["first-gradient", "hyperplanes", "regularization-path"])
def test_results_of_experiments_are_drawn_and_judged(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    result = SweepResult.load(folder)
    assert result.id == name
    checks = EXPERIMENTS[name].checks(result)
    if (folder / "summary.json").is_file():  # the judgement of 0.1
        before = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["checks"]
        assert [(each["measured"], each["verdict"]) for each in before] == [
            (each.measured, each.verdict.value) for each in checks
        ]
    drawn = invoke("figure", "draw", folder, "--format", "svg", "--quiet")
    assert drawn.exit_code == 0, drawn.output
    assert (folder / f"{name}.svg").stat().st_size > 10_000


def test_a_result_of_another_version_is_not_mixed_with_todays(tmp_path: Path) -> None:
    copied("first-gradient", tmp_path)
    refused(invoke("figure", "run", "first-gradient", "--quick", "--resume", "--out", tmp_path), "another version")


def keys_of(value: object, path: str = "") -> set[str]:
    """The paths of all keys in a JSON document; those of a list's entries together."""
    if isinstance(value, dict):
        return {f"{path}/{key}" for key in value}.union(
            *(keys_of(part, f"{path}/{key}") for key, part in value.items())
        )
    return set().union(*(keys_of(part, f"{path}[]") for part in value)) if isinstance(value, list) else set()


def test_programs_that_read_heads_json_find_every_key() -> None:
    from heads.planted import planted_report

    before = json.loads((OLD / "heads.json").read_text(encoding="utf-8"))
    now = keys_of(json.loads(json.dumps(planted_report().to_json())))
    drawn = ("random_weights", "shuffled", "untrained", "untrained_selectivity")  # lists of draws since 0.2
    for name in drawn:
        now = {path.replace(f"/{name}[]", f"/{name}") for path in now}
    assert keys_of(before) - now == set()
