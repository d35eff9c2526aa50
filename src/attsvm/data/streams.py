"""Reproducible random numbers: one stream per element of a batch, the same on every machine."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from attsvm.data.checks import check_count

Seed = int | Sequence[int | tuple[int, int]] | torch.Generator
Batch = int | tuple[int, ...] | None


def streams(seed: Seed, batch_shape: tuple[int, ...], *, purpose: int | None = None) -> list[np.random.Generator]:
    """One generator per element of a batch, in row-major order.

    Stream (s, b) is ``Generator(Philox(SeedSequence([s, b])))``: it depends on nothing else, so that a batch equals its
    single runs. No global state is read or changed.

    Arguments:
        seed: an int s gives element b the stream (s, b). A sequence has one entry an element: an int s means stream
            (s, 0), that of the unbatched run with seed s, and a pair (s, b) means that very stream. From a
            `torch.Generator` one int64 is drawn and serves as s.
        batch_shape: () for a single data set.
        purpose: a further key, for numbers that must not repeat those of the data drawn with the same seed.

    Raises:
        ValueError: if a seed is no non-negative integer, or a sequence has the wrong length.

    >>> batched, single = streams(7, (2, 3))[4], streams([(7, 4)], ())[0]
    >>> bool(batched.random() == single.random())
    True
    """
    spawn = () if purpose is None else (_checked_key(purpose, "purpose"),)
    return [
        np.random.Generator(np.random.Philox(np.random.SeedSequence(list(key), spawn_key=spawn)))
        for key in stream_keys(seed, batch_shape)
    ]


def stream_keys(seed: Seed, batch_shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pair (seed, element) behind each stream: a seed in its lasting form, drawn from once if it is a generator.

    Raises:
        ValueError: if a seed is no non-negative integer, or a sequence has the wrong length.

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
    """What `draw` makes of each stream, stacked along the batch: float64 tensors ``[*batch, ...]`` on the CPU."""
    shape = batch_shape(batch)
    drawn = [draw(stream) for stream in streams(seed, shape)]
    return {
        name: torch.from_numpy(np.stack([one[name] for one in drawn]).reshape(*shape, *drawn[0][name].shape))
        for name in drawn[0]
    }


def batch_shape(batch: Batch) -> tuple[int, ...]:
    """The leading axes that `batch` asks for: None is a single data set, an int one axis.

    Raises:
        ValueError: if a size is no positive integer.

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
