"""Starting points: drawn, zero, or given."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head, Parameterization
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_finite, check_same_kind
from attsvm.data.memory import check_fits, in_words
from attsvm.data.streams import Purpose, streams

Initial = ArrayLike | Mapping[str, ArrayLike] | str | float | None


def starting_point(
    data: TokenDataset,
    head: Head,
    parameterization: Parameterization,
    initial: Initial,
    starts: int | None,
    keys: Sequence[tuple[int, int]],
    train_head: bool,
) -> tuple[dict[str, Tensor], bool]:
    """Parameters ``[starts, batch, ...]`` for data of any batch shape, and whether the caller asked for several starts.

    Raises:
        ValueError: if a given tensor does not fit, or the start is a saddle.
    """
    if starts is not None and (not isinstance(starts, int) or isinstance(starts, bool) or starts < 1):
        raise ValueError(f"starts must be a positive integer or None; got {starts!r}")
    given, several = _given(data, head, parameterization, initial, train_head)
    if several is not None and starts is not None and starts != several:
        raise ValueError(f"starts is {starts}, but initial holds {several} of them; leave starts out")
    count = several or starts or 1
    batch = len(keys)
    parameters: dict[str, Tensor] = {}
    shapes = parameterization.shapes(data)
    missing = [name for name in shapes if name not in given]
    if missing:
        drawn = _draw(data, parameterization, count, keys)
        parameters = {name: drawn[name] for name in missing}
    for name, value in given.items():
        parameters[name] = value.expand(count, batch, *value.shape[2:]).clone()
    if train_head:
        for name, value in head.flatten().broadcast((count, batch)).parameters().items():
            parameters.setdefault(name, value)
    ordered = {name: parameters[name] for name in (*shapes, *(name for name in parameters if name not in shapes))}
    parameterization.check_initial(ordered)
    return ordered, several is not None or starts is not None


_WIDEST = 1000  # columns of K and Q for each of the d or dq rows


def check_size(
    data: TokenDataset, parameterization: Parameterization, starts: int | None, records: int, keep: Collection[str]
) -> None:
    """Refuse a run that cannot fit into memory, before anything is allocated.

    Arguments:
        records: how many iterates will be kept for certain.
        keep: what of each.

    Raises:
        ValueError: that names starts, rank and records, with a lower bound on the memory: three copies of the
            parameters (they, their gradient, the next ones) and of the attention, and what is recorded.
    """
    shapes = parameterization.shapes(data)
    own, attention, weights = sum(math.prod(shape) for shape in shapes.values()), data.n * data.T, data.d * data.dq
    kept = {"risk": 1, "norm": 1, "attention": attention, "weights": weights, "parameters": own}
    row = sum(size for name, size in kept.items() if name in keep)
    runs = (starts or 1) * math.prod(data.batch_shape)
    size = data.tokens.element_size()
    rank = getattr(parameterization, "rank", None)
    if rank is not None and rank > _WIDEST * max(data.d, data.dq):
        raise ValueError(
            f"rank must be at most {_WIDEST} times d or dq, here {_WIDEST * max(data.d, data.dq):,}; got {rank:,}:"
            f" K and Q would take {in_words(runs * own * size)} and every step read them, while K Q^T has rank"
            f" {min(data.d, data.dq)} at most"
        )
    about = [f"{runs:,} runs" if starts is None else f"starts={starts:,}"]
    about += [] if rank is None else [f"rank={rank:,}"]
    about += [f"{records:,} records of {', '.join(name for name in kept if name in keep)}"] if records > 1 else []
    needed = runs * size * (3 * (own + attention) + records * row)
    check_fits(needed, data.device, f"training with {', '.join(about)}", "use fewer starts or records, or keep less")


def doubled_start(initial: Initial) -> Initial:
    """The same start in float64, for what works there whatever precision the data came in."""
    if isinstance(initial, Mapping):
        return {name: as_floating(value, f"initial {name}").double() for name, value in initial.items()}
    return as_floating(initial, "initial weights").double() if isinstance(initial, Tensor | np.ndarray) else initial


def _draw(
    data: TokenDataset, parameterization: Parameterization, starts: int, keys: Sequence[tuple[int, int]]
) -> dict[str, Tensor]:
    each = [
        [parameterization.draw(data, stream) for _ in range(starts)]
        for stream in streams(keys, (len(keys),), purpose=Purpose.STARTING_POINT)
    ]
    return {
        name: torch.from_numpy(np.stack([[element[start][name] for element in each] for start in range(starts)])).to(
            device=data.device, dtype=data.dtype
        )
        for name in parameterization.shapes(data)
    }


def _given(
    data: TokenDataset, head: Head, parameterization: Parameterization, initial: Initial, train_head: bool
) -> tuple[dict[str, Tensor], int | None]:
    """What the caller fixed, as ``[starts or 1, batch or 1, ...]``, and the number of starts where given."""
    shapes: dict[str, tuple[int, ...]] = dict(parameterization.shapes(data))
    names = list(shapes)
    if train_head:
        axes = head.event_axes()
        shapes |= {name: tuple(value.shape[value.ndim - axes[name] :]) for name, value in head.parameters().items()}
    if initial is None:
        return {}, None
    if isinstance(initial, str | int | float):
        if initial is False or initial not in ("zeros", 0):
            raise ValueError(f"initial must be 'zeros', a tensor or a mapping of tensors; got {initial!r}")
        initial = {name: torch.zeros(shapes[name], dtype=data.dtype, device=data.device) for name in names}
    if not isinstance(initial, Mapping):
        if names != ["weights"]:
            raise ValueError(
                f"initial of {parameterization} must be a mapping with {' and '.join(names)}; got one array"
            )
        initial = {"weights": initial}
    unknown = [name for name in initial if name not in shapes]
    if unknown:
        raise ValueError(
            f"initial names {unknown[0]!r}, which is not trained; the trained parameters are {', '.join(shapes)}"
        )
    several: int | None = None
    given: dict[str, Tensor] = {}
    for name, value in initial.items():
        given[name], count = _fitted(as_floating(value, f"initial {name}"), name, shapes[name], data)
        if count is not None and several is not None and count != several:
            raise ValueError(f"initial {name} holds {count} starts, another parameter {several}; they must agree")
        several = count if count is not None else several
    return given, several


def _fitted(value: Tensor, name: str, event: tuple[int, ...], data: TokenDataset) -> tuple[Tensor, int | None]:
    lead = tuple(value.shape[: value.ndim - len(event)])
    if (
        value.ndim < len(event)
        or tuple(value.shape[len(lead) :]) != event
        or 0 in lead
        or (lead not in ((), data.batch_shape) and lead[1:] != data.batch_shape)
    ):
        raise ValueError(
            f"initial {name} must have shape {list(event)}, {[*data.batch_shape, *event]} or"
            f" {['starts', *data.batch_shape, *event]}; got {list(value.shape)}"
        )
    check_same_kind(value, f"initial {name}", data.tokens)
    check_finite(value, f"initial {name}", ("row", "column")[: len(event)])
    if lead in ((), data.batch_shape):
        return value.reshape(1, -1 if lead else 1, *event), None
    return value.reshape(lead[0], -1, *event), lead[0]
