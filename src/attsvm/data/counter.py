"""Random numbers by position: number k of element b is a function of the seed, b and k alone, on every device.

Philox4x32 with ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) turns a
position into four words of 32 bits. Two words make a uniform number of 53 bits; two uniform numbers make two normal
ones after Box and Muller.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

_MASK = 2**32 - 1


@dataclass(frozen=True)
class Counter:
    """A seed whose numbers are drawn on the device that asks for them, millions at a time.

    Element b of a batch is element ``first + b`` of the seed, so that a large batch can be drawn in parts. Uniform
    numbers are the same bits on the CPU and on a GPU; normal ones agree to about 1e-15, as logarithm and cosine do.
    They are not the numbers of the integer seed, which NumPy's generators draw on the CPU.

    >>> import attsvm
    >>> whole = attsvm.data.random_sphere(n=2, T=3, d=4, batch=5, seed=attsvm.data.Counter(7))
    >>> part = attsvm.data.random_sphere(n=2, T=3, d=4, batch=2, seed=attsvm.data.Counter(7, first=3))
    >>> bool((whole.tokens[3:] == part.tokens).all())
    True
    """

    seed: int
    first: int = 0

    def __post_init__(self) -> None:
        for name in ("seed", "first"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                raise ValueError(f"{name} of a Counter must be an integer from 0 to 2^63 - 1; got {value!r}")


class Numbers(ABC):
    """Numbers of many streams at once: methods of a `numpy.random.Generator`, with results ``[streams, *shape]``."""

    library: ModuleType = np  # what the arrays belong to
    where: Mapping[str, Any] = {}  # where that library makes further arrays

    def __init__(self) -> None:
        self.used = [0, 0]  # how many normal and uniform numbers of each stream

    @abstractmethod
    def between(self, kind: int, first: int, last: int) -> Any:
        """Normal (kind 0) or uniform (kind 1) numbers `first` to `last` of each stream: ``[streams, last - first]``."""

    def standard_normal(self, shape: int | tuple[int, ...]) -> Any:
        """Independent numbers from N(0, 1)."""
        return self._next(0, shape)

    def random(self, shape: int | tuple[int, ...]) -> Any:
        """Independent numbers, uniform on [0, 1)."""
        return self._next(1, shape)

    def uniform(self, low: float, high: float, shape: int | tuple[int, ...]) -> Any:
        """Independent numbers, uniform on [low, high)."""
        return low + (high - low) * self.random(shape)

    def _next(self, kind: int, shape: int | tuple[int, ...]) -> Any:
        shape, first = (shape,) if isinstance(shape, int) else shape, self.used[kind]
        self.used[kind] += math.prod(shape)
        found = self.between(kind, first, self.used[kind])
        return found.reshape(len(found), *shape)


class CounterNumbers(Numbers):
    """The numbers of elements `first` to `last` of a counter: NumPy's arrays on the CPU, tensors on a GPU."""

    def __init__(self, counter: Counter, first: int, last: int, purpose: int, device: torch.device) -> None:
        super().__init__()
        if device.type != "cpu":
            self.library, self.where = torch, {"device": device}
        self.elements = self.library.arange(counter.first + first, counter.first + last, **self.where)[:, None]
        self.key, self.purpose = (counter.seed & _MASK, counter.seed >> 32), purpose

    def between(self, kind: int, first: int, last: int) -> Any:
        blocks = self.library.arange(first // 2, (last + 1) // 2, **self.where)[None, :]  # of two numbers each
        zero = 0 * (self.elements + blocks)
        low, high = self.elements & _MASK, self.elements >> 32
        words = _philox((zero + blocks, zero + kind + 2 * self.purpose, zero + low, zero + high), self.key)
        pair = _uniform(*words[:2]), _uniform(*words[2:])
        if kind == 0:
            radius, angle = (-2.0 * self.library.log1p(-pair[0])) ** 0.5, 2.0 * math.pi * pair[1]
            pair = radius * self.library.cos(angle), radius * self.library.sin(angle)
        numbers = self.library.stack(pair, -1).reshape(len(zero), 2 * zero.shape[1])
        return numbers[:, first % 2 : first % 2 + last - first]


def _uniform(high: Any, low: Any) -> Any:
    """53 of the 64 bits as a number in [0, 1), exact in float64."""
    bits = (high >> 5) * 2**26 + (low >> 6)
    return (bits.double() if isinstance(bits, torch.Tensor) else bits.astype(np.float64)) * 2.0**-53


def _philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Four words for each position; all arrays of 64-bit integers, of which the low 32 bits are used."""
    a, b, c, d = counter
    for turn in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c  # modulo 2^64; a negative product is the same 64 bits
        one, two = (key[0] + turn * 0x9E3779B9) & _MASK, (key[1] + turn * 0xBB67AE85) & _MASK
        a, b, c, d = (right >> 32 & _MASK) ^ b ^ one, right & _MASK, (left >> 32 & _MASK) ^ d ^ two, left & _MASK
    return a, b, c, d
