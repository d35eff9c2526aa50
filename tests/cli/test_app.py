from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer

import attsvm
from attsvm.cli import app
from cli.runner import ENVIRONMENT, invoke, refused, shell


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"attsvm {attsvm.__version__}"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert "demo" in result.output
    assert "train" in result.output
    assert "solve" in result.output


# --out where files are written, --seed where something is drawn, --device where it helps, --quiet and --json where a
# result is printed.
SHARED = {
    "demo": ("--out", "--seed", "--device", "--quiet", "--json"),
    "train": ("--out", "--seed", "--device", "--quiet", "--json"),
    "solve": ("--out", "--device", "--quiet", "--json"),
    "diagnose": ("--out", "--seed", "--device", "--quiet", "--json"),
    "growth": ("--seed", "--quiet", "--json"),
    "heads": ("--out", "--seed", "--device", "--quiet", "--json"),
    "why": ("--json",),
    "figure list": ("--quiet", "--json"),
    "figure run": ("--out", "--seed", "--device", "--quiet", "--json"),
    "figure draw": ("--quiet", "--json"),
    "play": (),
    "info": ("--json",),
}


# Commands that keep a manifest in their folder, and how they are called there.
KEEPERS = {
    "train": ("two-inputs", "--steps", 1),
    "train --overwrite": ("two-inputs", "--steps", 1),
    "train --resume": ("two-inputs", "--steps", 1),
    "solve": ("two-inputs",),
    "diagnose": ("two-inputs",),
    "heads": ("no-model",),
}


@pytest.mark.parametrize("command", KEEPERS)
def test_the_folder_of_another_command_is_refused_and_stays_as_it_is(tmp_path, command):
    for kind in ("train", "solve", "diagnose", "heads", "figure", None):
        if command.startswith(str(kind)):
            continue
        manifest = tmp_path / "manifest.json"
        manifest.write_text(json.dumps({"kind": kind} if kind else {}))
        name, *option = command.split()
        said = refused(invoke(name, *KEEPERS[command], *option, "--out", tmp_path), "holds another result")
        assert str(tmp_path / name) in said
        assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
        assert json.loads(manifest.read_text()).get("kind") == kind


def test_every_command_with_a_folder_is_among_them():
    assert {name.split()[0] for name in KEEPERS} | {"demo", "figure run"} == {
        name for name, options in SHARED.items() if "--out" in options
    }


@pytest.mark.parametrize("command", SHARED)
def test_shared_options_are_where_they_do_something(command):
    known = {each: option for option in command_named(command).params for each in option.opts}
    for option in ("--out", "--seed", "--device", "--quiet", "--json"):
        assert (option in known) == (option in SHARED[command]), option
    assert all(known[each].is_flag for each in ("--quiet", "--json") if each in known)


def command_named(name):
    """The command of this name; "" is the program itself."""
    found = typer.main.get_command(app)
    for part in name.split():
        found = found.commands[part]
    return found


@pytest.mark.parametrize("command", ["", "figure", *SHARED])
def test_help_flows(command):
    """A paragraph is one piece of text, and neither flags nor arguments name a Python type."""
    result = invoke(*command.split(), "--help")
    assert result.exit_code == 0
    for word in ("<bool>", "<str>", "list[str]", "<path>", "[["):
        assert word not in result.output
    said = " ".join(result.output.split())
    for paragraph in command_named(command).help.split("\n\n"):
        assert "\n" not in paragraph
        assert paragraph in said


HEAVY = {"torch", "numpy", "numba", "scipy", "matplotlib", "transformers", "joblib", "pyarrow"}


@pytest.mark.parametrize("arguments", ["--version", "--help", "figure --help", *(f"{name} --help" for name in SHARED)])
def test_help_and_version_load_nothing_heavy(arguments):
    code = "import sys\nfrom attsvm.cli import main\ntry: main()\nfinally: print('loaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_the_package_can_be_run():
    done = subprocess.run([sys.executable, "-m", "attsvm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"attsvm {attsvm.__version__}\n"


def test_unknown_command_gets_the_near_one():
    refused(invoke("trian"), "trian", "train")


def test_unknown_option_gets_the_near_one():
    refused(invoke("train", "two-inputs", "--stpes", 3), "--stpes", "--steps")


def test_missing_argument():
    refused(invoke("train"), "DATA")


def test_word_for_a_number():
    refused(invoke("train", "two-inputs", "--steps", "many"), "--steps", "integer")


@pytest.mark.slow
def test_the_shell_sees_one_sentence_and_exit_code_2(tmp_path):
    done = shell("train", "no-such-data", "--out", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("attsvm: ")
    assert done.stderr.count("\n") == 1


def test_a_bug_still_shows_its_traceback(monkeypatch, tmp_path):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("attsvm.data.example", broken)
    result = invoke("demo", "--out", tmp_path)
    assert isinstance(result.exception, RuntimeError)


def test_interruption_is_exit_code_130(monkeypatch, tmp_path):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attsvm.data.example", interrupted)
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 130
    assert result.stderr.strip() == "attsvm: interrupted"


@pytest.mark.parametrize("error", [MemoryError(), PermissionError(13, "Permission denied", "somewhere")])
def test_failures_of_the_machine_are_sentences_too(monkeypatch, tmp_path, error):
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("attsvm.data.example", failing)
    refused(invoke("demo", "--out", tmp_path), "memory" if isinstance(error, MemoryError) else "somewhere cannot be")
