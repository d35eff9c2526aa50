"""Loading a model: a folder, a name on the hub, a GGUF or Whisper file, a live model, or a TransformerLens model."""

from __future__ import annotations

import copy
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attsvm.data.checks import ArrayOrList, as_device, as_tensor
from attsvm.data.files import SUFFIXES, read_arrays
from attsvm.heads.loading.architectures import Reads, architecture_of
from attsvm.heads.loading.folder import quiet, read_config, read_gguf, read_openai_whisper, read_weights, reason
from attsvm.heads.loading.lens import LensModel
from attsvm.heads.loading.tokenizers import SmilesTokenizer, Tokenizer, choose_tokenizer
from attsvm.heads.loading.transformers_model import ImagesModel, ListeningModel, TransformersModel, image_shape
from attsvm.heads.model import HeadModel, counted

# Weights behind the last attention layer, and masks that only training uses.
_UNUSED = ("pooler.", "embeddings.mask_token")
PICTURES = (".png", ".jpg", ".jpeg")


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
    if all(hasattr(source, name) for name in ("cfg", "blocks", "run_with_cache")):  # as a HookedTransformer has
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
    if (path := Path(source).expanduser()).is_file():
        return _from_file(path, tokenizer)
    if not path.is_dir() and not isinstance(source, str):
        raise ValueError(f"{path} does not exist; give a model folder or a .pt file of Whisper")
    folder = path if path.is_dir() else _hub_folder(str(source))
    name = path.resolve().name if path.is_dir() else str(source)
    config = read_config(folder, model_type)
    looks = architecture_of(config, name).reads is Reads.IMAGES
    weights = read_weights(folder)
    notes = _precision_notes(weights)
    core, _ = _loaded(config, weights, name)
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
    core, _ = _loaded(config, weights, path.name)
    beside = sorted(path.parent.glob("*.tiktoken"))
    words = choose_tokenizer(tokenizer or (beside[0] if len(beside) == 1 else None), None, config)
    return _Read(core, words, path.name, _precision_notes(weights))


def _from_live(module: Any, tokenizer: object) -> _Read:
    """A float32 copy of the core of a live model, without adapters, that computes its attention eagerly."""
    name = str(getattr(module.config, "name_or_path", "") or type(module).__name__)
    architecture_of(module.config, name)  # refused before it is copied
    core, notes = module.base_model, _precision_notes(dict(module.named_parameters()))
    held = {key: tensor.detach().clone() for key, tensor in core.state_dict().items()}
    made, unknown = _loaded(core.config, held, name, type(core))
    if strange := sorted(key for key in unknown if not key.startswith(_UNUSED)):
        raise ValueError(
            f"{name} has weights that {type(core).__name__} does not know, such as {strange[0]}; merge adapters into"
            " the weights first"
        )
    made = made.to(next(core.parameters()).device)
    return _Read(made, choose_tokenizer(tokenizer, None, module.config), name, notes)


def _model(read: _Read, device: torch.device | None, audio: Tensor | None, images: Any, most_images: int) -> HeadModel:
    """The model of what its architecture reads; what it does not read must not be given."""
    core, name, notes = read.core.to(device), read.name, read.notes
    architecture, kind = architecture_of(core.config, name), core.config.model_type
    if images is not None and architecture.reads is not Reads.IMAGES:
        raise ValueError(f"images are for vision models; {name} is {kind}")
    if audio is not None and architecture.reads is not Reads.SPEECH:
        raise ValueError(f"audio_features are for Whisper; {name} is {kind}")
    if architecture.reads is Reads.SPEECH:
        if audio is None:
            return ListeningModel(core, architecture, read.words, name, (*notes, "the decoder listens to silence"))
        return ListeningModel(core, architecture, read.words, name, notes, (audio,))
    if architecture.reads is Reads.TEXTS:
        return TransformersModel(core, architecture, read.words, name, notes)
    if images is None:
        raise ValueError(
            f"{name} looks at images; pass images= (--images of `attsvm heads`; other commands read texts), a folder of"
            " PNG or JPEG files or an array scaled as it expects, [n, channels, height, width]; in Python, why() takes"
            " sentences of such a model"
        )
    if not isinstance(images, Tensor):  # read now, when it is known how large they must be
        path, prepared = Path(images).expanduser(), _preparation_of(read.folder)
        images, more = read_images(path, image_shape(core.config), prepared, most_images)
        notes += more
    return ImagesModel(core, architecture, images, name, notes)


def _precision_notes(weights: dict[str, Tensor]) -> tuple[str, ...]:
    """A sentence for the report if some weights have half precision, else nothing; less than half is a ValueError."""
    kinds = {tensor.dtype for tensor in weights.values() if isinstance(tensor, Tensor)}
    if small := {str(kind).removeprefix("torch.") for kind in kinds if kind.is_floating_point and kind.itemsize == 1}:
        raise ValueError(
            f"weights must be float16 or wider; got {', '.join(sorted(small))} (quantized models are not read)"
        )
    half = sorted(str(kind).removeprefix("torch.") for kind in kinds & {torch.float16, torch.bfloat16})
    return (f"half precision weights ({', '.join(half)}) were upcast to float32",) if half else ()


def _loaded(config: Any, state: Mapping[str, Tensor], name: str, kind: Any = None) -> tuple[Any, Iterable[str]]:
    """A float32 model with the weights `state`, none missing, and the names of those that it does not know.

    By default its `kind` is the core of this configuration.
    """
    from transformers import MODEL_MAPPING

    kind = kind or MODEL_MAPPING[type(config)]
    config = copy.deepcopy(config)
    config.dtype = torch.float32  # the library would cast the weights to what was saved
    weights = {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in state.items()}
    try:
        with torch.random.fork_rng(devices=[]), quiet():
            made, report = kind.from_pretrained(
                None, config=config, state_dict=weights, attn_implementation="eager", output_loading_info=True
            )
    except Exception as error:  # the library raises whatever it meets
        raise ValueError(f"the weights of {name} do not fit its configuration: {reason(error)}") from None
    if needed := sorted(key for key in report["missing_keys"] if not key.startswith(_UNUSED)):
        raise ValueError(
            f"{name} lacks {len(needed)} weights that its architecture needs, such as {needed[0]}; the model is"
            " incomplete or of another architecture than its configuration says"
        )
    return made.float().eval(), report["unexpected_keys"]


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PLAIN = ["*.json", "*.txt", "*.model"]


def _hub_folder(name: str) -> Path:
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


@dataclass(frozen=True)
class Preparation:
    """What a model does to the values of pixels, 0 to 255, before it looks at them: ``(scale x - mean) / std``."""

    scale: float = 1 / 255
    mean: Sequence[float] = (0.5,)  # for each channel, or one for all
    std: Sequence[float] = (0.5,)  # as many
    note: str = "the model says nothing of its pixels; values 0 to 255 were mapped to -1..1"  # where they come from


def _preparation_of(folder: Path | None) -> Preparation:
    """What ``preprocessor_config.json`` of a model folder says; without one, values are mapped to -1..1 as ViT does."""
    path = None if folder is None else folder / "preprocessor_config.json"
    if path is None or not path.is_file():
        return Preparation()
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        scale = float(given.get("rescale_factor", 1 / 255)) if given.get("do_rescale", True) else 1.0
        plain = not given.get("do_normalize", True)
        mean, std = ([0.0], [1.0]) if plain else (list(map(float, given[f"image_{name}"])) for name in ("mean", "std"))
        if not all(value > 0 for value in std):
            raise ValueError("image_std must be positive")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be understood ({type(error).__name__}: {error})") from None
    return Preparation(scale, mean, std, "pixels were scaled as preprocessor_config.json says")


def read_images(
    path: Path, shape: tuple[int, int, int], prepared: Preparation, most: int = 1000
) -> tuple[Tensor, tuple[str, ...]]:
    """Images ``[n, channels, height, width]`` as a model takes them, and notes on how they were made.

    From a folder, PNG and JPEG files are read in the order of their names, resized to `shape` (whatever their own
    proportions) and scaled; an array called images in a .npz or .safetensors file is taken as it is. A ValueError says
    in one sentence that there are none, one cannot be read, or Pillow is missing.
    """
    if path.suffix in SUFFIXES and not path.is_dir():
        arrays, _ = read_arrays(path)
        if "images" not in arrays:
            raise ValueError(f"{path} must hold an array called images; it holds {', '.join(arrays) or 'nothing'}")
        return arrays["images"][:most], _only(len(arrays["images"]), most)
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise ValueError(f"images {path} {what}; give a folder of PNG or JPEG files, or a .npz file with images")
    inside = sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))
    if not (files := [each for each in inside if each.suffix.lower() in PICTURES]):
        raise ValueError(f"{path} holds no PNG or JPEG files; images are read from files that end in .png, .jpg, .jpeg")
    other = len(inside) - len(files)
    notes = [*_only(len(files), most), prepared.note]
    if other:
        notes.append(f"{counted(other, 'file')} of {path.name} {'is' if other == 1 else 'are'} not PNG or JPEG")
    return torch.stack([_read(file, shape, prepared) for file in files[:most]]), tuple(notes)


def _only(found: int, most: int) -> tuple[str, ...]:
    return (f"only the first {counted(most, 'image')} of {found:,} were read",) if found > most else ()


def _read(file: Path, shape: tuple[int, int, int], prepared: Preparation) -> Tensor:
    try:
        from PIL import Image as image  # noqa: N813
    except ImportError:
        raise ValueError(
            "reading PNG and JPEG files needs Pillow: pip install pillow (or give a .npz file with images)"
        ) from None
    channels, height, width = shape
    if channels not in (1, 3):
        what = f"image files have 1 or 3 channels and the model reads {channels}"
        raise ValueError(f"{what}; give a .npz file with images")
    try:
        with warnings.catch_warnings(), image.open(file) as opened:
            warnings.simplefilter("ignore")  # on odd metadata, and on sizes: what is read is made small at once
            small = opened.convert("L" if channels == 1 else "RGB").resize((width, height), image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise ValueError(f"{file} cannot be read as an image: {str(error).partition(chr(10))[0]}") from None
    pixels = torch.from_numpy(np.array(small, dtype=np.float32).reshape(height, width, channels)).permute(2, 0, 1)
    mean, std = (torch.tensor(values, dtype=torch.float32)[:, None, None] for values in (prepared.mean, prepared.std))
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        raise ValueError(f"preprocessor_config.json has {len(mean)} means for {channels} channels")
    return (prepared.scale * pixels - mean) / std
