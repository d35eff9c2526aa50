"""Whisper: the self-attention of its text decoder, beside audio that the encoder has heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attsvm.heads.architectures.base import Architecture, Layer, Projection

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
