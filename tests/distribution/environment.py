"""A wheel, built from the sources, and environments to install it into."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BARE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree, built by hatchling in a process of its own, without a network."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("attsvm-*.whl")
    return wheel


def borrowing_environment(folder: Path, wheel: Path) -> Path:
    """The scripts' folder of a new environment that has the wheel, and everything else from the running one."""
    venv.create(folder, with_pip=False, symlinks=True)
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(scripts / "python"), "install", "--quiet", "--no-deps",
         "--no-index", "--no-compile", "--disable-pip-version-check", str(wheel)],
        env=BARE, check=True,
    )  # fmt: skip
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    # A plain line adds a folder behind the environment's own, and reads no .pth file in it: the sources stay out.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return scripts


def lowest_versions(*extras: str) -> list[str]:
    """Every lower bound that pyproject.toml promises, of what is required and of these extras, as an exact version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [*project["dependencies"], *(line for each in extras for line in project["optional-dependencies"][each])]
    return [line.replace(">=", "==") for line in promised if re.fullmatch(r"[\w-]+>=[\w.]+", line)]


if __name__ == "__main__":  # what `make lowest` installs
    sys.stdout.write("\n".join(lowest_versions("app", "dask", "heads", "gguf", "reference")) + "\n")
