"""Install a wheel into an empty environment, and run the demo, the playground and a command of each kind.

    python tests/distribution/try_wheel.py dist/attsvm-*.whl [--python python3.12] [--constraints FILE]

`make dist` runs this on what it has built.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BARE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
MODEL = """
import torch, transformers
torch.manual_seed(0)
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
config = transformers.BertConfig(vocab_size=40, max_position_embeddings=32, **sizes)
transformers.BertModel(config).save_pretrained("model")
letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *("##" + each for each in "aeionrst")]
open("model/vocab.txt", "w").write("\\n".join(letters) + "\\n")
open("study.toml", "w").write("n = 2\\nT = 3\\nd = 4\\nruns = 4\\nsteps = 50\\n")
open("texts.txt", "w").write("\\n".join(" ".join("abcdefghijklmnop"[k:k + 6]) for k in range(10)) + "\\n")
"""
COMMANDS = (
    "--version",
    "info",
    "demo --out demo --quiet",
    "train two-inputs --parameterization kq --steps 200 --out train --quiet",
    "solve two-inputs --norm nuclear --select reached:train/run.safetensors --out solve --quiet",
    "diagnose two-inputs --verify 200 --out diagnose --quiet",
    "growth two-inputs --steps 100 --quiet",
    "optimizer sign --datasets 2 --steps 50 --out optimizer --quiet",
    "sweep study.toml --out sweep --quiet",
    "figure list --quiet",
    "figure run quadratic-head --quick --format png --out figures --quiet",
    "figure draw figures/quadratic-head --format svg --quiet",
    "heads model --texts texts.txt --confidence 0.05 --queries 20 --out heads --quiet",
    "why model abcde --head L0H0 --json",
    "next-token village --window 8 --steps 50 --out next-token --quiet",
    "play two-inputs --export page.html",
)


def main() -> None:
    """Install, run everything, and say how long each part took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the Python of the environment")
    parser.add_argument("--constraints", type=Path, default=None, help="versions to install, for pip -c")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attsvm-wheel-") as name:
        folder = Path(name)
        scripts = install(folder / "environment", options.wheel.resolve(), options.python, options.constraints)
        subprocess.run([scripts / "python", "-c", MODEL], cwd=folder, env=BARE, check=True)
        for line in COMMANDS:
            timed(f"attsvm {line}", [scripts / "attsvm", *line.split()], folder)
        serve(scripts, folder)
    print("The wheel installs and runs.", flush=True)


def install(folder: Path, wheel: Path, python: str, constraints: Path | None) -> Path:
    """The scripts of an empty environment that holds the wheel with its extra `heads`, and what they require."""
    subprocess.run([python, "-m", "venv", folder], env=BARE, check=True)
    chosen = [] if constraints is None else ["-c", constraints.resolve()]
    quiet = ["--quiet", "--no-compile", "--disable-pip-version-check"]
    timed(
        f"pip install {wheel.name}[heads]",
        [folder / "bin/python", "-m", "pip", "install", *quiet, *chosen, f"attsvm[heads] @ {wheel.as_uri()}"],
        folder.parent,
    )
    return folder / "bin"


def timed(title: str, command: list[object], folder: Path) -> None:
    """Run a command; its output is shown where it fails, or where the version and `info` are asked for."""
    began = time.perf_counter()
    done = subprocess.run([str(each) for each in command], cwd=folder, env=BARE, capture_output=True, text=True)
    print(f"{time.perf_counter() - began:6.1f} s  {title}", flush=True)
    if done.returncode or title in ("attsvm --version", "attsvm info"):
        print(done.stdout + done.stderr, flush=True)
    if done.returncode:
        raise SystemExit(f"{title} ended with exit code {done.returncode}")


def serve(scripts: Path, folder: Path) -> None:
    """Start the playground, ask it for its page and its module, and end it as Ctrl-C does."""
    began = time.perf_counter()
    command = [scripts / "attsvm", "play", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, cwd=folder, env=BARE, stdout=subprocess.PIPE, text=True) as process:
        try:
            first = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/", first)[0]
            page = urllib.request.urlopen(address, timeout=30).read().decode()
            module = urllib.request.urlopen(address + "playground.js", timeout=30).read().decode()
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        finally:
            process.kill()
    if not page.startswith("<!doctype html>") or "export" not in module or process.returncode != 0:
        raise SystemExit(f"the playground did not answer or did not end ({process.returncode})")
    print(f"{time.perf_counter() - began:6.1f} s  attsvm play: {len(page)} + {len(module)} letters served", flush=True)


if __name__ == "__main__":
    main()
