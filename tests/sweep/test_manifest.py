from __future__ import annotations

import hashlib

import pytest

from attsvm import __version__
from attsvm.sweep.manifest import digest, new_manifest, read_manifest, versions, write_manifest


def test_there_and_back(tmp_path):
    content = {"a": [1, 2.5, None, "ä"], "b": {"c": True}}
    write_manifest(tmp_path, content)
    assert read_manifest(tmp_path) == content
    assert read_manifest(tmp_path / "none") is None
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_only_what_json_knows(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        write_manifest(tmp_path, {"a": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe", b""])
def test_a_strange_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a manifest that attsvm wrote"):
        read_manifest(tmp_path)


def test_every_manifest_says_what_made_it_with_what_and_when():
    found = new_manifest("solve", seconds=1.23456, libraries=("scipy",), seed=3)
    assert list(found) == ["kind", "seed", "versions", "wall_seconds", "written"]
    assert (found["kind"], found["seed"], found["wall_seconds"]) == ("solve", 3, 1.235)
    assert found["versions"] == versions("scipy")
    assert found["written"].endswith("+00:00")
    assert new_manifest("solve", seconds=0, written="then")["written"] == "then"


def test_versions_of_what_is_there():
    found = versions("scipy", "no-such-library")
    assert found["attsvm"] == __version__
    assert {"python", "torch", "numpy", "numba", "scipy"} <= set(found)
    assert "no-such-library" not in found


def test_the_digest_is_sha256():
    assert digest(b"abc") == hashlib.sha256(b"abc").hexdigest()
