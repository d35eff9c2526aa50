"""Files: the same bits back, a clear sentence for everything that is not a data set, never half a file."""

from __future__ import annotations

import errno
import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from attsvm.data import TokenDataset, files
from attsvm.data.files import npz_bytes, read_arrays, write_arrays, write_atomically

from .helpers import assert_same, make, parts, same_bits

SUFFIXES = [".npz", ".safetensors"]
either = pytest.mark.parametrize("suffix", SUFFIXES)


def plain() -> TokenDataset:
    given = parts()
    return TokenDataset(given["tokens"], given["queries"], given["labels"])


DATA = {
    "every field": lambda: make(2, 3),
    "no optional field": plain,
    "float32": lambda: make(2).to(dtype=torch.float32),
    "causal": lambda: TokenDataset.causal(parts(2)["tokens"], np.ones((2, 2, 4)), head=np.ones((2, 3))),
    "self-attention on the only token": lambda: TokenDataset.self_attention(np.ones((3, 1, 2)), [1, 1, -1]),
    "prompt": lambda: TokenDataset.prompt(parts()["tokens"], [1, -1], np.ones((2, 3))),
    "not contiguous": lambda: TokenDataset(**parts(4))[::2].take_inputs(np.array([[1, 0], [0, 0]])),
    "no element": lambda: make(3)[:0],
    "extreme numbers": lambda: TokenDataset(
        np.array([[[5e-324, -0.0, 1.7976931348623157e308]]]), np.array([[np.nextafter(1, 2)]]), [1]
    ),
}


@either
@pytest.mark.parametrize("kind", DATA)
def test_round_trip(kind: str, suffix: str, tmp_path: Path) -> None:
    data = DATA[kind]()
    path = data.save(tmp_path / f"data{suffix}")
    assert path == tmp_path / f"data{suffix}"
    back = TokenDataset.load(path)
    assert_same(back, data)
    assert torch.equal(torch.signbit(back.tokens), torch.signbit(data.tokens))


@either
def test_the_same_data_give_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    paths = [make(2).save(tmp_path / f"{name}{suffix}") for name in ("first", "second")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@either
def test_save_makes_folders_and_replaces(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / f"data{suffix}"
    make(2).save(str(path))
    make(3).save(path)
    assert TokenDataset.load(str(path)).batch_shape == (3,)
    assert os.listdir(path.parent) == [path.name]


@either
def test_what_was_read_survives_overwriting_the_file(suffix: str, tmp_path: Path) -> None:
    path = make(2).save(tmp_path / f"data{suffix}")
    data = TokenDataset.load(path)
    path.write_bytes(bytes(path.stat().st_size))
    assert_same(data, make(2))


def test_saved_files_have_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for suffix in SUFFIXES:
        path = make().save(tmp_path / f"data{suffix}")
        assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_numpy_reads_our_npz_and_we_read_numpys(tmp_path: Path) -> None:
    given = parts(2)
    make(2).save(tmp_path / "ours.npz")
    with np.load(tmp_path / "ours.npz") as archive:
        assert all(np.array_equal(archive[name], given[name]) for name in given)
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "numpys.npz", **given)
        assert_same(TokenDataset.load(tmp_path / "numpys.npz"), make(2))
    np.savez(tmp_path / "big-endian.npz", **{**given, "tokens": given["tokens"].astype(">f8")})
    assert_same(TokenDataset.load(tmp_path / "big-endian.npz"), make(2))


def test_plain_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: torch.from_numpy(value) for name, value in parts(2).items()}, tmp_path / "plain.safetensors")
    assert_same(TokenDataset.load(tmp_path / "plain.safetensors"), make(2))


@either
def test_any_names_and_metadata(suffix: str, tmp_path: Path) -> None:
    arrays = {"file": torch.arange(3), "allow_pickle": torch.tensor(2.5), "a/b": torch.zeros(0, 2, dtype=torch.bool)}
    metadata = {"list": [1, "é"], "nothing": None}
    back, described = read_arrays(write_arrays(tmp_path / f"any{suffix}", arrays, metadata))
    assert back.keys() == arrays.keys()
    assert all(same_bits(back[name], arrays[name]) for name in arrays)
    assert described == metadata


# ---------------------------------------------------------------------- refusals


def test_other_suffixes(tmp_path: Path) -> None:
    for action in (make().save, TokenDataset.load):
        with pytest.raises(ValueError, match=r"data.csv must end in .npz or .safetensors; got '.csv'"):
            action(tmp_path / "data.csv")
        with pytest.raises(ValueError, match="got 'no suffix'"):
            action(tmp_path / "data")


@either
def test_missing_file_or_folder(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"nowhere{suffix} does not exist; give a .npz or .safetensors file"):
        TokenDataset.load(tmp_path / f"nowhere{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(ValueError, match=f"folder{suffix} is a folder"):
        TokenDataset.load(tmp_path / f"folder{suffix}")


@either
def test_every_truncation_is_refused(suffix: str, tmp_path: Path) -> None:
    path = make().save(tmp_path / f"data{suffix}")
    whole = path.read_bytes()
    for length in {0, 1, 4, 8, 60, *range(0, len(whole), 37), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=f"data{suffix} is not a readable {suffix} file"):
            TokenDataset.load(path)


@either
def test_flipped_bytes_never_escape_as_another_error(suffix: str, tmp_path: Path) -> None:
    path = make().save(tmp_path / f"data{suffix}")
    whole, draw = path.read_bytes(), np.random.default_rng(0)
    refused = []
    for _ in range(300):
        damaged = bytearray(whole)
        for place in draw.integers(len(whole), size=3):
            damaged[place] ^= int(draw.integers(1, 256))
        path.write_bytes(damaged)
        try:
            TokenDataset.load(path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert all(str(path) in sentence for sentence in refused)


@either
def test_no_flipped_byte_changes_a_number(suffix: str, tmp_path: Path) -> None:
    """A damaged file is refused, or what is read is what was written."""
    data = make()
    path = data.save(tmp_path / f"data{suffix}")
    whole, draw = path.read_bytes(), np.random.default_rng()
    refused = 0
    places = draw.choice(len(whole), 400, replace=False)
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= int(draw.integers(1, 256))
        path.write_bytes(damaged)
        try:
            read = TokenDataset.load(path)
        except ValueError:
            refused += 1
        else:
            assert_same(read, data)  # such as a byte of the time of day in a zip archive
    assert refused > len(places) / 3


def test_an_array_cut_short_by_its_header_is_refused(tmp_path: Path) -> None:
    """Zip's checksum is compared where a member ends, which a header that asks for less never reaches."""
    path = tmp_path / "data.npz"
    path.write_bytes(npz_bytes({"a": np.arange(10.0)}).replace(b"(10,)", b"(1, )"))
    with pytest.raises(ValueError, match=r"not a readable .npz file"):
        read_arrays(path)


def test_files_without_a_checksum_open_as_before(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    given = {name: np.ascontiguousarray(value) for name, value in parts().items()}
    for metadata in (None, {"__metadata__": "{}"}, {"sha256": "of another program"}):
        save_file(given, tmp_path / "other.safetensors", metadata=metadata)
        assert_same(TokenDataset.load(tmp_path / "other.safetensors"), make())


@either
def test_a_text_file(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"notes{suffix}").write_text("tokens, queries and labels")
    with pytest.raises(ValueError, match=f"notes{suffix} is not a readable {suffix} file"):
        TokenDataset.load(tmp_path / f"notes{suffix}")


def test_an_npy_file_by_another_name(tmp_path: Path) -> None:
    with (tmp_path / "single.npz").open("wb") as handle:
        np.save(handle, np.ones(3))
    with pytest.raises(ValueError, match=r"not a readable .npz file .*: it holds a single .npy array"):
        TokenDataset.load(tmp_path / "single.npz")


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.savez(tmp_path / "objects.npz", **{**parts(), "head": np.array([Trap()], dtype=object)})
    with pytest.raises(ValueError, match=r"not a readable .npz file .*: Object arrays cannot be loaded"):
        TokenDataset.load(tmp_path / "objects.npz")
    assert not (tmp_path / "sprung").exists()


def test_strings_and_other_members(tmp_path: Path) -> None:
    np.savez(tmp_path / "words.npz", **{**parts(), "head": np.array(["a", "b"])})
    with pytest.raises(ValueError, match="'head' is not a numeric array"):
        TokenDataset.load(tmp_path / "words.npz")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match=r"'readme.txt' is not a numeric array"):
        TokenDataset.load(tmp_path / "other.npz")


def test_a_zip_without_arrays(tmp_path: Path) -> None:
    zipfile.ZipFile(tmp_path / "empty.npz", "w").close()
    with pytest.raises(ValueError, match=r"it lacks tokens, queries, labels \(found nothing\)$"):
        TokenDataset.load(tmp_path / "empty.npz")


@either
def test_missing_labels(suffix: str, tmp_path: Path) -> None:
    arrays = {name: torch.from_numpy(parts()[name]) for name in ("tokens", "queries")}
    path = write_arrays(tmp_path / f"part{suffix}", arrays, {})
    with pytest.raises(ValueError, match=r"is not a token data set: it lacks labels \(found queries, tokens\)$"):
        TokenDataset.load(path)


@either
@pytest.mark.parametrize(
    ("wrong", "right"),
    [("masks", "mask"), ("Labels", "labels"), ("query", "queries"), ("Value", "values"), ("heads", "head"), ("x", "")],
)
def test_unknown_arrays_are_refused_with_the_near_name(wrong: str, right: str, suffix: str, tmp_path: Path) -> None:
    given = {name: torch.from_numpy(value) for name, value in parts().items() if name != right}
    path = write_arrays(tmp_path / f"data{suffix}", {**given, wrong: torch.ones(2)}, {})
    hint = f"did you mean {right} by '{wrong}'?" if right else "'x', which a token data set does not have: rename or"
    with pytest.raises(ValueError, match=re.escape(hint)) as refused:
        TokenDataset.load(path)
    assert str(refused.value).startswith(f"{path} ")


def test_a_second_spelling_is_refused_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", **parts(), masks=np.ones((2, 4), dtype=bool))
    with pytest.raises(ValueError, match=r"both\.npz holds 'masks', which a token data set does not have: rename or"):
        TokenDataset.load(tmp_path / "both.npz")


@either
def test_arrays_that_do_not_fit_name_the_file(suffix: str, tmp_path: Path) -> None:
    arrays = {name: torch.from_numpy(value) for name, value in parts().items()}
    path = write_arrays(tmp_path / f"bad{suffix}", {**arrays, "labels": torch.zeros(2)}, {})
    with pytest.raises(ValueError, match=rf"bad{suffix}: labels must be \+1 or -1; got 0.0 at input 0$"):
        TokenDataset.load(path)
    path = write_arrays(path, arrays, {"queries_per_sequence": "two"})
    with pytest.raises(ValueError, match=rf"bad{suffix}: queries_per_sequence must be a positive integer; got 'two'$"):
        TokenDataset.load(path)


# ------------------------------------------------------------- never half a file


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def fail(source: object, *_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(target, b"new")
    assert caught.value.filename == str(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_full_length_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    assert write_atomically(path, b"content").read_bytes() == b"content"


@either
def test_a_folder_that_cannot_be_made(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        make().save(tmp_path / "file" / f"data{suffix}")
    assert os.listdir(tmp_path) == ["file"]


@either
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(suffix: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match=f"data{suffix}"):
            make().save(tmp_path / f"data{suffix}")
        assert os.listdir(tmp_path) == []
    finally:
        tmp_path.chmod(0o700)


@either
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file(
    suffix: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(2).save(tmp_path / f"data{suffix}")

    def fail(path: Path, *rest: object) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(files, "_write_npz", fail)
    monkeypatch.setattr(files, "_write_safetensors", fail)
    with pytest.raises(type(error)):
        make(3).save(path)
    assert os.listdir(tmp_path) == [path.name]
    assert_same(TokenDataset.load(path), make(2))


def test_safetensors_reports_a_failed_write_as_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.numpy

    def fail(*arguments: object, **options: object) -> None:
        raise safetensors.SafetensorError("no space left")

    monkeypatch.setattr(safetensors.numpy, "save_file", fail)
    with pytest.raises(OSError, match=r"cannot be written: no space left: '.*/data.safetensors'$"):
        make().save(tmp_path / "data.safetensors")
    assert os.listdir(tmp_path) == []


@either
def test_a_folder_in_the_place_of_the_file(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"data{suffix}").mkdir()
    with pytest.raises(OSError, match=f"/data{suffix}'$"):
        make().save(tmp_path / f"data{suffix}")
    assert os.listdir(tmp_path) == [f"data{suffix}"]


def test_an_npz_in_memory_is_what_numpy_would_write(tmp_path: Path) -> None:
    make().save(tmp_path / "ours.npz")
    theirs = io.BytesIO()
    np.savez(theirs, **parts())
    with zipfile.ZipFile(tmp_path / "ours.npz") as ours, zipfile.ZipFile(theirs) as numpys:
        for name in numpys.namelist():
            assert ours.read(name) == numpys.read(name)


def test_the_time_of_day_is_not_in_an_npz() -> None:
    arrays = {"a": np.arange(5.0), "b": np.asfortranarray(np.eye(3))}
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(io.BytesIO(npz_bytes(arrays, compression))) as archive:
            assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
            assert {info.compress_type for info in archive.infolist()} == {compression}
        with np.load(io.BytesIO(npz_bytes(arrays, compression))) as back:
            assert all(np.array_equal(back[name], arrays[name]) for name in arrays)
