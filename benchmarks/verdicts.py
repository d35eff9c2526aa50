"""How often the predictions of `diagnose` come true: ``python -m benchmarks.verdicts [--quick]``.

Random unit-sphere data, PyTorch's default start, normalized descent with step 0.1. Every run is in one of the classes
of `verify`; unsaturated runs are a class of their own. Each size is followed to two lengths, since "not saturated" and
"not locally optimal" may be matters of time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import attsvm
from attsvm.theory.diagnosis.verify import OUTCOMES
from benchmarks.record import publish

SIZES = ((4, 6, 10), (4, 6, 20), (6, 8, 10), (6, 8, 20), (8, 8, 8), (10, 5, 5))


def measured(
    size: tuple[int, int, int], count: int, kind: attsvm.attention.Parameterization, steps: int
) -> dict[str, Any]:
    """One row: counts of every outcome, and how close saturated runs are to their max-margin direction."""
    n, length, d = size
    data = attsvm.data.random_sphere(n=n, T=length, d=d, batch=count, seed=9000)
    start = attsvm.initial_parameters(data, kind)
    began = time.process_time()
    report = attsvm.diagnose(data, parameterization=kind, initial=start)
    diagnosed = time.process_time() - began
    run = attsvm.fit(data, parameterization=kind, initial=start, steps=steps)
    verdict = attsvm.verify(report, run)
    guess = (run.selected == attsvm.optimal_tokens(data)).all(-1)
    ended = verdict.saturated & torch.isfinite(verdict.cosine)
    return {
        "size": f"n={n} T={length} d={d}",
        "trained": "W" if isinstance(kind, attsvm.Weights) else "(K,Q)",
        "steps": steps,
        "runs": count,
        **{outcome.name.lower(): int((verdict.codes == code).sum()) for code, outcome in enumerate(OUTCOMES)},
        "optimal_guess_right": int(guess.sum()),
        "median_cosine": float(verdict.cosine[ended].median()) if bool(ended.any()) else None,
        "median_efficiency": float(verdict.efficiency[ended].median()) if bool(ended.any()) else None,
        "median_growth": float(verdict.growth.nanmedian()),
        "diagnose_cpu_ms_each": 1e3 * diagnosed / count,
    }


def followed(size: tuple[int, int, int], count: int) -> dict[str, Any]:
    """Runs whose selection is not locally optimal after 20,000 steps, followed to 200,000."""
    n, length, d = size
    data = attsvm.data.random_sphere(n=n, T=length, d=d, batch=count, seed=9000)
    early = attsvm.fit(data, steps=20_000, record=20_000, keep=("risk",))
    verdict = attsvm.is_locally_optimal(data, None, early.selected)
    left = torch.nonzero(~verdict.holds).flatten().tolist()
    still = 0
    if left:
        late = attsvm.fit(data[left], steps=200_000, record=200_000, keep=("risk",), seed=[(0, b) for b in left])
        still = int((~attsvm.is_locally_optimal(data[left], None, late.selected).holds).sum())
    return {
        "size": f"n={n} T={length} d={d}",
        "runs": count,
        "not_local_at_20000": len(left),
        "still_not_local_at_200000": still,
    }


def main(quick: bool) -> None:
    """All sizes for W at two lengths, and two of them for (K,Q)."""
    torch.set_num_threads(1)
    count = 100 if quick else 1000
    rows = [measured(size, count, attsvm.Weights(), steps) for size in SIZES for steps in (2000, 20_000)]
    rows += [measured(size, count, attsvm.KeyQuery(), 2000) for size in SIZES[:3]]
    publish(
        "verdicts_followed",
        [followed(size, count) for size in SIZES],
        "python -m benchmarks.verdicts" + (" --quick" if quick else ""),
        ["a selection that is not locally optimal does not last: descent leaves it, if slowly"],
    )
    publish("verdicts", rows, "python -m benchmarks.verdicts" + (" --quick" if quick else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    main(parser.parse_args().quick)
