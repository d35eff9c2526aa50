"""The logits of a head: a sum of channels, each linear in weights of its own, whatever positions the model has.

A plain head has one channel, x^T W z. Rotary positions turn pairs of key and query coordinates, by an angle that grows
with the position; with Delta = j - i for token j and query i,

    logit(j | i) = sum_f  cos(theta_f Delta) x_j^T A_f z_i + sin(theta_f Delta) x_j^T B_f z_i  +  x_j^T A_0 z_i,

which is linear in the stack of all (A_f, B_f) and of A_0, the coordinates that are not turned: x^T W z again for lifted
tokens ``[cos(theta_f Delta) x_j ; sin(theta_f Delta) x_j ; x_j]``. A learned bias by distance is a channel of one
number for each bucket of distances. What is fixed (ALiBi) or acts on all logits alike (soft-capping, sinks) is no
channel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LayerStates:
    """What the heads of a layer see in one sentence."""

    keys: Float[Tensor, "T D"]  #: input of the key projection
    queries: Float[Tensor, "T E"]  #: input of the query projection
    allowed: Bool[Tensor, "T T"]  #: tokens (columns) that a query (row) may look at
    #: cos + i sin of the angle of every frequency at every position, as the model has them, for rotary positions
    phases: Complex[Tensor, "T F"] | None = None
    buckets: Int[Tensor, "T T"] | None = None  #: of the distance from query (row) to token, for learned biases

    def of(self, form: HeadWeights) -> Self:
        """What this head sees: the columns of keys and queries that are its own."""
        if form.part is None:
            return self
        return replace(self, keys=self.keys[:, form.part[0]], queries=self.queries[:, form.part[1]])


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """A head's weights, factored: the logits of query z over tokens X are ``X key query^T z``, and what positions add.

    Biases of the projections, where there are, stand in the last row, which meets the constant coordinate; the scale
    1/sqrt(d_head) is inside `query`. What a head does not have is None, or 0.

    >>> head = HeadWeights(key=torch.eye(3, 2), query=2 * torch.eye(3, 2))
    >>> head.weights.diagonal().tolist()
    [2.0, 2.0, 0.0]
    """

    key: Float[Tensor, "D m"]
    query: Float[Tensor, "E m"]
    pairs: Int[Tensor, "F 2"] | None = None  #: columns of both that rotary positions turn together
    relative: Float[Tensor, " buckets"] | None = None  #: learned bias by bucket of distances; a bucket of -1 has none
    slope: float = 0.0  #: of a fixed bias slope (j - i) for token j and query i (ALiBi)
    cap: float | None = None  #: logits l become cap tanh(l / cap) before the softmax
    sink: float | None = None  #: the logit of no token, which takes its share of the softmax
    #: Columns of keys and of queries that are the head's own, in head space (`attsvm.heads.loading.architectures`).
    part: tuple[slice, slice] | None = None

    def to(self, device: torch.device | str) -> HeadWeights:
        """The same weights on a device."""
        parts: dict[str, Any] = {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **{name: part.to(device) for name, part in parts.items()})

    @property
    def plain(self) -> bool:
        """Whether there is one channel only, x^T W z; a fixed bias may stand beside it."""
        return self.pairs is None and self.relative is None

    @property
    def weights(self) -> Float[Tensor, "D E"]:
        """The matrix W = key query^T of a plain head, of rank at most m."""
        return self.key @ self.query.T

    @property
    def unturned(self) -> Bool[Tensor, " m"]:
        """The columns of `key` and `query` that no position turns."""
        kept = torch.ones(self.key.shape[1], dtype=torch.bool, device=self.key.device)
        if self.pairs is not None:
            kept[self.pairs.flatten()] = False
        return kept

    @property
    def stacked(self) -> Float[Tensor, "m E"]:
        """A matrix with the singular values, and so the norm, of the stack of all A_f, B_f and A_0.

        For one frequency ``A^T A + B^T B = (|k1|^2 + |k2|^2) (q1 q1^T + q2 q2^T)``.
        """
        kept = self.unturned
        rows = torch.linalg.qr(self.key[:, kept]).R @ self.query[:, kept].T
        if self.pairs is None:
            return rows
        sizes = self.key[:, self.pairs].norm(dim=(0, 2))
        return torch.cat([rows, *(sizes[:, None] * self.query[:, self.pairs[:, side]].T for side in (0, 1))])

    @property
    def energies(self) -> Float[Tensor, " channels"]:
        """Squared norms of the channels: of (A_f, B_f) for every frequency, of A_0, and of the learned biases.

        For one frequency ``||A||^2 + ||B||^2 = (|k1|^2 + |k2|^2) (|q1|^2 + |q2|^2)``.
        """
        kept = self.unturned
        still = ((self.key[:, kept].T @ self.key[:, kept]) * (self.query[:, kept].T @ self.query[:, kept])).sum()
        bias = still.new_zeros(()) if self.relative is None else self.relative.square().sum()
        pairs = torch.zeros(0, 2, dtype=torch.int64) if self.pairs is None else self.pairs
        turned = [factor[:, pairs].square().sum((0, 2)) for factor in (self.key, self.query)]
        return torch.cat([turned[0] * turned[1], torch.stack([still, bias])])

    @property
    def size(self) -> float:
        """Frobenius norm of all channels."""
        return math.sqrt(float(self.energies.sum()))

    def turned(self, states: Float[Tensor, "T m"], phases: Tensor | None) -> Float[Tensor, "T m"]:
        """Keys or queries of the head after its rotary positions."""
        if self.pairs is None:
            return states
        if phases is None:
            raise ValueError("phases are needed to turn the keys and queries of a head with rotary positions")
        first, second = self.pairs.unbind(1)
        moved = torch.complex(states[:, first], states[:, second]) * phases
        return states.index_copy(1, first, moved.real).index_copy(1, second, moved.imag)

    def sides(self, seen: LayerStates) -> tuple[Float[Tensor, "T m"], Float[Tensor, "T m"]]:
        """Keys and queries of the head, turned by their positions."""
        return self.turned(seen.keys @ self.key, seen.phases), self.turned(seen.queries @ self.query, seen.phases)

    def bias(self, buckets: Int[Tensor, "*pairs"]) -> Float[Tensor, "*pairs"]:
        """The learned bias of each bucket; 0 for buckets of -1, and where there are no biases."""
        none = self.key.new_zeros(1)
        return (none if self.relative is None else torch.cat([self.relative, none]))[buckets]

    def fixed_logits(self, length: int) -> Float[Tensor, "T T"]:
        """The fixed bias; row = query."""
        place = torch.arange(length, dtype=torch.float64)
        return self.slope * (place - place[:, None])

    def logits(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """The logits before capping and the mask; row = query."""
        keys, queries = self.sides(seen)
        found = queries @ keys.T
        if self.relative is not None:
            if seen.buckets is None:
                raise ValueError("buckets are needed for the logits of a head with learned biases by distance")
            found = found + self.bias(seen.buckets)
        return found + self.fixed_logits(len(found)) if self.slope else found

    def log_attention(self, logits: Float[Tensor, "*rows T"]) -> Float[Tensor, "*rows T"]:
        """Logarithm of the softmax of `logits`, -inf where a token is masked, after capping and beside the sink."""
        if self.cap is not None:
            logits = self.cap * (logits / self.cap).tanh().masked_fill(logits.isinf(), -torch.inf)
        if self.sink is not None:
            return torch.nn.functional.pad(logits, (0, 1), value=self.sink).log_softmax(-1)[..., :-1]
        return logits.log_softmax(-1)

    def attention(self, seen: LayerStates) -> Float[Tensor, "T T"]:
        """The attention of every query over the tokens allowed to it; row = query."""
        return self.log_attention(self.logits(seen).masked_fill(~seen.allowed, -torch.inf)).exp()

    def scaled(self, factor: float) -> HeadWeights:
        """The head whose logits are `factor` times these, neither capped nor beside a sink."""
        bias = None if self.relative is None else factor * self.relative
        return replace(self, query=factor * self.query, relative=bias, slope=factor * self.slope, cap=None, sink=None)


def head_weights(
    key: Float[Tensor, "d m"],
    query: Float[Tensor, "d m"],
    key_bias: Float[Tensor, " m"] | None,
    query_bias: Float[Tensor, " m"] | None,
    scale: float,
) -> HeadWeights:
    """The form of logits ``scale (key^T x + key_bias) . (query^T z + query_bias)``, in float64; None adds no row."""
    both = ((key, key_bias), (query, query_bias))
    wide = (weight if bias is None else torch.cat([weight, bias[None]]) for weight, bias in both)
    own, asking = (factor.detach().to("cpu", torch.float64) for factor in wide)
    return HeadWeights(own, scale * asking)
