"""Small models of every architecture with large random weights, so that their attention is far from uniform."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import nn

from attsvm.heads.loading.folder import quiet

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32}
VOCABULARY = 50
IDS = [7, 3, 3, 20, 41, 5, 11, 30]


def loud(model: nn.Module) -> nn.Module:
    """The same model with weights and biases drawn anew, large enough for peaked attention."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0  # gains of normalizations
            parameter.copy_(around + 0.4 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def bert(**changes: object) -> nn.Module:
    config = {"vocab_size": VOCABULARY, "max_position_embeddings": 16, **SIZES, **changes}
    return loud(transformers.BertModel(transformers.BertConfig(**config)))


def gpt2(**changes: object) -> nn.Module:
    config = {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 4, **changes}
    return loud(transformers.GPT2LMHeadModel(transformers.GPT2Config(**config)))


def big_code(multi_query: bool) -> nn.Module:
    config = transformers.GPTBigCodeConfig(
        vocab_size=VOCABULARY, n_positions=16, n_embd=24, n_layer=3, n_head=4, multi_query=multi_query
    )
    with quiet():  # importing this model warns of torch.jit
        return loud(transformers.GPTBigCodeModel(config))


def albert(**changes: object) -> nn.Module:
    config = {"vocab_size": VOCABULARY, "max_position_embeddings": 16, "embedding_size": 8, **SIZES, **changes}
    return loud(transformers.AlbertForMaskedLM(transformers.AlbertConfig(**config)))


def roberta() -> nn.Module:
    config = transformers.RobertaConfig(vocab_size=VOCABULARY, max_position_embeddings=18, pad_token_id=1, **SIZES)
    return loud(transformers.RobertaModel(config))


def electra() -> nn.Module:
    config = transformers.ElectraConfig(vocab_size=VOCABULARY, max_position_embeddings=16, embedding_size=8, **SIZES)
    return loud(transformers.ElectraModel(config))


def distilbert(sinusoidal: bool) -> nn.Module:
    config = transformers.DistilBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        dim=24,
        n_layers=3,
        n_heads=4,
        hidden_dim=32,
        sinusoidal_pos_embds=sinusoidal,
    )
    return loud(transformers.DistilBertModel(config))


def whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=24,
        encoder_layers=1,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=4,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    return loud(transformers.WhisperForConditionalGeneration(config))


def vit(**changes: object) -> nn.Module:
    config = {"image_size": 12, "patch_size": 4, "num_channels": 1, **SIZES, **changes}
    return loud(transformers.ViTForImageClassification(transformers.ViTConfig(**config)))


# Name, maker, whether a query sees only the past, and how many key heads a layer has.
READERS: list[tuple[str, Callable[[], nn.Module], bool, int]] = [
    ("bert", bert, False, 4),
    ("bert decoder", lambda: bert(is_decoder=True), True, 4),
    ("roberta", roberta, False, 4),
    ("electra", electra, False, 4),
    ("distilbert", lambda: distilbert(False), False, 4),
    ("distilbert, sinusoidal positions", lambda: distilbert(True), False, 4),
    ("albert", albert, False, 4),
    ("albert, groups", lambda: albert(num_hidden_layers=4, num_hidden_groups=2), False, 4),
    ("albert, inner layers", lambda: albert(inner_group_num=2), False, 4),
    ("gpt2", gpt2, True, 4),
    ("gpt2, scaled by layer", lambda: gpt2(scale_attn_by_inverse_layer_idx=True), True, 4),
    ("gpt2, unscaled", lambda: gpt2(scale_attn_weights=False, reorder_and_upcast_attn=True), True, 4),
    ("gpt_bigcode, one key head", lambda: big_code(True), True, 1),
    ("gpt_bigcode, a key head each", lambda: big_code(False), True, 4),
    ("whisper", whisper, True, 4),
]
