"""Model folders: whole ones, damaged ones, and those that want their own code to be run."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from attsvm.heads import load
from heads.loading.small import attention_error

from . import small
from .small import IDS, READERS

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "mat", "."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small BERT with a word-piece vocabulary."""
    model = small.bert(vocab_size=len(WORDS))
    made = tmp_path / "tiny-bert"
    model.save_pretrained(made)
    (made / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    return made


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    weights = change(load_file(path))
    path.unlink()  # the tensors may map the old file
    save_file(weights, path, metadata={"format": "pt"})


def test_a_whole_folder(folder):
    model = load(folder)
    assert (model.name, model.architecture, model.notes) == ("tiny-bert", "bert", ())
    sentence = model.encode(["The cats sat."])[0]
    assert sentence.tokens == ("[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]")
    assert sentence.special.tolist() == [True] + 5 * [False] + [True]
    assert attention_error(model, model.states(sentence)).max() < 1e-5
    assert "3 layers x 4 heads, width 24, bidirectional" in repr(model)


def test_a_string_names_the_same_folder(folder):
    assert load(str(folder)).fingerprint() == load(folder).fingerprint()


@pytest.mark.parametrize("make", [reader[1] for reader in READERS], ids=[reader[0] for reader in READERS])
def test_saved_models_are_the_live_ones(make, tmp_path):
    live = make()
    live.save_pretrained(tmp_path)
    saved, given = load(tmp_path), load(live)
    sentence = given.encode([IDS])[0]
    assert torch.equal(saved.states(sentence).attention, given.states(sentence).attention)
    assert torch.equal(saved.weights(1, 1).weights, given.weights(1, 1).weights)


def test_saved_vision_models_are_the_live_ones(tmp_path):
    live, images = small.vit(), torch.ones(1, 1, 12, 12)
    live.save_pretrained(tmp_path)
    saved, given = load(tmp_path, images=images), load(live, images=images)
    assert torch.equal(saved.states(saved.sentences[0]).attention, given.states(given.sentences[0]).attention)


def test_names_of_old_checkpoints(folder):
    expected = load(folder)

    def renamed(name):
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return f"bert.{name}"

    change_weights(folder, lambda weights: {renamed(name): tensor for name, tensor in weights.items()})
    found = load(folder)
    sentence = found.encode(["the cat"])[0]
    assert torch.equal(found.states(sentence).attention, expected.states(sentence).attention)


def test_weights_are_those_of_the_file(folder):
    stored = load_file(folder / "model.safetensors")
    form = load(folder).weights(1, 2)
    rows = slice(2 * 6, 3 * 6)  # head 2 of heads with 6 coordinates
    query = stored["encoder.layer.1.attention.self.query.weight"][rows].double()
    bias = stored["encoder.layer.1.attention.self.query.bias"][rows].double()
    assert torch.allclose(form.query, torch.cat([query.T, bias[None]]) / 6**0.5, atol=0, rtol=1e-12)
    key = stored["encoder.layer.1.attention.self.key.weight"][rows].double()
    assert torch.equal(form.key[:-1], key.T)
    assert torch.equal(form.weights, form.key @ form.query.T)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_upcast_and_said(folder, kind):
    change_weights(folder, lambda weights: {name: tensor.to(kind) for name, tensor in weights.items()})
    change_config(folder, dtype=str(kind).removeprefix("torch."))
    model = load(folder)
    assert model.notes == (f"half precision weights ({str(kind).removeprefix('torch.')}) were upcast to float32",)
    stored = load_file(folder / "model.safetensors")["encoder.layer.0.attention.self.key.weight"]
    assert torch.equal(model.weights(0, 0).key[:-1], stored[:6].double().T)
    states = model.states(model.encode(["the cat"])[0])
    assert attention_error(model, states).max() < 1e-5  # the forward pass ran in float32


def test_full_precision_weights_are_not_cast_to_what_the_config_says(folder):
    before = load(folder).weights(0, 0).key
    change_config(folder, dtype="float16")
    assert torch.equal(load(folder).weights(0, 0).key, before)


def test_pickled_tensors_are_read(folder):
    expected = load(folder).weights(2, 3).weights
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert torch.equal(load(folder).weights(2, 3).weights, expected)


def test_shards_are_read(folder):
    expected = load(folder).weights(2, 3).weights
    weights = sorted(load_file(folder / "model.safetensors").items())
    (folder / "model.safetensors").unlink()
    places = {}
    for number, part in enumerate((weights[::2], weights[1::2])):
        save_file(dict(part), folder / f"model-{number}.safetensors")
        places |= {name: f"model-{number}.safetensors" for name, _ in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert torch.equal(load(folder).weights(2, 3).weights, expected)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(
        ValueError, match=r"tiny-bert lacks model-1.safetensors, which model.safetensors.index.json names"
    ):
        load(folder)
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(ValueError, match=r"names '../elsewhere.safetensors', which is not a file of the folder"):
        load(folder)


def test_safetensors_are_preferred(folder):
    (folder / "pytorch_model.bin").write_bytes(b"never read")
    load(folder)


def test_missing_pieces(folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"empty has no config.json; give the folder of a Hugging Face model"):
        load(empty)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"tiny-bert has no weights; expected model.safetensors or pytorch_model.bin"):
        load(folder)


def test_no_tokenizer(folder):
    (folder / "vocab.txt").unlink()
    model = load(folder)
    with pytest.raises(ValueError, match=r"tiny-bert has no tokenizer, so texts cannot be read; name a folder with"):
        model.encode(["the cat"])
    sentence = model.encode([[2, 5, 6, 3]])[0]
    assert sentence.tokens == ("2", "5", "6", "3")
    assert sentence.text == "2 5 6 3"
    assert not sentence.special.any()
    assert attention_error(model, model.states(sentence)).max() < 1e-5


def test_a_tokenizer_may_come_from_elsewhere(folder, tmp_path):
    elsewhere = tmp_path / "words"
    elsewhere.mkdir()
    shutil.move(folder / "vocab.txt", elsewhere / "vocab.txt")
    assert load(folder, tokenizer=elsewhere).encode(["the cat"])[0].tokens == ("[CLS]", "the", "cat", "[SEP]")


def test_truncated_safetensors(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model.safetensors is not a readable safetensors file \(truncated\?\)"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 half an archive"])
def test_damaged_pickles(folder, content):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"pytorch_model.bin (is not a readable weights file|holds more than tensors)"):
        load(folder)


class Trap:
    """Unpickling it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("saved", ["torch.save", "plain pickle"])
def test_pickled_code_is_never_run(folder, tmp_path, saved):
    (folder / "model.safetensors").unlink()
    target = folder / "pytorch_model.bin"
    if saved == "torch.save":
        torch.save({"weights": Trap(tmp_path / "ran")}, target)
    else:
        target.write_bytes(pickle.dumps({"weights": Trap(tmp_path / "ran")}))
    with pytest.raises(
        ValueError, match=r"pytorch_model.bin holds more than tensors, or is damaged; such pickles are nev"
    ):
        load(folder)
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Trap(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()  # the trap does work


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_of_the_folder_is_never_run(folder, tmp_path, file):
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    path = folder / file
    settings = json.loads(path.read_text()) if path.is_file() else {}
    entry = {"AutoConfig": "own.Own", "AutoModel": "own.Own", "AutoTokenizer": ["own.Own", None]}
    path.write_text(json.dumps(settings | {"auto_map": entry}))
    with pytest.raises(
        ValueError, match=rf"{file} asks to run Python code from the model folder \(auto_map\), which is n"
    ):
        load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("content", "sentence"), [
    ("{", r"config.json is not JSON"),
    ("[]", r"config.json must hold a JSON object; got list"),
    ("{}", r"config.json has no model_type, so its architecture is unknown"),
    ('{"architectures": ["GPTNeoXForCausalLM"]}', r"name it, such as --model-type gpt_neox \(model_type= in Python\)"),
    ('{"architectures": ["XLMRobertaModel"]}', r"such as --model-type xlm-roberta"),
    ('{"model_type": "made_up"}', r"has the architecture 'made_up', which is not supported; supported are albert"),
    ('{"model_type": "xglm"}', r"tiny-bert has the architecture 'xglm', which is not supported"),
    ('{"model_type": "bert", "hidden_size": "wide"}', r"config.json is not a valid bert configuration"),
])  # fmt: skip
def test_damaged_or_unknown_configurations(folder, content, sentence):
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_an_architecture_that_only_the_user_knows(folder):
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    kind = settings.pop("model_type")
    with pytest.raises(ValueError, match=r"must be bert, as .*config.json says; got gpt2"):
        load(folder, model_type="gpt2")
    path.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"name it, such as --model-type bert \(model_type= in Python\)"):
        load(folder)
    assert load(folder, model_type=kind).architecture == "bert"


def test_weights_of_another_architecture(folder):
    change_config(folder, model_type="distilbert")
    with pytest.raises(ValueError, match=r"tiny-bert lacks \d+ weights that its architecture needs, such as "):
        load(folder)


def test_weights_of_another_size(folder):
    change_config(folder, intermediate_size=40)
    with pytest.raises(ValueError, match=r"the weights of tiny-bert do not fit its configuration") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_missing_weight(folder):
    name = "encoder.layer.1.attention.self.key.weight"
    change_weights(folder, lambda weights: {key: value for key, value in weights.items() if key != name})
    with pytest.raises(ValueError, match=rf"tiny-bert lacks 1 weights that its architecture needs, such as {name}"):
        load(folder)


def test_a_missing_pooler_does_not_matter(folder):
    change_weights(folder, lambda weights: {k: v for k, v in weights.items() if not k.startswith("pooler")})
    load(folder)


@pytest.mark.parametrize(("bad", "word"), [(torch.nan, "NaN"), (torch.inf, "infinity")])
def test_weights_that_are_not_finite(folder, bad, word):
    def spoil(weights):
        weights["encoder.layer.2.attention.self.query.bias"][3] = bad
        return weights

    change_weights(folder, spoil)
    with pytest.raises(ValueError, match=rf"must be finite; encoder.layer.2.attention.self.query.bias holds {word}"):
        load(folder)


def test_quantized_weights(folder):
    change_config(folder, quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(ValueError, match=r"tiny-bert \(bert\) has quantized weights, which are not read"):
        load(folder)


def test_other_files(tmp_path, folder):
    for name, sentence in (
        ("model.onnx", r"model.onnx must be a model folder, a .gguf file or a Whisper .pt file; got '.onnx'"),
        ("empty.pt", r"empty.pt is not a readable weights file"),
    ):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=sentence):
            load(tmp_path / name)
    torch.save({"something": torch.ones(2)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other.pt is not a Whisper model: it must hold 'dims' and 'model_stat"):
        load(tmp_path / "other.pt")
    torch.save({"dims": {"n_vocab": 3}, "model_state_dict": {}}, tmp_path / "part.pt")
    with pytest.raises(ValueError, match=r"part.pt is not a Whisper model: its 'dims' lack 'n_mels'"):
        load(tmp_path / "part.pt")


def test_a_tokenizer_that_cannot_be_read(folder):
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"the tokenizer in .*tiny-bert \(tokenizer.json, vocab.txt\) cannot be read"):
        load(folder)


def test_fingerprints_tell_models_apart(folder):
    first = load(folder).fingerprint()
    assert load(folder).fingerprint() == first

    def nudge(weights):
        weights["encoder.layer.2.output.dense.bias"][0] += 1e-3
        return weights

    change_weights(folder, nudge)
    second = load(folder).fingerprint()
    (folder / "vocab.txt").write_text("\n".join([*WORDS[:-1], "!"]), encoding="utf-8")
    third = load(folder).fingerprint()
    assert len({first, second, third, load(folder).untrained(0).fingerprint()}) == 4


def test_ids_outside_the_vocabulary(folder):
    with pytest.raises(ValueError, match=r"texts\[0\] has token number 50; tiny-bert knows 0..10"):
        load(folder).encode([[50, *IDS]])
