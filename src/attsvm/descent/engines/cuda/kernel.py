"""CUDA kernels in Numba, made from the text of `step`: a thread is a worker, a whole stretch of steps one launch.

A run has `parts` threads for each of its inputs. Where they fit, tokens stay in registers throughout; what the threads
of a run tell each other goes through shared memory, or through global memory where that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from numba import cuda, float64

from attsvm.descent.engines import kernel_task, step
from attsvm.descent.engines.cuda.source import body_text, helper_text
from attsvm.descent.engines.step import Shape

WARP = 32
_ALL_LANES = 0xFFFFFFFF
_SHARED_BYTES = 48 * 1024  # what a block may use without asking
_MOST_TOKENS = 80  # numbers of a worker's tokens that its registers hold
_MOST_UNROLLED = 400  # terms of a sum over matrices or inputs that are written out
_HELPERS = ("inverse_of", "outer_norm", "stored_norm", "blended", "update")
_PRIVATE = ("directions", "logits", "shares", "worths", "spare", "factors", "pulled")
_REGISTERS = frozenset({"data_tokens", "moved", *(f"work_{name}" for name in _PRIVATE)})


def in_span(shape: Shape) -> bool:
    """Whether `descend_span` can take the steps, and is cheaper: n^2 d against 2 n d dq products."""
    plain = shape.rank == 0 and not shape.ridge and shape.decay == 0.0
    return plain and shape.rule in (kernel_task.NORMALIZED, kernel_task.PLAIN) and shape.n <= 2 * shape.dq


def registers_of(shape: Shape) -> frozenset[str]:
    """The arrays that fit into registers; none if loops are too long to be written out."""
    across = max(shape.n * shape.d, 0 if in_span(shape) else shape.d * max(shape.dq, shape.rank))
    features = shape.width * (shape.length + 1)
    small = shape.length * shape.d <= _MOST_TOKENS and across <= _MOST_UNROLLED and features <= 2 * _MOST_TOKENS
    own = _REGISTERS if in_span(shape) else _REGISTERS - {"work_factors"}  # `update` walks through these
    return own if small else frozenset()


def parts_of(n: int, T: int, d: int) -> int:
    """How many threads share the tokens of an input, so that registers hold them or a few runs fill the device."""
    parts = 1
    while parts < WARP and 2 * parts * n <= 1024 and parts < T - 1 and -(-(T - 1) // parts) * d > _MOST_TOKENS:
        parts *= 2
    return parts


def runs_of(workers: int, threads: int | None) -> tuple[int, int]:
    """How many runs a block has, and how many threads."""
    if threads is None:
        threads = WARP if workers <= WARP and WARP % workers <= WARP // 8 else 4 * WARP
    threads = max(threads, -(-workers // WARP) * WARP)
    return (threads // workers, threads) if workers <= WARP else (1, -(-workers // WARP) * WARP)


def _private(shape: Shape) -> dict[str, int]:
    """How many numbers each array of a worker has."""
    tokens, spare = shape.length + 1, max(shape.width, shape.rank, shape.d)
    counts = (shape.d, tokens, tokens, tokens, spare, shape.n, shape.d)
    return {f"work_{name}": count for name, count in zip(_PRIVATE, counts, strict=True)}


def _common(shape: Shape) -> dict[str, int]:
    """How many numbers each array has that the workers of a run share."""
    rows = {"work_rows": shape.n * shape.d, "work_scales": shape.n, "work_boards_0": shape.n}
    if in_span(shape):
        return rows
    first, second = shape.d * (shape.rank or shape.dq), shape.dq * shape.rank
    moments = shape.rule == kernel_task.ADAM
    return rows | {
        "work_boards_1": shape.n,
        "first": first,
        "second": second,
        "work_gradients_0": first,
        "work_gradients_1": second,
        "work_inner": shape.n * shape.rank,
        "work_back": shape.n * shape.rank,
        "memories_0": 2 + 2 * first * moments,
        "memories_1": 2 + 2 * second * moments,
    }


def scratch_of(shape: Shape, runs: int) -> int:
    """Numbers of global memory that a block needs since they do not fit into shared memory; 0 if they do."""
    needed = runs * _per_run(shape)
    return 0 if 8 * needed <= _SHARED_BYTES else needed


def _per_run(shape: Shape) -> int:
    return sum(_common(shape).values()) | 1  # odd, so that runs begin in different banks


def _constants(shape: Shape) -> dict[str, float]:
    """Values of the names that are known before the kernel is compiled."""
    known: dict[str, float] = {f"shape.{name}": value for name, value in shape._asdict().items()}
    known |= {"place.own": 1, "place.workers": shape.n * shape.parts}
    return known | {name: getattr(kernel_task, name) for name in vars(kernel_task) if name.isupper()}


def text_of(shape: Shape, runs: int, registers: Iterable[str]) -> str:
    """The kernel in Python."""
    span, kept, tokens = in_span(shape), frozenset(registers), shape.length * shape.d
    lines = [
        "tid = cuda.threadIdx.x",
        f"group = tid // {shape.n * shape.parts}",
        f"number = cuda.blockIdx.x * {runs} + group",
        f"if group >= {runs} or number >= which.shape[0]:",
        "    return",
        f"place_worker = tid - group * {shape.n * shape.parts}",
        f"place_first = place_worker // {shape.parts}",
        "run = which[number]",
        "element = run % tokens.shape[0]",
        "length = lengths[run]",
        "stalled = stalls[run:run + 1]",
        "data_scores = scores[element, :, place_worker]",
        "data_features = features[element, :, place_worker]",
        "data_labels = labels[element, place_first:place_first + 1]",
        "data_queries = queries[element]",
        f"space = {'scratch[cuda.blockIdx.x]' if scratch_of(shape, runs) else 'cuda.shared.array(SPACE, float64)'}",
    ]
    at = 0
    for name, count in _common(shape).items():
        lines.append(f"{name} = space[group * {_per_run(shape)} + {at}:group * {_per_run(shape)} + {at + count}]")
        at += count
    for name, count in _private(shape).items():
        if name not in kept:
            lines.append(f"{name} = cuda.local.array({max(count, 1)}, float64)")
    if "data_tokens" in kept:
        lines += [f"data_tokens_{k} = tokens[element, {k}, place_worker]" for k in range(tokens)]
    else:
        lines.append("data_tokens = tokens[element, :, place_worker]")
    own = f"place_first * {shape.d}"
    if span:
        lines.append(f"products = inners[element, place_first * {shape.n}:(place_first + 1) * {shape.n}]")
        if "work_directions" in kept:
            lines += [f"work_directions_{j} = starts[run, {own} + {j}]" for j in range(shape.d)]
        else:
            lines += [f"for j in range({shape.d}):", f"    work_directions[j] = starts[run, {own} + j]"]
        if "moved" in kept:
            lines += [f"moved_{j} = 0.0" for j in range(shape.d)]
        else:
            lines.append(f"moved = ends[run, {own}:{own} + {shape.d}]")
    else:
        for name, source in (
            ("first", "firsts"),
            ("second", "seconds"),
            ("memories_0", "kept_0"),
            ("memories_1", "kept_1"),
        ):
            lines += [
                f"for k in range(place_worker, {_common(shape)[name]}, {shape.n * shape.parts}):",
                f"    {name}[k] = {source}[run, k]",
            ]
        lines.append("barrier()")
    lines = [f"    {line}" for line in lines]
    entry = "descend_span" if span else "descend_matrices"
    lines.append(body_text(step, entry, _constants(shape), kept, ["rows_of"], _HELPERS))
    if span and "moved" in kept:
        lines += [f"    ends[run, {own} + {j}] = moved_{j}" for j in range(shape.d)]
    if not span:
        for name, source in (
            ("first", "firsts"),
            ("second", "seconds"),
            ("memories_0", "kept_0"),
            ("memories_1", "kept_1"),
        ):
            lines += [
                f"    for k in range(place_worker, {_common(shape)[name]}, {shape.n * shape.parts}):",
                f"        {source}[run, k] = {name}[k]",
            ]
    arguments = "starts, ends, inners" if span else "firsts, seconds, kept_0, kept_1"
    head = (
        f"def kernel(tokens, scores, features, labels, queries, {arguments}, sizes, lengths, which, stalls, scratch):\n"
    )
    return head + "\n".join(lines) + "\n"


@cache
def build(shape: Shape, threads: int | None, registers: frozenset[str] | None = None, most: int | None = None) -> Any:
    """The kernel of one shape, and how many runs and threads a block has; Numba compiles it at first use.

    `registers` names the arrays to be kept in registers, `most` bounds those of a thread.
    """
    runs, threads = runs_of(shape.n * shape.parts, threads)
    words = _words(shape)
    words["SPACE"] = runs * _per_run(shape)
    for name in _HELPERS:
        exec(helper_text(step, name, _constants(shape), _HELPERS), words)
        words[name] = cuda.jit(words[name], device=True)
    exec(text_of(shape, runs, registers_of(shape) if registers is None else registers), words)
    return (cuda.jit(words["kernel"]) if most is None else cuda.jit(words["kernel"], max_registers=most)), runs, threads


def _words(shape: Shape) -> dict[str, Any]:
    """What the words of `lanes` mean for one thread."""
    n, parts = shape.n, shape.parts

    def device(function: Any) -> Any:
        return cuda.jit(function, device=True)

    @device
    def over_parts(x):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            x += cuda.shfl_xor_sync(_ALL_LANES, x, lanes)
            lanes *= 2
        return x

    @device
    def highest_over_parts(x):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            other = cuda.shfl_xor_sync(_ALL_LANES, x, lanes)
            x = other if other > x else x
            lanes *= 2
        return x

    @device
    def run_sum(x, board, i):  # type: ignore[no-untyped-def]
        board[i] = over_parts(x)
        cuda.syncthreads()
        total = board[0]
        for other in range(1, n):
            total += board[other]
        return total

    return {
        **{name: getattr(module, name) for module in (step,) for name in vars(module) if name.isupper()},
        "cuda": cuda,
        "math": math,
        "float64": float64,
        "over_parts": over_parts,
        "highest_over_parts": highest_over_parts,
        "run_sum": run_sum,
        "barrier": device(lambda: cuda.syncthreads()),
        "exponential": math.exp,
        "root": math.sqrt,
        "absolute": abs,
        "where_equal": device(lambda a, b, x, y: x if a == b else y),
        "where_greater": device(lambda a, b, x, y: x if a > b else y),
    }
