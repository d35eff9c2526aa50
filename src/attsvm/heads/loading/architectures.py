"""What is known about each architecture: where its key and query projections are, how logits are scaled, what it reads.

An architecture is a line of `ARCHITECTURES`, by the ``model_type`` of a configuration. What differs between layers
(scale, windows, sinks, coordinates that are not turned) is read from the attention modules themselves, and cosines and
sines from what they are called with. Models whose logits are not a sum of channels (`attsvm.heads.form`) are refused by
their settings, with the reason; whatever slips through is caught by `attsvm.heads.model.check_exact`.

Where keys and queries are normalized inside the head (qk-norm), logits are not bilinear in the hidden states. Such
heads are seen in *head space*: tokens are the head's keys after norm and rotation, queries likewise, and W is
``[m, m]``; the model's own is the identity, times the scale. Its numbers must not be mixed with those of other heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attsvm.heads.form import HeadWeights, head_weights


@dataclass(frozen=True, eq=False)
class Projection:
    """A linear map of hidden states to all heads of a layer, side by side: `module`, or some columns of it."""

    module: Any
    columns: Int[Tensor, " out"] | None = None

    @cached_property
    def weight(self) -> Float[Tensor, "d out"]:
        """The map; linear layers store its transpose, GPT-2 does not."""
        whole = self.module.weight.T if isinstance(self.module, nn.Linear) else self.module.weight
        return whole if self.columns is None else whole[:, self.columns]

    @cached_property
    def bias(self) -> Float[Tensor, " out"] | None:
        """What it adds, or None."""
        whole: Tensor | None = self.module.bias
        return whole if whole is None or self.columns is None else whole[self.columns]


class Turns(Enum):
    """Which coordinates of keys and queries rotary positions turn together."""

    HALVES = "coordinate f with f + F"
    NEIGHBOURS = "coordinate 2 f with 2 f + 1"


class Layer:
    """The key-query side of one attention layer; where there are fewer key heads, groups of query heads share them."""

    def __init__(
        self,
        attention: Any,  # the module that computes it
        key: Projection,
        query: Projection,
        heads: int,  # number of query heads
        turns: Turns | None,  # the pairing of rotary positions, or None
        relative: Float[Tensor, "buckets heads"] | None,  # learned biases by distance, or None
        slopes: Float[Tensor, " heads"] | None,  # of fixed biases, one for each head, or None
    ) -> None:
        self.attention, self.key, self.query, self.heads, self.turns = attention, key, query, heads, turns
        self.relative, self.slopes = relative, slopes
        self.size = query.weight.shape[1] // heads  # columns of one head
        self.key_heads = key.weight.shape[1] // self.size

        def named(*names: str) -> Any:
            held = (getattr(attention, name, None) for name in names)
            return next((value for value in held if value is not None), None)

        norms = named("k_norm", "k_layernorm"), named("q_norm", "q_layernorm")
        # What normalizes the keys and the queries inside the head, or None.
        self.norms: tuple[nn.Module, nn.Module] | None = norms if isinstance(norms[0], nn.Module) else None
        # Whether keys or queries have a bias, which hidden states need a constant coordinate for.
        self.biased = self.norms is None and (key.bias is not None or query.bias is not None)
        scale = named("scaling", "softmax_scale", "inv_norm_factor")  # of the logits
        self.scale = self.size**-0.5 if scale is None else float(scale)
        setting = getattr(getattr(attention, "config", None), "sliding_window", None)
        # How many tokens a query sees, itself included; None means all that come before it.
        self.window: int | None = getattr(attention, "sliding_window", setting)
        self.pairs: Tensor | None = None  # columns of a head that are turned together, [F, 2]
        if turns is not None and getattr(attention, "use_rope", True):
            turned = torch.arange(int(named("rotary_ndims", "rotary_dim") or self.size))
            self.pairs = turned.reshape(2, -1).T if turns is Turns.HALVES else turned.reshape(-1, 2)

    def form(self, head: int) -> HeadWeights:
        """The weights of one query head."""
        size, shared = self.size, head * self.key_heads // self.heads
        sinks, cap = getattr(self.attention, "sinks", None), getattr(self.attention, "attn_logit_softcapping", None)
        own, asking = (slice(number * size, (number + 1) * size) for number in (shared, head))
        if self.norms is not None:
            one = torch.eye(size, dtype=torch.float64)
            found = HeadWeights(one, self.scale * one, part=(own, asking))
        else:
            parts = (self.key.bias, own), (self.query.bias, asking)
            # Both kinds of states have the constant coordinate, or none: both factors need a row for it, or none.
            none = self.key.weight.new_zeros(size) if self.biased else None
            key_bias, query_bias = (none if bias is None else bias[columns] for bias, columns in parts)
            weights = self.key.weight[:, own], self.query.weight[:, asking]
            found = replace(head_weights(*weights, key_bias, query_bias, self.scale), pairs=self.pairs)
        return replace(
            found,
            relative=None if self.relative is None else self.relative[:, head].detach().to("cpu", torch.float64),
            slope=0.0 if self.slopes is None else float(self.slopes[head]),
            cap=None if cap is None else float(cap),
            sink=None if sinks is None else sinks[head].item(),
        )


Projections = Callable[[Any], tuple[Projection, Projection]]  # of keys and of queries, from an attention module


def _separate(key: str, query: str) -> Projections:
    """Two linear layers."""
    return lambda attention: (Projection(getattr(attention, key)), Projection(getattr(attention, query)))


def _fused(name: str, by_head: str | None = None) -> Projections:
    """One map to queries, keys and values: all behind each other, or by heads of the size that an attribute holds."""

    def found(attention: Any) -> tuple[Projection, Projection]:
        fused = getattr(attention, name)
        parts = torch.arange(Projection(fused).weight.shape[1]).reshape(3, -1)
        if by_head is not None:
            parts = parts.reshape(-1, 3, getattr(attention, by_head)).transpose(0, 1).flatten(1)
        return Projection(fused, parts[1]), Projection(fused, parts[0])

    return found


def _bigcode_projections(attention: Any) -> tuple[Projection, Projection]:
    """With ``multi_query`` all query heads share one key head."""
    if not attention.multi_query:
        return _fused("c_attn", "head_dim")(attention)
    fused, m, d = attention.c_attn, attention.head_dim, attention.embed_dim
    return Projection(fused, torch.arange(d, d + m)), Projection(fused, torch.arange(d))


def _albert_blocks(core: Any) -> list[Any]:
    """Layer i runs the weights of its group, so that several layers share theirs."""
    layers, groups = core.config.num_hidden_layers, core.config.num_hidden_groups
    order = [int(layer / (layers / groups)) for layer in range(layers)]
    return [block for group in order for block in core.encoder.albert_layer_groups[group].albert_layers]


def _passed_phases(layer: Layer, arguments: Mapping[str, Any], text: int = 0) -> Tensor | None:
    """Cosines and sines that the attention of a layer is called with for a text of the batch, as cos + i sin."""
    passed = arguments.get("position_embeddings")
    if passed is None or layer.pairs is None:
        return None
    found = torch.complex(*(part[text if len(part) > 1 else 0].double() for part in passed))
    if found.shape[1] == len(layer.pairs):
        return found
    return found[:, : len(layer.pairs)] if layer.turns is Turns.HALVES else found[:, ::2]  # each is written twice


def _gptj_phases(layer: Layer, arguments: Mapping[str, Any], text: int = 0) -> Tensor:
    places = arguments["position_ids"]
    sin, cos = layer.attention.embed_positions[places[text if len(places) > 1 else 0]].double().chunk(2, -1)
    return torch.complex(cos, sin)


def _t5_relative(core: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    first = core.encoder.block[0].layer[0].SelfAttention
    sizes = first.relative_attention_num_buckets, first.relative_attention_max_distance
    return first.relative_attention_bias.weight, lambda place: first._relative_position_bucket(place, True, *sizes)


def _rotary_positions(config: Any) -> int:
    """Dynamic scaling is made for texts that are longer than those of the training, by a factor."""
    settings = getattr(config, "rope_parameters", None) or {}
    longer = settings.get("factor", 1.0) if settings.get("rope_type") == "dynamic" else 1.0
    return int(longer * config.max_position_embeddings)


class Reads(Enum):
    """What a model is given to read."""

    TEXTS = "texts"
    IMAGES = "images"
    SPEECH = "texts, while it listens"


@dataclass(frozen=True)
class Architecture:
    """Facts about one family of transformers; it holds no weights."""

    # Path from the core of a model to its blocks in the order in which they run, or a function that lists them; a block
    # that runs twice stands there twice.
    blocks: str | Callable[[Any], Sequence[Any]]
    attention: str  # path from a block to its attention module
    projections: Projections  # key and query projection of an attention module
    heads: str = "num_attention_heads"  # the setting that holds the number of query heads
    causal: bool = False  # whether a query sees only itself and the tokens before it, whatever ``is_decoder`` says
    positions: Callable[[Any], int] = attrgetter("max_position_embeddings")  # the longest sentence in tokens
    reads: Reads = Reads.TEXTS
    part: str | None = None  # path of what is run, where it is not the whole core
    turns: Turns | None = None  # the pairing of rotary positions, or None
    # From a layer, what its attention is called with and the number of a text to cosines and sines.
    phases: Callable[..., Tensor | None] = _passed_phases
    slopes: Callable[[Any], Tensor] | None = None  # of fixed biases by distance, one for each head, from the core
    # Learned biases ``[buckets, heads]``, and the bucket of a distance (token minus query), from the core.
    relative: Callable[[Any], tuple[Tensor, Callable[[Tensor], Tensor]]] | None = None
    heads_first: bool = False  # whether keys and queries are normalized after their heads are brought before the tokens

    def is_causal(self, config: Any) -> bool:
        """Whether a query of a model with this configuration sees only itself and the tokens before it."""
        return self.causal or bool(getattr(config, "is_decoder", False))

    def layers(self, core: Any) -> Iterator[Layer]:
        """The attention layers of a model, in the order in which they run."""
        heads = int(getattr(core.config, self.heads))
        relative = None if self.relative is None else self.relative(core)[0]
        slopes = None if self.slopes is None else self.slopes(core)
        for block in self.blocks(core) if callable(self.blocks) else attrgetter(self.blocks)(core):
            attention = attrgetter(self.attention)(block)
            yield Layer(attention, *self.projections(attention), heads, self.turns, relative, slopes)

    def run(self, core: Any, inputs: Mapping[str, Any]) -> Any:
        """What the model returns, the attention of each layer, ``[1, heads, T, T]``, included."""
        part = core if self.part is None else attrgetter(self.part)(core)
        options = {"use_cache": False} if self.is_causal(core.config) else {}
        return part(**inputs, **options, output_attentions=True)


_PROJECTIONS = _separate("k_proj", "q_proj")
_BERT = Architecture("encoder.layer", "attention.self", _separate("key", "query"))
_ROBERTA = replace(_BERT, positions=lambda config: config.max_position_embeddings - config.pad_token_id - 1)
_LLAMA = Architecture("layers", "self_attn", _PROJECTIONS, causal=True, turns=Turns.HALVES, positions=_rotary_positions)
ARCHITECTURES: dict[str, Architecture] = {
    "bert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,  # positions are counted from behind padding
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": replace(
        _ROBERTA, attention="attention.attn", projections=_separate("k", "q"),
        relative=lambda core: (core.encoder.relative_attention_bias.weight, core.encoder.relative_position_bucket),
    ),
    "distilbert": Architecture("transformer.layer", "attention", _separate("k_lin", "q_lin")),
    "albert": Architecture(_albert_blocks, "attention", _separate("key", "query")),
    "gpt2": Architecture("h", "attn", _fused("c_attn"), causal=True),
    "gpt_bigcode": Architecture("h", "attn", _bigcode_projections, causal=True),
    "opt": Architecture("decoder.layers", "self_attn", _PROJECTIONS, causal=True),
    "bart": Architecture(
        "encoder.layers", "self_attn", _PROJECTIONS, heads="encoder_attention_heads", part="encoder"
    ),
    "whisper": Architecture(
        "decoder.layers", "self_attn", _PROJECTIONS, heads="decoder_attention_heads", causal=True,
        positions=attrgetter("max_target_positions"), reads=Reads.SPEECH, part="decoder",
    ),
    "vit": Architecture("layers", "attention", _PROJECTIONS, reads=Reads.IMAGES),
    "t5": Architecture(
        "encoder.block", "layer.0.SelfAttention", _separate("k", "q"), heads="num_heads", part="encoder",
        positions=lambda config: getattr(config, "n_positions", 512), relative=_t5_relative,
    ),
    "bloom": Architecture(
        "h", "self_attention", _fused("query_key_value", "head_dim"), heads="n_head", causal=True,
        positions=lambda config: getattr(config, "seq_length", 2048),
        slopes=lambda core: core.build_alibi_tensor(torch.ones(1, 2), core.config.n_head, torch.float32)[:, 0, 1],
    ),
    "mpt": Architecture(
        "blocks", "attn", _fused("Wqkv"), heads="n_heads", causal=True, positions=attrgetter("max_seq_len"),
        slopes=lambda core: core.build_mpt_alibi_tensor(core.config.n_heads, 2).diff(dim=-1).flatten(),
    ),
    "gptj": Architecture("h", "attn", _PROJECTIONS, causal=True, turns=Turns.NEIGHBOURS, phases=_gptj_phases),
    "gpt_neox": Architecture(
        "layers", "attention", _fused("query_key_value", "head_size"), causal=True, turns=Turns.HALVES
    ),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "olmo", "olmo2", "smollm3"), _LLAMA),
    "gpt_oss": _LLAMA,
    **dict.fromkeys(("gemma3_text", "phi", "stablelm"), replace(_LLAMA, heads_first=True)),
    "cohere": replace(_LLAMA, turns=Turns.NEIGHBOURS),
}  # fmt: skip


RELATIVE = "adds products of contents and relative positions to its logits, which are not read"
CLIPPED = "clips its keys and queries, so that its logits are not bilinear"
WINDOWED = "lets a query see only a window of tokens in a way that is not read"

_BY_TYPE = {"xlnet": RELATIVE, "transfo-xl": RELATIVE, "gpt_neo": WINDOWED, "big_bird": WINDOWED, "swin": WINDOWED}
# Settings that say so wherever they are set; the first that is counts.
_BY_SETTING = {
    "quantization_config": "has quantized weights, which are not read; load it in full or half precision, or from GGUF",
    "pruned_heads": "has pruned heads, so that its layers differ in their number of heads",
    "clip_qkv": CLIPPED,
    "relative_attention": RELATIVE,
    "attention_window": WINDOWED,
}


def refusal(config: Any) -> str | None:
    """Why the logits of such a model are no sum of channels that are read, after the model's name; or None."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    if str(getattr(config, "position_embedding_type", None)).startswith("relative_key"):
        return RELATIVE
    if config.model_type in _BY_TYPE:
        return _BY_TYPE[config.model_type]
    settings = getattr(config, "rope_parameters", None) or {}
    for part in (settings, *settings.values()):  # those of some layers may stand inside
        turns = part.get("rope_type", "default") if isinstance(part, dict) else "default"
        if turns not in ("default", *ROPE_INIT_FUNCTIONS):
            return f"has rotary positions of the kind {turns!r}, which the transformers library does not know"
    clipped = config.model_type == "mpt" and config.attn_config.clip_qkv
    return CLIPPED if clipped else next((why for name, why in _BY_SETTING.items() if getattr(config, name, None)), None)


def architecture_of(config: Any, name: str) -> Architecture:
    """The architecture of models with this configuration; a ValueError, with the reason, if there is none."""
    kind, reason = config.model_type, refusal(config)
    if reason is not None:
        raise ValueError(f"{name} ({kind}) {reason}")
    if kind not in ARCHITECTURES:
        raise ValueError(unsupported(name, kind))
    return ARCHITECTURES[kind]


def unsupported(name: str, model_type: str) -> str:
    """The sentence for an architecture that is not in the table."""
    return (
        f"{name} has the architecture {model_type!r}, which is not supported; supported are"
        f" {', '.join(sorted(ARCHITECTURES))}, and any other through from_arrays"
    )
