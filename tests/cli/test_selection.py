from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

import attsvm
from attsvm import SVMSolution, TokenDataset
from attsvm.data.files import write_arrays
from cli.runner import invoke, refused


@pytest.fixture
def data():
    return attsvm.data.random_sphere(n=3, T=4, d=5, seed=2)


@pytest.fixture
def file(tmp_path, data):
    return data.save(tmp_path / "data.npz")


@pytest.fixture
def solve(tmp_path, file):
    def run(*arguments, source=None):
        return invoke("solve", source or file, *arguments, "--out", tmp_path / "out", "--quiet")

    return run


@pytest.fixture
def train(tmp_path, file):
    def run(name, *arguments, source=None):
        folder = tmp_path / name
        done = invoke("train", source or file, "--steps", 30, "--optimizer", "adam", "--out", folder, *arguments)
        assert done.exit_code == 0, done.output
        return folder / "run.safetensors"

    return run


def solved(tmp_path, data, selected=None, **options):
    """Check that what the command saved is the solution for this selection."""
    found = SVMSolution.load(tmp_path / "out" / "solution.safetensors")
    expected = attsvm.solve(attsvm.AttentionSVM(data, selected, **options))
    assert torch.equal(found.duals, expected.duals)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.txt", "1\n0\n3\n"),
        ("s.txt", "# a line for all inputs\n1 0 3"),
        ("s.csv", "selected\n1\n0\n3\n"),
        ("s.csv", "1,0,3\n"),
        ("s.json", "[1, 0, 3]"),
        ("s.json", '{"selected": [1, 0, 3]}'),
    ],
)
def test_indices_in_a_text(tmp_path, data, solve, name, text):
    (tmp_path / name).write_text(text)
    result = solve("--select", tmp_path / name)
    assert result.exit_code == 0, result.output
    solved(tmp_path, data, [1, 0, 3])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_arrays_by_name(tmp_path, data, solve, suffix):
    path = write_arrays(tmp_path / f"s{suffix}", {"selected": torch.tensor([1, 0, 3]), "other": torch.ones(2)}, {})
    assert solve("--select", path).exit_code == 0
    solved(tmp_path, data, [1, 0, 3])
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]).bool()
    path = write_arrays(tmp_path / f"s{suffix}", {"selected_set": mask}, {})
    assert solve("--select", path).exit_code == 0
    solved(tmp_path, data, selected_set=mask)


def test_single_arrays(tmp_path, data, solve):
    np.save(tmp_path / "s.npy", np.array([1, 0, 3], dtype=np.uint8))
    assert solve("--select", tmp_path / "s.npy").exit_code == 0
    solved(tmp_path, data, [1, 0, 3])
    mask = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]])
    np.save(tmp_path / "s.npy", mask.astype(bool))
    assert solve("--select", tmp_path / "s.npy").exit_code == 0
    solved(tmp_path, data, selected_set=mask.astype(bool))
    (tmp_path / "s.json").write_text(json.dumps({"selected_set": mask.tolist()}))
    assert solve("--select", tmp_path / "s.json").exit_code == 0
    solved(tmp_path, data, selected_set=mask.astype(bool))


def test_a_line_for_each_data_set(tmp_path, solve):
    batch = attsvm.data.random_sphere(n=3, T=4, d=5, batch=2, seed=0)
    (tmp_path / "s.txt").write_text("1 0 3\n0 2 2\n")
    assert solve("--select", tmp_path / "s.txt", source=batch.save(tmp_path / "b.npz")).exit_code == 0
    solved(tmp_path, batch, [[1, 0, 3], [0, 2, 2]])


def test_files_that_are_not_there_or_say_something_else(tmp_path, solve):
    refused(solve("--select", tmp_path / "none.npz"), "none.npz does not exist")
    refused(solve("--select", tmp_path / "none.txt"), "none.txt does not exist")
    refused(solve("--select", "best"), "--select must be optimal, reached:FILE or a file", "'best'")
    refused(solve("--select", "reached:none.npz"), "none.npz does not exist")
    refused(solve("--select", tmp_path), "--select reads")
    (tmp_path / "s.pdf").write_text("")
    refused(solve("--select", tmp_path / "s.pdf"), "--select reads .npz")
    (tmp_path / "s.txt").write_text("one two three")
    refused(solve("--select", tmp_path / "s.txt"), "s.txt does not hold selected as numbers", "one")
    (tmp_path / "s.json").write_text("{")
    refused(solve("--select", tmp_path / "s.json"), "s.json does not hold selected")
    (tmp_path / "s.json").write_text('{"selcted": [1, 2, 3]}')
    refused(solve("--select", tmp_path / "s.json"), "must hold selected or selected_set; it holds selcted")
    (tmp_path / "s.json").write_text('{"selected": [0, 0, 0], "selected_set": [[true]]}')
    refused(solve("--select", tmp_path / "s.json"), "holds both")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 0 4", ("selected must lie in 0..3; got 4 at input 2",)),
        ("-1 0 0", ("selected must lie in 0..3; got -1 at input 0",)),
        ("1 0", ("selected must have shape [3] (batch, n); got [2]",)),
        ("1 0 3\n0 0 0", ("selected must have shape [3]", "got [2, 3]")),
    ],
)
def test_selections_that_do_not_fit(tmp_path, solve, text, words):
    (tmp_path / "s.txt").write_text(text)
    refused(solve("--select", tmp_path / "s.txt"), *words)
    assert not (tmp_path / "out").exists()  # bad input leaves nothing behind


@pytest.mark.parametrize(("name", "text", "word"), [
    ("a.txt", "", "is empty"), ("a.csv", "", "is empty"), ("a.json", "", "is empty"), ("a.npy", "", "is empty"),
    ("a.txt", "# nothing\n", "holds no numbers"), ("a.csv", "token\n", "no numbers"), ("a.json", "[]", "no numbers"),
])  # fmt: skip
def test_empty_files(tmp_path, solve, name, text, word):
    (tmp_path / name).write_text(text)
    refused(solve("--select", tmp_path / name), name, word, "--select needs the index of a token for each input")


def test_sets_that_make_no_sense(tmp_path, solve):
    for mask, words in (([[True] * 4] * 3, "nothing to separate"), ([[False] * 4] * 3, "input 0 has none")):
        (tmp_path / "s.json").write_text(json.dumps({"selected_set": mask}))
        refused(solve("--select", tmp_path / "s.json"), words)


def test_a_masked_token(tmp_path, data, solve):
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 3] = False
    ragged = TokenDataset(data.tokens, data.queries, data.labels, mask=mask, head=data.head)
    (tmp_path / "s.txt").write_text("0 3 0")
    source = ragged.save(tmp_path / "ragged.npz")
    refused(solve("--select", tmp_path / "s.txt", source=source), "token 3 of input 1 is masked")


def test_optimal_needs_scores_and_no_ties(tmp_path, data, solve):
    bare = data.with_head(None).save(tmp_path / "bare.npz")
    refused(solve(source=bare), "--select optimal needs scores", "--head FILE")
    head = write_arrays(tmp_path / "head.npz", {"head": data.head}, {})
    assert solve("--head", head, source=bare).exit_code == 0
    solved(tmp_path, data, attsvm.optimal_tokens(data))
    refused(solve("--head", head, "--select", "reached:x.npz"), "--head belongs to --select optimal")
    tied = data.with_head(torch.zeros_like(data.head)).save(tmp_path / "tied.npz")
    refused(solve(source=tied), "the optimal token of input 0 is not unique", "tie", "--select FILE")


def test_what_a_run_reached(tmp_path, data, solve, train):
    path = train("run")
    reached = attsvm.Run.load(path).selected
    for name in (path, path.parent):  # a folder stands for the run in it
        assert solve("--select", f"reached:{name}").exit_code == 0
        solved(tmp_path, data, reached)
    refused(solve("--select", path), "is a saved run", f"--select reached:{path}")
    refused(solve("--select", f"reached:{path}", "--start", 0), "--start does nothing here")
    refused(solve("--start", 0), "--start belongs to --select reached:FILE")


def test_a_run_with_several_starts(tmp_path, data, solve, train):
    path = train("run", "--starts", 3)
    assert solve("--select", f"reached:{path}", "--start", 2).exit_code == 0
    solved(tmp_path, data, attsvm.Run.load(path).selected[2])
    refused(solve("--select", f"reached:{path}"), "has 3 starts for each data set; choose one with --start 0..2")
    refused(solve("--select", f"reached:{path}", "--start", 3), "there is no start 3")


@pytest.mark.parametrize("fingerprinted", [True, False])
def test_a_run_of_other_data(tmp_path, solve, train, fingerprinted):
    alike = attsvm.data.random_sphere(n=3, T=4, d=5, seed=3).save(tmp_path / "alike.npz")
    path = train("run", source=alike)
    if not fingerprinted:  # as 0.1 wrote runs
        run = attsvm.Run.load(path)
        dataclasses.replace(run, configuration=dict(run.configuration) | {"fingerprint": {}}).save(path)
    refused(solve("--select", f"reached:{path}"), "is a run on other data")
    assert solve("--select", f"reached:{path}", source=alike).exit_code in (0, 3)
    other = attsvm.data.random_sphere(n=2, T=4, d=5, seed=3).save(tmp_path / "other.npz")
    refused(solve("--select", f"reached:{path}", source=other), "is a run on other data", "[3, 4]", "[2, 4]")


def test_what_is_not_a_run(tmp_path, file, solve):
    refused(solve("--select", f"reached:{file}"), "is not a saved run")
