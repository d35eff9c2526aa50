"""Architectures whose logits are no sum of channels, each refused in one sentence; and hub names without a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
import transformers

from attsvm.heads import load
from attsvm.heads.loading import architectures
from attsvm.heads.loading.architectures import ARCHITECTURES, architecture_of

from . import small

RELATIVE = r"adds products of contents and relative positions to its logits"
CLIPPED = r"clips its keys and queries"


def _made_up_rope():
    config = transformers.LlamaConfig()
    config.rope_parameters = {"rope_type": "made_up", "rope_theta": 100.0}
    return config


@pytest.mark.parametrize(("config", "sentence"), [
    (transformers.DebertaConfig(relative_attention=True), RELATIVE),
    (transformers.DebertaV2Config(relative_attention=True), RELATIVE),
    (transformers.BertConfig(position_embedding_type="relative_key_query"), RELATIVE),
    (transformers.OlmoConfig(clip_qkv=8.0), CLIPPED),
    (transformers.MptConfig(attn_config={"clip_qkv": 8.0}), CLIPPED),
    (_made_up_rope(), r"has rotary positions of the kind 'made_up', which the transformers library does not know"),
    (transformers.GPTNeoConfig(), r"lets a query see only a window of tokens"),
    (transformers.LongformerConfig(), r"lets a query see only a window of tokens"),
    (transformers.FalconConfig(), r"has the architecture 'falcon', which is not supported; supported are albert, bart"),
], ids=lambda value: getattr(value, "model_type", None))  # fmt: skip
def test_architectures(config, sentence):
    with pytest.raises(ValueError, match=sentence):
        architecture_of(config, "it")


@pytest.mark.parametrize("config", [
    transformers.BertConfig(), transformers.RobertaConfig(), transformers.DistilBertConfig(),
    transformers.AlbertConfig(), transformers.GPT2Config(), transformers.GPTBigCodeConfig(),
    transformers.WhisperConfig(), transformers.ViTConfig(),
], ids=lambda value: value.model_type)  # fmt: skip
def test_supported_architectures_pass(config):
    assert architecture_of(config, "it") is ARCHITECTURES[config.model_type]


def test_the_documentation_lists_what_is_read_and_what_is_refused():
    page = (Path(__file__).parents[3] / "docs" / "heads_models.md").read_text(encoding="utf-8")
    supported, refused = page.partition("## Refused")[::2]
    assert {name for name in ARCHITECTURES if f"`{name}`" in supported} == set(ARCHITECTURES)
    assert {name for name in architectures._BY_TYPE if f"`{name}`" in refused} == set(architectures._BY_TYPE)
    assert not any(f"`{name}`" in refused for name in ARCHITECTURES)


@pytest.mark.parametrize("source", [3, None, torch.nn.Linear(2, 2), ["bert"]], ids=str)
def test_sources_that_are_no_models(source):
    with pytest.raises(
        ValueError, match=r"source must be a model folder, a name on the hub, a transformers or Transformer"
    ):
        load(source)


def test_the_library_is_imported_late_and_missed_in_one_sentence(monkeypatch):
    code = "import sys, attsvm.heads; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ValueError, match=r"loading models needs the transformers library: pip install 'attsvm\[heads\]'"
    ):
        load("bert")


def test_inputs_of_the_other_kind():
    with pytest.raises(ValueError, match=r"images are for vision models; BertModel is bert"):
        load(small.bert(), images=torch.zeros(1, 1, 2, 2))
    with pytest.raises(ValueError, match=r"audio_features are for Whisper; BertModel is bert"):
        load(small.bert(), audio_features=torch.zeros(3, 24))
    with pytest.raises(ValueError, match=r"ViTForImageClassification looks at images; pass images="):
        load(small.vit())


@pytest.mark.parametrize(("images", "sentence"), [
    (torch.zeros(2, 3, 12, 12), r"images must have shape \[n, 1, 12, 12\]; got \[2, 3, 12, 12\]"),
    (torch.zeros(0, 1, 12, 12), r"images must have shape \[n, 1, 12, 12\]; got \[0, 1, 12, 12\]"),
    (torch.full((1, 1, 12, 12), torch.nan), r"images must be finite"),
])  # fmt: skip
def test_images_that_do_not_fit(images, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(small.vit(), images=images)


def test_images_are_not_read_as_texts():
    model = load(small.vit(), images=torch.zeros(1, 1, 12, 12))
    with pytest.raises(ValueError, match=r"reads images, not texts; use its own sentences"):
        model.encode(["a text"])
    stranger = load(small.bert()).encode([[1, 2]])[0]
    with pytest.raises(ValueError, match=r"sentence must be one of the 1 images; got '1 2'"):
        model.states(stranger)


NOT_HERE = r"made-up/model is not a folder here, is not in the local cache of the Hugging Face hub, and could not be f"


def test_a_hub_name_without_a_network(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(ValueError, match=NOT_HERE) as caught:
        load("made-up/model")
    assert "\n" not in str(caught.value)


def test_a_hub_name_in_the_cache_needs_no_network(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _cached(tmp_path))
    small.bert().save_pretrained(tmp_path)
    assert load("made-up/model").name == "made-up/model"


def _cached(folder):
    def snapshot_download(name, *, allow_patterns, local_files_only):
        assert local_files_only, "the cache comes first"
        assert not any(pattern.endswith((".py", "*")) for pattern in allow_patterns), "no code is fetched"
        return str(folder)

    return snapshot_download


def test_a_path_is_never_a_name_on_the_hub(tmp_path):
    with pytest.raises(ValueError, match=r"absent does not exist; give a model folder or a .pt file of Whisper"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("source", ["no/such/folder/here", "a name with spaces", "https://example.org/model", "../x"])
def test_names_that_cannot_be_on_the_hub(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"does not exist; give a model folder, a .pt file of Whisper, or a name on the"
    ):
        load(source)
