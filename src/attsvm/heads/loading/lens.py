"""Heads of a TransformerLens model, read through its own names; the package itself is not imported."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from attsvm.heads.form import HeadWeights, head_weights
from attsvm.heads.loading.tokenizers import HuggingFaceTokenizer, Tokenizer, encode_sentences
from attsvm.heads.loading.transformers_model import check_weights, model_hash
from attsvm.heads.model import HeadModel, Sentence, SentenceStates, Text, allowed_tokens, with_constant


class LensModel(HeadModel):
    """A HookedTransformer: its blocks' W_K, b_K, W_Q, b_Q and the inputs of its attention layers.

    It is used as it is, in evaluation mode, and must not change while it is read. Without a tokenizer it uses its own.
    """

    def __init__(self, module: Any, tokenizer: Tokenizer | None) -> None:
        cfg = module.cfg
        self.name = str(getattr(cfg, "model_name", None) or "a TransformerLens model")
        positions = getattr(cfg, "positional_embedding_type", "standard")
        reasons = {
            f"has positions of the kind {positions!r}": positions not in ("standard", "shortformer"),
            "caps its attention logits (soft-capping)": (getattr(cfg, "attn_scores_soft_cap", None) or -1.0) > 0,
            "normalizes queries and keys inside the head (qk-norm)": getattr(cfg, "use_qk_norm", False),
            "lets a query see only a window of tokens": getattr(cfg, "use_local_attn", False),
        }
        for reason in (reason for reason, holds in reasons.items() if holds):
            instead = "which is not read from TransformerLens; load the transformers model instead"
            raise ValueError(f"{self.name} {reason}, {instead}")
        if next(module.parameters()).dtype in (torch.float16, torch.bfloat16):
            raise ValueError(f"{self.name} runs in half precision; load it with dtype=torch.float32")
        check_weights(module, self.name)
        if tokenizer is None and (own := getattr(module, "tokenizer", None)) is not None:
            tokenizer = _Prepending(own, bool(getattr(cfg, "default_prepend_bos", True)))
        self._module, self._tokenizer, self.architecture = module, tokenizer, "TransformerLens"
        self.layers, self.heads, self.width = int(cfg.n_layers), int(cfg.n_heads), int(cfg.d_model)
        self.causal = getattr(cfg, "attention_dir", "causal") == "causal"

    def encode(self, texts: Sequence[Text]) -> list[Sentence]:
        cfg = self._module.cfg
        return encode_sentences(texts, self._tokenizer, int(cfg.n_ctx), int(cfg.d_vocab), self.name)

    def states(self, sentence: Sentence, layers: Sequence[int] | None = None) -> SentenceStates:
        chosen = self._chosen_layers(layers)
        self._check_length(sentence, int(self._module.cfg.n_ctx))
        inputs: dict[Any, tuple[Tensor, Tensor]] = {}

        def remember(module: Any, positional: tuple[Tensor, ...], named: Mapping[str, Any]) -> None:
            one = positional[0] if positional else named.get("hidden_states")
            inputs[module] = (_one_stream(named.get("key_input", one)), _one_stream(named.get("query_input", one)))

        attentions = [self._module.blocks[layer].attn for layer in chosen]
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in chosen]
        ids = sentence.ids[None].to(next(self._module.parameters()).device)
        with torch.no_grad(), ExitStack() as undo:
            undo.callback(self._module.train, self._module.training)
            self._module.eval()
            for module in attentions:
                undo.callback(module.register_forward_pre_hook(remember, with_kwargs=True).remove)
            _, cache = self._module.run_with_cache(ids, names_filter=lambda name: name in names)
        keys, queries = (with_constant(torch.stack([inputs[module][side] for module in attentions])) for side in (0, 1))
        found = SentenceStates(
            keys=keys,
            queries=keys if torch.equal(keys, queries) else queries,
            attention=torch.stack([cache[name][0] for name in names]).to("cpu", torch.float64),
            allowed=allowed_tokens(len(sentence), self.causal),
        )
        return self._checked(found, chosen)

    def weights(self, layer: int, head: int) -> HeadWeights:
        self._check_head(layer, head)
        cfg, attention = self._module.cfg, self._module.blocks[layer].attn
        divisor = cfg.attn_scale if cfg.attn_scale > 0 else cfg.d_head**0.5  # below 0: not set
        scale = 1 / float(divisor) if cfg.use_attn_scale else 1.0
        if getattr(cfg, "scale_attn_by_inverse_layer_idx", False):
            scale /= layer + 1
        # Grouped heads: W_K repeats each key head for the query heads that share it.
        return head_weights(attention.W_K[head], attention.W_Q[head], attention.b_K[head], attention.b_Q[head], scale)

    @property
    def has_untrained(self) -> bool:
        return hasattr(self._module, "init_weights")

    def untrained(self, seed: int) -> HeadModel:
        if not self.has_untrained:
            raise ValueError(f"{self.name} cannot be initialised again; load the transformers model instead")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            cfg = copy.deepcopy(self._module.cfg)
            cfg.seed = None  # else the package would set the global seed
            twin = type(self._module)(cfg, getattr(self._module, "tokenizer", None))
            twin.init_weights()
        found = LensModel(twin, self._tokenizer)
        found.name = f"{self.name}, untrained ({seed})"
        return found

    def fingerprint(self) -> str:
        return model_hash(repr((self.layers, self.heads, self.width, self.causal)), self._module, self._tokenizer)


class _Prepending(HuggingFaceTokenizer):
    """The tokenizer inside a HookedTransformer, whose sentences start with the opening token."""

    def __init__(self, tokenizer: Any, prepend: bool) -> None:
        super().__init__(tokenizer)
        self._opening = [int(tokenizer.bos_token_id)] if prepend and tokenizer.bos_token_id is not None else []

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        return ids if ids[:1] == self._opening else self._opening + ids

    def identity(self) -> bytes:
        return super().identity() + repr(self._opening).encode()


def _one_stream(states: Tensor | None) -> Tensor:
    """Drop the batch axis, and the axis of heads where the model keeps a copy for each head."""
    if states is None:
        raise ValueError("the attention of this TransformerLens model takes no query_input, key_input or hidden_states")
    return states[0, :, 0] if states.ndim == 4 else states[0]
