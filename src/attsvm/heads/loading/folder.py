"""Reading model files without running code: Hugging Face folders, GGUF, and Whisper's own format (``tiny.en.pt``)."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import pickle
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from attsvm.heads.loading.architectures import ARCHITECTURES, architecture_of, unsupported


def read_config(folder: Path, kind: str | None = None) -> Any:
    """The configuration of a folder, as the transformers library's own class for it; none that asks to run code."""
    if not (path := folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json; give the folder of a Hugging Face model")
    settings = read_settings(path)
    from transformers import CONFIG_MAPPING

    model_type = settings.setdefault("model_type", kind)
    if not isinstance(model_type, str):
        made = str(settings.get("architectures")).lower()  # names of classes, such as LlamaForCausalLM
        near = [known for known in ARCHITECTURES if f"'{re.sub('[-_]', '', known)}" in made]
        raise ValueError(
            f"{path} has no model_type, so its architecture is unknown; name it, such as --model-type"
            f" {max(near, key=len, default='bert')} (model_type= in Python)"
        )
    if kind not in (None, model_type):
        raise ValueError(f"--model-type (model_type=) must be {model_type}, as {path} says; got {kind}")
    if model_type not in CONFIG_MAPPING:
        raise ValueError(unsupported(str(folder), model_type))
    try:
        with quiet():
            return CONFIG_MAPPING[model_type].from_dict(settings)
    except Exception as error:  # each configuration class checks in its own way
        raise ValueError(f"{path} is not a valid {model_type} configuration: {reason(error)}") from None


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder, from safetensors if there are any, else from pickles that hold nothing but tensors."""
    for single, read in (("model.safetensors", read_safetensors), ("pytorch_model.bin", read_pickle)):
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            return read(folder / single)
        if not index.is_file():
            continue
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
            raise ValueError(f"{index} has no weight_map")
        found: dict[str, Tensor] = {}
        for name in sorted(set(places.values())):
            if Path(name).name != name:
                raise ValueError(f"{index} names {name!r}, which is not a file of the folder")
            if not (folder / name).is_file():
                raise ValueError(f"{folder} lacks {name}, which {index.name} names")
            found |= read(folder / name)
        return found
    raise ValueError(f"{folder} has no weights; expected model.safetensors or pytorch_model.bin")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a readable safetensors file (truncated?): {reason(error)}") from None


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a file of ``torch.save``, refusing everything but tensors and plain containers."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol", UserWarning)  # read or refused all the same
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(f"{path} holds more than tensors, or is damaged; such pickles are never run") from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a readable weights file: {reason(error)}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a dictionary of tensors; got {type(found).__name__}")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a ValueError if it holds something else."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(parsed).__name__}")
    return parsed


def read_settings(path: Path) -> dict[str, Any]:
    """`read_json` of settings of a model or a tokenizer, refused where they name code to be run."""
    if "auto_map" in (settings := read_json(path)):
        raise ValueError(f"{path} asks to run Python code from the model folder (auto_map), which is never done")
    return settings


def reason(error: BaseException) -> str:
    """What `error` says, on one line and not too long.

    >>> reason(ValueError("first\\n   second"))
    'first second'
    >>> reason(KeyError())
    'KeyError'
    """
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= 200 else said[:197] + "..."


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside, the transformers library logs errors only; afterwards its settings are what they were."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # Some of its modules compile a function when they are imported, the way torch no longer recommends.
            warnings.filterwarnings("ignore", r"`torch\.jit\.script", DeprecationWarning)
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def read_gguf(path: Path, name: str) -> tuple[Any, Any, tuple[str, ...]]:
    """The float32 core of a GGUF file, its tokenizer, and notes; quantized weights are dequantized."""
    try:
        import accelerate  # noqa: F401
        import gguf
    except ImportError:
        raise ValueError("reading GGUF files needs gguf and accelerate: pip install 'attsvm[gguf]'") from None
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    here: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        # A progress bar of the library is not among those that it can be asked to leave out.
        no_bar = contextlib.redirect_stderr(io.StringIO())
        with torch.random.fork_rng(devices=[]), quiet(), no_bar, _read_once(gguf, path) as reader:
            kinds = {tensor.tensor_type.name for tensor in reader.tensors}
            config = AutoConfig.from_pretrained(path.parent, **here)
            architecture_of(config, name)
            how = {"dtype": torch.float32, "attn_implementation": "eager", **here}
            core = AutoModel.from_pretrained(path.parent, config=config, **how)
            words = AutoTokenizer.from_pretrained(path.parent, **here)
    except Exception as error:  # the readers raise whatever they meet
        if isinstance(error, ValueError) and str(error).startswith(name):
            raise
        kind = re.search(r"(\d+)\)? is not a valid GGMLQuantizationType", str(error))
        why = reason(error) if kind is None else f"the package gguf does not know weights of kind {kind[1]}"
        raise ValueError(f"{path} cannot be read as GGUF (truncated, or of an unknown kind?): {why}") from None
    if hasattr(core.config, "quantization_config"):
        del core.config.quantization_config  # they are quantized no longer
    coarse = sorted(kinds - {"F64", "F32"})
    notes = (f"weights of lower precision ({', '.join(coarse)}) were dequantized to float32",) if coarse else ()
    return core.eval(), words, notes


@contextlib.contextmanager
def _read_once(gguf: Any, path: Path) -> Iterator[Any]:
    """A reader of the file; inside, the transformers library gets it wherever it would read the whole file again."""
    reader, before = gguf.GGUFReader(path), (gguf.GGUFReader, gguf.get_tensor_name_map)
    gguf.GGUFReader, gguf.get_tensor_name_map = (lambda *_, **__: reader), functools.cache(gguf.get_tensor_name_map)
    try:
        yield reader
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = before


# Longer names first: "attn" is a part of "cross_attn".
_NAMES = {
    "blocks.": "layers.", "cross_attn_ln.": "encoder_attn_layer_norm.", "cross_attn.": "encoder_attn.",
    ".attn_ln.": ".self_attn_layer_norm.", ".attn.": ".self_attn.", ".query.": ".q_proj.", ".key.": ".k_proj.",
    ".value.": ".v_proj.", ".out.": ".out_proj.", "mlp_ln.": "final_layer_norm.", "mlp.0.": "fc1.", "mlp.2.": "fc2.",
    "decoder.ln.": "decoder.layer_norm.", "ln_post.": "layer_norm.", "token_embedding.": "embed_tokens.",
    "positional_embedding": "embed_positions.weight",
}  # fmt: skip
# Settings of the transformers library by the sizes of a Whisper file.
_SIZES = {
    "vocab_size": "n_vocab", "num_mel_bins": "n_mels", "d_model": "n_text_state", "encoder_layers": "n_audio_layer",
    "encoder_attention_heads": "n_audio_head", "decoder_layers": "n_text_layer",
    "decoder_attention_heads": "n_text_head", "max_source_positions": "n_audio_ctx",
    "max_target_positions": "n_text_ctx",
}  # fmt: skip


def read_openai_whisper(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """Configuration and weights of a Whisper file, under the names that the transformers library uses."""
    stored = read_pickle(path)
    sizes, weights = stored.get("dims"), stored.get("model_state_dict")
    if not isinstance(sizes, dict) or not isinstance(weights, dict):
        lacking = f"it must hold 'dims' and 'model_state_dict'; got {sorted(stored)}"
        raise ValueError(f"{path} is not a Whisper model: {lacking}")
    from transformers import WhisperConfig

    try:
        given = {ours: sizes[theirs] for ours, theirs in _SIZES.items()}
        inner = {"encoder_ffn_dim": 4 * sizes["n_audio_state"], "decoder_ffn_dim": 4 * sizes["n_text_state"]}
    except KeyError as error:
        raise ValueError(f"{path} is not a Whisper model: its 'dims' lack {error}") from None

    def renamed(name: str) -> str:
        for theirs, ours in _NAMES.items():
            name = name.replace(theirs, ours)
        return name

    return WhisperConfig(**given, **inner), {renamed(name): tensor for name, tensor in weights.items()}
