"""Functions whose loops count by themselves compute what they computed before."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest

from attsvm.data.kernel_text import counting, counting_text, tree_of


def forwards(x: Any, n: int) -> float:
    total = 0.0
    for i in range(n):
        for j in range(i + 1, n, 2):
            total += x[i] * x[j]
    return total


def backwards(x: Any, n: int) -> list[float]:
    seen = []
    for i in range(n - 1, -1, -1):
        seen.append(float(x[i]))
        for j in range(n, i, -2):
            seen.append(float(j))
    return seen


def skipping(x: Any, n: int) -> list[float]:
    seen = []
    for i in range(n):
        if i % 3 == 1:
            continue
        seen.append(float(x[i]))
        if x[i] > 4:
            break
        for j in range(2):
            if j == 1:
                continue
            seen.append(float(j))
    return seen


def sliced(x: Any, n: int) -> float:
    """An end that changes on the way is taken as it was at first."""
    part, end = x[n // 2 :], n // 2
    for i in range(end):
        end -= 1
        part[i] += x[-1] + i
    return float(part.sum() + end)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("function", [forwards, backwards, skipping, sliced], ids=lambda each: each.__name__)
def test_the_same_comes_out(function: Any, n: int) -> None:
    words: dict[str, Any] = {"uint64": np.uint64}
    made = counting(function, words)
    x = np.arange(1.0, 9.0)
    assert made(x.copy(), n) == function(x.copy(), n)
    assert made is not function


def test_indices_have_no_sign_and_loops_count() -> None:
    text = counting_text("for k in range(a, b):\n    x[k, 0] = y[2:k, z[k]]")
    assert text == (
        "k_end = b\nk = a\nwhile k < k_end:\n    x[uint64(k), 0] = y[2:k, uint64(z[uint64(k)])]\n    k += 1"
    )
    assert counting_text("for k in range(3):\n    x[k]") == "for k in range(3):\n    x[uint64(k)]"


def test_lines_are_those_of_the_file() -> None:
    tree = tree_of(skipping)
    assert tree.lineno == skipping.__code__.co_firstlineno
    assert not any(isinstance(each, ast.While) for each in ast.walk(tree))
    words: dict[str, Any] = {"uint64": np.uint64}
    made = counting(skipping, words)
    assert made.__code__.co_filename == __file__
    assert made.__code__.co_firstlineno == skipping.__code__.co_firstlineno
