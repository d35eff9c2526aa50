"""What is known about each architecture: where its key and query projections are, how logits are scaled, what it reads.

An architecture is a line of `ARCHITECTURES`, by the ``model_type`` of a configuration. Models whose logits are not
x^T W z for one matrix W are refused by their settings, with the reason; whatever slips through is caught by
`attsvm.heads.model.check_exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

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

    def head(self, index: int, size: int) -> tuple[Tensor, Tensor | None]:
        """Weight ``[d, size]`` and bias ``[size]`` of one head."""
        columns = slice(index * size, (index + 1) * size)
        return self.weight[:, columns], None if self.bias is None else self.bias[columns]


@dataclass(frozen=True, eq=False)
class Layer:
    """The key-query side of one attention layer.

    Arguments:
        key: of the key heads; where there are fewer than query heads, groups of query heads share them.
        query: of the query heads.
        heads: number of query heads.
        scale: what the model multiplies the logits by.
    """

    key: Projection
    query: Projection
    heads: int
    scale: float

    @property
    def biased(self) -> bool:
        """Whether keys or queries have a bias."""
        return self.key.bias is not None or self.query.bias is not None

    def form(self, head: int) -> HeadWeights:
        """The bilinear form of one query head."""
        size = self.query.weight.shape[1] // self.heads
        key_heads = self.key.weight.shape[1] // size
        key, key_bias = self.key.head(head * key_heads // self.heads, size)
        query, query_bias = self.query.head(head, size)
        if self.biased:  # both kinds of states have the constant coordinate, so both factors need a row for it
            key_bias = key.new_zeros(size) if key_bias is None else key_bias
            query_bias = query.new_zeros(size) if query_bias is None else query_bias
        return head_weights(key, query, key_bias, query_bias, self.scale)


Paths = str | tuple[str, ...]
"""A dotted path inside a module, or several, of which the first that exists counts: versions of the library differ."""
Projections = Callable[[Any], tuple[Projection, Projection]]
"""From a block of a model to its key and query projections."""


def _at(module: Any, paths: Paths) -> Any:
    *others, last = (paths,) if isinstance(paths, str) else paths
    for path in others:
        try:
            return attrgetter(path)(module)
        except AttributeError:
            continue
    return attrgetter(last)(module)


def _separate(key: Paths, query: Paths) -> Projections:
    """Two linear layers at these paths of a block; they store the transposed weights."""

    def found(block: Any) -> tuple[Projection, Projection]:
        own, other = _at(block, key), _at(block, query)
        return Projection(own, own.weight.T, own.bias), Projection(other, other.weight.T, other.bias)

    return found


def _gpt2_projections(block: Any) -> tuple[Projection, Projection]:
    """One map to queries, keys and values in this order; its weights are not transposed."""
    fused, d = block.attn.c_attn, block.attn.embed_dim
    return _columns(fused, fused.weight, torch.arange(d, 2 * d), torch.arange(d))


def _bigcode_projections(block: Any) -> tuple[Projection, Projection]:
    """One map as in GPT-2, transposed; with ``multi_query`` all query heads share one key head."""
    fused, heads, m, d = block.attn.c_attn, block.attn.num_heads, block.attn.head_dim, block.attn.embed_dim
    if block.attn.multi_query:
        return _columns(fused, fused.weight.T, torch.arange(d, d + m), torch.arange(d))
    # Here the heads stand behind each other, each with its own query, key and value.
    parts = torch.arange(3 * d).reshape(heads, 3, m)
    return _columns(fused, fused.weight.T, parts[:, 1].flatten(), parts[:, 0].flatten())


def _columns(fused: Any, weight: Tensor, key: Tensor, query: Tensor) -> tuple[Projection, Projection]:
    """Key and query projection by their columns of a fused one."""
    return Projection(fused, weight[:, key], fused.bias[key]), Projection(fused, weight[:, query], fused.bias[query])


def _albert_blocks(core: Any) -> list[Any]:
    """Layer i runs the weights of its group, so that several layers share theirs."""
    layers, groups = core.config.num_hidden_layers, core.config.num_hidden_groups
    order = [int(layer / (layers / groups)) for layer in range(layers)]
    return [block for group in order for block in core.encoder.albert_layer_groups[group].albert_layers]


def _usual_scale(config: Any, layer: int, size: int) -> float:
    return size**-0.5


def _gpt_scale(config: Any, layer: int, size: int) -> float:
    scale = size**-0.5 if config.scale_attn_weights else 1.0
    return scale / (layer + 1) if getattr(config, "scale_attn_by_inverse_layer_idx", False) else scale


class Reads(Enum):
    """What a model is given to read."""

    TEXTS = "texts"
    IMAGES = "images"
    SPEECH = "texts, while it listens"


@dataclass(frozen=True)
class Architecture:
    """Facts about one family of transformers; it holds no weights.

    Arguments:
        blocks: path from the core of a model to its blocks in the order in which they run, or a function that lists
            them; a block that runs twice stands there twice.
        projections: key and query projection of a block.
        heads: the setting that holds the number of query heads.
        scale: factor on the logits, from the configuration, the number of the layer, and the size of a head.
        causal: whether a query sees only itself and the tokens before it, whatever the setting ``is_decoder`` says.
        positions: the longest sentence in tokens, from the configuration.
        reads: texts, images, or texts and speech.
        part: path of what is run, where it is not the whole core.
    """

    blocks: Paths | Callable[[Any], Sequence[Any]]
    projections: Projections
    heads: str = "num_attention_heads"
    scale: Callable[[Any, int, int], float] = _usual_scale
    causal: bool = False
    positions: Callable[[Any], int] = attrgetter("max_position_embeddings")
    reads: Reads = Reads.TEXTS
    part: str | None = None

    def is_causal(self, config: Any) -> bool:
        """Whether a query of a model with this configuration sees only itself and the tokens before it."""
        return self.causal or bool(getattr(config, "is_decoder", False))

    def layers(self, core: Any) -> list[Layer]:
        """The attention layers of a model, in the order in which they run."""
        blocks = self.blocks(core) if callable(self.blocks) else _at(core, self.blocks)
        heads = int(getattr(core.config, self.heads))
        found = []
        for index, block in enumerate(blocks):
            key, query = self.projections(block)
            size = query.weight.shape[1] // heads
            found.append(Layer(key, query, heads, self.scale(core.config, index, size)))
        return found

    def attentions(self, core: Any, inputs: Mapping[str, Any]) -> Sequence[Tensor]:
        """Run the model; the attention of each layer, ``[1, heads, T, T]``."""
        part = core if self.part is None else attrgetter(self.part)(core)
        options = {"use_cache": False} if self.is_causal(core.config) else {}
        return part(**inputs, **options, output_attentions=True).attentions


_BERT = Architecture("encoder.layer", _separate("attention.self.key", "attention.self.query"))
_ROBERTA = Architecture(
    _BERT.blocks,
    _BERT.projections,
    positions=lambda config: config.max_position_embeddings - config.pad_token_id - 1,  # counted from behind padding
)
ARCHITECTURES: dict[str, Architecture] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Architecture("transformer.layer", _separate("attention.k_lin", "attention.q_lin")),
    "albert": Architecture(_albert_blocks, _separate("attention.key", "attention.query")),
    "gpt2": Architecture("h", _gpt2_projections, scale=_gpt_scale, causal=True),
    "gpt_bigcode": Architecture("h", _bigcode_projections, scale=_gpt_scale, causal=True),
    "whisper": Architecture(
        "decoder.layers",
        _separate("self_attn.k_proj", "self_attn.q_proj"),
        heads="decoder_attention_heads",
        causal=True,
        positions=attrgetter("max_target_positions"),
        reads=Reads.SPEECH,
        part="decoder",
    ),
    "vit": Architecture(
        ("layers", "encoder.layer"),
        _separate(("attention.k_proj", "attention.attention.key"), ("attention.q_proj", "attention.attention.query")),
        reads=Reads.IMAGES,
    ),
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

_BY_POSITIONS = {
    "rotary": ROTARY,
    "rope": ROTARY,
    "relative_key": RELATIVE,
    "relative_key_query": RELATIVE,
    "alibi": ALIBI,
}
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
# Settings that say so wherever they are set; the first that is counts.
_BY_SETTING = (
    (QUANTIZED, ("quantization_config",)),
    (PRUNED, ("pruned_heads",)),
    (ALIBI, ("alibi",)),
    (CAPPED, ("attn_logit_softcapping",)),
    (NORMALIZED, ("qk_layernorm", "use_qk_norm", "qk_norm")),
    (ROTARY, ("rope_theta", "rope_parameters", "rope_scaling", "rotary_dim", "rotary_pct", "rotary_emb_base")),
    (RELATIVE, ("relative_attention", "relative_attention_num_buckets")),
    (WINDOWED, ("sliding_window", "attention_window", "window_size")),
)


def refusal(config: Any) -> str | None:
    """Why the logits of such a model are not one x^T W z for each head, to be read after the model's name; or None."""
    positions = getattr(config, "position_embedding_type", None)
    if positions in _BY_POSITIONS:
        return _BY_POSITIONS[positions]
    if config.model_type in _BY_TYPE:
        return _BY_TYPE[config.model_type]
    return next((why for why, names in _BY_SETTING if any(getattr(config, name, None) for name in names)), None)


def architecture_of(config: Any, name: str) -> Architecture:
    """The architecture of models with this configuration; a ValueError, with the reason, if there is none."""
    reason = refusal(config)
    if reason is not None:
        raise ValueError(f"{name} ({config.model_type}) {reason}")
    if config.model_type not in ARCHITECTURES:
        raise ValueError(unsupported(name, config.model_type))
    return ARCHITECTURES[config.model_type]


def unsupported(name: str, model_type: str) -> str:
    """The sentence for an architecture that is not in the table."""
    return (
        f"{name} has the architecture {model_type!r}, which is not supported; supported are"
        f" {', '.join(sorted(ARCHITECTURES))}, and any other through from_arrays"
    )
