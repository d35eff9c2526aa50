"""CUDA kernels in Numba, made from the text of `step`: a thread is a worker, a whole stretch of steps one launch.

A run has `parts` threads for each of its inputs. Where they fit, tokens stay in registers, and in shared memory what
these do not hold; what the threads of a run tell each other goes through shared memory, or through global memory where
that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from numba import config, cuda, float64

from attsvm.data import TokenDataset
from attsvm.descent.engines import kernel_task, matrices, step
from attsvm.descent.engines.cuda.source import body_text, helper_text
from attsvm.descent.engines.numba import lanes
from attsvm.descent.engines.step import Shape

WARP = 32
_REGISTERS = 65_536  # of a multiprocessor, which all threads of a block must share
_SHARED_BYTES = 48 * 1024  # what a block may use without asking
_MOST_TOKENS = 80  # numbers of a worker's tokens that registers and shared memory hold
_IN_REGISTERS = 70  # of those in registers
_MOST_UNROLLED = 400  # terms of a sum over inputs that are written out
_TEXT = {**vars(lanes), **vars(matrices), **vars(step)}
# Functions of the text that are called: compiled for each shape, and those that know no sizes.
_POLAR = ("rotated_rows", "outer_rows", "orthogonalize", "polar_factor")
_HELPERS = ("outer_norm", "images", "common_scale", "update", *_POLAR)
_WITHOUT_SIZES = ("inverse_of", "stored_norm", "squared", "blended")


def in_span(shape: Shape) -> bool:
    """Whether `descend_span` can take the steps, and is cheaper: n^2 d against 2 n d dq products, fewer barriers."""
    plain = shape.rank == 0 and not shape.ridge and shape.decay == 0.0
    return plain and shape.rule in (kernel_task.NORMALIZED, kernel_task.PLAIN) and shape.n <= max(16, 2 * shape.dq)


def parts_of(data: TokenDataset) -> int:
    """How many threads share the tokens of an input, but for the first of them: as few as hold them."""
    parts, length = 1, data.T - 1
    while parts < min(WARP, length) and 2 * parts * data.n <= 1024 and -(-length // parts) * data.d > _MOST_TOKENS:
        parts *= 2
    return parts


@dataclass(frozen=True)
class Plan:
    """Where the numbers of a kernel are.

    Arguments:
        shape: of the runs.
        threads_asked: of a block, or None.
        tokens: how many numbers of a worker's tokens are kept in registers.
        most: bounds the registers of a thread.
        unrolled: whether loops may be written out: a few seconds more for the compiler, two to three times the speed.
    """

    shape: Shape
    threads_asked: int | None = None
    tokens: int = _IN_REGISTERS
    most: int = 255
    unrolled: bool = True

    @property
    def workers(self) -> int:
        """Threads of a run."""
        return self.shape.n * self.shape.parts

    @property
    def runs(self) -> int:
        """Runs of a block."""
        return self.threads // self.workers if self.workers <= WARP else 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        few = self.workers <= WARP and WARP % self.workers <= WARP // 4
        asked = self.threads_asked or (WARP if few else 4 * WARP)
        needed = -(-self.workers // WARP) * WARP
        return max(asked, needed) if self.workers <= WARP else needed

    @property
    def small(self) -> bool:
        """Whether loops are written out, so that registers can hold what a worker needs."""
        shape = self.shape
        across = shape.n * shape.d if in_span(shape) else shape.d
        features = shape.width * (shape.length + 1)
        short = across <= _MOST_UNROLLED and features <= 2 * _MOST_TOKENS
        return self.unrolled and short and shape.length * shape.d <= _MOST_TOKENS

    @cached_property
    def private(self) -> dict[str, int]:
        """How many numbers each array of a worker has, that it computes with."""
        shape = self.shape
        tokens = shape.length + 1
        counts = {"directions": shape.d, "logits": tokens, "shares": tokens, "worths": tokens, "spare": shape.width}
        counts |= {"factors": shape.n, "pulled": shape.d}
        return {f"work_{name}": max(1, count) for name, count in counts.items()}

    @cached_property
    def registers(self) -> dict[str, int]:
        """How many numbers of which arrays are variables."""
        if not self.small:
            return {}
        walked = () if in_span(self.shape) else ("work_factors",)  # `update` goes through these by number
        held = {name: count for name, count in self.private.items() if name not in walked}
        return {**held, "data_tokens": min(self.tokens, self.shape.length * self.shape.d)}

    @cached_property
    def near(self) -> dict[str, tuple[int, str]]:
        """Arrays of a worker in shared memory: how many numbers, and where number k is in the beginning."""
        shape = self.shape
        held = self.registers.get("data_tokens", 0)
        found = {
            "data_tokens": (shape.length * shape.d - held, f"tokens[element, k + {held}, place_worker]"),
            "data_scores": (shape.length + 1, "scores[element, k, place_worker]"),
            # From global memory the compiler would fetch them once for all steps, and spill them.
            "data_features": ((shape.length + 1) * shape.width, "features[element, k, place_worker]"),
        }
        if in_span(shape):
            found |= {
                "products": (shape.n, f"inners[element, place_first * {shape.n} + k]"),
                "moved": (shape.d, "0.0"),
            }
        each = sum(count for count, _ in found.values())
        fits = 8 * (self.runs * self.per_run + self.threads * (each | 1)) <= _SHARED_BYTES
        return found if self.small and fits else {}

    @cached_property
    def common(self) -> dict[str, int]:
        """How many numbers each array has that the workers of a run share."""
        shape = self.shape
        rows = {"work_rows": shape.n * shape.d, "work_scales": shape.n, "work_boards_0": shape.n}
        if in_span(shape):
            return rows
        first, second = shape.d * (shape.rank or shape.dq), shape.dq * shape.rank
        moments = shape.rule == kernel_task.ADAM
        factors = {"work_inner": shape.n * shape.rank, "work_back": shape.n * shape.rank}
        memories = {"memories_0": 2 + 2 * first * moments, "memories_1": 2 + 2 * second * moments}
        gradients = {"work_gradients_0": first, "work_gradients_1": second, "work_boards_1": shape.n}
        images = {"work_images": shape.n * shape.d, "data_queries": shape.n * shape.dq}
        images |= {"work_rotated": matrices.rotated_numbers(shape)}
        return rows | images | {"first": first, "second": second} | gradients | factors | memories

    @property
    def per_run(self) -> int:
        """Numbers that the workers of a run share; odd, so that runs begin in different banks."""
        return sum(self.common.values()) | 1

    @property
    def space(self) -> int:
        """Numbers of a block."""
        each = sum(count for count, _ in self.near.values()) | 1
        return self.runs * self.per_run + (self.threads * each if self.near else 0)

    @property
    def scratch(self) -> int:
        """Numbers of global memory that a block needs since they do not fit into shared memory; 0 if they do."""
        return 0 if 8 * self.space <= _SHARED_BYTES else self.space

    def text(self) -> str:
        """The kernel in Python."""
        shape, span, d = self.shape, in_span(self.shape), self.shape.d
        own = "starts, ends, inners" if span else "firsts, seconds, kept_0, kept_1"
        lines = [
            f"def kernel(tokens, scores, features, labels, queries, {own}, sizes, lengths, which, stalls, scratch):",
            "tid = cuda.threadIdx.x",
            f"group = tid // {self.workers}",
            f"number = cuda.blockIdx.x * {self.runs} + group",
            f"if group >= {self.runs} or number >= which.shape[0]:",
            "    return",
            f"place_worker = tid - group * {self.workers}",
            f"place_first = place_worker // {shape.parts}",
            f"place_part = place_worker - place_first * {shape.parts}",
            "run = which[number]",
            "element = run % tokens.shape[0]",
            "length = lengths[run]",
            "stalled = stalls[run:run + 1]",
            "data_scores = scores[element, :, place_worker]",
            "data_tokens = tokens[element, :, place_worker]",
            "data_features = features[element, :, place_worker]",
            "data_labels = labels[element, place_first:place_first + 1]",
            "data_queries = queries[element]",
            f"space = {'scratch[cuda.blockIdx.x]' if self.scratch else 'cuda.shared.array(SPACE, float64)'}",
        ]
        if span:
            lines.append(f"products = inners[element, place_first * {shape.n}:(place_first + 1) * {shape.n}]")
            lines.append(f"moved = ends[run, place_first * {d}:(place_first + 1) * {d}]")
        at = 0
        for name, count in self.common.items():
            start = f"group * {self.per_run} + {at}"
            lines.append(f"{name} = space[{start}:{start} + {count}]")
            at += count
        at, each = self.runs * self.per_run, sum(count for count, _ in self.near.values()) | 1
        for name, (count, source) in self.near.items():
            start = f"tid * {each} + {at}"
            lines.append(f"{name} = space[{start}:{start} + {count}]")
            lines += [f"for k in range({count}):", f"    {name}[k] = {source}"]
            at += count
        held = self.registers.get("data_tokens", 0)
        lines += [f"data_tokens_{k} = tokens[element, {k}, place_worker]" for k in range(held)]
        lines += [
            f"{name} = cuda.local.array({count}, float64)"
            for name, count in self.private.items()
            if name not in self.registers
        ]
        matrices = (("first", "firsts"), ("second", "seconds"), ("memories_0", "kept_0"), ("memories_1", "kept_1"))
        queries = (("data_queries", "queries"),)
        if span and self.small:
            lines += [f"work_directions_{j} = starts[run, place_first * {d} + {j}]" for j in range(d)]
        elif span:
            lines += [f"for j in range({d}):", f"    work_directions[j] = starts[run, place_first * {d} + j]"]
        else:
            for name, source in (*matrices, *queries):
                lines.append(f"for k in range(place_worker, {self.common[name]}, {self.workers}):")
                lines.append(f"    {name}[k] = {source}[{'element' if source == 'queries' else 'run'}, k]")
            lines.append("barrier()")
        entry = "descend_span" if span else "descend_matrices"
        lines += body_text(_TEXT[entry], self.constants, self.registers, [_TEXT["rows_of"]], _HELPERS)
        if span and self.near:
            lines += [f"for j in range({d}):", f"    ends[run, place_first * {d} + j] = moved[j]"]
        for name, source in () if span else matrices:
            lines.append(f"for k in range(place_worker, {self.common[name]}, {self.workers}):")
            lines.append(f"    {source}[run, k] = {name}[k]")
        return "\n    ".join(lines) + "\n"

    @cached_property
    def constants(self) -> dict[str, float | None]:
        """Values of the names that are known before the kernel is compiled."""
        known: dict[str, float | None] = {f"shape.{name}": value for name, value in self.shape._asdict().items()}
        known |= {"place.own": 1, "place.workers": self.workers}
        if self.shape.rule != kernel_task.SPECTRAL:
            known["work.rotated"] = None
        return known | {name: getattr(kernel_task, name) for name in vars(kernel_task) if name.isupper()}


@cache
def build(plan: Plan) -> Any:
    """The kernel of a plan; Numba compiles it at first use."""
    words = {**_common_words(), **_words(plan)}
    for name in _HELPERS:
        _define(words, name, plan.constants)
    exec(plan.text(), words)
    # The driver refuses a block whose threads, rounded up to four warps, want more registers than there are.
    share = _REGISTERS // (-(-plan.threads // (4 * WARP)) * 4 * WARP) // 8 * 8
    options = {} if config.ENABLE_CUDASIM else {"max_registers": min(plan.most, share)}
    return cuda.jit(words["kernel"], **options)


def _define(words: dict[str, Any], name: str, constants: Mapping[str, float | None]) -> None:
    """Make a function of the text one of the words for the GPU."""
    exec("\n    ".join(helper_text(_TEXT[name], constants, (*_HELPERS, *_WITHOUT_SIZES))), words)
    words[name] = cuda.jit(words[name], device=True)


@cache
def _common_words() -> dict[str, Any]:
    """The words that mean the same in all kernels, and are compiled once."""

    @cuda.jit(device=True)
    def power_of_two(shifted):  # type: ignore[no-untyped-def]
        return cuda.libdevice.hiloint2double((cuda.libdevice.double2loint(shifted) + 1023) << 20, 0)

    words: dict[str, Any] = {
        **{name: value for name, value in _TEXT.items() if name.isupper()},
        "cuda": cuda,
        "math": math,
        "float64": float64,
        "exponential": math.exp,  # in the simulator
        "power_of_two": power_of_two,
        "root": math.sqrt,
        "absolute": abs,
        "where_equal": cuda.jit(lambda a, b, x, y: x if a == b else y, device=True),
        "where_greater": cuda.jit(lambda a, b, x, y: x if a > b else y, device=True),
    }
    if not config.ENABLE_CUDASIM:
        _define(words, "exponential", {})
    for name in _WITHOUT_SIZES:
        _define(words, name, {})
    return words


def _words(plan: Plan) -> dict[str, Any]:
    """What the words of `lanes` mean for one of several threads."""
    n, parts, alone = plan.shape.n, plan.shape.parts, plan.threads == WARP

    def device(function: Any) -> Any:
        return cuda.jit(function, device=True)

    @device
    def barrier():  # type: ignore[no-untyped-def]
        if alone:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    @device
    def anywhere(x):  # type: ignore[no-untyped-def]
        return cuda.syncthreads_or(1 if x > 0.0 else 0) != 0

    @device
    def own_lanes():  # type: ignore[no-untyped-def]
        """The threads of this input, who alone are sure to come the same way."""
        return ((1 << parts) - 1) << ((cuda.threadIdx.x % WARP) // parts * parts)

    @device
    def over_parts(x):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            x += cuda.shfl_xor_sync(own_lanes(), x, lanes)
            lanes *= 2
        return x

    @device
    def highest_over_parts(x):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            other = cuda.shfl_xor_sync(own_lanes(), x, lanes)
            x = other if other > x else x
            lanes *= 2
        return x

    @device
    def run_sum(x, board, i):  # type: ignore[no-untyped-def]
        board[i] = over_parts(x)
        barrier()
        total = board[0]
        for other in range(1, n):
            total += board[other]
        return total

    found = {"barrier": barrier, "anywhere": anywhere, "run_sum": run_sum, "SPACE": plan.space}
    return {**found, "over_parts": over_parts, "highest_over_parts": highest_over_parts}
