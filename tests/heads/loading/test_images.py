"""Images of a folder as a vision transformer takes them, against the arithmetic written out."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch

from attsvm.heads import load
from attsvm.heads.loading.folder import quiet

from .small import vit

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")


def pixels(index: int, height: int = 12, width: int = 12) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 256, (height, width), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    for index in range(3):
        Image.fromarray(pixels(index)).save(path / f"{index}.png")
    return path


def seen(model) -> torch.Tensor:
    return torch.stack([model._inputs(sentence)["pixel_values"][0].cpu() for sentence in model.sentences])


def test_a_folder_is_read_in_order_and_scaled(folder):
    model = load(vit(), images=folder)
    expected = np.stack([pixels(index) for index in range(3)])[:, None] / 255 * 2 - 1
    assert np.allclose(seen(model).numpy(), expected, atol=1e-6)
    assert any("mapped to -1..1" in note for note in model.notes)


def test_the_models_own_scaling(folder, tmp_path):
    with quiet():
        vit().save_pretrained(tmp_path / "model")
    settings = {"image_mean": [0.25], "image_std": [0.2], "rescale_factor": 1 / 255}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(settings))
    model = load(tmp_path / "model", images=str(folder), most_images=2)
    expected = (np.stack([pixels(index) for index in range(2)])[:, None] / 255 - 0.25) / 0.2
    assert np.allclose(seen(model).numpy(), expected, atol=1e-6)
    assert "only the first 2 images of 3 were read" in model.notes
    (tmp_path / "model" / "preprocessor_config.json").write_text('{"image_mean": "grey"}')
    with pytest.raises(ValueError, match=r"preprocessor_config\.json cannot be understood"):
        load(tmp_path / "model", images=folder)


def test_sizes_colours_and_other_files(folder):
    Image.fromarray(np.full((30, 50, 3), 255, dtype=np.uint8)).save(folder / "4.JPEG")
    (folder / "notes.txt").write_text("about the images")
    model = load(vit(), images=folder)
    assert len(model.sentences) == 4
    assert torch.allclose(seen(model)[3], torch.ones(1, 12, 12), atol=0.02)
    assert "1 file of images is not PNG or JPEG" in model.notes


def test_the_same_image_twice_counts_once(folder):
    Image.fromarray(pixels(1)).save(folder / "again.png")
    model = load(vit(), images=folder)
    assert [sentence.text for sentence in model.sentences] == ["image 0", "image 1", "image 2"]
    assert "1 image repeats others; left out" in model.notes
    twice = torch.zeros(3, 1, 12, 12)
    twice[1] = 1.0
    assert [sentence.text for sentence in load(vit(), images=twice).sentences] == ["image 0", "image 1"]


def test_arrays_in_a_file(tmp_path):
    images = np.random.default_rng(0).normal(size=(2, 1, 12, 12)).astype(np.float32)
    np.savez(tmp_path / "images.npz", images=images)
    assert np.array_equal(seen(load(vit(), images=tmp_path / "images.npz")).numpy(), images)
    np.savez(tmp_path / "other.npz", pictures=images)
    with pytest.raises(ValueError, match=r"other.npz must hold an array called images; it holds pictures"):
        load(vit(), images=tmp_path / "other.npz")


def test_what_cannot_be_read_is_one_sentence(folder, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="nowhere does not exist; give a folder of PNG or JPEG files"):
        load(vit(), images=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no PNG or JPEG files"):
        load(vit(), images=tmp_path / "empty")
    (folder / "0.png").write_bytes((folder / "0.png").read_bytes()[:40])
    with pytest.raises(ValueError, match=r"0.png cannot be read as an image"):
        load(vit(), images=folder)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match="reading PNG and JPEG files needs Pillow: pip install pillow"):
        load(vit(), images=folder)
