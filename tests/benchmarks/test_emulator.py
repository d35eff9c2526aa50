"""The emulator computes what a kernel says, and sees what a GPU would not forgive."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from benchmarks.emulator import Counts
from benchmarks.kernels import Emulated
from benchmarks.ptx import Program, PtxError

from lockstep import can_compile

can_compile()
from numba import cuda, float64, int64  # noqa: E402

X = np.array([3.5, -2.25, 0.0, np.nan, 1e300, -7.0, 0.5, 9.0])
N = np.array([5, -3, 0, 7, 2**62, -(2**40), 11, -1])


def run(kernel: Any, *arguments: Any, threads: int = 8, shared: int = 0, blocks: int = 1) -> Counts:
    """The scratch of a launch, last but one, is one number here."""
    emulated = Emulated(kernel)
    emulated[blocks, threads, 0, shared](*arguments, np.zeros(1), 0)
    return emulated.counts


def numbers(x, n, found, whole, scratch, nothing):
    t = cuda.threadIdx.x
    a, b, k, m = x[t], x[(t + 1) % 8], n[t], n[(t + 3) % 8]
    found[0, t], found[1, t], found[2, t] = a * b + 1.5, a / b, math.sqrt(abs(a))
    found[3, t], found[4, t] = (a if a > b else b), (1.0 if a != b else 2.0)
    found[5, t], found[6, t], found[7, t] = float(k), min(a, b), max(a, b)
    whole[0, t], whole[1, t], whole[2, t] = k + m, k * m, k - m
    whole[3, t], whole[4, t] = (k // m if m != 0 else 99), (k % m if m != 0 else 99)
    whole[5, t], whole[6, t] = k >> 3, k << 2
    whole[7, t], whole[8, t] = (k & m) ^ (k | 12), int(a) if abs(a) < 1e9 else -1


def test_numbers_are_those_of_numpy() -> None:
    found, whole = np.empty((8, 8)), np.empty((9, 8), dtype=np.int64)
    run(cuda.jit(numbers), X, N, found, whole)
    a, b, k, m = X, np.roll(X, -1), N, np.roll(N, -3)
    with np.errstate(all="ignore"):
        expected = [a * b + 1.5, a / b, np.sqrt(np.abs(a)), np.where(a > b, a, b), np.where(a != b, 1.0, 2.0), k]
        np.testing.assert_array_equal(found[:6], np.array(expected, dtype=float))
        sure = ~np.isnan(a + b)
        np.testing.assert_array_equal(found[6:, sure], np.array([np.minimum(a, b), np.maximum(a, b)])[:, sure])
        quotient, rest = np.where(m != 0, k // np.where(m, m, 1), 99), np.where(m != 0, k % np.where(m, m, 1), 99)
        near = np.where(np.abs(a) < 1e9, np.nan_to_num(np.trunc(a), posinf=0, neginf=0), -1)
    expected = [k + m, k * m, k - m, quotient, rest, k >> 3, k << 2, (k & m) ^ (k | 12)]
    np.testing.assert_array_equal(whole[:8], np.array(expected))
    np.testing.assert_array_equal(whole[8], np.clip(near, -(2.0**40), 2.0**40).astype(np.int64))


@cuda.jit
def neighbours(seen, kind, scratch, nothing):
    """Each thread reads what its neighbour writes: after a barrier (1), a barrier of the warp (2), or none (0)."""
    board, t = cuda.shared.array(64, float64), cuda.threadIdx.x
    board[t] = 1.0 + t
    if kind == 1:
        cuda.syncthreads()
    if kind == 2:
        cuda.syncwarp()
    seen[t] = board[(t + 1) % cuda.blockDim.x]


@pytest.mark.parametrize(("kind", "threads"), [(1, 32), (1, 64), (2, 32)])
def test_neighbours_wait(kind: int, threads: int) -> None:
    seen = np.zeros(threads)
    run(neighbours, seen, kind, threads=threads)
    np.testing.assert_array_equal(seen, 1.0 + (np.arange(threads) + 1) % threads)


@pytest.mark.parametrize(("kind", "threads"), [(0, 32), (0, 64), (2, 64)])
def test_neighbours_that_do_not_wait_are_a_race(kind: int, threads: int) -> None:
    with pytest.raises(PtxError, match=r"reads what another one wrote since the last barrier: ld\.shared"):
        run(neighbours, np.zeros(threads), kind, threads=threads)


@cuda.jit
def overwritten(seen, kind, scratch, nothing):
    board, t = cuda.shared.array(8, float64), cuda.threadIdx.x
    board[t] = t
    cuda.syncthreads()
    seen[t] = board[t ^ 1]
    if kind == 1:
        cuda.syncthreads()
    board[t] = -1.0 - t


def test_writing_what_others_have_just_read_is_a_race() -> None:
    run(overwritten, np.zeros(8), 1)
    with pytest.raises(PtxError, match="writes where another one read or wrote"):
        run(overwritten, np.zeros(8), 0)


@cuda.jit
def all_write(board, different, scratch, nothing):
    board[0] = cuda.threadIdx.x if different else 5.0


def test_all_may_write_the_same_number() -> None:
    board = np.zeros(1)
    run(all_write, board, 0)
    assert board[0] == 5.0
    with pytest.raises(PtxError, match="writes where another one"):
        run(all_write, board, 1)


@cuda.jit
def across(x, found, distance, scratch, nothing):
    t = cuda.threadIdx.x
    told = cuda.shfl_xor_sync(0xFFFFFFFF, x[t], distance)
    found[t] = told if cuda.any_sync(0xFFFFFFFF, told > 60.0) else -told


def test_threads_exchange_and_vote_in_their_warp() -> None:
    x, found = np.arange(64.0), np.zeros(64)
    counts = run(across, x, found, 4, threads=64)
    told = x[np.arange(64) ^ 4]
    np.testing.assert_array_equal(found, np.where(np.arange(64) < 32, -told, told))
    assert counts.instructions["shfl.sync.bfly.b32"] == 2 * 2  # halves of a number, warps
    assert counts.by_kind()["together"] == 2 * 3


@cuda.jit
def reads_at(x, found, k, scratch, nothing):
    found[cuda.threadIdx.x] = x[cuda.threadIdx.x + k]


@pytest.mark.parametrize("k", [1, -1, 10**6, -(10**9)])
def test_memory_that_was_not_given(k: int) -> None:
    with pytest.raises(PtxError, match=r"thread \d+ uses memory outside of what was given: ld.global.f64"):
        run(reads_at, np.zeros(8), np.zeros(8), k + (-8 if k < 0 else 0))  # Numba takes -8..-1 from the end


@cuda.jit
def reads_shared(found, count, scratch, nothing):
    found[cuda.threadIdx.x] = cuda.shared.array(0, int64)[cuda.threadIdx.x]


def test_what_nobody_has_written() -> None:
    with pytest.raises(PtxError, match="reads what nobody has written"):
        run(reads_shared, np.zeros(8), 0, shared=64)
    with pytest.raises(PtxError, match="uses memory outside"):
        run(reads_shared, np.zeros(8), 0, shared=0)


@cuda.jit
def reads_scratch(found, scratch, nothing):
    found[0] = scratch[0]


def test_scratch_is_what_nobody_has_written() -> None:
    with pytest.raises(PtxError, match="reads what nobody has written"):
        run(reads_scratch, np.zeros(1))


@cuda.jit
def apart(x, found, scratch, nothing):
    t = cuda.threadIdx.x
    if x[t] > 3.0:
        cuda.syncthreads()
    else:
        found[t] = cuda.shfl_xor_sync(0xFF, x[t], 1)


def test_threads_that_never_meet() -> None:
    with pytest.raises(PtxError, match="threads wait for each other for ever: "):
        run(apart, np.arange(8.0), np.zeros(8))


def test_who_has_gone_is_not_waited_for() -> None:
    found = np.zeros((2, 8))

    @cuda.jit
    def leave(found, turns, scratch, nothing):
        t = cuda.threadIdx.x
        if t >= 3:
            return
        cuda.syncthreads()
        found[cuda.blockIdx.x, t] = 1 + cuda.atomic.add(turns, 0, 1)

    run(leave, found, np.zeros(1, dtype=np.int64), blocks=2)
    assert sorted(found[found > 0].tolist()) == [1, 2, 3, 4, 5, 6]


def test_arrays_of_the_same_memory_are_one() -> None:
    @cuda.jit
    def twice(x, same, scratch, nothing):
        x[0] = 1.5
        same[1] = same[0]

    x = np.zeros(2)
    run(twice, x, x.view(np.int64), threads=1)
    assert x.tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tex.2d.v4.f32.s32 %r1, %r2;", "no meaning for the instruction 'tex.2d.v4.f32.s32'"),
        ("@%p1 mov.u32 %r1, 1;", "no meaning for a condition before"),
        ("mov.u32 %r1, %clock;", "no meaning for the operand '%clock'"),
        ("cvt.rni.s64.f64 %rd1, %fd1;", "no meaning for the instruction 'cvt.rni.s64.f64'"),
    ],
)
def test_what_it_does_not_know_it_refuses(line: str, message: str) -> None:
    def read() -> Callable[..., None]:
        program = Program(f".visible .entry kernel()\n{{\n\t.reg .b32 %r<3>;\n\t{line}\n\tret;\n}}\n")
        return program.code(program.blocks[0], True)

    with pytest.raises(PtxError, match=message):
        read()
