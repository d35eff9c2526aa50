"""Regularization paths: the minimiser of the risk in a ball, followed as the ball grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention import KeyQuery, Loss, Parameterization, Weights
from attsvm.attention.losses import as_loss
from attsvm.attention.prediction_heads import as_head, doubled_head
from attsvm.data import Seed, TokenDataset, stream_keys
from attsvm.data.checks import ArrayLike, check_count, check_kind
from attsvm.norms import Frobenius, Norm, Nuclear
from attsvm.theory.cones import AngleCone, checked_numbers
from attsvm.theory.paths.landscapes import balanced_factors
from attsvm.theory.paths.search import Search

DEFAULT_RADII = tuple(10.0 ** (k / 2) for k in range(9))


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """The best weights found in each ball; ``*lead`` is ``[radii, *batch]``.

    The risk is not convex, and nothing here proves that a point is the lowest of its ball: it is the best found from
    `starts` starts. Where `separable`, the path of a fixed head tends to the smallest weights that separate.
    """

    radii: Float[Tensor, "radii"]  #: R, increasing
    weights: Float[Tensor, "*lead d dq"]  #: W_R with N(W_R) <= R
    #: balanced factors of W_R where `KeyQuery` was asked for, else None
    key: Float[Tensor, "*lead d rank"] | None
    query: Float[Tensor, "*lead dq rank"] | None
    head: Float[Tensor, "*lead dv"] | None  #: v_r where the head was trained, else None
    head_radii: Float[Tensor, "radii"] | None  #: r, where the head was trained, else None
    risk: Float[Tensor, "*lead"]  #: L(W_R)
    #: log(L(W_R) - L_*), L_* the risk of picking every best token; None unless a linear head is fixed
    log_excess: Float[Tensor, "*lead"] | None
    attention: Float[Tensor, "*lead n T"]  #: softmax probabilities
    log_attention: Float[Tensor, "*lead n T"]  #: their logarithms
    #: ``1 - <W, -G> / (N(W) N°(G))`` for a gradient G, 0 where exactly stationary; that of the factors for a rank below
    #: the spans', R ||G|| inside the ball (a nonlinear head)
    residual: Float[Tensor, "*lead"]
    converged: Bool[Tensor, "*lead"]  #: stationary: its residual cannot matter at this radius. It need not be lowest
    on_boundary: Bool[Tensor, "*lead"]  #: the minimiser lies on the boundary of the ball
    at_cone_edge: Bool[Tensor, "*lead"]  #: on the edge of the cone it was restricted to; False without a cone
    starts: Int[Tensor, "*lead"]  #: how many starts were tried for each point; more where `separable` is False
    separable: Bool[Tensor, "*batch"] | None  #: weights that separate the best tokens are known; None for a cone
    elsewhere: Int[Tensor, "*lead"]  #: how many of them ended 1e-3 in cosine or more away, at a higher risk
    risk_spread: Float[Tensor, "*lead"]  #: largest minus smallest over the starts, of log(L - L_*) where known
    norm: Norm  #: N

    @cached_property
    def selected(self) -> Int[Tensor, "*lead n"]:
        """The most probable token of each input."""
        return self.log_attention.argmax(-1)

    @property
    def notes(self) -> list[str]:
        """Plain sentences on what a reader of the numbers should know; empty when there is nothing to say."""
        counted = (
            (~self.converged, "are not stationary to the tolerance"),
            (self.elsewhere > 0, "had starts that ended elsewhere; the lowest risk was kept"),
            (~self.on_boundary, "lie inside the ball"),
            (self.at_cone_edge, "lie on the edge of the cone: the path leaves it"),
        )
        total = self.converged.numel()
        said = [f"{int(where.sum())} of {total} points {what}." for where, what in counted if bool(where.any())]
        if self.separable is not None and not bool(self.separable.all()):
            without = f"{int((~self.separable).sum())} of {self.separable.numel()} data sets"
            found = f"their points are the best found from up to {int(self.starts.max())} starts; lower ones may exist"
            said.append(f"{without} have best tokens that no known weights separate; {found}.")
        return said

    def __repr__(self) -> str:
        head = f"batch {list(self.risk.shape[1:])}, " if self.risk.ndim > 1 else ""
        radii = f"{len(self.radii)} radii {float(self.radii[0]):g}..{float(self.radii[-1]):g}"
        starts = " to ".join(dict.fromkeys(str(int(end)) for end in torch.aminmax(self.starts)))
        found = f"best found from {starts} starts"
        return f"RegularizationPath({head}{self.norm.name} norm, {', '.join([radii, found, *self.notes])})"


def regularization_path(
    data: TokenDataset,
    head: object = None,
    radii: Sequence[float] | ArrayLike = DEFAULT_RADII,
    *,
    norm: Norm | None = None,
    parameterization: Parameterization | None = None,
    loss: Loss | Callable[[Tensor], Tensor] | None = None,
    restarts: int = 2,
    seed: Seed = 0,
    cone: AngleCone | None = None,
    train_head: bool = False,
    head_radii: Sequence[float] | ArrayLike | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RegularizationPath:
    """``W_R = argmin { L(W) : N(W) <= R }`` for each radius R, or ``(v_r, W_R)`` where the head is trained too.

    The risk is not convex: at each radius the search starts from the path so far, from the max-margin direction of the
    best tokens and, until attention saturates, from random directions; the lowest risk is kept and starts that
    disagree are counted. Where the best tokens are not separable and the head is fixed, 32 more random directions are
    tried at each radius and the eight lowest minima of the one before are followed. Directions and comparisons use
    logarithms, so radii of 1e4 and more are no harder than 10.

    Arguments:
        head: where it is trained it must be linear, and serves only as a hint where to start; None is fine.
        radii: positive and increasing.
        norm: N, `Frobenius()` by default; `Nuclear()` is followed in factors, ``||K||_F^2 + ||Q||_F^2 <= 2 R``.
        parameterization: `KeyQuery(rank)` means the nuclear ball cut at that rank.
        restarts, seed: number of random starts at each radius, and their seed.
        cone: restrict W to an `AngleCone` (Frobenius norm): the local path.
        train_head: minimise over a linear head ``||v|| <= r`` as well.
        head_radii: r for each R; R itself by default. How r grows beside R decides which SVM the path tends to.
        progress: called with (radii done, radii in all); radii in between, which only guide the path, count too.

    >>> import torch
    >>> tokens, v = torch.eye(2, dtype=torch.float64)[None], torch.tensor([1.0, 0.0]).double()
    >>> data = TokenDataset(tokens, torch.ones(1, 1).double(), [1])
    >>> (regularization_path(data, v, [1.0, 100.0]).weights.squeeze(-1) / 0.5**0.5).round(decimals=6).tolist()
    [[1.0, -1.0], [100.0, -100.0]]
    """
    check_kind(data, TokenDataset, "data", "a TokenDataset")
    check_kind(norm, Norm | None, "norm", "a norm such as Frobenius() or Nuclear()")
    check_kind(cone, AngleCone | None, "cone", "an AngleCone(direction, opening)")
    kind = parameterization or Weights()
    check_kind(kind, Weights | KeyQuery, "parameterization", "Weights() or KeyQuery(rank)")
    own_norm, rank = norm or Frobenius(), None
    if isinstance(kind, KeyQuery):
        if norm not in (None, Nuclear()):
            raise ValueError(f"the ball of KeyQuery is the nuclear one; leave norm out or pass Nuclear(), got {norm!r}")
        own_norm, rank = Nuclear(), kind.rank or data.d
    if cone is not None and (rank is not None or train_head):
        raise ValueError("a cone restricts the path of W with a fixed head; it fits neither KeyQuery nor train_head")
    if head_radii is not None and not train_head:
        raise ValueError("head_radii belong to a trained head; pass train_head=True")
    sizes = checked_numbers(radii, "radii", data)
    falls = torch.nonzero(sizes[1:] <= sizes[:-1]).flatten()
    if falls.numel():
        low, high = sizes[falls[0]].item(), sizes[falls[0] + 1].item()
        raise ValueError(f"radii must increase; got {low} before {high}, position {int(falls[0])}")
    limits = sizes if train_head else None
    if head_radii is not None:
        limits = checked_numbers(head_radii, "head_radii", data)
        if limits.shape != sizes.shape:
            raise ValueError(f"head_radii must have one entry for each radius, {len(sizes)}; got {list(limits.shape)}")
    check_count(restarts, "restarts", 0)
    double = data.to(dtype=torch.float64)
    own_head = None if train_head and head is None and data.head is None else as_head(doubled_head(head), double)
    search = Search(
        double.flatten(), None if own_head is None else own_head.flatten(), as_loss(loss), own_norm,
        rank=rank, restarts=restarts, keys=stream_keys(seed, data.batch_shape),
        cone=None if cone is None else cone.fitted(double), train_head=train_head,
    )  # fmt: skip
    found = search.follow(sizes, limits, progress)
    parts: dict[str, Any] = {
        name: None
        if first is None
        else torch.stack([one[name] for one in found]).reshape(-1, *data.batch_shape, *first.shape[1:])
        for name, first in found[0].items()
    }
    key, query = (None, None) if rank is None else balanced_factors(parts["weights"], rank)
    separable = None if cone is not None else search.separable.reshape(data.batch_shape)
    return RegularizationPath(
        radii=sizes, key=key, query=query, head_radii=limits, separable=separable, norm=own_norm, **parts
    )
