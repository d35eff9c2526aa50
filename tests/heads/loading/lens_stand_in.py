"""A small HookedTransformer with the names, shapes and calls of TransformerLens, which is too large to install here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """W_Q, W_K ``[heads, d, m]``; grouped keys are stored once and repeated when they are asked for."""

    def __init__(self, cfg: Any, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer = cfg, layer
        keys = cfg.n_key_value_heads or cfg.n_heads
        self.W_Q, self.b_Q = self._pair(cfg.n_heads)
        self._W_K, self._b_K = self._pair(keys)
        self._W_V, self._b_V = self._pair(keys)
        self.repeats = cfg.n_heads // keys
        self.hook_pattern: Tensor | None = None

    def _pair(self, heads: int) -> tuple[nn.Parameter, nn.Parameter]:
        d, m = self.cfg.d_model, self.cfg.d_head
        return nn.Parameter(torch.empty(heads, d, m)), nn.Parameter(torch.empty(heads, m))

    @property
    def W_K(self) -> Tensor:
        return self._W_K.repeat_interleave(self.repeats, dim=0)

    @property
    def b_K(self) -> Tensor:
        return self._b_K.repeat_interleave(self.repeats, dim=0)

    def forward(self, query_input: Tensor, key_input: Tensor, value_input: Tensor) -> Tensor:
        if query_input.ndim == 3:  # one stream for all heads
            query_input, key_input = (
                x[:, :, None].expand(-1, -1, self.cfg.n_heads, -1) for x in (query_input, key_input)
            )
        q = torch.einsum("bphd,hdm->bphm", query_input, self.W_Q) + self.b_Q
        k = torch.einsum("bphd,hdm->bphm", key_input, self.W_K) + self.b_K
        scale = self.cfg.attn_scale if self.cfg.use_attn_scale else 1.0
        if self.cfg.scale_attn_by_inverse_layer_idx:
            scale *= self.layer + 1
        scores = torch.einsum("bqhm,bkhm->bhqk", q, k) / scale
        if self.cfg.attention_dir == "causal":
            T = scores.shape[-1]
            scores = scores.masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf)
        self.hook_pattern = scores.softmax(-1)
        values = value_input @ self._W_V[0] + self._b_V[0]
        mixed = torch.einsum("bhqk,bkm->bqm", self.hook_pattern, values)
        return nn.functional.pad(mixed, (0, self.cfg.d_model - self.cfg.d_head))


class Block(nn.Module):
    """Normalization, then attention; no MLP is needed to tell layers apart."""

    def __init__(self, cfg: Any, layer: int) -> None:
        super().__init__()
        self.ln1, self.attn, self.split = nn.LayerNorm(cfg.d_model), Attention(cfg, layer), cfg.use_split_qkv_input

    def forward(self, residual: Tensor) -> Tensor:
        seen = self.ln1(residual)
        asked = seen[:, :, None].expand(-1, -1, self.attn.cfg.n_heads, -1) if self.split else seen
        return residual + self.attn(query_input=asked, key_input=asked, value_input=seen)


class HookedTransformer(nn.Module):
    """Embedding, positions, blocks."""

    def __init__(self, cfg: Any, tokenizer: Any = None) -> None:
        super().__init__()
        self.cfg, self.tokenizer = cfg, tokenizer
        self.embed, self.pos_embed = nn.Embedding(cfg.d_vocab, cfg.d_model), nn.Embedding(cfg.n_ctx, cfg.d_model)
        self.blocks = nn.ModuleList([Block(cfg, layer) for layer in range(cfg.n_layers)])
        self.init_weights()

    def init_weights(self) -> None:
        if self.cfg.seed is not None:
            torch.manual_seed(self.cfg.seed)  # the package does so too
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.8)

    def run_with_cache(self, ids: Tensor, names_filter: Any) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.embed(ids) + self.pos_embed(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        patterns = {f"blocks.{i}.attn.hook_pattern": block.attn.hook_pattern for i, block in enumerate(self.blocks)}
        return x, {name: pattern for name, pattern in patterns.items() if names_filter(name)}


def make(tokenizer: Any = None, **changes: Any) -> HookedTransformer:
    """A model with two layers of four heads."""
    settings = {
        "n_layers": 2,
        "n_heads": 4,
        "n_key_value_heads": None,
        "d_model": 12,
        "d_head": 3,
        "d_vocab": 30,
        "n_ctx": 10,
        "attn_scale": 3**0.5,
        "use_attn_scale": True,
        "scale_attn_by_inverse_layer_idx": False,
        "attention_dir": "causal",
        "positional_embedding_type": "standard",
        "attn_scores_soft_cap": -1.0,
        "use_qk_norm": False,
        "use_local_attn": False,
        "use_split_qkv_input": False,
        "default_prepend_bos": True,
        "model_name": "stand-in",
        "seed": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return HookedTransformer(SimpleNamespace(**(settings | changes)), tokenizer)
