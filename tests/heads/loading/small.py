"""Small models of every architecture with large random weights, so that their attention is far from uniform."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import nn

from attsvm.heads import HeadModel, SentenceStates
from attsvm.heads.loading.folder import quiet
from attsvm.heads.model import form_errors

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32}
VOCABULARY = 50
IDS = [7, 3, 3, 20, 41, 5, 11, 30]


def attention_error(model: HeadModel, states: SentenceStates, layers: list[int] | None = None) -> torch.Tensor:
    """`form_errors` of the model's own forms; `states` holds `layers` (None: all)."""
    return form_errors(states, [model.forms(layer) for layer in (range(model.layers) if layers is None else layers)])


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


def lately(name: str, **changes: object) -> nn.Module:
    """A small model of this class with grouped queries, where its configuration has them."""
    kind = getattr(transformers, f"{name}Config")
    sizes = {
        "vocab_size": VOCABULARY, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 6,
        "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, **SIZES, **changes,
    }  # fmt: skip
    with quiet():
        return loud(getattr(transformers, f"{name}Model")(kind(**sizes)))


def rope(kind: str, **changes: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **changes}}


_YARN = rope("yarn", factor=4.0, original_max_position_embeddings=4)
_LLAMA3 = rope(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
)  # fmt: skip
HALF = {"hidden_size": 32, "head_dim": 8, "rope_parameters": {
    "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5
}}  # fmt: skip
_EVERY = {"num_key_value_heads": 4}
_SEQUENCE = {"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 2}
# Name, class, changes: positions inside the logits, windows, caps and sinks.
POSITIONED: list[tuple[str, str, dict[str, object]]] = [
    ("llama", "Llama", {}),
    ("llama, biases", "Llama", {"attention_bias": True}),
    ("llama, linear scaling", "Llama", rope("linear", factor=4.0)),
    ("llama, dynamic scaling", "Llama", {**rope("dynamic", factor=4.0), "max_position_embeddings": 4}),
    ("llama, yarn", "Llama", _YARN),
    ("llama, llama3 scaling", "Llama", _LLAMA3),
    ("mistral, window of 3", "Mistral", {"sliding_window": 3}),
    ("mistral", "Mistral", {"sliding_window": None}),
    ("qwen2", "Qwen2", {}),
    ("qwen2, windows in some layers", "Qwen2", {
        "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1,
    }),
    ("qwen3, head space", "Qwen3", {}),
    ("gemma", "Gemma", {}),
    ("gemma2, capped and windowed", "Gemma2", {"sliding_window": 3, "attn_logit_softcapping": 5.0}),
    ("gemma3, head space", "Gemma3Text", {"sliding_window": 3}),
    ("phi, half turned", "Phi", HALF),
    ("phi, head space", "Phi", {**HALF, "qk_layernorm": True}),
    ("gpt_neox, half turned", "GPTNeoX", {**HALF}),
    ("gptj, neighbours", "GPTJ", {"rotary_dim": 4}),
    ("olmo", "Olmo", {}),
    ("olmo2, head space", "Olmo2", {}),
    ("stablelm", "StableLm", HALF),
    ("stablelm, head space", "StableLm", {**HALF, "qk_layernorm": True}),
    ("smollm3, not turned in some layers", "SmolLM3", {"no_rope_layers": [1, 0, 1]}),
    ("cohere, neighbours", "Cohere", {}),
    ("gpt_oss, sinks and windows", "GptOss", {
        "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1,
    }),
    ("t5", "T5", {"d_kv": 6, "d_ff": 32}),
    ("mpnet", "MPNet", {"pad_token_id": 1}),
    ("bloom", "Bloom", {}),
    ("bloom, six heads", "Bloom", {"num_attention_heads": 6}),
    ("mpt", "Mpt", {"max_seq_len": 64}),
    ("opt", "OPT", {"ffn_dim": 32, "word_embed_proj_dim": 24}),
    ("bart", "Bart", {"d_model": 24, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, **_SEQUENCE}),
]  # fmt: skip
