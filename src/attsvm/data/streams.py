"""Reproducible random numbers: one stream for each element of a batch, the same on every machine."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.data.checks import as_device, check_count
from attsvm.data.counter import Counter, CounterNumbers, Numbers

Seed = int | Sequence[int | tuple[int, int]] | torch.Generator | Counter
Batch = int | tuple[int, ...] | None
Draw = Callable[[Numbers], Mapping[str, Any]]

_MANY = 20_000  # streams from which on compiled code, which takes a second to load, is faster than NumPy's generators
_CACHED = 2**17  # numbers that stay in a processor's cache while they are made into a data set


class Purpose(IntEnum):
    """What random numbers are drawn for, so that none repeat those of the data drawn with the same seed.

    A number once given stays: another would change every result that was drawn with it.
    """

    STARTING_POINT = 1  # the parameters that descent starts from
    INPUT_ORDER = 2  # the order of the inputs in mini-batches, with the number of the pass as a further key
    PLANE_START = 2  # of the factors in experiments in the plane; without a further key it shares nothing with that 2
    PATH_START = 3  # random starts of a regularization path
    SAMPLED_SELECTIONS = 7  # runs that look for locally optimal selections where there are too many to list
    CONE_DIRECTIONS = 8  # directions in a cone around an SVM solution
    MIXTURES = 9  # mixtures of tokens at which a condition is tried


def streams(
    seed: Seed, batch_shape: tuple[int, ...], *, purpose: int | None = None, number: int | None = None
) -> list[np.random.Generator]:
    """One generator for each element of a batch, in row-major order.

    Stream (s, b) is ``Generator(Philox(SeedSequence([s, b])))``: it depends on nothing else, so that a batch equals its
    single runs. No global state is read or changed.

    Arguments:
        seed: an int s gives element b the stream (s, b). A sequence has one entry for each element: an int s means
            stream (s, 0), that of the unbatched run with seed s, and a pair (s, b) means stream (s, b). From a
            `torch.Generator` one int64 is drawn and serves as s. A `Counter` has no streams.
        batch_shape: () for a single data set.
        purpose: a `Purpose`, for numbers that must not repeat those of the data drawn with the same seed.
        number: a further key, for a purpose that needs many streams.

    >>> batched, single = streams(7, (2, 3))[4], streams([(7, 4)], ())[0]
    >>> bool(batched.random() == single.random())
    True
    """
    further = {"purpose": purpose, "number": number}
    spawn = tuple(_checked_key(value, name) for name, value in further.items() if value is not None)
    return [
        np.random.Generator(np.random.Philox(np.random.SeedSequence(list(key), spawn_key=spawn)))
        for key in stream_keys(seed, batch_shape)
    ]


class StreamNumbers(Numbers):
    """So many numbers of the streams with these keys, those of `streams` bit for bit; normal ones come first."""

    def __init__(self, keys: np.ndarray, normals: int, uniforms: int, *, compiled: bool) -> None:
        super().__init__()
        self.drawn = np.empty((len(keys), normals)), np.empty((len(keys), uniforms))
        if compiled:
            from attsvm.data.compiled_streams import fill  # starts Numba

            fill(keys, *self.drawn)
            return
        bits = np.random.Philox(0)
        generator = np.random.Generator(bits)  # which is set to each stream in turn
        state: dict[str, Any] = {"counter": [0, 0, 0, 0], "key": [0, 0]}
        unused = {"buffer": [0, 0, 0, 0], "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}
        whole: Any = {"bit_generator": "Philox", "state": state, **unused}
        for normal, uniform, key in zip(*self.drawn, keys.tolist(), strict=True):
            state["key"] = key  # a list, which NumPy reads ten times faster than an array
            bits.state = whole
            generator.standard_normal(out=normal)
            generator.random(out=uniform)

    def between(self, kind: int, first: int, last: int) -> np.ndarray:
        if kind == 0 and self.used[1]:
            raise ValueError("normal numbers must be drawn before uniform ones")
        return self.drawn[kind][:, first:last]


def stream_keys(seed: Seed, batch_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pair (seed, element) behind each stream: a seed in its lasting form, drawn from once if it is a generator.

    >>> stream_keys(7, (2,)), stream_keys([7, 8], (2,))
    ([(7, 0), (7, 1)], [(7, 0), (8, 0)])
    """
    count = math.prod(batch_shape)
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**63 - 1, (), generator=seed, device=seed.device))
    if isinstance(seed, Counter):
        raise ValueError("a Counter is a seed of random data sets and of initial_parameters; give an integer here")
    if isinstance(seed, (str, bytes)) or not isinstance(seed, Sequence):
        single = _checked_key(seed, "seed")
        return [(single, element) for element in range(count)]
    if len(seed) != count:
        pair = tuple(seed)
        hint = f"; the stream {pair} of a single data set is written [{pair}]" if count == 1 and len(pair) == 2 else ""
        raise ValueError(f"seed must have one entry for each element, {count} in all; got {len(pair)}{hint}")
    return [_entry(entry, place) for place, entry in enumerate(seed)]


def draw_batch(
    draw: Draw, batch: Batch, seed: Seed, *, purpose: int | None = None, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """The arrays ``[streams, ...]`` that `draw` makes of `Numbers` of many streams: float64 tensors ``[*batch, ...]``.

    The numbers of an integer seed are those of `streams`, bit for bit, drawn on the CPU; those of a `Counter` are drawn
    on the device, and only there `draw` sees tensors instead of NumPy's arrays. `draw` is called for as many streams at
    once as stay in the processor's cache, or in a part of a GPU's memory.
    """
    shape, place, lane = batch_shape(batch), as_device(device, "device"), () if purpose is None else (int(purpose),)
    count = math.prod(shape)
    if not isinstance(seed, Counter):
        place, keys = torch.device("cpu"), _philox_keys(stream_keys(seed, shape), lane)
    asked = CounterNumbers(Counter(0), 0, 0, 0, place)  # of no streams: this only counts the numbers
    drawn = {
        name: torch.empty((count, *part.shape[1:]), dtype=torch.float64, device=place)
        for name, part in draw(asked).items()
    }
    together = max(1, (_CACHED if place.type == "cpu" else 2**10 * _CACHED) // max(sum(asked.used), 1))
    for first in range(0, count, together):
        last = min(first + together, count)
        if isinstance(seed, Counter):
            numbers: Numbers = CounterNumbers(seed, first, last, sum(lane), place)
        else:
            numbers = StreamNumbers(keys[first:last], *asked.used, compiled=count >= _MANY)
        for name, part in draw(numbers).items():
            drawn[name][first:last] = part if isinstance(part, Tensor) else torch.from_numpy(part)
    return {name: value.reshape(*shape, *value.shape[1:]) for name, value in drawn.items()}


def batch_shape(batch: Batch) -> tuple[int, ...]:
    """The leading axes that `batch` asks for: None is a single data set, an int one axis.

    >>> batch_shape(None), batch_shape(3), batch_shape((2, 3))
    ((), (3,), (2, 3))
    """
    if batch is None:
        return ()
    sizes = batch if isinstance(batch, (tuple, list)) else (batch,)
    return tuple(check_count(size, "batch") for size in sizes)


def _entry(entry: object, place: int) -> tuple[int, int]:
    name = f"seed[{place}]"
    if isinstance(entry, (tuple, list)):
        if len(entry) != 2:
            raise ValueError(f"{name} must be an integer or a pair (seed, element); got {entry!r}")
        return _checked_key(entry[0], name), _checked_key(entry[1], name)
    return _checked_key(entry, name), 0


def _checked_key(value: object, name: str) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 0:
        others = ", one for each element, or a torch.Generator" if name == "seed" else ""
        raise ValueError(f"{name} must be an integer of at least 0{others}; got {value!r}")
    return int(value)


def _philox_keys(keys: Sequence[tuple[int, int]], spawn: tuple[int, ...]) -> np.ndarray:
    """Both words of ``SeedSequence(key, spawn_key=spawn).generate_state(2, uint64)`` for many keys at once: ``[., 2]``.

    The hash is O'Neill's seed_seq as NumPy documents it: a pool of four words, stirred with each other and with what
    does not fit in, in arithmetic modulo 2^32.
    """
    try:
        values = np.array(keys, dtype=np.uint64)
    except OverflowError:  # a seed of more than 64 bits
        sequences = [np.random.SeedSequence(list(key), spawn_key=spawn) for key in keys]
        return np.stack([sequence.generate_state(2, np.uint64) for sequence in sequences])
    words = values.view("<u4").reshape(-1, 4).T  # low and high word of the seed, of the element
    words = np.where(words[1] > 0, words, words[[0, 2, 3, 1]])  # a high word of zero is not written, the last pads
    further = [np.full(len(keys), value, dtype="<u4") for value in spawn]
    return np.ascontiguousarray(_stirred([*words, *further]).T).view("<u8")


def _stirred(entropy: list[np.ndarray]) -> np.ndarray:
    """Four words of output ``[4, keys]`` for four or more words of entropy ``[keys]``."""
    constant, multiplier = 0x43B0D7E5, 0x931E8875

    def hashed(value: np.ndarray) -> np.ndarray:
        nonlocal constant
        value = value ^ np.uint32(constant)
        constant = constant * multiplier % 2**32
        value = value * np.uint32(constant)
        return value ^ value >> np.uint32(16)

    def mixed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        value: np.ndarray = np.uint32(0xCA01F9DD) * x - np.uint32(0x4973F715) * hashed(y)
        return value ^ value >> np.uint32(16)

    pool = [hashed(word) for word in entropy[:4]]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = mixed(pool[target], pool[source])
    for word in entropy[4:]:
        pool = [mixed(target, word) for target in pool]
    constant, multiplier = 0x8B51F9DD, 0x58F38DED
    return np.stack([hashed(word) for word in pool])
