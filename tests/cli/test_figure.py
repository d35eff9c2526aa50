from __future__ import annotations

import dataclasses
import json
import shutil
from types import MappingProxyType

import pytest
from rich.progress import Progress

import attsvm.experiments
import attsvm.plots.figures
from attsvm.cli.common.experiments import Bars, TimeLeft, print_summary, seconds, summarize, times, verdict_line
from attsvm.experiments import Check, SweepResult, Verdict, run
from cli.runner import invoke, refused
from experiments.tiny import KNOWN, PICTURES, TINY
from sweep.files import chunk_files, stored
from sweep.tiny import Tiny


@pytest.fixture(autouse=True)
def tiny_ones(monkeypatch):
    know(monkeypatch, KNOWN)
    monkeypatch.setattr(attsvm.plots.figures, "FIGURES", PICTURES)


def know(monkeypatch, experiments):
    monkeypatch.setattr(attsvm.experiments, "EXPERIMENTS", experiments)


def figure(*arguments: object):
    return invoke("figure", *arguments)


def test_the_group_describes_itself():
    result = figure()
    assert result.exit_code == 0
    for command in ("list", "run", "draw"):
        assert command in result.output


def test_the_list_fits_on_a_page(monkeypatch):
    result = figure("list")
    assert result.exit_code == 0
    for words in ("tiny", "draw-on", "Draws until enough are accepted", "83 min", "1 s", "new"):
        assert words in result.output
    monkeypatch.undo()
    lines = figure("list").output.splitlines()
    assert max(map(len, lines)) <= 100
    assert any("local-convergence" in line and "TaSVM" in line for line in lines)


def test_the_list_as_json_and_as_names():
    found = json.loads(figure("list", "--json").stdout)["experiments"]
    assert [each["id"] for each in found] == ["tiny", "draw-on"]
    assert found[0]["configuration"] == Tiny().to_json()
    assert figure("list", "--quiet").stdout.split() == ["tiny", "draw-on"]


def test_run_computes_draws_and_judges(tmp_path):
    result = figure("run", "tiny", "--out", tmp_path, "--format", "png,svg")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = result.output.splitlines()
    assert max(map(len, lines[:-1])) <= 100  # the last one names the folder
    assert any("number of sums" in line and "one for each draw" in line and "✓ holds" in line for line in lines)
    assert any("uniform (nobody)" in line and "✗ does not hold" in line for line in lines)
    assert any("fails if they are normal" in line for line in lines)
    assert any("limit" in line and "· not judged" in line for line in lines)
    assert any("negative" in line and line.split()[-1] == "4" for line in lines)
    assert "not finite" not in result.output  # nothing was discarded for this reason
    assert "Nothing was discarded" not in result.output
    assert any(line.startswith("tiny: CPU 0.0") and ", public code 190 s: " in line for line in lines)
    assert lines[-1] == f"1 experiment in {tmp_path}: 2 of 4 checks hold; 1 does not; 1 is not judged"
    assert {path.name for path in (tmp_path / "tiny").iterdir()} == {
        "chunks", "sums.parquet", "arrays.npz", "manifest.json", "summary.json", "tiny.png", "tiny.svg",
    }  # fmt: skip
    assert SweepResult.load(tmp_path / "tiny").configuration == Tiny().to_json()


def test_json_and_the_stored_summary_agree(tmp_path):
    result = figure("run", "tiny", "draw-on", "tiny", "--out", tmp_path, "--format", "png", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [each["experiment"] for each in found["results"]] == ["tiny", "draw-on"]  # each once
    assert found["verdicts"] == "3 of 7 checks hold; 2 do not; 2 are not judged"
    assert found["import_cpu_seconds"] > 0
    for each in found["results"]:
        saved = json.loads((tmp_path / each["experiment"] / "summary.json").read_text())
        assert saved == each | {"folder": "."}
        assert set(saved["cpu_seconds"]) == {"computing", "compiling", "importing", "drawing"}
    public = found["results"][0]["public_code"]
    assert public["factor"] == pytest.approx(190 / public["ours"], rel=0.3)
    assert found["results"][1]["public_code"] is None


def test_quick_runs_and_seed_change_the_configuration(tmp_path):
    for folder, options, expected in (
        ("a", ("--quick",), Tiny(draws=4)),
        ("b", ("--quick", "--runs", 3, "--seed", 5), Tiny(draws=3, seed=5)),
        ("c", ("--runs", 5), Tiny(draws=5)),
    ):
        result = figure("run", "tiny", "--out", tmp_path / folder, "--format", "png", "--json", *options)
        assert result.exit_code == 0, result.output
        assert SweepResult.load(tmp_path / folder / "tiny").configuration == expected.to_json()
        assert json.loads(result.stdout)["results"][0]["public_code"] is None  # not the paper's configuration


def fails_at_one(result):
    seed = result.configuration["seed"]
    return [Check("value", "not 1", f"it is {seed}", Verdict.of(seed != 1)), *TINY.checks(result)[2:]]


def test_seeds_are_counted(tmp_path, monkeypatch):
    know(monkeypatch, MappingProxyType({"tiny": dataclasses.replace(TINY, checks=fails_at_one, public_seconds=None)}))
    options = ("tiny", "--quick", "--out", tmp_path, "--format", "png")
    result = figure("run", *options, "--seeds", 3)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 100
    counted = {words[0]: words[-3:] for words in map(str.split, lines) if len(words) > 4}
    assert counted["value"] == ["2", "1", "-"]
    assert counted["limit"] == ["-", "-", "3"]
    assert any("seed 1: it is 1" in line for line in lines)
    assert "it is 0 to 2" in result.stdout
    assert any(line.split() == ["tiny", "seeds", "0,", "1,", "2"] for line in lines)
    verdicts = "0 of 2 checks hold in every seed; 1 does not hold in some; 1 is not judged in some"
    assert lines[-1] == f"1 experiment in {tmp_path}: {verdicts}"
    for seed in range(3):
        assert SweepResult.load(tmp_path / "tiny" / f"seed-{seed}").configuration == Tiny(draws=4, seed=seed).to_json()
        assert (tmp_path / "tiny" / f"seed-{seed}" / "tiny.png").is_file()
    quiet = figure("run", *options, "--seeds", 4, "--resume", "--quiet")
    assert quiet.stdout == f"1 experiment in {tmp_path}: {verdicts}\n"
    found = json.loads(figure("run", *options, "--seeds", 4, "--resume", "--json").stdout)
    assert found["verdicts"] == verdicts
    assert found["seeds"] == [json.loads((tmp_path / "tiny" / "seeds.json").read_text())]
    assert found["seeds"][0]["seeds"] == [0, 1, 2, 3]
    refused(figure("run", *options, "--seeds", 2), "seed-0 holds tiny with this configuration, finished")


def test_seeds_are_judged_again_without_computing(tmp_path, monkeypatch):
    assert figure("run", "all", "--out", tmp_path, "--format", "png", "--seeds", 2, "--quiet").exit_code == 0
    assert figure("run", "tiny", "--out", tmp_path, "--format", "png", "--quiet").exit_code == 0  # a run beside them

    def never(*_: object) -> None:
        raise AssertionError("computed")

    know(monkeypatch, MappingProxyType({
        name: dataclasses.replace(each, compute=never, tasks=never, checks=fails_at_one) for name, each in KNOWN.items()
    }))  # fmt: skip
    found = json.loads(figure("draw", tmp_path, "--format", "png", "--json").stdout)
    assert [each["experiment"] for each in found["results"]] == ["tiny"]
    assert [each["experiment"] for each in found["seeds"]] == ["draw-on", "tiny"]
    for each in found["seeds"]:
        assert each["checks"][0]["verdicts"] == ["holds", "does not hold"]
        assert json.loads((tmp_path / each["experiment"] / "seeds.json").read_text()) == each
    one = json.loads(figure("draw", tmp_path / "tiny" / "seed-1", "--format", "png", "--json").stdout)
    assert [each["seed"] for each in one["results"]] == [1]
    assert one["seeds"] == []
    assert json.loads((tmp_path / "tiny" / "seeds.json").read_text())["seeds"] == [0, 1]  # not replaced by one seed
    shutil.rmtree(tmp_path / "draw-on" / "seed-1")
    know(monkeypatch, KNOWN)
    assert figure("run", "draw-on", "--seed", 1, "--out", tmp_path / "x", "--format", "png", "--quiet").exit_code == 0
    shutil.move(tmp_path / "x" / "draw-on", tmp_path / "tiny" / "seed-7")
    mixed = figure("draw", tmp_path, "--format", "png", "--quiet")
    assert mixed.exit_code == 1
    assert "seed-7 differs from" in mixed.stderr
    assert "experiment draw-on instead of tiny" in mixed.stderr


def test_the_speed_is_that_of_the_paper_on_a_cpu_whatever_the_seed(tmp_path):
    result = run(TINY, Tiny(seed=3), folder=tmp_path)
    manifest = {**result.manifest, "tasks": {name: {"computing": 1.0} for name in result.manifest["tasks"]}}
    known = dataclasses.replace(result, manifest=manifest)
    summary = summarize(TINY, known, [], 0.0)
    assert str(summary.speed) == "CPU 5.00 s, public code 190 s: 38x"  # five of six tasks start with draws-00
    assert summary.checks[-1].verdict is Verdict.HOLDS
    assert summary.checks[-1].expected == "public code 190 s, at least 2.0x less"
    slow = dataclasses.replace(TINY, public_factor=39.0)
    failed = summarize(slow, known, [], 0.0).checks[-1]
    assert failed.verdict is Verdict.FAILS
    assert failed.fails_if == "it is less than 39x below that of the public code"
    on_gpu = dataclasses.replace(result, manifest={**manifest, "device": "some GPU"})
    assert summarize(TINY, on_gpu, [], 0.0).speed is None


def test_the_time_left_hangs_on_what_was_computed_alone():
    now = 100.0
    live = Progress(TimeLeft(), disable=True, get_time=lambda: now)
    report = Bars(live).reporter("tiny")
    report(4, 10)
    (task,) = live.tasks
    now = 130.0
    assert str(TimeLeft().render(task)) == "?"  # four were there already
    report(6, 10)
    assert str(TimeLeft().render(task)) == "0:01:00"  # two in half a minute, four to come


def test_the_verdict_line(tmp_path):
    summary = summarize(TINY, run(TINY, folder=tmp_path), [], 0.0)
    good = dataclasses.replace(summary, checks=[Check("a", "b", "c", Verdict.HOLDS)] * 3)
    assert verdict_line([good, good]) == "6 of 6 checks hold"
    assert verdict_line([]) == "no checks"


def test_times_and_factors():
    assert [seconds(value) for value in (0.012, 1.234, 190, 34560)] == ["0.01 s", "1.23 s", "190 s", "9.6 h"]
    assert [times(factor) for factor in (1.26, 158.4, 67890)] == ["1.3x", "158x", "67,890x"]


def test_all_and_runs_says_who_does_not_listen(tmp_path):
    result = figure("run", "all", "--runs", 4, "--out", tmp_path, "--format", "png", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == "--runs does not apply to draw-on; computed as without it\n"
    assert result.stdout.startswith(f"2 experiments in {tmp_path}: ")
    assert result.stdout.count("\n") == 1
    refused(figure("run", "draw-on", "--runs", 4, "--out", tmp_path), "--runs does not apply to draw-on")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tinny",), ("'tinny'", "did you mean tiny?")),
        (("qqqqqq",), ("'qqqqqq'", "`attsvm figure list`")),
        (("tiny", "draw-in"), ("draw-on",)),
        (("tiny", "--runs", 0), ("--runs must be a positive", "got 0")),
        (("tiny", "--runs", -2), ("--runs must be a positive", "got -2")),
        (("tiny", "--jobs", 0), ("--jobs must be a positive", "got 0")),
        (("tiny", "--seeds", 0), ("--seeds must be a positive number of seeds", "got 0")),
        (("tiny", "--seed", -1), ("--seed must not be negative",)),
        (("tiny", "--format", "gif"), ("--format must be of png, pdf, svg", "gif")),
        (("tiny", "--format", ","), ("--format must be of", "nothing")),
        (("tiny", "--backend", "spark"), ("--backend must be loky or dask", "'spark'")),
        (("tiny", "--scheduler", "tcp://a:1"), ("--scheduler is for --backend dask",)),
        (("tiny", "--worker-timeout", 5), ("--worker-timeout is for --backend dask",)),
        (("tiny", "--backend", "dask", "--worker-timeout", 0), ("--worker-timeout must be a positive number",)),
        (("tiny", "--backend", "dask"), ("needs --scheduler ADDRESS",)),
        (("tiny", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1"), ("no Dask scheduler answers",)),
        (("tiny", "--backend", "dask", "--scheduler", "tcp://a:1", "--jobs", 2), ("--jobs is for --backend loky",)),
        (("tiny", "--device", "toaster"), ("--device must be cpu",)),
        ((), ("ID",)),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, arguments, words):
    refused(figure("run", *arguments, "--out", tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_another_configuration_is_refused_before_anything_is_computed(tmp_path):
    assert figure("run", "draw-on", "--out", tmp_path, "--format", "png", "--quiet").exit_code == 0
    again = figure("run", "tiny", "draw-on", "--seed", 1, "--out", tmp_path, "--resume")
    refused(again, "another configuration (seed 1 instead of 0)", "choose another folder")
    assert not (tmp_path / "tiny").exists()
    refused(again, "replace it with --overwrite")
    refused(figure("run", "draw-on", "--out", tmp_path), "holds draw-on with this configuration, finished", "--resume")


def test_overwrite_starts_over(tmp_path):
    options = ("run", "tiny", "--out", tmp_path, "--format", "png", "--quiet")
    assert figure(*options, "--quick").exit_code == 0
    refused(figure(*options), "draws 12 instead of 4", "--overwrite")
    refused(figure(*options, "--resume", "--overwrite"), "contradict")
    assert figure(*options, "--overwrite").exit_code == 0
    full = stored(tmp_path / "tiny")
    assert SweepResult.load(tmp_path / "tiny").configuration == Tiny().to_json()
    assert len({path.parent for path in chunk_files(tmp_path)}) == 1  # the quick run's chunks are gone
    refused(figure(*options), "finished; keep it and only show it again with --resume", "--overwrite")
    chunk_files(tmp_path)[0].unlink()
    assert figure(*options, "--overwrite").exit_code == 0
    assert stored(tmp_path / "tiny") == full
    refused(figure("run", "draw-on", "--out", tmp_path / "other", "--overwrite", "--runs", 0), "--runs")


def test_overwrite_does_not_touch_another_result(tmp_path):
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "manifest.json").write_text('{"kind": "train"}')
    refused(figure("run", "tiny", "--out", tmp_path, "--overwrite"), "holds another result")
    assert (tmp_path / "tiny" / "manifest.json").read_text() == '{"kind": "train"}'


def test_nothing_discarded_is_said_in_one_line(tmp_path, capsys):
    def printed(summaries):
        print_summary(summaries, 0.0)
        return capsys.readouterr().out

    results = [summarize(TINY, run(TINY, folder=tmp_path), [], 0.0)]
    none = [dataclasses.replace(each, counts=dict.fromkeys(each.counts, 0)) for each in results]
    assert "Nothing was discarded, and nothing failed." in printed(none)
    assert "discarded or failed" not in printed(none)
    assert "discarded or failed" in printed(results)


def test_draw_goes_on_past_a_damaged_result(tmp_path):
    assert figure("run", "all", "--out", tmp_path, "--format", "png", "--quiet").exit_code == 0
    name = next(path for path in sorted((tmp_path / "draw-on").iterdir()) if path.suffix in (".npz", ".parquet"))
    name.write_bytes(name.read_bytes()[:-9])
    (tmp_path / "tiny" / "tiny.png").unlink()
    result = figure("draw", tmp_path, "--format", "png", "--quiet")
    assert result.exit_code == 1
    assert (tmp_path / "tiny" / "tiny.png").is_file()
    assert result.stderr.startswith(f"attsvm: 1 of 2 results were not drawn: {tmp_path / 'draw-on'} cannot be read")
    assert "1 experiment in" in result.stdout


def test_a_damaged_chunk_is_said_on_stderr_and_in_the_summary(tmp_path):
    options = ("run", "tiny", "--out", tmp_path, "--format", "png", "--resume")
    figure(*options)
    before = stored(tmp_path / "tiny")
    chunk = chunk_files(tmp_path)[2]
    chunk.write_bytes(chunk.read_bytes()[:-5])
    result = figure(*options)
    assert result.exit_code == 0
    said = "tiny: chunk draws-004 was damaged (its bytes do not match its checksum) and is computed again"
    assert result.stderr == said + "\n"
    assert said in result.stdout
    assert stored(tmp_path / "tiny") == before


def test_draw_needs_no_computing(tmp_path, monkeypatch):
    figure("run", "all", "--out", tmp_path, "--format", "png")
    pictures = {path: path.read_bytes() for path in tmp_path.rglob("*.png")}
    assert len(pictures) == 2
    for path in pictures:
        path.unlink()

    def never(*_: object) -> None:
        raise AssertionError("computed")

    know(monkeypatch, MappingProxyType({
        name: dataclasses.replace(each, compute=never, tasks=never) for name, each in KNOWN.items()
    }))  # fmt: skip
    result = figure("draw", tmp_path, "--format", "png,pdf")
    assert result.exit_code == 0, result.output
    assert "✗ does not hold" in result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.png")} == pictures  # the same bytes
    assert (tmp_path / "tiny" / "tiny.pdf").read_bytes().startswith(b"%PDF")
    one = json.loads(figure("draw", tmp_path / "tiny", "--format", "svg", "--json").stdout)["results"]
    assert [each["pictures"] for each in one] == [["tiny.svg"]]
    both = [tmp_path / "tiny", tmp_path / "draw-on"]
    quiet = figure("draw", *both, both[0], "--format", "svg", "--quiet")  # one of them named twice, drawn once
    assert quiet.stdout.startswith(f"2 experiments in {both[0]}, {both[1]}: ")


def test_nothing_to_draw(tmp_path):
    refused(figure("draw", tmp_path), "holds no result of an experiment")
    refused(figure("draw", tmp_path / "none"), "is not a folder")
    (tmp_path / "manifest.json").write_text('{"kind": "train"}')
    refused(figure("draw", tmp_path), "holds no result of an experiment or a sweep")
    with pytest.raises(RuntimeError, match="bug"):
        run(TINY, Tiny(fail_at=3), folder=tmp_path / "half")
    refused(figure("draw", tmp_path / "half"), "unfinished run")


def test_one_failure_does_not_stop_the_others(tmp_path, monkeypatch):
    broken = dataclasses.replace(TINY, default=Tiny(fail_at=1))
    know(monkeypatch, MappingProxyType({"tiny": broken, "draw-on": KNOWN["draw-on"]}))
    result = figure("run", "all", "--out", tmp_path, "--format", "png", "--quiet")
    assert result.exit_code == 1
    assert "attsvm: 1 of 2 experiments failed: tiny failed (RuntimeError: a bug in the sweep)" in result.stderr
    assert SweepResult.load(tmp_path / "draw-on").manifest["complete"]
    alone = figure("run", "tiny", "--out", tmp_path / "alone", "--quiet")
    assert isinstance(alone.exception, RuntimeError)  # a bug shows where it is


def test_a_full_disk_stops_all(tmp_path, monkeypatch):
    from attsvm.sweep import result as folder

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "write_atomically", full)
    refused(figure("run", "all", "--out", tmp_path), "tiny cannot be written: no space left on device", "--resume")


def test_every_experiment_has_a_picture_and_words(monkeypatch):
    monkeypatch.undo()
    for name, each in attsvm.experiments.EXPERIMENTS.items():
        assert name == each.id
        assert name in attsvm.plots.figures.FIGURES
        assert each.shows
        assert each.seconds > 0
        for columns in each.columns.values():
            assert all(columns.values())
