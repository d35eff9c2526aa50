"""Images for vision transformers: a folder of PNG and JPEG files, prepared as the model expects, or stored arrays."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attsvm.data.files import SUFFIXES, read_arrays
from attsvm.heads.model import counted

PICTURES = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class Preparation:
    """What a model does to the values of pixels, 0 to 255, before it looks at them: ``(scale x - mean) / std``."""

    scale: float = 1 / 255
    mean: Sequence[float] = (0.5,)  # for each channel, or one for all
    std: Sequence[float] = (0.5,)  # as many
    note: str = "the model says nothing of its pixels; values 0 to 255 were mapped to -1..1"  # where they come from


def preparation_of(folder: Path | None) -> Preparation:
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
    files = [each for each in inside if each.suffix.lower() in PICTURES]
    if not files:
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
