"""What an architecture tells: where its key and query projections are, and how to run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attsvm.heads.model import HeadWeights, head_weights


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map of hidden states to all heads of a layer.

    Arguments:
        module: the module whose input the map sees; fused projections share one.
        weight: heads side by side, ``[d, heads m]``.
        bias: ``[heads m]``, or None.
    """

    module: nn.Module
    weight: Float[Tensor, "d out"]
    bias: Float[Tensor, " out"] | None

    @staticmethod
    def linear(module: Any) -> Projection:
        """The projection of an ``nn.Linear``, which stores the transpose."""
        return Projection(module, module.weight.T, module.bias)

    def head(self, index: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Weight ``[d, size]`` and bias ``[size]`` of one head."""
        columns = slice(index * size, (index + 1) * size)
        return self.weight[:, columns], None if self.bias is None else self.bias[columns]


@dataclass(frozen=True, eq=False)
class Layer:
    """The key-query side of one attention layer.

    Arguments:
        key: with `key_heads` heads, shared by groups of query heads where there are fewer.
        query: with `heads` heads.
        heads: number of query heads.
        key_heads: number of key heads; divides `heads`.
        scale: what the model multiplies the logits by.
    """

    key: Projection
    query: Projection
    heads: int
    key_heads: int
    scale: float

    def form(self, head: int) -> HeadWeights:
        """The bilinear form of one query head."""
        size = self.query.weight.shape[1] // self.heads
        key, key_bias = self.key.head(head * self.key_heads // self.heads, size)
        query, query_bias = self.query.head(head, size)
        return head_weights(key, query, key_bias, query_bias, self.scale)


class Architecture(ABC):
    """One family of transformers, by the ``model_type`` of their configurations; it holds no weights."""

    model_types: ClassVar[tuple[str, ...]]

    def core(self, module: Any) -> Any:
        """The stack of layers inside a model with a task head."""
        return module.base_model

    def causal(self, config: Any) -> bool:
        """Whether a query sees only itself and the tokens before it."""
        return bool(getattr(config, "is_decoder", False))

    def positions(self, config: Any) -> int:
        """The longest sentence, in tokens."""
        return int(config.max_position_embeddings)

    @abstractmethod
    def layers(self, core: Any) -> list[Layer]:
        """In the order in which they run; a layer that runs twice stands in the list twice."""

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        """Run `core`; the attention of each layer, ``[1, heads, T, T]``."""
        return core(**inputs, output_attentions=True).attentions


class Albert(Architecture):
    """Post-norm encoder; layer i runs the weights of its group, so several layers have the same form."""

    model_types = ("albert",)

    def layers(self, core: Any) -> list[Layer]:
        groups, inner = core.config.num_hidden_groups, core.config.inner_group_num
        per_group = core.config.num_hidden_layers / groups
        found = []
        for layer in range(core.config.num_hidden_layers):
            group = core.encoder.albert_layer_groups[int(layer / per_group)]
            found += [self._layer(group.albert_layers[k].attention) for k in range(inner)]
        return found

    def _layer(self, attention: Any) -> Layer:
        heads = attention.num_attention_heads
        scale = attention.attention_head_size**-0.5
        return Layer(Projection.linear(attention.key), Projection.linear(attention.query), heads, heads, scale)


class Bert(Architecture):
    """Post-norm encoder with learned positions; with ``is_decoder`` it is causal."""

    model_types: ClassVar[tuple[str, ...]] = ("bert", "electra")

    def layers(self, core: Any) -> list[Layer]:
        return [self._layer(block.attention.self) for block in core.encoder.layer]

    def _layer(self, attention: Any) -> Layer:
        heads = attention.num_attention_heads
        scale = attention.attention_head_size**-0.5
        return Layer(Projection.linear(attention.key), Projection.linear(attention.query), heads, heads, scale)


class Roberta(Bert):
    """BERT whose positions are counted from behind the padding token's."""

    model_types = ("roberta", "xlm-roberta", "camembert")

    def positions(self, config: Any) -> int:
        return int(config.max_position_embeddings) - int(config.pad_token_id) - 1


class DistilBert(Architecture):
    """Post-norm encoder with learned or sinusoidal positions."""

    model_types = ("distilbert",)

    def layers(self, core: Any) -> list[Layer]:
        heads = core.config.n_heads
        scale = (core.config.dim // heads) ** -0.5
        attentions = [block.attention for block in core.transformer.layer]
        return [
            Layer(Projection.linear(attention.k_lin), Projection.linear(attention.q_lin), heads, heads, scale)
            for attention in attentions
        ]


class Gpt2(Architecture):
    """Causal pre-norm decoder with learned positions."""

    model_types = ("gpt2",)

    def causal(self, config: Any) -> bool:
        return True

    def layers(self, core: Any) -> list[Layer]:
        return [self._layer(block.attn, index) for index, block in enumerate(core.h)]

    def _layer(self, attention: Any, index: int) -> Layer:
        fused, heads, d = attention.c_attn, attention.num_heads, attention.embed_dim
        scale = attention.head_dim**-0.5 if attention.scale_attn_weights else 1.0
        if attention.scale_attn_by_inverse_layer_idx:
            scale /= index + 1
        query = Projection(fused, fused.weight[:, :d], fused.bias[:d])
        key = Projection(fused, fused.weight[:, d : 2 * d], fused.bias[d : 2 * d])
        return Layer(key, query, heads, heads, scale)

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        return core(**inputs, output_attentions=True, use_cache=False).attentions


class GptBigCode(Gpt2):
    """GPT-2 with a grouped key: one key head for all query heads where ``multi_query`` is set."""

    model_types = ("gpt_bigcode",)

    def _layer(self, attention: Any, index: int) -> Layer:
        fused, heads, m, d = attention.c_attn, attention.num_heads, attention.head_dim, attention.embed_dim
        scale = m**-0.5 if attention.scale_attn_weights else 1.0
        weight, bias = fused.weight.T, fused.bias
        if attention.multi_query:
            query = Projection(fused, weight[:, :d], bias[:d])
            return Layer(Projection(fused, weight[:, d : d + m], bias[d : d + m]), query, heads, 1, scale)
        # Here the heads stand one behind the other, each with its own query, key and value.
        weights, biases = weight.reshape(d, heads, 3, m), bias.reshape(heads, 3, m)
        query = Projection(fused, weights[:, :, 0].reshape(d, -1), biases[:, 0].reshape(-1))
        key = Projection(fused, weights[:, :, 1].reshape(d, -1), biases[:, 1].reshape(-1))
        return Layer(key, query, heads, heads, scale)


class Vit(Architecture):
    """Pre-norm encoder of image patches behind a [CLS] token."""

    model_types = ("vit",)

    def layers(self, core: Any) -> list[Layer]:
        heads = core.config.num_attention_heads
        scale = (core.config.hidden_size // heads) ** -0.5
        blocks = core.layers if hasattr(core, "layers") else core.encoder.layer
        found = []
        for attention in (block.attention for block in blocks):
            if hasattr(attention, "q_proj"):
                key, query = attention.k_proj, attention.q_proj
            else:  # before transformers 5
                key, query = attention.attention.key, attention.attention.query
            found.append(Layer(Projection.linear(key), Projection.linear(query), heads, heads, scale))
        return found


# The log-Mel spectrogram of silence after Whisper's scaling: (log10(1e-10) + 4) / 4 everywhere.
SILENCE = -1.5


class Whisper(Architecture):
    """Causal pre-norm decoder with learned positions and keys without bias."""

    model_types = ("whisper",)

    def causal(self, config: Any) -> bool:
        return True

    def positions(self, config: Any) -> int:
        return int(config.max_target_positions)

    def layers(self, core: Any) -> list[Layer]:
        heads = core.config.decoder_attention_heads
        scale = (core.config.d_model // heads) ** -0.5
        attentions = [block.self_attn for block in core.decoder.layers]
        return [
            Layer(Projection.linear(attention.k_proj), Projection.linear(attention.q_proj), heads, heads, scale)
            for attention in attentions
        ]

    def silence(self, core: Any) -> Tensor:
        """What the encoder makes of thirty seconds of silence, ``[frames, d]``."""
        config = core.config
        frames = 2 * config.max_source_positions  # the second convolution halves the length
        device = next(core.parameters()).device
        with torch.no_grad():
            mel = torch.full((1, config.num_mel_bins, frames), SILENCE, device=device)
            return core.encoder(mel).last_hidden_state[0]

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        return core.decoder(
            input_ids=inputs["input_ids"],
            encoder_hidden_states=inputs["audio_features"],
            output_attentions=True,
            use_cache=False,
        ).attentions


ARCHITECTURES: dict[str, Architecture] = {
    model_type: architecture
    for architecture in (Bert(), Roberta(), DistilBert(), Albert(), Gpt2(), GptBigCode(), Whisper(), Vit())
    for model_type in architecture.model_types
}


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
