"""What ``Generator(Philox(key))`` of NumPy draws, for many keys at once: compiled, bit for bit the same numbers.

Philox4x64 with ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011) counts from
1 and gives four words at a time. Normal numbers are those of the ziggurat (Marsaglia, Tsang, "The ziggurat method for
generating random variables", 2000) with 256 layers, whose tables Numba has for its own random numbers.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

_HELPER = {"nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_MULTIPLIERS = np.array([0xD2E7470EE14C6C93, 0xCA5A826395121157], dtype=np.uint64)
_INCREMENTS = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], dtype=np.uint64)
_BYTE, _ONE, _EIGHT, _NINE, _ELEVEN = (np.uint64(value) for value in (0xFF, 1, 8, 9, 11))
_TOGETHER = 36  # values of the counter at a time: independent of each other, they overlap in the processor
_END = np.uint64(4 * _TOGETHER)
_MANTISSA = np.uint64(2**52 - 1)


@intrinsic
def _high(typing_context, a, b):  # type: ignore[no-untyped-def]
    """The upper 64 bits of a product of two 64-bit numbers."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(**_HELPER)
def _refill(words, at):  # type: ignore[no-untyped-def]
    """The next words of Philox, four for each value of the counter; `at` holds key, counter, place."""
    for block in range(_TOGETHER):
        a, b, c, d = at[2] + np.uint64(block), np.uint64(0), np.uint64(0), np.uint64(0)
        one, two = at[0], at[1]
        for _ in range(10):
            low, high = a * _MULTIPLIERS[0], _high(a, _MULTIPLIERS[0])
            a, b, c, d = _high(c, _MULTIPLIERS[1]) ^ b ^ one, c * _MULTIPLIERS[1], high ^ d ^ two, low
            one += _INCREMENTS[0]
            two += _INCREMENTS[1]
        words[4 * block], words[4 * block + 1], words[4 * block + 2], words[4 * block + 3] = a, b, c, d
    at[2] += np.uint64(_TOGETHER)
    at[3] = 0


@njit(**_HELPER)
def _word(words, at):  # type: ignore[no-untyped-def]
    if at[3] == _END:
        _refill(words, at)
    at[3] += _ONE
    return words[at[3] - _ONE]


@njit(**_HELPER)
def _uniform(words, at):  # type: ignore[no-untyped-def]
    return np.int64(_word(words, at) >> _ELEVEN) * (1.0 / 9007199254740992.0)


@njit(**_HELPER)
def _at_edge(words, at, layer, place, x):  # type: ignore[no-untyped-def]
    """A number that is not inside its layer for sure: what becomes of it, and whether it is kept."""
    if layer > 0:
        height = (fi_double[layer - 1] - fi_double[layer]) * _uniform(words, at) + fi_double[layer]
        return x, height < math.exp(-0.5 * x * x)
    while True:  # the tail
        beyond = -ziggurat_nor_inv_r * math.log1p(-_uniform(words, at))
        height = -math.log1p(-_uniform(words, at))
        if height + height > beyond * beyond:
            found = ziggurat_nor_r + beyond
            return (-found if place >> _EIGHT & _ONE else found), True


@njit(nogil=True, cache=True)
def fill(keys, normals, uniforms):  # type: ignore[no-untyped-def]
    """Normal numbers ``[streams, .]``, then uniform ones, of the streams with these keys ``[streams, 2]``."""
    words, at = np.empty(4 * _TOGETHER, dtype=np.uint64), np.empty(4, dtype=np.uint64)
    for stream in range(len(keys)):
        at[0], at[1], at[2], at[3] = keys[stream, 0], keys[stream, 1], 1, 4 * _TOGETHER
        k = 0
        while k < normals.shape[1]:
            bits = _word(words, at)
            layer, sign, place = np.int64(bits & _BYTE), bits >> _EIGHT & _ONE, bits >> _NINE & _MANTISSA
            x = np.int64(place) * wi_double[layer] * (1.0 - 2.0 * np.int64(sign))  # a branch would be guessed wrong
            kept = True
            if place >= ki_double[layer]:
                x, kept = _at_edge(words, at, layer, place, x)
            if kept:
                normals[stream, k] = x
                k += 1
        for k in range(uniforms.shape[1]):
            uniforms[stream, k] = _uniform(words, at)
