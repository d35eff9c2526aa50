"""The wheel: every file of the package and nothing else, what it says of itself, and that it runs once installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import attsvm

from .environment import BARE, ROOT, borrowing_environment, build_wheel, lowest_versions

pytest.importorskip("hatchling", reason="hatchling builds the wheel; the extra dev brings it")
GENERATED = {".pyc", ".nbi", ".nbc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    sources = ROOT / "src"
    wanted = {
        path.relative_to(sources).as_posix(): path.read_bytes()
        for path in sources.glob("attsvm/**/*")
        if path.is_file() and path.suffix not in GENERATED
    }
    assert {Path(name).suffix for name in wanted} >= {".py", ".js", ".css", ".html", ".txt", ".json", ".cu", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    inside = {name: content for name, content in found.items() if ".dist-info/" not in name}
    assert sorted(inside) == sorted(wanted)
    assert inside == wanted
    own = {name.partition(".dist-info/")[2] for name in found if name not in inside}
    assert own == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_what_it_says_of_itself(metadata: Message) -> None:
    assert metadata["Name"] == "attsvm"
    assert metadata["Version"] == attsvm.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra")) >= {"app", "dask", "heads", "gpu", "reference"}
    assert str(metadata.get_payload()).startswith("# attsvm")
    declared = {each.rpartition(" ")[2] for each in metadata.get_all("Classifier") if "Python :: 3." in each}
    lowest = re.fullmatch(r">=(3\.\d+)", metadata["Requires-Python"])[1]
    assert lowest == min(declared, key=lambda version: int(version.partition(".")[2]))
    tried = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    assert declared <= set(re.findall(r"3\.\d+", re.search(r"python: \[(.*)\]", tried)[1]))


@pytest.mark.parametrize("repository", [None, "someone/attsvm"])
def test_links_of_the_readme_lead_somewhere(repository: str | None) -> None:
    """In a clone to files beside it; on PyPI, built by a workflow, to the files of this version in the repository."""
    named = {} if repository is None else {"GITHUB_REPOSITORY": repository}
    bare = {name: value for name, value in BARE.items() if name != "GITHUB_REPOSITORY"}
    told = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"], cwd=ROOT, env=bare | named, capture_output=True, check=True
    )
    project = json.loads(told.stdout)
    links = re.findall(r"\]\(([^)]+)\)", project["readme"]["text"])
    places = {"github.com": "blob/", "raw.githubusercontent.com": ""}
    starts = [f"https://{host}/{repository}/{way}v{attsvm.__version__}/" for host, way in places.items()]
    inside = [re.sub("|".join(starts), "", link) for link in links if not link.startswith("https://arxiv.org/")]
    assert len(inside) > 20
    assert all((ROOT / path).is_file() for path in inside)
    assert (inside == [link for link in links if "arxiv.org" not in link]) == (repository is None)
    pictures = [link for link in links if link.endswith((".png", ".gif"))]
    assert len(pictures) == 3
    assert all(link.startswith(starts[1] if repository else "docs/") for link in pictures)
    assert ("Repository" in project["urls"]) == (repository is not None)


def test_every_dependency_has_a_lowest_version_that_can_be_installed(metadata: Message) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(lowest_versions()) == len(project["dependencies"])
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert len(required) == len(project["dependencies"])


@pytest.mark.slow
def test_it_runs_once_installed(wheel: Path, tmp_path: Path) -> None:
    scripts = borrowing_environment(tmp_path / "environment", wheel)

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(scripts / "attsvm"), *arguments], cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(run("info", "--json"))
    assert told["attsvm"]["version"] == attsvm.__version__
    assert (tmp_path / "environment").as_posix() in Path(told["attsvm"]["folder"]).expanduser().as_posix()
    assert told["libraries"]["torch"]
    run("play", "two-inputs", "--export", "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
