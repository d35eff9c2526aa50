"""Loading a model: a folder, a name on the hub, a Whisper file, a live model, or a TransformerLens model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from attsvm._checks import ArrayOrList, as_tensor
from attsvm.heads.architectures.vit import Vit
from attsvm.heads.architectures.whisper import Whisper
from attsvm.heads.folder import precision_notes, read_config, read_weights
from attsvm.heads.hub import hub_folder
from attsvm.heads.lens import LensModel, is_lens
from attsvm.heads.model import HeadModel
from attsvm.heads.openai_whisper import read_openai_whisper
from attsvm.heads.rebuild import eager_copy, from_state
from attsvm.heads.refusals import architecture_of
from attsvm.heads.tokenizers import SmilesTokenizer, choose_tokenizer
from attsvm.heads.transformers_model import ImagesModel, TransformersModel


def load(
    source: object,
    *,
    tokenizer: object = None,
    audio_features: ArrayOrList | None = None,
    images: ArrayOrList | None = None,
) -> HeadModel:
    """A model whose heads can be read exactly, as ``softmax(X K Q^T z)``.

    Weights are read from safetensors, or from pickles of nothing but tensors; code from a model folder is never run.

    Arguments:
        source: a Hugging Face model folder; a name on its hub (the local cache first, then the network); a Whisper file
            of its authors (``tiny.en.pt``); a live model of the transformers library, which is copied; or a
            TransformerLens HookedTransformer, which is used as it is.
        tokenizer: where the model brings none: a folder with its files, a ``.tiktoken`` file for Whisper, or a
            tokenizer. Without one, sentences are given as lists of token numbers.
        audio_features: what Whisper's decoder listens to, as its encoder gives it, ``[frames, d]``; None means silence.
        images: what a ViT looks at, scaled as it expects, ``[n, channels, height, width]``.

    Returns:
        A `HeadModel`; its `notes` say what was changed on the way.

    Raises:
        ValueError: in one sentence, if the model is incomplete, of an architecture without a single W (rotary or
            relative positions, soft-capping, ...), or cannot be had.
    """
    _check_transformers()
    audio = None if audio_features is None else as_tensor(audio_features, "audio_features")
    pictures = None if images is None else as_tensor(images, "images")
    if isinstance(source, str | os.PathLike):
        return _from_path(source, tokenizer, audio, pictures)
    if is_lens(source):
        return LensModel(source, choose_tokenizer(tokenizer, None, None))
    if isinstance(source, nn.Module) and hasattr(getattr(source, "config", None), "model_type"):
        return _from_live(source, tokenizer, audio, pictures)
    raise ValueError(
        "source must be a model folder, a name on the hub, a transformers or TransformerLens model; got"
        f" {type(source).__name__} (from_arrays takes hidden states and weights)"
    )


def _from_path(
    source: str | os.PathLike[str], tokenizer: object, audio: Tensor | None, images: Tensor | None
) -> HeadModel:
    path = Path(source).expanduser()
    if path.is_file():
        return _from_file(path, tokenizer, audio)
    if not path.is_dir() and not isinstance(source, str):
        raise ValueError(f"{path} does not exist; give a model folder or a .pt file of Whisper")
    folder = path if path.is_dir() else hub_folder(str(source))
    name = path.resolve().name if path.is_dir() else str(source)
    config = read_config(folder)
    architecture = architecture_of(config, name)
    weights = read_weights(folder)
    notes = precision_notes(weights)
    core = from_state(config, weights, name)
    if isinstance(architecture, Vit):
        return _seeing(core, images, name, notes)
    words = choose_tokenizer(tokenizer, folder, config)
    if isinstance(words, SmilesTokenizer):
        notes += ("vocab.txt lists the reaction arrow >>: texts are read as reaction SMILES",)
    return _reading(core, words, name, notes, audio, images)


def _from_file(path: Path, tokenizer: object, audio: Tensor | None) -> HeadModel:
    if path.suffix == ".gguf":
        raise ValueError(
            f"{path} is a GGUF file: quantized weights are not read (and nearly all such models have rotary positions,"
            " for which no single W exists)"
        )
    if path.suffix != ".pt":
        raise ValueError(f"{path} must be a model folder or a Whisper .pt file; got {path.suffix or path.name!r}")
    config, weights = read_openai_whisper(path)
    notes = precision_notes(weights)
    core = from_state(config, weights, path.name)
    beside = sorted(path.parent.glob("*.tiktoken"))
    words = choose_tokenizer(tokenizer or (beside[0] if len(beside) == 1 else None), None, config)
    return _reading(core, words, path.name, notes, audio, None)


def _from_live(module: Any, tokenizer: object, audio: Tensor | None, images: Tensor | None) -> HeadModel:
    name = str(getattr(module.config, "name_or_path", "") or type(module).__name__)
    architecture = architecture_of(module.config, name)
    notes = precision_notes(dict(module.named_parameters()))
    core = eager_copy(module, architecture, name)
    if isinstance(architecture, Vit):
        return _seeing(core, images, name, notes)
    return _reading(core, choose_tokenizer(tokenizer, None, module.config), name, notes, audio, images)


def _seeing(core: Any, images: Tensor | None, name: str, notes: tuple[str, ...]) -> HeadModel:
    if images is None:
        raise ValueError(f"{name} looks at images; pass images=, scaled as it expects, [n, channels, height, width]")
    return ImagesModel(core, architecture_of(core.config, name), images, name, notes)


def _reading(
    core: Any, tokenizer: Any, name: str, notes: tuple[str, ...], audio: Tensor | None, images: Tensor | None
) -> HeadModel:
    if images is not None:
        raise ValueError(f"images are for vision models; {name} is {core.config.model_type}")
    architecture = architecture_of(core.config, name)
    if isinstance(architecture, Whisper) and audio is None:
        notes += ("the decoder listens to silence",)
    return TransformersModel(core, architecture, tokenizer, name, notes, audio)


def _check_transformers() -> None:
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError("loading models needs the transformers library: pip install 'attsvm[heads]'") from None
