"""Where descent begins: at a drawn, a zero or a given point."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from attsvm.attention import Head, Parameterization, Weights
from attsvm.attention.prediction_heads import as_head
from attsvm.data import TokenDataset
from attsvm.data.checks import ArrayLike, as_floating, check_finite, check_kind, check_same_kind, check_shape
from attsvm.data.counter import Numbers
from attsvm.data.machine import check_fits, in_words
from attsvm.data.streams import Purpose, Seed, draw_batch
from attsvm.descent.task import check_data

Initial = ArrayLike | Mapping[str, ArrayLike] | str | float | None


def initial_parameters(
    data: TokenDataset,
    parameterization: Parameterization | None = None,
    seed: Seed = 0,
    *,
    initial: Initial = None,
    starts: int | None = None,
    head: object = None,
    train_head: bool = False,
) -> dict[str, Tensor]:
    """The parameters that `fit` begins with when it is given the same arguments.

    PyTorch's default start is uniform in ±1/sqrt(d); what a mapping `initial` leaves out is drawn. The prediction head
    matters only where it is trained. A `attsvm.data.Counter` as seed draws on the device of the data. A start at the
    saddle K = Q = 0 is refused.

    Returns:
        ``{"weights": W}`` or ``{"key": K, "query": Q}``, each ``[*starts, *batch, ...]``, and the head's parameters.

    >>> import attsvm
    >>> data = attsvm.data.random_sphere(n=2, T=3, d=4, batch=5, seed=0)
    >>> start = attsvm.initial_parameters(data, attsvm.KeyQuery(rank=2), seed=1)
    >>> {name: list(value.shape) for name, value in start.items()}
    {'key': [5, 4, 2], 'query': [5, 4, 2]}
    >>> run = attsvm.fit(data, parameterization=attsvm.KeyQuery(rank=2), seed=1, steps=50, keep=["parameters"])
    >>> bool((run.history.parameters["key"][0] == start["key"]).all())
    True
    """
    check_data(data)
    parameterization = parameterization or Weights()
    check_kind(parameterization, Parameterization, "parameterization", "Weights() or KeyQuery(rank)")
    check_size(data, parameterization, starts)
    trained = as_head(head, data).flatten() if train_head else None
    parameters, lead = starting_point(data, parameterization, seed, initial, starts, trained)
    return {name: value.reshape(*lead, *value.shape[2:]) for name, value in parameters.items()}


def starting_point(
    data: TokenDataset,
    parameterization: Parameterization,
    seed: Seed,
    initial: Initial = None,
    starts: int | None = None,
    trained_head: Head | None = None,
) -> tuple[dict[str, Tensor], tuple[int, ...]]:
    """Parameters ``[starts, batch, ...]``, and the leading axes ``[*starts, *batch]`` in which the caller sees them.

    `trained_head` has at most one batch axis. A ValueError if a given tensor does not fit, or the start is a saddle.
    """
    batch_shape = data.batch_shape
    shapes: dict[str, tuple[int, ...]] = dict(parameterization.shapes(data))  # of each parameter of one run
    factors = list(shapes)
    if trained_head is not None:
        axes, own = trained_head.event_axes(), trained_head.parameters()
        shapes |= {name: tuple(value.shape[value.ndim - axes[name] :]) for name, value in own.items()}
    given: dict[str, Tensor] = {}
    several = None  # the axis of starts that the given tensors have
    for name, value in _named(data, parameterization, initial, shapes).items():
        given[name], count = _fitted(as_floating(value, f"initial {name}"), name, shapes[name], data)
        if count is not None and several is not None and count != several:
            raise ValueError(f"initial {name} holds {count} starts, another parameter {several}; they must agree")
        several = count if count is not None else several
    if several is not None and starts is not None and starts != several:
        raise ValueError(f"starts is {starts}, but initial holds {several} of them; leave starts out")
    count, runs = several or starts or 1, math.prod(batch_shape)
    parameters = {name: value.expand(count, runs, *value.shape[2:]).clone() for name, value in given.items()}
    if any(name not in given for name in factors):
        parameters = _drawn(data, parameterization, count, seed) | parameters
    if trained_head is not None:
        parameters = trained_head.broadcast((count, runs)).parameters() | parameters
    ordered = parameterization.normal_form({name: parameters[name] for name in shapes})
    parameterization.check_initial(ordered)
    return ordered, batch_shape if several is None and starts is None else (count, *batch_shape)


_WIDEST = 1000  # columns of K and Q for each of the d or dq rows


def check_size(
    data: TokenDataset, kind: Parameterization, starts: int | None, records: int = 0, keep: Collection[str] = ()
) -> None:
    """Refuse a run that cannot fit into memory, before anything is allocated.

    The bound: three copies of the parameters (they, their gradient, the next ones) and of the attention, and `records`
    iterates of what is kept of each.
    """
    if starts is not None and (not isinstance(starts, int) or isinstance(starts, bool) or starts < 1):
        raise ValueError(f"starts must be a positive integer or None; got {starts!r}")
    own, attention = sum(map(math.prod, kind.shapes(data).values())), data.n * data.T
    kept = {"risk": 1, "norm": 1, "attention": attention, "weights": data.d * data.dq, "parameters": own}
    row = sum(size for name, size in kept.items() if name in keep)
    runs, size = (starts or 1) * math.prod(data.batch_shape), data.tokens.element_size()
    rank, widest = getattr(kind, "rank", None), _WIDEST * max(data.d, data.dq)
    if rank is not None and rank > widest:
        price = f"K and Q would take {in_words(runs * own * size)}, and K Q^T has rank {min(data.d, data.dq)} at most"
        raise ValueError(f"rank must be at most {_WIDEST} times d or dq, here {widest:,}; got {rank:,}: {price}")
    about = [f"{runs:,} runs" if starts is None else f"starts={starts:,}"]
    about += [] if rank is None else [f"rank={rank:,}"]
    about += [f"{records:,} records of {', '.join(name for name in kept if name in keep)}"] if records > 1 else []
    needed = runs * size * (3 * (own + attention) + records * row)
    cure = "use fewer starts, records or data sets, or smaller ones"
    check_fits(needed, data.device, f"training with {', '.join(about)}", cure)


def doubled_start(initial: Initial) -> Initial:
    """The same start in float64, for what works there whatever precision the data came in."""
    if isinstance(initial, Mapping):
        return {name: as_floating(value, f"initial {name}").double() for name, value in initial.items()}
    return as_floating(initial, "initial weights").double() if isinstance(initial, Tensor | np.ndarray) else initial


def _drawn(data: TokenDataset, parameterization: Parameterization, starts: int, seed: Seed) -> dict[str, Tensor]:
    def draw(stream: Numbers) -> dict[str, np.ndarray]:
        each = [parameterization.draw(data, stream) for _ in range(starts)]
        return {name: stream.library.stack([one[name] for one in each], 1) for name in each[0]}

    drawn = draw_batch(draw, data.flatten().batch_shape, seed, purpose=Purpose.STARTING_POINT, device=data.device)
    return {name: value.transpose(0, 1).to(device=data.device, dtype=data.dtype) for name, value in drawn.items()}


def _named(
    data: TokenDataset, parameterization: Parameterization, initial: Initial, trained: Mapping[str, tuple[int, ...]]
) -> Mapping[str, ArrayLike]:
    """What the caller gives for each parameter, of those that are trained with their shapes."""
    shapes = parameterization.shapes(data)
    if initial is None:
        return {}
    if isinstance(initial, str | int | float):
        if initial is False or initial not in ("zeros", 0):
            raise ValueError(f"initial must be 'zeros', a tensor or a mapping of tensors; got {initial!r}")
        return {name: torch.zeros(shapes[name], dtype=data.dtype, device=data.device) for name in shapes}
    if not isinstance(initial, Mapping):
        if len(shapes) > 1:
            names = " and ".join(shapes)
            raise ValueError(f"initial of {parameterization} must be a mapping with {names}; got one array")
        return dict.fromkeys(shapes, initial)
    for name in initial:
        if name not in trained:
            names = ", ".join(trained)
            raise ValueError(f"initial names {name!r}, which is not trained; the trained parameters are {names}")
    return initial


def _fitted(value: Tensor, name: str, event: tuple[int, ...], data: TokenDataset) -> tuple[Tensor, int | None]:
    """A given tensor as ``[starts or 1, batch or 1, *event]``, and the number of starts if it has an axis for them."""
    batch, extra = data.batch_shape, value.ndim - len(event)
    forms: dict[int, tuple[int | str, ...]] = {len(batch): batch, 0: ()}
    lead = forms.get(extra, ("starts", *batch))
    check_shape(value, f"initial {name}", (*lead, *event), "for one data set, for the batch, or with starts before")
    check_same_kind(value, f"initial {name}", data.tokens)
    check_finite(value, f"initial {name}", ("row", "column")[: len(event)])
    count = value.shape[0] if "starts" in lead else None
    return value.reshape(count or 1, -1 if lead else 1, *event), count
