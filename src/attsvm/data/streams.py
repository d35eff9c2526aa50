"""Reproducible random numbers: one stream for each element of a batch, the same on every machine."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from attsvm.data.checks import check_count

Seed = int | Sequence[int | tuple[int, int]] | torch.Generator
Batch = int | tuple[int, ...] | None


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
            `torch.Generator` one int64 is drawn and serves as s.
        batch_shape: () for a single data set.
        purpose: a `Purpose`, for numbers that must not repeat those of the data drawn with the same seed.
        number: a further key, for a purpose that needs many streams.

    Raises:
        ValueError: if a seed is not an integer of at least 0, or a sequence has the wrong length.

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


def stream_keys(seed: Seed, batch_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pair (seed, element) behind each stream: a seed in its lasting form, drawn from once if it is a generator.

    Raises:
        ValueError: if a seed is not an integer of at least 0, or a sequence has the wrong length.

    >>> stream_keys(7, (2,)), stream_keys([7, 8], (2,))
    ([(7, 0), (7, 1)], [(7, 0), (8, 0)])
    """
    count = math.prod(batch_shape)
    if isinstance(seed, torch.Generator):
        seed = int(torch.randint(2**63 - 1, (), generator=seed, device=seed.device))
    if isinstance(seed, (str, bytes)) or not isinstance(seed, Sequence):
        single = _checked_key(seed, "seed")
        return [(single, element) for element in range(count)]
    if len(seed) != count:
        pair = tuple(seed)
        hint = f"; the stream {pair} of a single data set is written [{pair}]" if count == 1 and len(pair) == 2 else ""
        raise ValueError(f"seed must have one entry for each element, {count} in all; got {len(pair)}{hint}")
    return [_entry(entry, place) for place, entry in enumerate(seed)]


def draw_batch(
    draw: Callable[[np.random.Generator], Mapping[str, np.ndarray]], batch: Batch, seed: Seed
) -> dict[str, Tensor]:
    """The arrays that `draw` makes of each stream, stacked along the batch: tensors ``[*batch, ...]`` on the CPU."""
    shape = batch_shape(batch)
    drawn = [draw(stream) for stream in streams(seed, shape)]
    return {
        name: torch.from_numpy(np.stack([one[name] for one in drawn]).reshape(*shape, *drawn[0][name].shape))
        for name in drawn[0]
    }


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
        kinds = {"seed": "an integer of at least 0, one for each element, or a torch.Generator"}
        raise ValueError(f"{name} must be {kinds.get(name, 'an integer of at least 0')}; got {value!r}")
    return int(value)
