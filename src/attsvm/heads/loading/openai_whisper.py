"""Whisper in the file format of its authors (``tiny.en.pt``), as a model of the transformers library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from attsvm.heads.loading.folder import read_pickle

# Longer names first: "attn" is a part of "cross_attn".
_NAMES = (
    ("blocks.", "layers."),
    ("cross_attn_ln.", "encoder_attn_layer_norm."),
    ("cross_attn.", "encoder_attn."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".attn.", ".self_attn."),
    (".query.", ".q_proj."),
    (".key.", ".k_proj."),
    (".value.", ".v_proj."),
    (".out.", ".out_proj."),
    ("mlp_ln.", "final_layer_norm."),
    ("mlp.0.", "fc1."),
    ("mlp.2.", "fc2."),
    ("decoder.ln.", "decoder.layer_norm."),
    ("ln_post.", "layer_norm."),
    ("token_embedding.", "embed_tokens."),
    ("positional_embedding", "embed_positions.weight"),
)


def read_openai_whisper(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Configuration and weights of a Whisper file, under the names that the transformers library uses.

    Raises:
        ValueError: if the file holds more than tensors, or is not a Whisper model.
    """
    stored = read_pickle(path)
    sizes, weights = stored.get("dims"), stored.get("model_state_dict")
    if not isinstance(sizes, dict) or not isinstance(weights, dict):
        raise ValueError(
            f"{path} is not a Whisper model: it must hold 'dims' and 'model_state_dict'; got {sorted(stored)}"
        )
    from transformers import WhisperConfig

    try:
        config = WhisperConfig(
            vocab_size=sizes["n_vocab"],
            num_mel_bins=sizes["n_mels"],
            d_model=sizes["n_text_state"],
            encoder_layers=sizes["n_audio_layer"],
            encoder_attention_heads=sizes["n_audio_head"],
            encoder_ffn_dim=4 * sizes["n_audio_state"],
            decoder_layers=sizes["n_text_layer"],
            decoder_attention_heads=sizes["n_text_head"],
            decoder_ffn_dim=4 * sizes["n_text_state"],
            max_source_positions=sizes["n_audio_ctx"],
            max_target_positions=sizes["n_text_ctx"],
        )
    except KeyError as error:
        raise ValueError(f"{path} is not a Whisper model: its 'dims' lack {error}") from None
    return config, {_renamed(name): tensor for name, tensor in weights.items()}


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES:
        name = name.replace(theirs, ours)
    return name
