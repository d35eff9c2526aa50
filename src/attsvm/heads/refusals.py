"""Architectures whose logits are not x^T W z with one W, each with the reason."""

from __future__ import annotations

from typing import Any

from attsvm.heads.architectures import ARCHITECTURES, Architecture

ROTARY = (
    "turns queries and keys by rotary positions, so that every offset between two tokens has its own W and no single"
    " x^T W z exists"
)
RELATIVE = "adds relative position terms to its logits, which no x^T W z contains"
ALIBI = "adds linear position biases (ALiBi) to its logits, which no x^T W z contains"
CAPPED = "caps its attention logits (soft-capping), so that they are no longer bilinear"
SINKS = "adds attention sinks to the softmax, which are logits of no token"
NORMALIZED = "normalizes queries and keys inside the head (qk-norm), so that its logits are not bilinear"
QUANTIZED = "has quantized weights, which are not read; load it in full or half precision"
PRUNED = "has pruned heads, so that its layers differ in their number of heads"
WINDOWED = "lets a query see only a window of tokens, which is not supported"

_ROTARY_SETTINGS = ("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct", "rotary_emb_base")
_RELATIVE_SETTINGS = ("relative_attention", "relative_attention_num_buckets")
_WINDOW_SETTINGS = ("sliding_window", "attention_window", "window_size")
_NORM_SETTINGS = ("qk_layernorm", "use_qk_norm", "qk_norm")
_BY_TYPE = {
    "bloom": ALIBI,
    "mpt": ALIBI,
    "roformer": ROTARY,
    "xlnet": RELATIVE,
    "transfo-xl": RELATIVE,
    "gpt_oss": SINKS,
    "qwen3": NORMALIZED,
    "olmo2": NORMALIZED,
    "gemma3_text": NORMALIZED,
    "gpt_neo": WINDOWED,
    "big_bird": WINDOWED,
    "swin": WINDOWED,
}


def refusal(config: Any) -> str | None:
    """What stands in the way of one x^T W z a head, as the end of a sentence that starts with the model's name."""
    positions = str(getattr(config, "position_embedding_type", None) or "absolute")
    reasons = [
        (getattr(config, "quantization_config", None) is not None, QUANTIZED),
        (_any_set(config, ("pruned_heads",)), PRUNED),
        (positions in ("rotary", "rope"), ROTARY),
        (positions.startswith("relative"), RELATIVE),
        (positions == "alibi" or bool(getattr(config, "alibi", False)), ALIBI),
        (getattr(config, "attn_logit_softcapping", None) is not None, CAPPED),
        (config.model_type in _BY_TYPE, _BY_TYPE.get(config.model_type, "")),
        (_any_set(config, _NORM_SETTINGS), NORMALIZED),
        (_any_set(config, _ROTARY_SETTINGS), ROTARY),
        (_any_set(config, _RELATIVE_SETTINGS), RELATIVE),
        (_any_set(config, _WINDOW_SETTINGS), WINDOWED),
    ]
    return next((sentence for applies, sentence in reasons if applies), None)


def architecture_of(config: Any, name: str) -> Architecture:
    """The architecture that reads models of this configuration.

    Raises:
        ValueError: if there is none, with the reason.
    """
    reason = refusal(config)
    if reason is not None:
        raise ValueError(f"{name} ({config.model_type}) {reason}")
    if config.model_type not in ARCHITECTURES:
        raise ValueError(unsupported(name, config.model_type))
    return ARCHITECTURES[config.model_type]


def unsupported(name: str, model_type: str) -> str:
    """The sentence for an architecture that nobody has written down."""
    return (
        f"{name} has the architecture {model_type!r}, which is not supported; supported are"
        f" {', '.join(sorted(ARCHITECTURES))}, and any other through from_arrays"
    )


def _any_set(config: Any, settings: tuple[str, ...]) -> bool:
    return any(getattr(config, setting, None) for setting in settings)
