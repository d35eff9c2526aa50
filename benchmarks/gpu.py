"""All that needs a GPU, in one call: ``python -m benchmarks.gpu --out FOLDER [--parts tests,study] [--minutes 9]``.

Machines with a GPU are borrowed for minutes. Each part below is a command of its own, in this order; one that the time
does not allow any more is left out, and said to be. FOLDER gets ``log.txt`` with what every part printed,
``summary.json`` with its seconds and exit status, and ``results.zip`` with the files that changed in
``benchmarks/results``, pictures, and the manifests of the studies.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.record import RESULTS, machine

WORK = Path("out/gpu")
PYTHON = f"{sys.executable} -W ignore"
SWEEP = f"{PYTHON} -m attsvm sweep benchmarks/studies"
TESTS = " ".join(str(file) for file in sorted(Path("tests").rglob("test_*.py")) if "mark.gpu" in file.read_text())
PARTS = {
    "tests": f"{PYTHON} -m pytest -m gpu --no-header {'-n 8' if find_spec('xdist') else ''} {TESTS}",
    "kernels": f"{PYTHON} -m benchmarks.kernels --jobs 8 --out {RESULTS}/kernels_h200.json",
    "solvers": f"{PYTHON} -m benchmarks.svm --part gpu",
    "one_size": f"{SWEEP}/one_size.toml --device cuda --overwrite --quiet --out {WORK}/one_size",
    "study": f"{SWEEP}/million.toml --device cuda --jobs 14 --overwrite --quiet --out {WORK}/million",
    "fresh": f"{SWEEP}/fresh.toml --device cuda --jobs 14 --overwrite --quiet --out {WORK}/fresh && "
    f"{PYTHON} -m benchmarks.million {WORK}/million --fresh {WORK}/fresh --picture {WORK}/million.png",
    "times": f"{PYTHON} -m benchmarks.million --times cuda --out {RESULTS}/million_h200.json",
    "large": f"{PYTHON} -m benchmarks.svm --part large_gpu",
    "descent": f"{PYTHON} -m benchmarks.descent --device cuda",
}


def run(command: str, seconds: float, log: Path) -> dict[str, float | int | str]:
    """Seconds and exit status of a command, whose output goes to the end of `log`."""
    began = time.perf_counter()
    with log.open("a") as file:
        file.write(f"\n$ {command}\n")
        file.flush()
        process = subprocess.Popen(command, shell=True, stdout=file, stderr=file, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = 124
    return {"command": command, "seconds": round(time.perf_counter() - began, 1), "status": status}


def pack(path: Path, since: float) -> None:
    """The results that were written since then, pictures, and what describes the studies."""
    files = [file for file in RESULTS.rglob("*.json") if file.stat().st_mtime >= since]
    files += [file for name in ("manifest.json", "cells.json", "*.png") for file in WORK.rglob(name)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.resolve().relative_to(Path.cwd()))


def main() -> None:
    """Run the parts, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=WORK)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=9.0)
    options = parser.parse_args()
    wanted = options.parts.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for folder in (options.out, WORK):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    began, since = time.perf_counter(), time.time()
    done: dict[str, dict[str, float | int | str]] = {}
    for name in (part for part in PARTS if part in wanted):
        left = 60 * options.minutes - (time.perf_counter() - began)
        done[name] = run(PARTS[name], left, options.out / "log.txt") if left > 5 else {"status": "no time was left"}
        print(f"{name:<10}{done[name].get('seconds', '-'):>8}  {done[name]['status']}", flush=True)
        (options.out / "summary.json").write_text(json.dumps({"machine": machine(), "parts": done}, indent=1) + "\n")
        pack(options.out / "results.zip", since)


if __name__ == "__main__":
    main()
