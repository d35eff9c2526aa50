from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

import attsvm
from attsvm import Run, TokenDataset
from cli.runner import invoke, refused

SHORT = ("--steps", 40, "--record", 10, "--optimizer", "adam")  # adam runs in PyTorch: nothing to compile


@pytest.fixture
def data():
    return attsvm.data.random_sphere(n=3, T=4, d=5, batch=6, seed=1)


@pytest.fixture
def file(tmp_path, data):
    return data.save(tmp_path / "data.npz")


def same(first: Run, second: Run) -> None:
    for name in ("weights", "attention", "log_attention", "risk", "steps_taken"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    for name in ("step", "risk", "norm", "attention", "weights"):
        assert torch.equal(getattr(first.history, name), getattr(second.history, name)), name
    assert first.state.keys() == second.state.keys()


def test_a_run_is_the_same_as_in_python(tmp_path, data, file):
    out = tmp_path / "out"
    result = invoke("train", file, *SHORT, "--parameterization", "kq", "--rank", 2, "--seed", 4, "--out", out)
    assert result.exit_code == 0, result.output
    run = Run.load(out / "run.safetensors")
    expected = attsvm.fit(
        data,
        parameterization=attsvm.KeyQuery(2),
        optimizer=attsvm.Adam(attsvm.descent.Constant(0.1)),
        steps=40,
        record=10,
        seed=4,
    )
    same(run, expected)
    assert "6 runs, 40 steps" in result.stdout
    assert "Optimal token selected in every input" in result.stdout


def test_weight_decay_and_clip(tmp_path, data, file):
    options = ("--optimizer", "newton-schulz", "--weight-decay", 0.5, "--clip", 3.0, "--parameterization", "kq")
    assert invoke("train", file, "--steps", 20, *options, "--out", tmp_path / "out").exit_code == 0
    optimizer = attsvm.descent.NewtonSchulzDescent(0.1, weight_decay=0.5, clip=3.0)
    expected = attsvm.fit(data, parameterization=attsvm.KeyQuery(), optimizer=optimizer, steps=20)
    same(Run.load(tmp_path / "out/run.safetensors"), expected)
    refused(invoke("train", file, "--weight-decay", -1, "--out", tmp_path / "other"), "weight_decay must be")


def test_the_manifest_says_how_it_was_made(tmp_path, file):
    out = tmp_path / "out"
    invoke("train", file, *SHORT, "--loss", "exponential", "--seed", 7, "--out", out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["command"].startswith("attsvm train ")
    assert "--loss exponential" in manifest["command"]
    assert manifest["settings"]["loss"] == "Exponential()"
    assert manifest["settings"]["optimizer"] == repr(attsvm.Adam(attsvm.descent.Constant(0.1)))
    assert manifest["seed"] == 7
    assert manifest["device"] == "cpu"
    assert manifest["step"] == manifest["steps"] == 40
    assert manifest["versions"]["attsvm"] == attsvm.__version__
    assert torch.__version__.startswith(manifest["versions"]["torch"])  # where it is built for CUDA, that is added
    assert set(manifest["versions"]) >= {"numpy", "numba", "python"}
    assert manifest["wall_seconds"] > 0
    assert manifest["notes"] == []
    assert sorted(path.name for path in out.iterdir()) == sorted(manifest["files"])


def test_the_history_has_a_row_for_each_record(tmp_path, file):
    out = tmp_path / "out"
    invoke("train", file, *SHORT, "--out", out)
    with (out / "history.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [int(row["step"]) for row in rows] == [0, 10, 20, 30, 40]
    run = Run.load(out / "run.safetensors")
    assert float(rows[-1]["norm_highest"]) == float(run.norm.max())
    assert float(rows[-1]["least_attention_on_selected_lowest"]) == float(run.attention.amax(-1).min())


def test_json_summary(tmp_path, file):
    found = json.loads(invoke("train", file, *SHORT, "--starts", 2, "--json", "--out", tmp_path / "out").stdout)
    assert found["runs"] == 12
    assert found["steps"] == 40
    assert found["risk"]["lowest"] <= found["risk"]["median"] <= found["risk"]["highest"]
    assert 0 <= found["share_of_runs_with_optimal_selection"] <= found["share_of_inputs_with_optimal_selection"] <= 1
    assert found["selected"] is None  # too many to print


def test_quiet_prints_one_line(tmp_path, file):
    result = invoke("train", file, *SHORT, "--quiet", "--out", tmp_path / "out")
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""


@pytest.mark.parametrize("name", [name for name in attsvm.data.EXAMPLES if not name.startswith("joint")])
def test_built_in_examples(tmp_path, name):
    result = invoke("train", name, *SHORT, "--initial", "paper", "--out", tmp_path)
    assert result.exit_code == 0, result.output


def test_joint_training_starts_where_the_paper_does(tmp_path):
    result = invoke(
        "train", "joint-training-tight", "--train-head", "--initial", "paper", "--out", tmp_path, "--steps", 300
    )
    assert result.exit_code == 0, result.output
    run = Run.load(tmp_path / "run.safetensors")
    assert run.parameters["head"].shape == (1, 2)
    assert "100.0% of runs" in result.stdout


def test_stopping_rules_stop(tmp_path):
    invoke("train", "two-inputs", "--optimizer", "spectral", "--stop", "saturated", "--steps", 2000, "--out", tmp_path)
    run = Run.load(tmp_path / "run.safetensors")
    assert 0 < run.step < 2000
    assert float(run.attention.amax(-1).min()) > 1 - 1e-11


def test_mini_batches(tmp_path, data, file):
    invoke("train", file, *SHORT, "--batch-size", 2, "--out", tmp_path)
    expected = attsvm.fit(data, optimizer=attsvm.Adam(attsvm.descent.Constant(0.1)), steps=40, record=10, batch_size=2)
    same(Run.load(tmp_path / "run.safetensors"), expected)


def test_initial_from_a_file_and_from_a_run(tmp_path, data, file):
    start = np.full((6, 5, 5), 0.25)
    np.savez(tmp_path / "start.npz", weights=start)
    invoke("train", file, *SHORT, "--initial", tmp_path / "start.npz", "--out", tmp_path / "a")
    first = Run.load(tmp_path / "a" / "run.safetensors")
    assert torch.equal(first.history.weights[0], torch.from_numpy(start))
    invoke("train", file, *SHORT, "--initial", tmp_path / "a" / "run.safetensors", "--out", tmp_path / "b")
    second = Run.load(tmp_path / "b" / "run.safetensors")
    assert torch.equal(second.history.weights[0], first.weights)


def test_a_head_from_a_file(tmp_path, data):
    bare = data.with_head(None).save(tmp_path / "bare.safetensors")
    refused(invoke("train", bare, *SHORT, "--out", tmp_path / "out"), "DATA has no head", "--head FILE")
    assert not (tmp_path / "out").exists()
    np.savez(tmp_path / "head.npz", head=data.head.numpy())
    result = invoke("train", bare, *SHORT, "--head", tmp_path / "head.npz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    np.savez(tmp_path / "other.npz", vector=data.head.numpy())
    refused(
        invoke("train", bare, "--head", tmp_path / "other.npz", "--out", tmp_path / "out"),
        "array called head",
        "vector",
    )


def test_zero_steps_report_the_start(tmp_path, file):
    assert invoke("train", file, "--steps", 0, "--out", tmp_path).exit_code == 0
    assert Run.load(tmp_path / "run.safetensors").step == 0


# ------------------------------------------------------------------ bad input


def test_data_that_do_not_exist(tmp_path):
    refused(invoke("train", "two-input", "--out", tmp_path), "did you mean two-inputs?", "hyperplanes", ".npz")
    refused(invoke("train", tmp_path / "none.npz", "--out", tmp_path), "does not exist")
    refused(invoke("train", tmp_path, "--out", tmp_path), str(tmp_path))


def test_truncated_file(tmp_path, file):
    file.write_bytes(file.read_bytes()[:200])
    refused(invoke("train", file, "--out", tmp_path / "out"), "data.npz", "truncated")


def test_files_of_another_kind(tmp_path, data):
    (tmp_path / "text.npz").write_text("this is no archive")
    refused(invoke("train", tmp_path / "text.npz"), "not a readable .npz file")
    (tmp_path / "data.csv").write_text("1,2")
    refused(invoke("train", tmp_path / "data.csv"), ".npz or .safetensors")
    np.savez(tmp_path / "half.npz", tokens=data.tokens.numpy())
    refused(invoke("train", tmp_path / "half.npz"), "queries")
    saved = attsvm.fit(data, steps=0).save(tmp_path / "run.npz")
    refused(invoke("train", saved, "--out", tmp_path / "out"), "run.npz")


def test_data_that_are_not_finite(tmp_path, data):
    tokens = data.tokens.numpy().copy()
    tokens[2, 1, 3, 4] = np.nan
    np.savez(tmp_path / "bad.npz", tokens=tokens, queries=data.queries, labels=data.labels)
    refused(invoke("train", tmp_path / "bad.npz"), "tokens must be finite", "input 1, token 3, coordinate 4")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--steps", -3), ("steps", "-3")),
        (("--step-size", -1), ("step_size", "positive")),
        (("--step-size", 0), ("step_size", "positive")),
        (("--record", 0), ("--record",)),
        (("--starts", 0), ("starts",)),
        (("--batch-size", 99), ("batch_size",)),
        (("--checkpoint", -1), ("--checkpoint",)),
        (("--keep", "risk,wieghts"), ("keep", "wieghts")),
        (("--seed", -1), ("seed",)),
        (("--optimizer", "admw"), ("did you mean adam?",)),
        (("--loss", "hinge"), ("logistic",)),
        (("--stop", "satturated"), ("did you mean saturated?",)),
        (("--parameterization", "qk"), ("did you mean kq?",)),
        (("--parameterization", "kq", "--initial", "zeros"), ("saddle",)),
        (("--initial", "ones"), ("zeros, paper",)),
        (("--initial", "none.npz"), ("does not exist",)),
        (("--optimizer", "polyak", "--train-head"), ("PolyakDescent",)),
        (("--device", "cuda:77"), ("--device",)),
        (("--resume", "--overwrite"), ("contradict",)),
    ],
)
def test_options_that_cannot_be(tmp_path, arguments, words):
    refused(invoke("train", "two-inputs", "--out", tmp_path / "out", *arguments), *words)
    assert not (tmp_path / "out" / "run.safetensors").exists()


def test_paper_starts_need_an_example(file):
    refused(invoke("train", file, "--initial", "paper"), "built-in examples")


def test_loading_a_run_as_data_keeps_it(tmp_path, file):
    # The result of one command is not taken for the data of the next.
    invoke("train", file, *SHORT, "--out", tmp_path)
    refused(invoke("train", tmp_path / "run.safetensors", "--out", tmp_path / "two"), "tokens")
    assert isinstance(TokenDataset.load(file), TokenDataset)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--starts", 10**9), ("starts=1,000,000,000", "TB of memory")),
        (("--parameterization", "kq", "--rank", 10**6), ("rank must be at most", "got 1,000,000")),
        (("--steps", 10**14, "--record", 1), ("100,000,000,000,001 records", "of memory")),
    ],
)
def test_what_cannot_fit_is_refused_before_anything_is_made(tmp_path, file, options, words):
    refused(invoke("train", file, "--out", tmp_path / "out", *options), *words)
    assert not (tmp_path / "out").exists()
