"""How far it is through the house: ``python -m benchmarks.walk [--source PATH] [--name NAME] [--list JOURNEY]``.

Two measurements of a source tree, this one or another, so that a change can be compared with what was there before:

- *Hops*: the distinct files of the package whose functions are called on a journey that users make, traced with
  `sys.setprofile`. What runs while modules are imported does not count; files that are only imported are counted apart.
  Kernels that numba compiled are not seen.
- *Start-up*: wall-clock and CPU seconds of importing the package and of asking for help, the least of several runs.
  On a busy machine only the CPU seconds mean anything. Subtract those of Python, or of importing PyTorch.

``--list README`` prints the files of one journey in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import publish

ROOT = Path(__file__).parent.parent
MODEL = ROOT / ".weights" / "minilm"
JOURNEYS = {
    "README": "",
    "solve": "solve two-inputs --norm nuclear --out {out} --quiet",
    "heads": f"heads {MODEL} --layers 2 --heads 0-1 --queries 50 --most-texts 20 --out {{out}} --quiet",
    "figure": "figure run rank --quick --format png --out {out} --quiet",
}
COMMANDS = (
    "", "demo", "train", "solve", "diagnose", "heads", "figure", "figure list", "figure run", "figure draw", "play",
)  # fmt: skip
NAMES = "import torch; from attsvm import fit, solve, diagnose"
TRACED = """
import json, os, re, sys, threading
source, journey, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
package = os.path.join(source, "attsvm") + os.sep
entered, known, importing = {}, set(), 0


def watch(frame, event, _):
    global importing
    code = frame.f_code
    if code in known or event not in ("call", "return"):
        return
    if not code.co_filename.startswith(package):
        known.add(code)
    elif code.co_name == "<module>":
        importing += 1 if event == "call" else -1
    elif event == "call" and not importing:
        known.add(code)
        entered[code.co_filename[len(package):]] = entered.get(code.co_filename[len(package):], 0) + 1


threading.setprofile(watch)
sys.setprofile(watch)
try:
    if journey == "README":
        text = open(arguments[0], encoding="utf-8").read()
        code = re.search(r"^```python\\n(.*?)^```", text, re.M | re.S)[1]
        exec(compile(code, "README", "exec"), {"__name__": "README"})
    else:
        from attsvm.cli import main
        sys.argv = ["attsvm", *arguments]
        main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
loaded = [name for name in sys.modules if name.split(".")[0] == "attsvm"]
print("\\n" + json.dumps({"entered": entered, "loaded": len(loaded)}))
"""


def journey(name: str, source: Path) -> dict[str, Any]:
    """Files entered, with the number of functions called in each, and how many modules of the package were loaded."""
    with tempfile.TemporaryDirectory() as out:
        arguments = [str(source.parent / "README.md")] if name == "README" else JOURNEYS[name].format(out=out).split()
        done = subprocess.run(
            [sys.executable, "-c", TRACED, str(source), name, *arguments],
            env=environment(source), capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the journey {name} failed in {source}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(source: Path, **more: str) -> dict[str, str]:
    """That of this process, with the package of `source` and one thread."""
    return {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **more}


def timed(arguments: list[str], source: Path, times: int, **more: str) -> dict[str, float]:
    """The least wall-clock and CPU seconds of a new Python process with these arguments."""
    spent = []
    for _ in range(times):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], env=environment(source, **more), check=True, stdout=subprocess.DEVNULL
        )
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return {"seconds": min(wall for wall, _ in spent), "cpu_seconds": min(cpu for _, cpu in spent)}


def start_up(source: Path, times: int) -> list[dict[str, Any]]:
    """Imports, the program's own help and that of every command, and README's lines with nothing compiled yet."""
    run = "from attsvm.cli import main; main()"
    asked = {
        "python": ["-c", "pass"],
        "import torch": ["-c", "import torch"],
        "import attsvm": ["-c", "import attsvm"],
        NAMES: ["-c", NAMES],
        "attsvm --version": ["-c", run, "--version"],
    } | {" ".join(f"attsvm {name} --help".split()): ["-c", run, *name.split(), "--help"] for name in COMMANDS}
    rows = [{"what": name, **timed(arguments, source, times)} for name, arguments in asked.items()]
    lines = "import re, sys; exec(re.search(r'^```python\\n(.*?)^```', open(sys.argv[1]).read(), re.M | re.S)[1])"
    arguments = ["-c", lines, str(source.parent / "README.md")]
    with tempfile.TemporaryDirectory() as cache:
        for what in ("README's ten lines, nothing compiled", "README's ten lines, compiled"):
            rows.append({"what": what, **timed(arguments, source, 1, NUMBA_CACHE_DIR=cache)})
    return rows


def main() -> None:
    """Walk and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds attsvm/")
    parser.add_argument("--name", default="walk_after", help="results/NAME.json")
    parser.add_argument("--times", type=int, default=5, help="runs of each start-up")
    parser.add_argument("--list", choices=JOURNEYS, help="print the files of this journey and leave")
    asked = parser.parse_args()
    source = asked.source.resolve()
    if asked.list:
        for name, functions in journey(asked.list, source)["entered"].items():
            print(f"{functions:4d}  {name}")
        return
    rows = []
    for name, command in JOURNEYS.items():
        if name == "heads" and not MODEL.is_dir():
            continue
        found = journey(name, source)
        what = f"attsvm {command.split(' --out')[0]}".replace(f"{ROOT}/", "") if command else "README's ten lines"
        rows.append({"what": what, "files_entered": len(found["entered"]), "files_loaded": found["loaded"]})
    rows += start_up(source, asked.times)
    files = list(source.glob("attsvm/**/*.py"))
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    notes = [
        f"{len(files)} Python files, {lines} lines",
        "files entered: with functions called after their import; files loaded: imported, whether needed or not",
        *([] if MODEL.is_dir() else ["the journey through heads was left out: `make weights` brings its model"]),
    ]
    publish(asked.name, rows, "python -m benchmarks.walk", notes)


if __name__ == "__main__":
    main()
