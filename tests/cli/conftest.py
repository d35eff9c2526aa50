"""A small model and texts that several commands read."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from attsvm.heads.loading.folder import quiet

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "saw", "a", "house", ".", ",", "and", "ran")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    """A BERT of two layers with weights large enough for confident attention."""
    path = tmp_path_factory.mktemp("model")
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    model = transformers.BertModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            parameter.copy_(around + 0.5 * torch.randn(parameter.shape, generator=generator))
    with quiet():
        model.save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    return str(path)


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    lines = ["the cat saw a dog .", "a dog ran , and the cat ran .", "the house .", "a cat and a dog and a house ."]
    path.write_text("\n".join(f"{line} {'the ' * k}cat" for k in range(4) for line in lines), encoding="utf-8")
    return str(path)
