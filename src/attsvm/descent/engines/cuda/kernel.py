"""CUDA kernels in Numba, made from the text of `step`: a thread is a worker, a whole stretch of steps one launch.

A run has `parts` threads for each of its inputs. For many runs a kernel is made for their very sizes: where they fit,
tokens stay in registers, and in shared memory what these do not hold. For fewer runs all sizes share a kernel that is
told them, so that the compiler works once. What the threads of a run tell each other goes through shared memory, or
through global memory where that is too small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from numba import cuda, float64, uint64

from attsvm.data import TokenDataset
from attsvm.data.kernel_text import counting_text
from attsvm.descent.engines import kernel_task, matrices, step
from attsvm.descent.engines.cuda.source import SIZES, body_text, helper_text
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
        unrolled: whether sizes are constants, and loops may be written out: it takes the compiler longer, and the steps
            are many times as fast.
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
        if self.shape.rule == kernel_task.SPECTRAL:  # `anywhere` asks the runs of a warp, or all workers of one run
            asked = WARP
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
        """How many numbers each array of a worker has, that it computes with; room for many sizes where they share."""
        shape, tokens = self.shape, self.shape.length + 1
        counts = {"work_factors": shape.n, "work_logits": tokens, "work_shares": tokens}
        counts |= {"work_worths": tokens, "work_spare": shape.width}
        if not self.unrolled:
            return {name: max(WARP, 1 << (count - 1).bit_length()) for name, count in counts.items()}
        counts |= dict.fromkeys(("work_directions", "work_pulled"), shape.d)
        return {name: max(1, count) for name, count in counts.items()}

    @cached_property
    def registers(self) -> dict[str, int]:
        """How many numbers of which arrays are variables."""
        if not self.small:
            return {}
        walked = () if in_span(self.shape) else ("work_factors",)  # `update` goes through these by number
        held = {name: count for name, count in self.private.items() if name not in walked}
        return {**held, "data_tokens": min(self.tokens, self.shape.length * self.shape.d)}

    @cached_property
    def wanted(self) -> dict[str, tuple[int, str]]:
        """Arrays of a worker that belong in shared memory: how many numbers, and where number k comes from, if it does.

        What is read most often comes first.
        """
        shape, held, tokens = self.shape, self.registers.get("data_tokens", 0), self.shape.length + 1
        found = {
            "data_tokens": (shape.length * shape.d - held, f"tokens[element, k + {held}, place_worker]"),
            "data_scores": (tokens, "scores[element, k, place_worker]"),
            # From global memory the compiler would fetch them once for all steps, and spill them.
            "data_features": (tokens * shape.width, "features[element, k, place_worker]"),
        }
        if in_span(shape):
            n = shape.n if self.unrolled else "shape_n"
            found["products"] = (shape.n, f"inners[element, place_first * {n} + k]")
        if not self.unrolled:
            counts = {"work_factors": shape.n, "work_logits": tokens, "work_shares": tokens}
            counts |= {"work_worths": tokens, "work_spare": shape.width} if shape.width else {}
            return {name: (count, "") for name, count in counts.items()} | found
        return found | ({"moved": (shape.d, "")} if in_span(shape) else {})

    @cached_property
    def near(self) -> dict[str, int]:
        """Where the wanted arrays that fit begin among a worker's numbers in shared memory: all of them or none, where
        loops are written out, else as many as fit."""
        found: dict[str, int] = {}
        at = 0
        for name, (count, _) in self.wanted.items():
            if 8 * (self.runs * self.per_run + self.threads * ((at + count) | 1)) <= _SHARED_BYTES:
                found[name] = at
                at += count
        every = len(found) == len(self.wanted)
        return found if (every and self.small) or not self.unrolled else {}

    @property
    def each(self) -> int:
        """Numbers of a worker in shared memory; odd, so that workers begin in different banks."""
        return sum(self.wanted[name][0] for name in self.near) | 1

    @cached_property
    def common(self) -> dict[str, int]:
        """How many numbers each array has that the workers of a run share."""
        shape = self.shape
        rows = {"work_rows": shape.n * shape.d, "work_scales": shape.n, "work_boards_0": shape.n}
        rows |= dict.fromkeys(self.vectors, shape.n * (shape.d | 1))
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
    def vectors(self) -> tuple[str, ...]:
        """Vectors that the workers of an input share; where loops are written out, each has its own in registers."""
        vectors = ("work_directions", "work_pulled", "moved") if in_span(self.shape) else ("work_directions",)
        return () if self.unrolled else vectors

    @property
    def per_run(self) -> int:
        """Numbers that the workers of a run share; odd, so that runs begin in different banks."""
        return sum(self.common.values()) | 1

    @property
    def space(self) -> int:
        """Numbers of a block."""
        return self.runs * self.per_run + (self.threads * self.each if self.near else 0)

    @property
    def scratch(self) -> int:
        """Numbers of global memory that a block needs since they do not fit into shared memory; 0 if they do."""
        return 0 if 8 * self.space <= _SHARED_BYTES else self.space

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Sizes by the names that they have in a kernel to which they are told."""
        sizes = {f"shape_{name}": getattr(self.shape, name) for name in SIZES}
        sizes |= {"place_workers": self.workers, "runs": self.runs, "per_run": self.per_run, "each": self.each}
        counts = self.common | {name: count for name, (count, _) in self.wanted.items()}
        places = {f"at_{name}": self.near.get(name, -1) for name in self.wanted}
        return sizes | places | {f"count_{name}": count for name, count in counts.items()}

    def text(self) -> str:
        """The kernel in Python."""
        span, sized = in_span(self.shape), self.unrolled
        say = {name: str(number) if sized else name for name, number in self.numbers.items()}
        n, d, parts, workers = (say[name] for name in ("shape_n", "shape_d", "shape_parts", "place_workers"))
        own = "starts, ends, inners" if span else "firsts, seconds, kept_0, kept_1"
        given = "sizes, lengths, which, stalls, scratch, numbers"
        lines = [
            f"def kernel(tokens, scores, features, labels, queries, {own}, {given}):",
            *(f"{name} = numbers[{k}]" for k, name in enumerate(self.numbers) if not sized),
            "tid = cuda.threadIdx.x",
            f"group = tid // {workers}",
            f"number = cuda.blockIdx.x * {say['runs']} + group",
            f"if group >= {say['runs']} or number >= which.shape[0]:",
            "    return",
            f"place_worker = tid - group * {workers}",
            f"place_first = place_worker // {parts}",
            f"place_part = place_worker - place_first * {parts}",
            f"place_begin, place_stride = {'0, 1' if sized else f'place_part, {parts}'}",
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
        local = {name: count for name, count in self.private.items() if name not in self.registers}
        if span:
            lines.append(f"products = inners[element, place_first * {n}:(place_first + 1) * {n}]")
            local |= {"moved": self.shape.d} if sized and not self.near else {}
        lines += [f"{name} = cuda.local.array({count}, float64)" for name, count in local.items()]
        at = f"group * {say['per_run']}"
        for name in self.common:
            lines.append(f"{name} = space[{at}:{at} + {say[f'count_{name}']}]")
            at += f" + {say[f'count_{name}']}"
        row = f"place_first * ({d} | 1)"
        lines += [f"{name} = {name}[{row}:{row} + {d}]" for name in self.vectors]
        for name, (_, source) in self.wanted.items():
            if not sized or name in self.near:
                at = f"{say['runs']} * {say['per_run']} + tid * {say['each']} + {say[f'at_{name}']}"
                placed = [f"{name} = space[{at}:{at} + {say[f'count_{name}']}]"]
                if source:
                    placed += [f"for k in range({say[f'count_{name}']}):", f"    {name}[k] = {source}"]
                lines += placed if sized else [f"if at_{name} >= 0:", *(f"    {line}" for line in placed)]
        held = self.registers.get("data_tokens", 0)
        lines += [f"data_tokens_{k} = tokens[element, {k}, place_worker]" for k in range(held)]
        matrices = (("first", "firsts"), ("second", "seconds"), ("memories_0", "kept_0"), ("memories_1", "kept_1"))
        queries = (("data_queries", "queries"),)
        mine = [f"for j in range(place_begin, {d}, place_stride):", f"    k = place_first * {d} + j"]
        if span and self.small:
            lines += [f"work_directions_{j} = starts[run, place_first * {d} + {j}]" for j in range(self.shape.d)]
            lines += [*mine[:1], "    moved[j] = 0.0"]
        elif span:
            lines += [*mine, "    work_directions[j] = starts[run, k]", "    moved[j] = 0.0"]
        else:
            for name, source in (*matrices, *queries):
                lines.append(f"for k in range(place_worker, {say[f'count_{name}']}, {workers}):")
                lines.append(f"    {name}[k] = {source}[{'element' if source == 'queries' else 'run'}, k]")
        lines.append("barrier()")
        entry = "descend_span" if span else "descend_matrices"
        lines += body_text(_TEXT[entry], self.constants, self.registers, [_TEXT["rows_of"]], _HELPERS)
        lines += [*mine, "    ends[run, k] = moved[j]"] if span else []
        for name, source in () if span else matrices:
            lines.append(f"for k in range(place_worker, {say[f'count_{name}']}, {workers}):")
            lines.append(f"    {source}[run, k] = {name}[k]")
        return "\n    ".join(lines) + "\n"

    @cached_property
    def constants(self) -> dict[str, float | None]:
        """Values of the names that are known before the kernel is compiled."""
        shape = self.shape if self.unrolled else self.shape._replace(masked=1)  # which is right for all
        known: dict[str, float | None] = {f"shape.{name}": value for name, value in shape._asdict().items()}
        known |= {"place.own": 1, "place.workers": self.workers}
        known |= {"place.begin": 0, "place.stride": 1} if self.unrolled else {}
        if not self.unrolled:
            known = {name: value for name, value in known.items() if name.replace(".", "_") not in self.numbers}
            known |= {"shape.rank > 0": shape.rank > 0, "shape.width > 0": shape.width > 0}
        if self.shape.rule != kernel_task.SPECTRAL:
            known["work.rotated"] = None
        return known | {name: value for name, value in vars(kernel_task).items() if isinstance(value, int | float)}


def build(plan: Plan) -> Any:
    """The kernel of a plan; Numba compiles it at first use."""
    # The driver refuses a block whose threads, rounded up to four warps, want more registers than there are.
    share = _REGISTERS // (-(-plan.threads // (4 * WARP)) * 4 * WARP) // 8 * 8
    alone, space = plan.unrolled and plan.threads == WARP, plan.space if plan.unrolled else 0
    return _built(plan.text(), tuple(plan.constants.items()), alone, space, min(plan.most, share))


@cache
def _built(text: str, constants: tuple[tuple[str, float | None], ...], alone: bool, space: int, registers: int) -> Any:
    words = {**_common_words(), **_words(alone), "SPACE": space}
    for name in _HELPERS:
        _define(words, name, dict(constants))
    exec(counting_text(text), words)
    return cuda.jit(words["kernel"], lto=False, max_registers=registers)  # optimized once, not again when linked


def _define(words: dict[str, Any], name: str, constants: Mapping[str, float | None]) -> None:
    """Make a function of the text one of the words for the GPU."""
    exec(counting_text("\n    ".join(helper_text(_TEXT[name], constants, (*_HELPERS, *_WITHOUT_SIZES)))), words)
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
        "uint64": uint64,
        "power_of_two": power_of_two,
        "root": math.sqrt,
        "absolute": abs,
        "where_equal": cuda.jit(lambda a, b, x, y: x if a == b else y, device=True),
        "where_greater": cuda.jit(lambda a, b, x, y: x if a > b else y, device=True),
    }
    for name in ("exponential", *_WITHOUT_SIZES):
        _define(words, name, {})
    return words


@cache
def _words(alone: bool) -> dict[str, Any]:
    """What the words of `lanes` mean for one of several threads; `alone` says that a block is one warp."""

    def device(function: Any) -> Any:
        return cuda.jit(function, device=True)

    @device
    def barrier():  # type: ignore[no-untyped-def]
        if alone:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    @device
    def own_lanes(parts):  # type: ignore[no-untyped-def]
        """The threads of this input, who alone are sure to come the same way."""
        return ((1 << parts) - 1) << ((cuda.threadIdx.x % WARP) // parts * parts)

    @device
    def over_parts(x, parts):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            x += cuda.shfl_xor_sync(own_lanes(parts), x, lanes)
            lanes *= 2
        return x

    @device
    def highest_over_parts(x, parts):  # type: ignore[no-untyped-def]
        lanes = 1
        while lanes < parts:
            other = cuda.shfl_xor_sync(own_lanes(parts), x, lanes)
            x = other if other > x else x
            lanes *= 2
        return x

    @device
    def run_sum(x, board, i, n, parts):  # type: ignore[no-untyped-def]
        board[i] = over_parts(x, parts)
        barrier()
        total = board[0]
        for other in range(1, n):
            total += board[other]
        return total

    @device
    def anywhere(x, board, i, n):  # type: ignore[no-untyped-def]
        # Not syncthreads_or: a warp that some threads have left hangs there, or meets an illegal instruction.
        voted = cuda.any_sync(0xFFFFFFFF, x > 0.0)
        found = run_sum(1.0 if voted else 0.0, board, i, n, 1) > 0.0
        barrier()
        return found

    found = {"barrier": barrier, "anywhere": anywhere, "run_sum": run_sum}
    return {**found, "over_parts": over_parts, "highest_over_parts": highest_over_parts}
