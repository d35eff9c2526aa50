"""Loading a model: a folder, a name on the hub, a GGUF or Whisper file, a live model, or a TransformerLens model."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attsvm.data.checks import ArrayOrList, as_device, as_tensor
from attsvm.heads.loading.architectures import Reads, architecture_of
from attsvm.heads.loading.folder import precision_notes, read_config, read_gguf, read_openai_whisper, read_weights
from attsvm.heads.loading.images import preparation_of, read_images
from attsvm.heads.loading.lens import LensModel, is_lens
from attsvm.heads.loading.tokenizers import SmilesTokenizer, Tokenizer, choose_tokenizer
from attsvm.heads.loading.transformers_model import (
    ImagesModel,
    ListeningModel,
    TransformersModel,
    eager_copy,
    from_state,
    image_shape,
)
from attsvm.heads.model import HeadModel


def load(
    source: object,
    *,
    tokenizer: object = None,
    audio_features: ArrayOrList | None = None,
    images: ArrayOrList | str | os.PathLike[str] | None = None,
    most_images: int = 1000,
    model_type: str | None = None,
    device: str | None = None,
) -> HeadModel:
    """A model whose heads can be read exactly, as ``softmax(X K Q^T z)`` with what its positions add.

    Weights are read from safetensors, or from pickles of nothing but tensors; code from a model folder is never run.

    Arguments:
        source: a Hugging Face model folder; a name on its hub (the local cache first, then the network); a GGUF file,
            whose weights are dequantized; a Whisper file of its authors (``tiny.en.pt``); a live model of the
            transformers library, which is copied; or a TransformerLens HookedTransformer, which is used as it is.
        tokenizer: where the model brings none: a folder with its files, a ``.tiktoken`` file for Whisper, or a
            tokenizer. Without one, sentences are given as lists of token numbers.
        audio_features: what Whisper's decoder listens to, as its encoder gives it, ``[frames, d]``; None means silence.
        images: what a ViT looks at: a folder of PNG and JPEG files (needs Pillow), resized and scaled as the model's
            ``preprocessor_config.json`` says; a .npz or .safetensors file with an array called images; or an array.
            Arrays must be scaled as the model expects, ``[n, channels, height, width]``.
        most_images: read at most this many from a folder or file.
        model_type: the architecture of a folder whose config.json does not name it, such as ``"bert"``.
        device: where the model runs; by default the CPU, or where a live model is. A TransformerLens one stays there.

    Returns:
        A `HeadModel`; its `notes` say what was changed on the way.

    Raises:
        ValueError: in one sentence, if the model is incomplete, of an architecture that is not read, or cannot be
            found.
    """
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise ValueError("loading models needs the transformers library: pip install 'attsvm[heads]'") from None
    audio = None if audio_features is None else as_tensor(audio_features, "audio_features")
    pictures = images if images is None or isinstance(images, str | os.PathLike) else as_tensor(images, "images")
    where = None if device is None else as_device(device, "device")
    if is_lens(source):
        return LensModel(source, choose_tokenizer(tokenizer, None, None))
    if isinstance(source, str | os.PathLike):
        read = _from_path(source, tokenizer, model_type)
    elif isinstance(source, nn.Module) and hasattr(getattr(source, "config", None), "model_type"):
        read = _from_live(source, tokenizer)
    else:
        raise ValueError(
            "source must be a model folder, a name on the hub, a transformers or TransformerLens model; got"
            f" {type(source).__name__} (from_arrays takes hidden states and weights)"
        )
    return _model(read, where, audio, pictures, most_images)


class _Read(NamedTuple):
    """A model as it was found, before it is known what it is to read."""

    core: Any
    words: Tokenizer | None
    name: str
    notes: tuple[str, ...]
    folder: Path | None = None


def _from_path(source: str | os.PathLike[str], tokenizer: object, model_type: str | None) -> _Read:
    path = Path(source).expanduser()
    if path.is_file():
        return _from_file(path, tokenizer)
    if not path.is_dir() and not isinstance(source, str):
        raise ValueError(f"{path} does not exist; give a model folder or a .pt file of Whisper")
    folder = path if path.is_dir() else hub_folder(str(source))
    name = path.resolve().name if path.is_dir() else str(source)
    config = read_config(folder, model_type)
    looks = architecture_of(config, name).reads is Reads.IMAGES
    weights = read_weights(folder)
    notes = precision_notes(weights)
    core = from_state(config, weights, name)
    words = None if looks else choose_tokenizer(tokenizer, folder, config)
    if isinstance(words, SmilesTokenizer):
        notes += ("vocab.txt lists the reaction arrow >>: texts are read as reaction SMILES",)
    return _Read(core, words, name, notes, folder)


def _from_file(path: Path, tokenizer: object) -> _Read:
    if path.suffix == ".gguf":
        core, own, notes = read_gguf(path, path.stem)
        return _Read(core, choose_tokenizer(tokenizer or own, None, core.config), path.stem, notes)
    if path.suffix != ".pt":
        what = path.suffix or path.name
        raise ValueError(f"{path} must be a model folder, a .gguf file or a Whisper .pt file; got {what!r}")
    config, weights = read_openai_whisper(path)
    core = from_state(config, weights, path.name)
    beside = sorted(path.parent.glob("*.tiktoken"))
    words = choose_tokenizer(tokenizer or (beside[0] if len(beside) == 1 else None), None, config)
    return _Read(core, words, path.name, precision_notes(weights))


def _from_live(module: Any, tokenizer: object) -> _Read:
    name = str(getattr(module.config, "name_or_path", "") or type(module).__name__)
    architecture_of(module.config, name)  # refused before it is copied
    notes = precision_notes(dict(module.named_parameters()))
    return _Read(eager_copy(module, name), choose_tokenizer(tokenizer, None, module.config), name, notes)


def _model(read: _Read, device: torch.device | None, audio: Tensor | None, images: Any, most_images: int) -> HeadModel:
    """The model of what its architecture reads; what it does not read must not be given."""
    core, name, notes = read.core.to(device), read.name, read.notes
    architecture, kind = architecture_of(core.config, name), core.config.model_type
    if images is not None and architecture.reads is not Reads.IMAGES:
        raise ValueError(f"images are for vision models; {name} is {kind}")
    if audio is not None and architecture.reads is not Reads.SPEECH:
        raise ValueError(f"audio_features are for Whisper; {name} is {kind}")
    if architecture.reads is Reads.SPEECH:
        silent = ("the decoder listens to silence",) if audio is None else ()
        return ListeningModel(core, architecture, read.words, name, (*notes, *silent), audio)
    if architecture.reads is Reads.TEXTS:
        return TransformersModel(core, architecture, read.words, name, notes)
    if images is None:
        raise ValueError(
            f"{name} looks at images; pass images= (--images), a folder of PNG or JPEG files or an array scaled as it"
            " expects, [n, channels, height, width]"
        )
    if not isinstance(images, Tensor):  # read now, when it is known how large they must be
        path, prepared = Path(images).expanduser(), preparation_of(read.folder)
        images, more = read_images(path, image_shape(core.config), prepared, most_images)
        notes += more
    return ImagesModel(core, architecture, images, name, notes)


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PLAIN = ["*.json", "*.txt", "*.model"]


def hub_folder(name: str) -> Path:
    """The folder with configuration, tokenizer and weights of a model on the hub or in its cache, without any code."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name} does not exist; give a model folder, a .pt file of Whisper, or a name on the hub")
    from huggingface_hub import snapshot_download

    problem: Exception | None = None
    for offline in (True, False):
        for weights in ("model*.safetensors", "pytorch_model*.bin"):
            try:
                folder = Path(snapshot_download(name, allow_patterns=[*_PLAIN, weights], local_files_only=offline))
            except Exception as error:  # the library passes on what its network layers raise
                problem = error
                break
            if any(folder.glob(weights)):
                return folder
    why = "it has no weights that can be read" if problem is None else str(problem).strip().partition("\n")[0]
    raise ValueError(
        f"{name} is not a folder here, is not in the local cache of the Hugging Face hub, and could not be fetched"
        f" ({why}); give the path of a downloaded model"
    )
