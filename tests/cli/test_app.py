from __future__ import annotations

import pytest

import attsvm
from cli.runner import invoke, refused, shell


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


@pytest.mark.parametrize("command", ["demo", "train", "solve"])
def test_every_command_has_the_common_options(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    for option in ("--out", "--seed", "--device", "--quiet", "--json"):
        assert option in result.output, option


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

    monkeypatch.setattr("attsvm.cli.demo.example", broken)
    result = invoke("demo", "--out", tmp_path)
    assert isinstance(result.exception, RuntimeError)


def test_interruption_is_exit_code_130(monkeypatch, tmp_path):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attsvm.cli.demo.example", interrupted)
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 130
    assert result.stderr.strip() == "attsvm: interrupted"


@pytest.mark.parametrize("error", [MemoryError(), PermissionError(13, "Permission denied", "somewhere")])
def test_failures_of_the_machine_are_sentences_too(monkeypatch, tmp_path, error):
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("attsvm.cli.demo.example", failing)
    refused(invoke("demo", "--out", tmp_path), "memory" if isinstance(error, MemoryError) else "somewhere cannot be")
