"""Which norm do optimizers of K and Q follow? ``python -m benchmarks.factors --part geometry [--quick]``.

``--part geometry``: 1,000 data sets (n = 3, T = 4, d = 5; all rows of a table see the same ones) are trained by each
optimizer, the SVM of what each run selected is solved in every norm, and the norm with the largest margin efficiency
wins the data set. ``--part sign`` reports sign steps against the rank of K and Q, the step size, the number of steps
and the start; the start of `bad_start` is a strict bad attractor. Trained weights are kept in ``--work FOLDER``, where
a run that was killed goes on; ``--train`` stops after training, ``--row NAME`` takes one row.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import attsvm
from attsvm import Frobenius, KeyQuery, MaxEntry, NormalizedGradientDescent, SteepestDescent, TokenDataset
from attsvm.descent import InverseSqrt, JointSteepestDescent, NewtonSchulzDescent, Optimizer, TorchEngine
from attsvm.norms import LargestColumn, LargestRow, Norm, SpectralOfRank
from attsvm.theory.identify import NORMS, in_every_norm
from benchmarks.record import publish

SEED = 20261116
SIZE = 0.3  # of the first step; for sign steps a tenth, whose steps of one length move every entry
_SHORT = SIZE / 10
LEVEL = 1e-6

Row = tuple[Optimizer, KeyQuery, str]
"""The optimizer, what it trains, and the norm that is framed."""


def rows() -> dict[str, Row]:
    """Optimizers of K and Q, those that the issue asks about first."""
    steps, short = InverseSqrt(SIZE), InverseSqrt(_SHORT)
    muon = SteepestDescent(attsvm.Spectral(), steps)
    return {
        "gradient, each factor": (NormalizedGradientDescent(steps), KeyQuery(), "nuclear"),
        "gradient, jointly": (JointSteepestDescent(Frobenius(), steps), KeyQuery(), "nuclear"),
        "Muon": (muon, KeyQuery(), "spectral"),
        "Muon, m = 2": (muon, KeyQuery(2), "spectral of rank 2"),
        "Muon, m = 1": (muon, KeyQuery(1), "nuclear"),  # max(spectral, nuclear / 1)
        "Muon, Newton-Schulz": (NewtonSchulzDescent(steps, 0.0), KeyQuery(), "spectral"),
        "sign": (SteepestDescent(MaxEntry(), short), KeyQuery(), "projective"),
        "sign, m = 32": (SteepestDescent(MaxEntry(), short), KeyQuery(32), "projective"),
        "rows": (SteepestDescent(LargestRow(), steps), KeyQuery(), "gamma_2"),
        "columns": (SteepestDescent(LargestColumn(), steps), KeyQuery(), "nuclear"),
    }


def trained(
    name: str, row: Row, data: TokenDataset, steps: int, work: Path, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Final weights and selections, from the folder where they are kept, or trained now."""
    path = work / f"{name.replace(' ', '-').replace(',', '').replace('=', '')}-{steps}-{data.batch_shape[0]}.npz"
    if not path.is_file():
        optimizer, kind, _ = row
        run = attsvm.fit(
            data, optimizer=optimizer, parameterization=kind, steps=steps, record=[steps], keep=(), seed=SEED, **options
        )
        work.mkdir(parents=True, exist_ok=True)
        np.savez(path, weights=run.weights.numpy(), selected=run.selected.numpy())
        print(f"trained {name}", flush=True)
    found = np.load(path)
    return torch.from_numpy(found["weights"]), torch.from_numpy(found["selected"])


class Solved:
    """Solutions of every selection that some run reached, each solved once."""

    def __init__(self, data: TokenDataset) -> None:
        self._data = data
        self._best: dict[tuple[str, int, tuple[int, ...]], tuple[float, float]] = {}

    def efficiencies(self, weights: torch.Tensor, selected: torch.Tensor, norms: Mapping[str, Norm]) -> dict[str, Any]:
        """By norm, the margin efficiency of every run, NaN where its problem has no certified solution."""
        keys = [tuple(each) for each in selected.tolist()]
        problem = attsvm.AttentionSVM(self._data, selected)
        rows_ = problem.inequalities
        margin = problem.margins(weights).masked_fill(~rows_, torch.inf).amin((-1, -2))
        made = {}
        for name, norm in norms.items():
            new = [place for place, key in enumerate(keys) if (name, place, key) not in self._best]
            if new:
                solution = attsvm.solve(attsvm.AttentionSVM(self._data[new], selected[new]), norm)
                value = torch.where(solution.solved, norm.value(torch.nan_to_num(solution.weights)), torch.nan)
                gap = solution.certificate.relative_gap
                for index, place in enumerate(new):
                    self._best[name, place, keys[place]] = (float(value[index]), float(gap[index]))
            best = torch.tensor([self._best[name, place, key][0] for place, key in enumerate(keys)])
            made[name] = margin / norm.value(weights) * best
        return made

    def largest_gap(self) -> float:
        """Of all certified solutions."""
        return max(gap for value, gap in self._best.values() if not np.isnan(value))


def summary(name: str, framed: str, made: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """In how many data sets each norm wins, and the spread of the framed one.

    Where another norm is level with the framed one, to the accuracy of the certificates, the framed one wins: the two
    problems then have a solution in common.
    """
    table = torch.stack(list(made.values())).numpy()
    judged = ~np.isnan(table).any(0)
    table, names = table[:, judged], list(made)
    own = table[names.index(framed)]
    winners = np.where(own >= table.max(0) - LEVEL, names.index(framed), table.argmax(0))
    return {
        "row": name,
        "framed": framed,
        "data_sets": int(judged.size),
        "judged": int(judged.sum()),
        "framed_wins": int((winners == names.index(framed)).sum()),
        "share": float((winners == names.index(framed)).mean()),
        "median": float(np.median(own)),
        "tenth": float(np.quantile(own, 0.1)),
        "least": float(own.min()),
        **{f"{each} wins": int((winners == place).sum()) for place, each in enumerate(names)},
        **{f"{each} median": float(np.median(table[place])) for place, each in enumerate(names)},
    }


def geometry(datasets: int, steps: int, work: Path, train: bool, only: Iterable[str]) -> list[dict[str, Any]]:
    """One line for each optimizer."""
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=datasets, seed=SEED)
    solved, lines = Solved(data), []
    for name, row in rows().items():
        if only and name not in only:
            continue
        weights, selected = trained(name, row, data, steps, work)
        if train:
            continue
        rank = row[1].rank or data.d
        norms = dict(NORMS) | ({f"spectral of rank {rank}": SpectralOfRank(rank)} if rank == 2 else {})
        lines.append({"steps": steps, **summary(name, row[2], solved.efficiencies(weights, selected, norms))})
        print(lines[-1], flush=True)
    if lines:
        lines[-1]["largest_gap_of_all_solutions"] = solved.largest_gap()
    return lines


def bad_start(rank: int) -> tuple[TokenDataset, dict[str, torch.Tensor]]:
    """Two inputs of two tokens with queries e1, e2, and factors with columns of the pattern (1, -1), up to noise.

    Without noise every rule stays on the line of this pattern, by symmetry; with it only an attractor holds a run.
    """
    difference = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    tokens = torch.stack([difference, torch.zeros_like(difference)], 1)
    one = torch.ones(2, dtype=torch.float64)
    data = TokenDataset(tokens, torch.eye(2, dtype=torch.float64), one, head=one)
    pattern = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).expand(2, rank)
    noise = np.random.default_rng(SEED).standard_normal((2, 2, rank))
    key, query = 0.5 * pattern + 1e-2 * torch.from_numpy(noise)
    return data, {"key": key, "query": query}


def sign(datasets: int, work: Path, train: bool) -> list[dict[str, Any]]:
    """Sign steps against rank, step size and number of steps; and three rules from the bad start."""
    data = attsvm.data.random_sphere(n=3, T=4, d=5, batch=datasets, seed=SEED)
    solved, lines = Solved(data), []
    for rank in (5, 32):
        for size in (_SHORT / 5, _SHORT, SIZE):
            for steps in (8_000, 80_000):
                row = (SteepestDescent(MaxEntry(), InverseSqrt(size)), KeyQuery(rank), "projective")
                name = f"sign m {rank} size {size:g}"
                weights, selected = trained(name, row, data, steps, work)
                if not train:
                    made = solved.efficiencies(weights, selected, NORMS)
                    line = {"m": rank, "step_size": size, "steps": steps, **summary(name, "projective", made)}
                    lines.append(line)
                    print(line, flush=True)
    own, start = bad_start(8)
    problem = attsvm.AttentionSVM(own, torch.zeros(2, dtype=torch.int64))
    for name, norm, framed in (
        ("sign", MaxEntry(), "projective"),
        ("Muon", attsvm.Spectral(), "spectral"),
        ("gradient", Frobenius(), "nuclear"),
    ):
        run = attsvm.fit(
            own, optimizer=SteepestDescent(norm, InverseSqrt(_SHORT)), parameterization=KeyQuery(8), initial=start,
            steps=20_000, record=[20_000], keep=(), engine=TorchEngine() if train else None,
        )  # fmt: skip
        found = {label: efficiency for label, _, _, efficiency in in_every_norm(run.weights, problem, NORMS)}
        lines.append({"row": f"bad start, {name}", "framed": framed, "median": float(found[framed])})
    return lines


def main() -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("geometry", "sign"), action="append")
    parser.add_argument("--datasets", type=int)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--work", type=Path, default=Path("out/factors"))
    parser.add_argument("--train", action="store_true", help="train only, and leave the weights in --work")
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="few data sets and steps, into --work")
    arguments = parser.parse_args()
    command = "python -m benchmarks.factors --part "
    steps = 400 if arguments.quick else arguments.steps
    folder = arguments.work if arguments.quick else None
    for part in arguments.part or ("geometry", "sign"):
        count = 8 if arguments.quick else arguments.datasets or (1_000 if part == "geometry" else 60)
        if part == "geometry":
            lines = geometry(count, steps, arguments.work, arguments.train, arguments.row)
            said = f"{command}{part} --steps {steps}"
        else:
            lines, said = sign(count, arguments.work, arguments.train), command + part
        if lines:
            publish(f"factors_{part}", lines, said, folder=folder)


if __name__ == "__main__":
    main()
