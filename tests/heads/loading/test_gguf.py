"""GGUF files: a real model with rotary positions, and files that cannot be read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attsvm.heads import load
from attsvm.heads.model import form_errors
from heads.weights import real

TEXT = "The river bank was closed on Sundays, and the bank by the river, too."


def smollm() -> Path:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    (path,) = real("smollm").glob("*.gguf")
    return path


@pytest.mark.slow
def test_smollm_is_exact_in_all_heads(capfd, monkeypatch):
    path, opened = smollm(), []
    reader = sys.modules["gguf"].GGUFReader
    monkeypatch.setattr("gguf.GGUFReader", lambda *given: opened.append(given) or reader(*given))
    model = load(path)
    assert len(opened) == 1  # the vocabulary takes seconds to read
    assert capfd.readouterr().err == ""  # no progress bars
    assert (model.layers, model.heads, model.width, model.causal) == (30, 9, 576, True)
    assert model.notes == ("weights of lower precision (Q4_1, Q8_0) were dequantized to float32",)
    sentence = model.encode([TEXT])[0]
    assert sentence.tokens[:3] == ("The", "Ġriver", "Ġbank")
    states = model.states(sentence)
    errors = form_errors(states, [model.forms(layer) for layer in range(model.layers)])
    print(f"recomputed attention of {errors.numel()} heads off by {errors.max():.1e}")
    assert errors.numel() == 270
    assert errors.max() < 1e-5
    shared = [model.weights(4, head).key for head in range(9)]
    assert torch.equal(shared[0], shared[2])  # three query heads share a key head
    assert not torch.equal(shared[2], shared[3])


@pytest.mark.slow
def test_smollm_on_the_command_line(tmp_path):
    """From the file to the report, with nothing on stderr."""
    asked = ("--heads", "L14H3", "--queries", 20, "--most-texts", 6, "--texts", tmp_path / "texts", "--draws", 1)
    (tmp_path / "texts").write_text("\n".join(f"{TEXT} {word} ran." for word in "ABCDEF"))
    done = subprocess.run(
        [sys.executable, "-m", "attsvm", "heads", smollm(), *map(str, asked), "--out", tmp_path / "out"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "1 head, 1 solved" in done.stdout
    assert "dequantized" in (tmp_path / "out" / "heads.html").read_text()


def test_a_truncated_file(tmp_path):
    path = tmp_path / "half.gguf"
    path.write_bytes(smollm().read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"half.gguf cannot be read as GGUF \(truncated, or of an unknown kind\?\)"):
        load(path)


def test_weights_of_an_unknown_kind(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = small_gguf(gguf, tmp_path, "llama")
    content = bytearray(path.read_bytes())
    # Behind the name of a tensor stand the number of its axes, their lengths, and the kind.
    place = content.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8
    content[place : place + 4] = (99).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tiny.gguf cannot be read as GGUF .*does not know weights of kind 99"):
        load(path)


def small_gguf(gguf, folder, architecture: str) -> Path:
    writer = gguf.GGUFWriter(folder / "tiny.gguf", architecture)
    writer.add_name("tiny")
    writer.add_tensor("token_embd.weight", torch.zeros(4, 4).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "tiny.gguf"


@pytest.mark.parametrize(("architecture", "sentence"), [
    ("made-up", r"cannot be read as GGUF .*architecture made-up is not supported"),
    ("falcon", r"^tiny has the architecture 'falcon', which is not supported; supported are"),
])  # fmt: skip
def test_architectures_that_are_not_read(tmp_path, architecture, sentence):
    path = small_gguf(pytest.importorskip("gguf"), tmp_path, architecture)
    with pytest.raises(ValueError, match=sentence):
        load(path)


def test_the_packages_are_missed_in_one_sentence(monkeypatch, tmp_path):
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"reading GGUF files needs gguf and accelerate: pip install 'attsvm\[gguf\]'"):
        load(tmp_path / "some.gguf")
