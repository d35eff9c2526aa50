"""Next-token prediction in numbers: ``python -m benchmarks.next_token --part theorem``.

- ``theorem``: random data sets, trained exactly on two scales, against the limit that was predicted;
- ``speed``: prediction and training beside a plain PyTorch loop and CVXPY, at K = 20;
- ``large``: a text of 10,000 words, and 2,000 different words in 64 dimensions: time and memory;
- ``factors``: (K, Q) beside the nuclear Graph-SVM, which is a conjecture;
- ``rates``: how fast plain and normalized descent approach the limit.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import attsvm
from attsvm.attention import Log
from attsvm.descent import NormalizedGradientDescent
from attsvm.next_token import Comparison, LimitPrediction, NextTokenData, from_ids, predict_limit, train, verify
from attsvm.next_token.training import curvature
from benchmarks.record import peak_memory_mb, publish

GROWN = 200.0
"""Times the norm of W_svm that W must reach before it is judged."""
STAGES = (1000, 4000, 16_000)
"""Steps; a run that has not grown or does not hold after one is followed to the next."""


@dataclass(frozen=True)
class Draw:
    """Random samples: windows drawn evenly; labels by a random order of the tokens for each last token.

    A share of the labels, `noise`, is drawn evenly from the window instead, which makes cycles. Embeddings of odd seeds
    are orthonormal where there is room, all others are drawn on the sphere.
    """

    K: int
    d: int
    n: int
    T: int
    noise: float

    def data(self, seed: int) -> NextTokenData:
        """The data set of a seed."""
        rng = np.random.default_rng([seed, self.K, self.d, self.n, self.T])
        table = rng.standard_normal((self.K, self.d))
        table /= np.linalg.norm(table, axis=1, keepdims=True)
        if seed % 2 and self.d >= self.K:
            table = np.linalg.qr(rng.standard_normal((self.d, self.K)))[0].T
        order = rng.permuted(np.tile(np.arange(self.K), (self.K, 1)), axis=1)
        windows = rng.integers(0, self.K, (self.n, self.T))
        best = np.take_along_axis(windows, order[windows[:, -1:], windows].argmin(1)[:, None], 1)[:, 0]
        other = np.take_along_axis(windows, rng.integers(0, self.T, (self.n, 1)), 1)[:, 0]
        return from_ids(windows, np.where(rng.random(self.n) < self.noise, other, best), table)

    def __str__(self) -> str:
        return f"K={self.K} d={self.d} n={self.n} T={self.T}"


SIZES = ((5, 5, 12, 3), (6, 8, 24, 4), (8, 8, 30, 4), (10, 16, 40, 5), (20, 20, 60, 6))
THEOREM = tuple(Draw(*size, noise) for size in SIZES for noise in (0.0, 0.3))
CLASHING = (Draw(8, 3, 20, 4, 0.0), Draw(8, 4, 20, 4, 0.3))


def trained(limits: Sequence[LimitPrediction], steps: int) -> list[Comparison]:
    """All of them trained at once from fit's default starts, and compared."""
    run = train(limits, steps, keep=["risk"])
    return [verify(limit, weights) for limit, weights in zip(limits, run.weights, strict=True)]


def followed(limits: Sequence[LimitPrediction], stages: Sequence[int] = STAGES) -> list[list[tuple[int, Comparison]]]:
    """The comparisons of every data set, stage by stage, until it has grown and holds."""
    found: list[list[tuple[int, Comparison]]] = [[] for _ in limits]
    left = list(range(len(limits)))
    for steps in stages:
        for place, one in zip(left, trained([limits[place] for place in left], steps), strict=True):
            found[place].append((steps, one))
        left = [place for place in left if not (found[place][-1][1].holds and found[place][-1][1].growth >= GROWN)]
        if not left:
            break
    return found


def theorem_row(draw: Draw, count: int, seed: int = 0, stages: Sequence[int] = STAGES) -> dict[str, Any]:
    """How many data sets of one kind went as predicted, and all others one by one."""
    began = time.process_time()
    limits = [predict_limit(draw.data(seed + number)) for number in range(count)]
    feasible = [number for number, limit in enumerate(limits) if limit.finite is not None]
    own = [limits[number] for number in feasible]
    runs = followed(own, stages) if own else []
    # Each is judged at the first stage at which its norm is large enough.
    first = [next((one for _, one in run if one.growth >= GROWN), None) for run in runs]
    judged = [one for one in first if one is not None]
    near = [one.cosine >= 0.999 or math.isnan(one.cosine) for one in judged]
    inside = [one.finite_distance <= 1e-6 * (1 + one.finite_norm) for one in judged]
    rest = [
        {
            "seed": seed + number, "svm_norm": float(limits[number].svm_component.norm()),
            "stages": [
                {"steps": steps, "cosine": one.cosine, "growth": one.growth, "finite_distance": one.finite_distance}
                for steps, one in run
            ], "holds_at_last": run[-1][1].holds,
        }
        for number, run, one in zip(feasible, runs, first, strict=True) if one is None or not one.holds
    ]  # fmt: skip
    return {
        "size": str(draw), "noise": draw.noise, "problems": count, "feasible": len(feasible),
        "proved_infeasible": sum(bool(limit.solution.infeasible) for limit in limits),
        "undecided": sum(bool(limit.solution.undecided) for limit in limits),
        "with_cycles": sum(not limit.graph.acyclic for limit in own),
        "grown": len(judged), "direction_right": sum(near), "finite_part_right": sum(inside),
        "both_right": sum(one.holds for one in judged),
        "smallest_cosine": min((one.cosine for one in judged if not math.isnan(one.cosine)), default=None),
        "median_cosine": float(np.nanmedian([one.cosine for one in judged])) if judged else None,
        "largest_distance_share": max((one.finite_distance / (1 + one.finite_norm) for one in judged), default=None),
        "followed_to_holding": sum(each["holds_at_last"] for each in rest),
        "cpu_seconds": time.process_time() - began, "rest": rest,
    }  # fmt: skip


def theorem(quick: bool) -> Iterator[dict[str, Any]]:
    """Feasible problems of ten kinds, then kinds with fewer dimensions than tokens, where relations can clash."""
    for draw in (*THEOREM, *CLASHING):
        yield theorem_row(draw, 10 if quick else 100)


# ------------------------------------------------------------------------------------------------- speed


PEERS, LOOP = 3, 20_000
"""Data sets that the plain loop is run on, and its steps."""


def loop(data: NextTokenData, steps: int) -> torch.Tensor:
    """Plain PyTorch: autograd and SGD with steps of 1/L, from zero."""
    inside = data.dataset
    label = inside.values[..., 0] > 0
    weights = torch.zeros(data.d, data.d, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=1 / curvature(data))
    for _ in range(steps):
        optimizer.zero_grad()
        logits = torch.einsum("ntd,de,ne->nt", inside.tokens, weights, inside.queries)
        others = torch.logsumexp(logits.masked_fill(~label, -torch.inf), -1)
        (torch.logsumexp(logits, -1) - others).mean().backward()
        optimizer.step()
    return weights.detach()


def by_cvxpy(limit: LimitPrediction) -> np.ndarray:
    """The Graph-SVM of all edges, stated in CVXPY with its default solver."""
    import cvxpy as cp

    graph, table = limit.graph, limit.data.embeddings.numpy()
    rows = (table[graph.winner] - table[graph.loser])[:, :, None] * table[graph.last][:, None, :]
    weights = cp.Variable(limit.data.d**2)
    flat = rows.reshape(len(rows), -1)
    constraints = [flat[graph.strict] @ weights >= 1]
    if not graph.strict.all():
        constraints.append(flat[~graph.strict] @ weights == 0)
    cp.Problem(cp.Minimize(cp.sum_squares(weights)), constraints).solve()
    return np.asarray(weights.value).reshape(limit.data.d, limit.data.d)


def speed(quick: bool) -> Iterator[dict[str, Any]]:
    """CPU seconds for each data set: CVXPY and the plain loop, then ours, to the loop's accuracy and to the end."""
    draw, count, peers = Draw(20, 20, 60, 6, 0.3), 20 if quick else 100, 1 if quick else PEERS
    steps = LOOP // 10 if quick else LOOP
    warm = predict_limit(draw.data(999))
    trained([warm, warm], 5)
    loop(warm.data, 5)
    by_cvxpy(warm)
    began = time.process_time()
    limits = [predict_limit(draw.data(seed)) for seed in range(count)]
    predicted = (time.process_time() - began) / count
    gaps = [float(limit.solution.certificate.relative_gap) for limit in limits]
    began = time.process_time()
    other = [by_cvxpy(limit) for limit in limits[:peers]]
    stated = (time.process_time() - began) / peers
    own = [limit.svm_component.numpy() for limit in limits[:peers]]
    away = [float(np.linalg.norm(one - two) / np.linalg.norm(two)) for one, two in zip(other, own, strict=True)]
    began = time.process_time()
    weights = [loop(limit.data, steps) for limit in limits[:peers]]
    looped = (time.process_time() - began) / peers
    theirs = [verify(limit, each) for limit, each in zip(limits, weights, strict=False)]
    yield _timed(
        "CVXPY and a plain PyTorch loop", draw, peers, steps, stated, looped, theirs, largest_difference=max(away)
    )
    total, loop_cosine, loop_distance = stated + looped, *_medians(theirs)
    for number in (25, 50, 100, 200, 400, 1000):
        began = time.process_time()
        found = trained(limits, number)
        seconds = (time.process_time() - began) / count
        cosine, distance = _medians(found[:peers])
        if number == 1000 or (loop_cosine is not None and cosine >= loop_cosine and distance <= loop_distance):
            name = "attsvm, to the end" if number == 1000 else "attsvm, to the accuracy of the loop"
            factor = total / (predicted + seconds)
            yield _timed(name, draw, count, number, predicted, seconds, found, largest_gap=max(gaps), factor=factor)
            loop_cosine = None


def _medians(found: Sequence[Comparison]) -> tuple[float, float]:
    return float(np.median([one.cosine for one in found])), float(np.median([one.finite_distance for one in found]))


def _timed(
    name: str,
    draw: Draw,
    count: int,
    steps: int,
    predicted: float,
    seconds: float,
    found: Sequence[Comparison],
    **more: Any,
) -> dict[str, Any]:
    return {
        "who": name, "size": str(draw), "problems": count, "prediction_cpu_s": predicted, "steps": steps,
        "training_cpu_s": seconds, "median_cosine": _medians(found)[0],
        "smallest_cosine": min(one.cosine for one in found), "median_finite_distance": _medians(found)[1],
        "holds": sum(one.holds for one in found), "median_growth": float(np.median([one.growth for one in found])),
        **more,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- large


def rare_words(count: int = 2000, length: int = 20_000, seed: int = 0) -> str:
    """A text of `length` words, of which `count` differ, the k-th as frequent as 1/k (Zipf's law)."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, count + 1)
    drawn = rng.choice(count, length, p=share / share.sum())
    drawn[rng.permutation(length)[:count]] = np.arange(count)
    return " ".join(f"w{word}" for word in drawn)


def large(quick: bool) -> Iterator[dict[str, Any]]:
    """From the text to the prediction, and training beside it; every row with the peak memory of the process so far."""
    for name, text, d, steps in (
        ("village, 10,000 words", attsvm.next_token.village(), None, 100 if quick else 2500),
        ("2,000 different words in 64 dimensions", rare_words(), 64, 0),
    ):
        wall, cpu = time.perf_counter(), time.process_time()
        data = attsvm.next_token.from_text(text, d=d)
        limit = predict_limit(data)
        row = {
            "text": name, "K": data.K, "d": data.d, "samples": data.n, "left_out": data.left_out,
            "relations": len(limit.graph.last), "status": limit.solution.status.name.lower(),
            "relative_gap": float(limit.solution.certificate.relative_gap) if limit.finite else None,
            "finite_distance_bound": limit.finite.distance_bound if limit.finite else None,
            "relations_that_clash": len(limit.clash), "prediction_cpu_s": time.process_time() - cpu,
            "prediction_wall_s": time.perf_counter() - wall,
        }  # fmt: skip
        if steps:
            cpu = time.process_time()
            found = verify(limit, train(limit, steps))
            row |= {"steps": steps, "training_cpu_s": time.process_time() - cpu, **vars(found), "holds": found.holds}
        yield row | {"peak_memory_mb": peak_memory_mb()}


# ------------------------------------------------------------------------------------------------- factors and rates


def batch_of(limits: Sequence[LimitPrediction]) -> attsvm.TokenDataset:
    """The data sets of several predictions of one size."""
    each = [limit.data.dataset for limit in limits]
    names = ("tokens", "queries", "labels", "values", "head")
    return attsvm.TokenDataset(**{name: torch.stack([getattr(one, name) for one in each]) for name in names})


def factors(quick: bool) -> Iterator[dict[str, Any]]:
    """(K, Q) on acyclic and cyclic data: cosines outside S_fin with the nuclear and the Frobenius Graph-SVM."""
    for noise in (0.0, 0.3):
        draw = Draw(6, 8, 24, 4, noise)
        limits = [predict_limit(draw.data(seed)) for seed in range(10 if quick else 20)]
        nuclear = [predict_limit(limit.graph, attsvm.Nuclear()) for limit in limits]
        data = batch_of(limits)
        for steps in (200, 2000) if quick else (500, 4000):
            run = attsvm.fit(
                data, loss=Log(), parameterization=attsvm.KeyQuery(), optimizer=NormalizedGradientDescent(0.1),
                steps=steps, record=[steps], keep=["risk"],
            )  # fmt: skip
            both = [
                [verify(limit, weights) for limit, weights in zip(each, run.weights, strict=True)]
                for each in (nuclear, limits)
            ]
            ahead = [one.cosine > other.cosine for one, other in zip(*both, strict=True)]
            sizes = torch.linalg.svdvals(run.weights)
            yield {
                "size": str(draw), "noise": noise, "problems": len(limits), "steps": steps,
                "median_cosine_nuclear": _medians(both[0])[0],
                "smallest_cosine_nuclear": min(one.cosine for one in both[0]),
                "median_cosine_frobenius": _medians(both[1])[0], "nearer_to_nuclear": sum(ahead),
                "median_finite_distance": _medians(both[0])[1],
                "median_growth": float(np.median([one.growth for one in both[0]])),
                "median_rank": float((sizes > 0.01 * sizes[:, :1]).sum(1).double().median()),
            }  # fmt: skip


def rates(quick: bool) -> Iterator[dict[str, Any]]:
    """Exponents a in t^a between doublings of t: of the direction, the finite part and, normalized, of the risk."""
    last = 1000 if quick else 4000
    marks = [last // 2**power for power in range(5, -1, -1)]
    for name, optimizer, noise in (
        ("normalized descent, acyclic", NormalizedGradientDescent(0.1), 0.0),
        ("gradient descent, acyclic", attsvm.GradientDescent(1.0), 0.0),
        ("gradient descent, with cycles", attsvm.GradientDescent(1.0), 0.3),
    ):
        draw = Draw(6, 8, 24, 4, noise)
        limits = [predict_limit(draw.data(seed)) for seed in range(20)]
        limits = [limit for limit in limits if limit.graph.acyclic == (noise == 0)]
        data = batch_of(limits)
        run = attsvm.fit(data, loss=Log(), optimizer=optimizer, steps=last, record=marks, keep=["risk", "weights"])
        found = [[verify(limit, each) for limit, each in zip(limits, at, strict=True)] for at in run.history.weights]
        angle = np.array([[math.sqrt(2 * max(0.0, 1 - one.cosine)) for one in at] for at in found])
        inside = np.array([[one.finite_distance for one in at] for at in found])
        risk = run.history.risk.numpy()
        for place in range(1, len(marks)):
            yield {
                "training": name, "size": str(draw), "problems": len(limits), "steps": marks[place],
                "median_distance_of_directions": float(np.median(angle[place])),
                "exponent_of_direction": _exponent(angle, place),
                "median_finite_distance": float(np.median(inside[place])),
                "exponent_of_finite_part": _exponent(inside, place) if noise else None,
                "median_norm_over_svm": float(np.median([one.growth for one in found[place]])),
                # A risk below 1e-12 is a difference of 1 and an attention near it, and mostly round-off.
                "median_log_risk": float(np.median(np.log(risk[place]))) if risk[place].min() > 1e-12 else None,
            }  # fmt: skip


def _exponent(values: np.ndarray, place: int) -> float:
    """The median a in t^a over the last doubling of t."""
    return float(np.median(np.log2(values[place] / values[place - 1])))


PARTS = {"theorem": theorem, "speed": speed, "large": large, "factors": factors, "rates": rates}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one part and write next_token_PART.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--quick", action="store_true", help="a tenth of the problems; writes nothing")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = []
    for row in PARTS[given.part](given.quick):
        rows.append(row)
        print({name: value for name, value in row.items() if name != "rest"}, flush=True)
        for each in row.get("rest", ()):
            print("   ", each, flush=True)
    if not given.quick:
        publish(f"next_token_{given.part}", rows, f"python -m benchmarks.next_token --part {given.part}")


if __name__ == "__main__":
    main()
