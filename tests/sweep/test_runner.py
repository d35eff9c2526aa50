from __future__ import annotations

import json
import random
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest

import attsvm.sweep
from attsvm import __version__
from attsvm.sweep import Processes, SweepResult, Task, describe_columns, run
from attsvm.sweep.task import Configuration
from sweep.files import chunk_files, left_over, stored
from sweep.tiny import COLUMNS, DRAW_ON, TINY, Fixed, Tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(TINY, folder=tmp_path_factory.mktemp("whole"))


def test_tables_and_arrays_are_those_of_the_draws_in_order(whole):
    draws = np.stack([np.random.default_rng((0, each)).normal(size=64) for each in range(12)])
    assert np.array_equal(whole.arrays["paths"], draws)
    assert whole.tables["sums"]["element"].to_pylist() == list(range(12))
    assert np.allclose(whole.column("sums", "total"), draws @ np.linspace(0, 1, 64), atol=1e-12)
    assert np.array_equal(whole.column("sums", "total", element=7), whole.column("sums", "total")[7:8])
    assert whole.counts == {"negative": int((whole.column("sums", "total") < 0).sum()), "not finite": 0}


def test_files_can_be_read_without_attsvm(whole):
    table = pq.read_table(whole.folder / "sums.parquet")
    assert table == whole.tables["sums"]
    assert describe_columns(table) == COLUMNS["sums"]
    with np.load(whole.folder / "arrays.npz") as archive:
        assert np.array_equal(archive["paths"], whole.arrays["paths"])
    with zipfile.ZipFile(whole.folder / "arrays.npz") as archive:
        assert all(info.date_time[0] == 1980 for info in archive.infolist())


def test_loading_gives_what_was_returned(whole):
    found = SweepResult.load(whole.folder)
    assert found.tables == whole.tables
    assert found.manifest == whole.manifest
    assert np.array_equal(found.arrays["paths"], whole.arrays["paths"])


def test_results_of_the_time_when_only_experiments_were_sweeps(tmp_path, whole):
    run(TINY, folder=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest.pop("kind"), manifest.pop("id")) == ("sweep", "tiny")
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "experiment", "experiment": "tiny", **manifest}))
    found = SweepResult.load(tmp_path)
    assert found.id == "tiny"
    assert found.tables == whole.tables
    chunk_files(tmp_path)[0].unlink()
    again = run(TINY, folder=tmp_path, resume=True)
    assert again.manifest["kind"] == "sweep"
    assert stored(tmp_path) == stored(whole.folder)


def test_every_public_name_can_be_loaded():
    assert {name: getattr(attsvm.sweep, name).__name__ for name in attsvm.sweep.__all__} == {
        name: name for name in attsvm.sweep.__all__
    }
    with pytest.raises(AttributeError, match="has no attribute 'Sweeper'"):
        attsvm.sweep.Sweeper  # noqa: B018


def test_the_manifest_tells_how_it_was_made(whole):
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    manifest = json.loads((whole.folder / "manifest.json").read_text(), parse_constant=refuse)
    assert manifest["configuration"] == Tiny().to_json()
    assert manifest["complete"] is True
    assert manifest["versions"]["attsvm"] == __version__
    assert {"python", "torch", "numpy", "numba", "pyarrow", "scipy"} <= set(manifest["versions"])
    assert manifest["device"] == "cpu"
    assert manifest["tolerances"]["ActiveSet"] == 1e-10
    assert manifest["tables"] == {"sums": 12}
    assert manifest["arrays"] == {"paths": [12, 64]}
    assert len(manifest["tasks"]) == 6
    assert manifest["wall_seconds"] > 0
    assert whole.cpu_seconds("draws-00") + whole.cpu_seconds("draws-01") == pytest.approx(whole.cpu_seconds())


def test_the_progress_is_told(tmp_path):
    said = []
    run(TINY, folder=tmp_path, progress=lambda *numbers: said.append(numbers))
    assert said == [(done, 6) for done in range(7)]


def test_drawing_on_until_enough_are_accepted(tmp_path):
    said = []
    result = run(DRAW_ON, folder=tmp_path, progress=lambda *numbers: said.append(numbers))
    rounds = len(result.manifest["tasks"])
    accepted = 2 * rounds - result.counts["negative"]
    assert 6 <= accepted < 8
    assert said[-1] == (rounds, rounds)
    chunk_files(tmp_path)[1].unlink()
    again = run(DRAW_ON, folder=tmp_path, resume=True)
    assert again.tables == result.tables


@pytest.mark.parametrize("seed", range(4))
def test_damaged_chunks_are_computed_again_and_said(tmp_path, whole, seed):
    run(TINY, folder=tmp_path)
    chooser = random.Random(seed)
    chunks = chunk_files(tmp_path)
    chooser.shuffle(chunks)
    flipped, cut, empty, strange = chunks[:4]
    content = bytearray(flipped.read_bytes())
    content[chooser.randrange(len(content))] ^= 1 << chooser.randrange(8)
    flipped.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[: chooser.randrange(1, cut.stat().st_size)])
    empty.write_bytes(b"")
    strange.write_bytes(chunks[4].read_bytes())
    (tmp_path / "sums.parquet").unlink()
    (tmp_path / "arrays.npz").write_bytes(b"nonsense")
    said: list[str] = []
    result = run(TINY, folder=tmp_path, resume=True, say=said.append)
    assert stored(tmp_path) == stored(whole.folder)
    assert sorted(line.split()[2] for line in said) == sorted(path.stem for path in (flipped, cut, empty, strange))
    assert all(line.startswith("tiny: chunk ") and line.endswith("and is computed again") for line in said)
    assert [f"tiny: {note}" for note in result.manifest["notes"]] == said
    assert [f"tiny: {note}" for note in SweepResult.load(tmp_path).manifest["notes"]] == said


def test_a_chunk_of_another_configuration_is_not_taken(tmp_path, whole):
    other = run(TINY, Tiny(seed=1), folder=tmp_path / "other")
    run(TINY, folder=tmp_path / "this")
    for mine, theirs in zip(chunk_files(tmp_path / "this"), chunk_files(other.folder), strict=True):
        mine.write_bytes(theirs.read_bytes())
    said: list[str] = []
    run(TINY, folder=tmp_path / "this", resume=True, say=said.append)
    assert len(said) == 6
    assert all("another configuration" in line for line in said)
    assert stored(tmp_path / "this") == stored(whole.folder)


def test_a_folder_where_a_chunk_should_be_is_said(tmp_path):
    run(TINY, folder=tmp_path)
    chunk_files(tmp_path)[0].unlink()
    (chunk_files(tmp_path)[0].parent / "draws-000.chunk").mkdir()
    with pytest.raises(OSError, match="is a directory; finished chunks are kept"):
        run(TINY, folder=tmp_path, resume=True)


def test_resuming_a_finished_result_changes_nothing(tmp_path):
    first = run(TINY, folder=tmp_path)
    before = stored(tmp_path)
    second = run(TINY, folder=tmp_path, resume=True)
    assert stored(tmp_path) == before
    assert second.manifest == first.manifest


def test_a_failing_chunk_keeps_the_others(tmp_path, whole):
    with pytest.raises(RuntimeError, match="a bug in the sweep") as caught:
        run(TINY, Tiny(fail_at=7), folder=tmp_path)
    assert caught.value.__notes__ == ["while computing chunk draws-006 of tiny"]
    assert [path.stem for path in chunk_files(tmp_path)] == ["draws-000", "draws-002", "draws-004"]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert not manifest["complete"]
    assert manifest["wall_seconds"] > 0
    with pytest.raises(ValueError, match="unfinished run"):
        SweepResult.load(tmp_path)


def test_other_versions_are_said(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="bug"):
        run(TINY, Tiny(fail_at=7), folder=tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["versions"]["numpy"] = "0.1"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    said: list[str] = []
    with pytest.raises(RuntimeError, match="bug"):
        run(TINY, Tiny(fail_at=7), folder=tmp_path, resume=True, say=said.append)
    assert said[0].startswith("tiny: resumed with numpy ")
    assert "instead of 0.1" in said[0]


def test_another_configuration_is_refused_with_what_differs(tmp_path):
    run(TINY, folder=tmp_path)
    with pytest.raises(ValueError, match=r"another configuration \(seed 3 instead of 0, draws 5 instead of 12\)"):
        run(TINY, Tiny(seed=3, draws=5), folder=tmp_path, resume=True)
    manifest = tmp_path / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    for odd in (7, None):
        manifest.write_text(json.dumps(json.loads(text) | {"configuration": odd, "fingerprint": "x"}), encoding="utf-8")
        with pytest.raises(ValueError, match=r"another configuration \(its manifest does not say which\)"):
            run(TINY, folder=tmp_path, resume=True)
    manifest.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="holds another result"):
        run(DRAW_ON, folder=tmp_path, resume=True)
    with pytest.raises(ValueError, match="holds tiny with this configuration, finished; keep it and only show it"):
        run(TINY, folder=tmp_path)
    with pytest.raises(ValueError, match="configuration of tiny must be Tiny; got Fixed"):
        run(TINY, Fixed(), folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_overwriting(tmp_path, whole):
    run(TINY, Tiny(draws=5), folder=tmp_path)
    with pytest.raises(ValueError, match="contradict each other"):
        run(TINY, folder=tmp_path, resume=True, overwrite=True)
    with pytest.raises(ValueError, match="holds another result"):
        run(DRAW_ON, folder=tmp_path, overwrite=True)
    assert run(TINY, folder=tmp_path, overwrite=True).configuration == Tiny().to_json()
    assert stored(tmp_path) == stored(whole.folder)
    (tmp_path / "manifest.json").unlink()
    run(TINY, folder=tmp_path, overwrite=True)
    assert stored(tmp_path) == stored(whole.folder)


def test_a_run_that_found_nothing_does_not_bind_the_folder(tmp_path):
    with pytest.raises(RuntimeError, match="bug"):
        run(TINY, Tiny(fail_at=0), folder=tmp_path)
    assert run(TINY, folder=tmp_path).counts["not finite"] == 0


def test_chunks_without_a_manifest_are_not_taken_silently(tmp_path, whole):
    run(TINY, folder=tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="but no manifest; use them with --resume"):
        run(TINY, folder=tmp_path)
    run(TINY, folder=tmp_path, resume=True)
    assert stored(tmp_path) == stored(whole.folder)


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_damaged_manifest_is_one_sentence(tmp_path, content):
    run(TINY, folder=tmp_path)
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match="is not a manifest that attsvm wrote; choose another folder, or remove"):
        run(TINY, folder=tmp_path, resume=True)


@pytest.mark.parametrize("name", ["sums.parquet", "arrays.npz"])
def test_a_damaged_table_is_not_drawn(tmp_path, name):
    run(TINY, folder=tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is not as it was written.*--resume"):
        SweepResult.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"cannot be read .*--resume"):
        SweepResult.load(tmp_path)


def test_nothing_to_load(tmp_path):
    with pytest.raises(ValueError, match="holds no result of an experiment or a sweep"):
        SweepResult.load(tmp_path)


def test_names_of_tasks(tmp_path):
    def twice(configuration: Configuration) -> list[Task]:
        return [Task("a", {"first": 0, "last": 1})] * 2

    def strange(configuration: Configuration) -> list[Task]:
        return [Task("../a", {"first": 0, "last": 1})]

    import dataclasses

    with pytest.raises(ValueError, match="names of their own"):
        run(dataclasses.replace(TINY, tasks=twice), folder=tmp_path / "a")
    with pytest.raises(ValueError, match="lower-case letters"):
        run(dataclasses.replace(TINY, tasks=strange), folder=tmp_path / "b")


def test_a_backend_that_loses_a_chunk_is_caught(tmp_path):
    def forgetful(orders):
        yield from list(Processes()(orders))[:-1]

    with pytest.raises(RuntimeError, match="did not return the chunks draws-010"):
        run(TINY, folder=tmp_path, backend=forgetful)
    assert len(chunk_files(tmp_path)) == 5
    assert left_over(tmp_path) == []
