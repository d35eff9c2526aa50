"""Lockstep sees what it is for: races, barriers that not all reach, threads that meet at different places."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

from lockstep import ORDERS, run_block


@cuda.jit
def neighbours(seen, careful):
    board = cuda.shared.array(4, np.float64)
    board[cuda.threadIdx.x] = 1.0 + cuda.threadIdx.x
    if careful:
        cuda.syncthreads()
    seen[cuda.threadIdx.x] = board[cuda.threadIdx.x ^ 1]


@cuda.jit
def largest(given, found):
    x, lanes = given[cuda.threadIdx.x], 2
    while lanes:
        x = max(x, cuda.shfl_xor_sync(0xF, x, lanes))
        lanes //= 2
    found[cuda.threadIdx.x] = x if cuda.any_sync(0xF, x > 8.0) else -1.0


@cuda.jit
def one_stays_away():
    if cuda.threadIdx.x != 2:
        cuda.syncwarp()
    cuda.shfl_xor_sync(0xF, 1.0, 1)


@cuda.jit
def two_places():
    if cuda.threadIdx.x == 2:
        cuda.syncwarp()
    else:
        cuda.syncwarp()


@cuda.jit
def early_exit(found):
    if cuda.threadIdx.x == 3:
        return
    cuda.syncthreads()
    found[cuda.threadIdx.x] = 1.0


def seen(order: str, careful: bool) -> list[float]:
    found = np.zeros(4)
    run_block(neighbours, (found, careful), 4, ORDERS[order](), space=4)
    return found.tolist()


def test_a_race_depends_on_the_order() -> None:
    assert [seen(order, True) for order in ORDERS] == [[2.0, 1.0, 4.0, 3.0]] * len(ORDERS)
    assert str(seen("upwards", False)) == "[nan, 1.0, nan, 3.0]"
    assert str(seen("downwards", False)) == "[2.0, nan, 4.0, nan]"


@pytest.mark.parametrize("order", ORDERS)
def test_threads_exchange_and_vote(order: str) -> None:
    for given, answer in (([3.0, 9.0, 1.0, 2.0], 9.0), ([3.0, 7.0, 1.0, 2.0], -1.0)):
        found = np.zeros(4)
        run_block(largest, (np.array(given), found), 4, ORDERS[order]())
        assert found.tolist() == [answer] * 4


@pytest.mark.parametrize("kernel", [one_stays_away, two_places], ids=["one stays away", "two places"])
@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_do_not_meet_are_an_error(kernel: object, order: str) -> None:
    with pytest.raises(AssertionError, match=r"threads (meet at different places|wait for each other for ever)"):
        run_block(kernel, (), 4, ORDERS[order]())


def test_who_has_gone_is_not_waited_for() -> None:
    found = np.zeros(4)
    run_block(early_exit, (found,), 4, ORDERS["downwards"]())
    assert found.tolist() == [1.0, 1.0, 1.0, 0.0]
