"""Attention SVMs against named peers, in one run.

    python -m benchmarks.svm [--quick] [--part small|daqp|nuclear|batched|accuracy|usual|hard|large|gpu|large_gpu]

Everything runs on one thread. A peer's accuracy is measured as ours is: its W, scaled to margin 1, against the
certified dual value, so "gap" means the same in every row. CPU time is process time; problems are built outside the
clock for the peers (they get dense rows), inside it for us.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

import attsvm
from attsvm.svm.solvers.dense.rows import DensePart, DenseRows, dense_rows
from benchmarks import peers
from benchmarks.record import peak_memory_mb, publish

NORMS = {"Frobenius": attsvm.Frobenius(), "nuclear": attsvm.Nuclear()}
OTHERS: dict[str, attsvm.norms.Norm] = {
    "max entry": attsvm.MaxEntry(),
    "sum of entries": attsvm.SumEntry(),
    "spectral": attsvm.Spectral(),
    "l_3": attsvm.Entrywise(3.0),
    "l_1.75": attsvm.Entrywise(1.75),
}
SHAPES = ((6, 8, 10), (15, 5, 20), (5, 15, 20), (10, 10, 10))


def problems(
    shape: tuple[int, int, int], count: int, seed: int, selection: str, device: str = "cpu"
) -> attsvm.AttentionSVM:
    """Unit-sphere problems with optimal or random selections."""
    n, length, d = shape
    data = attsvm.data.random_sphere(n=n, T=length, d=d, batch=count, seed=seed)
    if selection == "optimal":
        chosen = attsvm.optimal_tokens(data)
    else:
        chosen = torch.randint(length, (count, n), generator=torch.Generator().manual_seed(seed))
    return attsvm.AttentionSVM(data.to(device), chosen.to(device))


def gap_of(problem: attsvm.AttentionSVM, norm: attsvm.norms.Norm, weights: np.ndarray, dual: torch.Tensor) -> float:
    """Median relative gap of a peer's weights against the certified dual values."""
    matrix = torch.from_numpy(np.ascontiguousarray(weights))
    margin = torch.where(problem.inequalities, problem.margins(matrix), torch.inf).amin((-1, -2))
    upper = norm.value(matrix) / margin
    gap = torch.where(margin > 0, (upper - dual) / dual, torch.inf)
    return float(gap.median())


def small(quick: bool, norms: Mapping[str, attsvm.norms.Norm] = NORMS, part: str = "small") -> None:
    """1,000 problems (6, 8, 10): ours and the peers, milliseconds each and accuracy."""
    torch.set_num_threads(1)
    count = 100 if quick else 1000
    problem = problems((6, 8, 10), count, 0, "optimal")
    rows = []
    for name, norm in norms.items():
        attsvm.solve(problem[:32], norm)  # kernels loaded
        began = time.process_time()
        solution = attsvm.solve(problem, norm)
        ours = (time.process_time() - began) / count
        rows.append(
            {
                "norm": name,
                "program": f"attsvm {solution.solver}",
                "problems": count,
                "cpu_ms_each": 1e3 * ours,
                "ours_is_faster_by": 1.0,
                "median_gap": float(solution.certificate.relative_gap.median()),
                "largest_gap": float(solution.certificate.relative_gap.max()),
                "not_solved": int((~solution.solved).sum()),
            }
        )
        dual = solution.certificate.dual_value
        dense = [dense_rows(problem[element]) for element in range(count)]
        for label, make, share in _peers(name):
            tried = max(5, int(count * share))
            try:
                solve = make()
                taken, weights = _timed(solve, dense, tried)
            except Exception as error:  # a peer that is missing or fails is a row of the table, not the end of it
                rows.append(
                    {"norm": name, "program": label, "problems": 0, "note": f"{type(error).__name__}: {error}"[:60]}
                )
                continue
            rows.append(
                {
                    "norm": name,
                    "program": label,
                    "problems": tried,
                    "cpu_ms_each": 1e3 * taken,
                    "ours_is_faster_by": taken / ours,
                    "median_gap": gap_of(problem[:tried], norm, weights, dual[:tried]),
                }
            )
        rows += _moreau(name, problem, norm, dual, dense, ours, 20 if quick else 200)
    publish(f"svm_{part}", rows, f"python -m benchmarks.svm --part {part}" + (" --quick" if quick else ""))


def daqp(quick: bool) -> None:
    """Frobenius with certificate against a bare DAQP loop, by size of the batch, in turns; the least time counts."""
    torch.set_num_threads(1)
    loop, rows = peers.daqp(), []
    for count in (10, 100) if quick else (10, 100, 1000):
        problem = problems((6, 8, 10), count, 1, "optimal")
        dense = [dense_rows(problem[element]) for element in range(count)]
        turns = []
        for _ in range(3000 // count + 10):
            began = time.process_time()
            solution = attsvm.solve(problem, attsvm.Frobenius(), solver=attsvm.ActiveSet())
            turns.append((1e3 * (time.process_time() - began) / count, 1e3 * _timed(loop, dense, count)[0]))
        ours, theirs = (min(turn[side] for turn in turns) for side in (0, 1))
        row = {"problems": count, "turns": len(turns), "ours_cpu_ms_each": ours, "daqp_cpu_ms_each": theirs}
        gap = float(solution.certificate.relative_gap.max())
        rows.append({**row, "ours_is_faster_by": theirs / ours, "largest_gap": gap})
    publish("svm_daqp", rows, "python -m benchmarks.svm --part daqp" + (" --quick" if quick else ""))


def nuclear(quick: bool) -> None:
    """`small` in the nuclear norm alone."""
    small(quick, {"nuclear": NORMS["nuclear"]}, "nuclear")


def _peers(norm: str) -> list[tuple[str, Callable[[], peers.Solve], float]]:
    if norm == "nuclear":
        return [
            ("CVXPY + Clarabel", lambda: peers.cvxpy_vectorised("nuclear", "CLARABEL"), 0.05),
            ("CVXPY + SCS", lambda: peers.cvxpy_vectorised("nuclear", "SCS"), 0.05),
            ("CVXPY, one constraint per row, SCS", lambda: peers.cvxpy_per_row("nuclear", "SCS"), 0.05),
        ]
    return [
        ("CVXPY, one constraint per row, default solver", lambda: peers.cvxpy_per_row("Frobenius"), 0.05),
        ("CVXPY + Clarabel", lambda: peers.cvxpy_vectorised("Frobenius", "CLARABEL"), 0.05),
        ("DAQP loop", peers.daqp, 1.0),
        ("quadprog loop", peers.quadprog, 1.0),
        ("PIQP loop", peers.piqp, 0.5),
        ("Clarabel direct", peers.clarabel, 0.5),
        ("CVXOPT", peers.cvxopt, 0.2),
    ]


def _with_side_one(rows: DensePart) -> np.ndarray:
    """Their matrix, scaled so that every right-hand side is 1."""
    return rows.matrix / rows.right_hand_side[:, None]


def _timed(solve: peers.Solve, dense: list[DenseRows], tried: int) -> tuple[float, np.ndarray]:
    """CPU seconds for each problem; rows are scaled back to right-hand side 1 outside the clock."""
    matrices = [_with_side_one(one.inequalities) for one in dense[:tried]]
    shape = dense[0].shape[2:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solve(matrices[0], shape)
        began = time.process_time()
        weights = [solve(matrix, shape) for matrix in matrices]
        taken = time.process_time() - began
    return taken / tried, np.stack(weights)


def _moreau(
    name: str,
    problem: attsvm.AttentionSVM,
    norm: attsvm.norms.Norm,
    dual: torch.Tensor,
    dense: list[DenseRows],
    ours: float,
    tried: int,
) -> list[dict[str, Any]]:
    run = peers.moreau_batch if name == "Frobenius" else peers.moreau_nuclear_batch
    matrices = np.stack([_with_side_one(one.inequalities) for one in dense[:tried]])
    try:
        run(matrices[:2], dense[0].shape[2:])
        began = time.process_time()
        weights = run(matrices, dense[0].shape[2:])
        taken = (time.process_time() - began) / tried
    except Exception as error:
        return [
            {"norm": name, "program": "Moreau, batched", "problems": 0, "note": f"{type(error).__name__}: {error}"[:60]}
        ]
    return [
        {
            "norm": name,
            "program": "Moreau, batched, CPU",
            "problems": tried,
            "cpu_ms_each": 1e3 * taken,
            "ours_is_faster_by": taken / ours,
            "median_gap": gap_of(problem[:tried], norm, weights, dual[:tried]),
        }
    ]


def batched(quick: bool) -> None:
    """The interior point for batches against one linear or conic program at a time, in turns: CPU time and gaps."""
    torch.set_num_threads(1)
    count, tried, rows = (32, 2, []) if quick else (100, 3, [])
    for shape in SHAPES:
        problem = problems(shape, count, 1, "optimal")
        for name, norm in OTHERS.items():
            one = attsvm.LinearProgram(workers=1) if "entr" in name else attsvm.Conic(workers=1)
            solvers = ((attsvm.InteriorPoint(), problem), (one, problem[:tried]))
            seconds, gaps, missed = [], [], []
            for solver, part in solvers:
                attsvm.solve(part[:16] if len(seconds) == 0 else part[:1], norm, solver=solver)  # kernels loaded
                began = time.process_time()
                solution = attsvm.solve(part, norm, solver=solver)
                seconds.append((time.process_time() - began) / len(solution.codes))
                gaps.append(float(solution.certificate.relative_gap.max()))
                missed.append(int((~solution.solved).sum()))
            rows.append(
                {
                    "problems": f"{shape}",
                    "norm": name,
                    "count": count,
                    "cpu_ms_each": 1e3 * seconds[0],
                    "largest_gap": gaps[0],
                    "not_solved": missed[0],
                    "one_at_a_time": type(one).__name__,
                    "one_at_a_time_cpu_ms_each": 1e3 * seconds[1],
                    "one_at_a_time_largest_gap": gaps[1],
                    "times_faster": seconds[1] / seconds[0],
                }
            )
            print(rows[-1], flush=True)
    publish("svm_batched", rows, "python -m benchmarks.svm --part batched" + (" --quick" if quick else ""))


def accuracy(quick: bool) -> None:
    """Every shape, optimal and random selections: gaps, margins, statuses counted."""
    torch.set_num_threads(1)
    count = 50 if quick else 1000
    rows = []
    for shape in SHAPES:
        for selection in ("optimal", "random"):
            problem = problems(shape, count, 1, selection)
            for name, norm in (NORMS | OTHERS).items():
                attsvm.solve(problem[:16], norm)  # kernels loaded
                began = time.process_time()
                solution = attsvm.solve(problem, norm)
                taken = time.process_time() - began
                rows.append(_accuracy_row(f"{shape}", selection, name, solution, count, taken))
    for label, problem in _infeasible(count):
        for name, norm in (NORMS | OTHERS).items():
            began = time.process_time()
            solution = attsvm.solve(problem, norm)
            rows.append(_accuracy_row(label, "-", name, solution, count, time.process_time() - began))
    publish("svm_accuracy", rows, "python -m benchmarks.svm --part accuracy" + (" --quick" if quick else ""))


def _accuracy_row(
    label: str, selection: str, name: str, solution: attsvm.SVMSolution, count: int, taken: float
) -> dict[str, Any]:
    proof, solved = solution.certificate, solution.solved
    gaps = proof.relative_gap[solved]
    return {
        "problems": label,
        "selection": selection,
        "norm": name,
        "count": count,
        "solved": int(solved.sum()),
        "infeasible": int(solution.infeasible.sum()),
        "neither": int((~solved & ~solution.infeasible).sum()),
        "largest_gap": float(gaps.max()) if len(gaps) else None,
        "gap_95_percent": float(gaps.quantile(0.95)) if len(gaps) else None,
        "smallest_margin_minus_1": float(proof.min_margin[solved].min() - 1) if len(gaps) else None,
        "largest_ray": float(proof.ray_residual[solution.infeasible].max())
        if bool(solution.infeasible.any())
        else None,
        "cpu_ms_each": 1e3 * taken / count,
        "solver": solution.solver,
    }


def _infeasible(count: int) -> list[tuple[str, attsvm.AttentionSVM]]:
    def random(seed: int, n: int = 6, length: int = 8, d: int = 10) -> attsvm.TokenDataset:
        return attsvm.data.random_sphere(n=n, T=length, d=d, batch=count, seed=seed)

    small_d = random(2, n=10, d=3)
    double = random(3)
    tokens = double.tokens.clone()
    tokens[:, 0, 1] = tokens[:, 0, 0]
    still = random(4)
    queries = still.queries.clone()
    queries[:, 2] = 0
    twice = random(5)
    repeated, same = twice.tokens.clone(), twice.queries.clone()
    repeated[:, 1], same[:, 1] = repeated[:, 0], same[:, 0]
    zeros = torch.zeros(count, 6, dtype=torch.int64)
    contradictory = zeros.clone()
    contradictory[:, 1] = 3
    return [
        ("d too small (10, 8, 3)", attsvm.AttentionSVM(small_d, attsvm.optimal_tokens(small_d))),
        ("duplicate tokens", attsvm.AttentionSVM(attsvm.TokenDataset(tokens, double.queries, double.labels), zeros)),
        ("zero query", attsvm.AttentionSVM(attsvm.TokenDataset(still.tokens, queries, still.labels), zeros)),
        (
            "contradictory selections",
            attsvm.AttentionSVM(attsvm.TokenDataset(repeated, same, twice.labels), contradictory),
        ),
    ]


def planted(n: int, length: int, d: int, seed: int = 0) -> attsvm.AttentionSVM:
    """Selections of a random W, hence separable."""
    data = attsvm.data.random_sphere(n=n, T=length, d=d, seed=seed)
    matrix = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return attsvm.AttentionSVM(data, attsvm.logits(data, matrix).argmax(-1))


def large(quick: bool) -> None:
    """One problem with up to millions of rows: time, memory, support, gap; and how time grows with n, T and d."""
    torch.set_num_threads(1)
    attsvm.solve(planted(300, 16, 24))
    optimal = attsvm.data.random_sphere(n=2000, T=64, d=128, seed=0)
    cases: list[tuple[str, Callable[[], attsvm.AttentionSVM]]] = [
        ("optimal, n=2000 T=64 d=128", lambda: attsvm.AttentionSVM(optimal, attsvm.optimal_tokens(optimal))),
        ("planted, n=2000 T=64 d=128", lambda: planted(2000, 64, 128)),
        (
            "random, n=2000 T=64 d=16",
            lambda: attsvm.AttentionSVM(
                attsvm.data.random_sphere(n=2000, T=64, d=16, seed=0),
                torch.randint(64, (2000,), generator=torch.Generator().manual_seed(0)),
            ),
        ),
    ]
    cases += [(f"planted, n={n} T=32 d=64", lambda n=n: planted(n, 32, 64)) for n in (500, 1000, 2000, 4000, 8000)]
    cases += [(f"planted, n=2000 T={t} d=64", lambda t=t: planted(2000, t, 64)) for t in (8, 16, 64, 128)]
    cases += [(f"planted, n=2000 T=32 d={d}", lambda d=d: planted(2000, 32, d)) for d in (32, 48, 96, 128)]
    if not quick:
        cases.append(("planted, n=20000 T=128 d=64", lambda: planted(20_000, 128, 64)))
    rows = []
    for label, make in cases[:4] if quick else cases:
        problem = make()
        wall, began = time.perf_counter(), time.process_time()
        solution = attsvm.solve(problem)
        rows.append(
            {
                "problem": label,
                "rows": int(problem.inequalities.sum()),
                "status": solution.status.name,
                "cpu_s": time.process_time() - began,
                "wall_s": time.perf_counter() - wall,
                "rounds": int(solution.iterations),
                "support": int(solution.support.sum()),
                "gap": float(solution.certificate.relative_gap) if bool(solution.solved) else None,
                "ray": float(solution.certificate.ray_residual) if bool(solution.infeasible) else None,
                "peak_memory_mb": round(peak_memory_mb()),
                "solver": solution.solver,
            }
        )
        print(rows[-1], flush=True)
        del problem, solution
    publish("svm_large", rows, "python -m benchmarks.svm --part large" + (" --quick" if quick else ""))


def gpu(quick: bool) -> None:
    """100,000 small problems on a GPU: microseconds each, and the certificate."""
    rows = []
    for name, norm in NORMS.items():
        for count in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
            problem = problems((6, 8, 10), count, 0, "optimal", "cuda")
            attsvm.solve(problem[:1000], norm)
            for _ in range(2):  # the second is the warm one
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                began = time.perf_counter()
                solution = attsvm.solve(problem, norm)
                torch.cuda.synchronize()
                taken = time.perf_counter() - began
            rows.append(
                {
                    "norm": name,
                    "problems": count,
                    "solver": solution.solver,
                    "microseconds_each": 1e6 * taken / count,
                    "solved": int(solution.solved.sum()),
                    "largest_gap": float(solution.certificate.relative_gap.max()),
                    "smallest_margin_minus_1": float(solution.certificate.min_margin.min() - 1),
                    "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20),
                }
            )
            print(rows[-1], flush=True)
    publish("svm_gpu", rows, "python -m benchmarks.svm --part gpu" + (" --quick" if quick else ""))


def planted_on(device: str, parts: int, n: int, length: int, d: int) -> attsvm.AttentionSVM:
    """`parts` draws of n inputs as one data set, drawn on the device, with the selections of a random W."""
    drawn = [
        attsvm.data.random_sphere(n=n, T=length, d=d, seed=attsvm.data.Counter(0, first=k), device=device)
        for k in range(parts)
    ]
    tokens, queries, labels = (
        torch.cat([getattr(one, name) for one in drawn]) for name in ("tokens", "queries", "labels")
    )
    del drawn
    data = attsvm.TokenDataset(tokens, queries, labels)
    matrix = torch.randn(d, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    return attsvm.AttentionSVM(data, attsvm.logits(data, matrix).argmax(-1))


def large_gpu(quick: bool) -> None:
    """Large problems on a GPU, solved with certificate, and on the CPU of the same machine where that is short."""
    shapes = [(1, 20_000, 128, 64), *(() if quick else ((10, 20_000, 128, 64),)), (1, 500, 32, 64), (1, 1000, 32, 64)]
    shapes += [(1, 2000, 32, 64), (1, 4000, 32, 64), (1, 2000, 128, 32), (1, 2000, 64, 128)]
    attsvm.solve(planted_on("cuda", 1, 300, 16, 24), solver=attsvm.svm.LargeInteriorPoint())
    rows = []
    for parts, n, length, d in shapes:
        row: dict[str, Any] = {"problem": f"planted, n={parts * n} T={length} d={d}"}
        for device, solver in (("cuda", attsvm.svm.LargeInteriorPoint()), ("cpu", attsvm.BlockDescent())):
            if device == "cpu" and parts * n > 1000:
                continue
            try:
                began = time.perf_counter()
                problem = planted_on("cuda", parts, n, length, d)
                torch.cuda.synchronize()
                row["draw_s"] = time.perf_counter() - began
                if device == "cpu":
                    problem = attsvm.AttentionSVM(problem.data.to("cpu"), problem.reference.cpu())
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                began = time.perf_counter()
                solution = attsvm.solve(problem, solver=solver)
                torch.cuda.synchronize()
                row |= {
                    f"{device}_s": time.perf_counter() - began,
                    f"{device}_status": solution.status.name,
                    f"{device}_gap": float(solution.certificate.relative_gap),
                    f"{device}_iterations": int(solution.iterations),
                    f"{device}_support": int(solution.support.sum()),
                }
                if device == "cuda":
                    row |= {
                        "rows": int(problem.inequalities.sum()),
                        "peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20),
                    }
                del problem, solution
            except Exception as error:  # out of memory is a row of the table, not the end of it
                row[f"{device}_note"] = f"{type(error).__name__}: {error}"[:80]
            torch.cuda.empty_cache()
        rows.append(row)
        print(row, flush=True)
        publish("svm_large_gpu", rows, "python -m benchmarks.svm --part large_gpu" + (" --quick" if quick else ""))


def twins(apart: float, count: int, seed: int) -> attsvm.AttentionSVM:
    """(6, 8, 10) on the sphere; one rival of the first input lies `apart` from the optimal token."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=count, seed=seed)
    best, tokens = attsvm.optimal_tokens(data), data.tokens.clone()
    step = np.random.default_rng(seed).standard_normal((count, 10))
    step = torch.from_numpy(step / np.linalg.norm(step, axis=-1, keepdims=True))
    each = torch.arange(count)
    tokens[each, 0, (best[:, 0] + 1) % 8] = tokens[each, 0, best[:, 0]] + apart * step
    return attsvm.AttentionSVM(attsvm.TokenDataset(tokens, data.queries, data.labels), best)


def scaled(of: str, count: int, seed: int) -> attsvm.AttentionSVM:
    """(6, 8, 10) on the sphere; the tokens or the query of each input times a number between 1e-4 and 1e4."""
    data = attsvm.data.random_sphere(n=6, T=8, d=10, batch=count, seed=seed)
    factor = torch.from_numpy(10.0 ** np.random.default_rng(seed).uniform(-4, 4, (count, 6, 1)))
    tokens = data.tokens * factor[..., None] if of == "tokens" else data.tokens
    queries = data.queries * factor if of == "queries" else data.queries
    return attsvm.AttentionSVM(attsvm.TokenDataset(tokens, queries, data.labels), attsvm.optimal_tokens(data))


def usual(quick: bool) -> None:
    """Random problems in every norm, 200 each: statuses and gaps."""
    drawn = {"random": problems((6, 8, 10), 20 if quick else 200, 3, "optimal")}
    norms = NORMS | OTHERS | {"projective": attsvm.norms.Projective()}
    _statuses("svm_usual", drawn, norms, "python -m benchmarks.svm --part usual" + (" --quick" if quick else ""))


def hard(quick: bool) -> None:
    """Nearly equal tokens and mixed scales: statuses, and the gaps that were reached where the tolerance was missed."""
    count, seed = (20, 2) if quick else (200, 2)
    drawn = {f"tokens {apart:g} apart": twins(apart, count, seed) for apart in (1e-4, 1e-5, 1e-6)}
    drawn |= {f"{of} scaled by 1e-4 to 1e4": scaled(of, count, seed) for of in ("tokens", "queries")}
    _statuses("svm_hard", drawn, NORMS, "python -m benchmarks.svm --part hard" + (" --quick" if quick else ""))


def _statuses(
    result: str, drawn: Mapping[str, attsvm.AttentionSVM], norms: Mapping[str, attsvm.norms.Norm], command: str
) -> None:
    """Solve every batch of problems in every norm; write how many end in which status, and their gaps."""
    rows = []
    for label, problem in drawn.items():
        for name, norm in norms.items():
            attsvm.solve(problem[:16], norm)  # kernels loaded
            began = time.process_time()
            solution = attsvm.solve(problem, norm)
            taken = time.process_time() - began
            gap, count = solution.certificate.relative_gap, len(solution.codes)
            rows.append(
                {
                    "problem": label,
                    "norm": name,
                    "problems": count,
                    "tolerance": solution.tolerance,
                    "status": {one.name: int((solution.codes == one.code).sum()) for one in attsvm.svm.Status},
                    "median_gap": float(gap.median()),
                    "largest_gap": float(gap.max()),
                    "smallest_margin_minus_1": float(solution.certificate.min_margin.min() - 1),
                    "cpu_ms_each": 1e3 * taken / count,
                }
            )
            print(rows[-1], flush=True)
    publish(result, rows, command)


PARTS = {
    "small": small,
    "daqp": daqp,
    "nuclear": nuclear,
    "batched": batched,
    "accuracy": accuracy,
    "usual": usual,
    "hard": hard,
    "large": large,
    "gpu": gpu,
    "large_gpu": large_gpu,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=PARTS, action="append", help="default: small, accuracy and large")
    options = parser.parse_args()
    for part in options.part or ("small", "accuracy", "large"):
        PARTS[part](options.quick)
