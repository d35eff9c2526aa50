"""What is trained: the combined weights W, the factors of W = K Q^T, or W on two scales.

Two scales are the finite part of W that decides inside kept sets, and the part outside that grows. Where input i keeps
probability on a set O_i of tokens, logits inside the set converge and all others fall behind. With

    S_fin = span{ (x_it - x_iu) z_i^T : t, u in O_i }

the projection of W onto S_fin converges, the rest grows without bound, and their gradients differ by any factor.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention.gradient import RiskGradient
from attsvm.attention.linear_maps import SharedPairs, flat_adjoint, flat_logits
from attsvm.attention.scaled import ScaledTensor
from attsvm.data import TokenDataset
from attsvm.data.checks import check_shape, place
from attsvm.data.counter import Numbers
from attsvm.data.machine import check_fits

_RANK = 1e-10  # directions shorter than this share of the longest are round-off
_ORTHOGONAL = 1e-13  # cosine of queries that count as orthogonal
_LARGE = 2**24  # numbers of a matrix that is decomposed as it is


class Parameterization(ABC):
    """How trained parameters make up W ``[starts, batch, d, dq]``, and how a gradient in W reaches them."""

    #: sets of tokens outside which `from_logits` needs the gradient in its own scale; None where it does not
    kept: Bool[Tensor, "batch n T"] | None = None

    @abstractmethod
    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        """Name and matrix shape of each parameter, in the order in which random starts draw them."""

    @abstractmethod
    def weights(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "starts batch d dq"]:
        """The combined W."""

    @abstractmethod
    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        """The chain rule: from the gradient in W to one for each parameter."""

    def logits(self, data: TokenDataset, parameters: Mapping[str, Tensor]) -> Float[Tensor, "starts batch n T"]:
        """Attention logits of data with one batch axis."""
        return flat_logits(data, self.weights(parameters))

    def from_logits(
        self, data: TokenDataset, parameters: Mapping[str, Tensor], risk: RiskGradient
    ) -> dict[str, ScaledTensor]:
        """From the gradient in the logits to one for each parameter."""
        return self.gradients(parameters, risk.logits.map(flat_adjoint(data, risk.logits.mantissa)))

    def normal_form(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same W in the form in which training starts; by default as given."""
        return parameters

    def check_initial(self, parameters: Mapping[str, Tensor]) -> None:  # noqa: B027 - most have nothing to check
        """Raise a ValueError where training could never leave this start."""

    def draw(self, data: TokenDataset, stream: Numbers) -> dict[str, np.ndarray]:
        """PyTorch's default start for a linear layer, uniform on +-1/sqrt(inputs of the layer): ``[streams, .]``."""
        return {
            name: stream.uniform(-1.0, 1.0, shape) / math.sqrt(shape[0]) for name, shape in self.shapes(data).items()
        }


@dataclass(frozen=True)
class Weights(Parameterization):
    """W itself; gradient descent tends to the Frobenius-norm SVM [TaSVM, local convergence]."""

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        return {"weights": (data.d, data.dq)}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters["weights"]

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        return {"weights": gradient}


@dataclass(frozen=True)
class KeyQuery(Parameterization):
    """W = K Q^T with K ``[d, rank]`` and Q ``[dq, rank]``; biased to the nuclear-norm SVM [TaSVM, regularization path].

    Below a rank of min(n, d, dq) the nuclear solution may be out of reach.
    """

    rank: int | None = None  #: number of columns m; None means d, as in the papers' experiments

    def __post_init__(self) -> None:
        if self.rank is not None and (not isinstance(self.rank, int) or isinstance(self.rank, bool) or self.rank < 1):
            raise ValueError(f"rank must be a positive integer or None; got {self.rank!r}")

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        rank = self.rank or data.d
        return {"key": (data.d, rank), "query": (data.dq, rank)}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters["key"] @ parameters["query"].mT

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        return {
            "key": gradient.map(gradient.mantissa @ parameters["query"]),
            "query": gradient.map(gradient.mantissa.mT @ parameters["key"]),
        }

    def check_initial(self, parameters: Mapping[str, Tensor]) -> None:
        key, query = ((parameters[name] == 0).all(-1).all(-1) for name in ("key", "query"))
        if bool((key & query).any()):
            raise ValueError("initial key and query are both zero, a saddle that descent never leaves; change one")


@dataclass(frozen=True, eq=False, repr=False)
class FiniteSpace:
    """S_fin of each data set of a batch, with an orthonormal basis, filled up with zeros where dimensions are fewer.

    Basis elements are matrices, or where queries are orthogonal products ``left right^T``.
    """

    dimension: Int[Tensor, " batch"]  #: of each S_fin
    basis: Float[Tensor, "batch r entries"] | None  #: ``[batch, r, d * dq]``; None where elements are products
    left: Float[Tensor, "batch r d"] | None = None  #: of these, or None
    right: Float[Tensor, "batch r dq"] | None = None

    @classmethod
    def of(cls, data: TokenDataset, kept: Bool[Tensor, "*batch n T"]) -> FiniteSpace:
        """S_fin of the sets `kept`, a mask of real tokens. Queries may be dependent: the span is over all jointly."""
        check_shape(kept, "kept", (*data.batch_shape, data.n, data.T), "batch, n, T")
        flat, mask = data.flatten().to(dtype=torch.float64), kept.reshape(-1, data.n, data.T)
        found = [_generators(flat[element], mask[element]) for element in range(len(mask))]
        left, right = found[0]
        if len(found) == 1 and _orthogonal(right):
            return cls(torch.tensor([len(left)]), None, left[None], right[None])
        check_fits(
            8 * data.d * data.dq * max(len(one) for one, _ in found) * len(found), data.device,
            f"the finite part of weights of {data.d} x {data.dq} numbers", "use a smaller dimension",
        )  # fmt: skip
        bases = [_orthonormal(*one) for one in found]
        filled = torch.nn.utils.rnn.pad_sequence(bases, batch_first=True)
        return cls(torch.tensor([len(one) for one in bases]), filled)

    def matrix(
        self, coordinates: Float[Tensor, "*starts batch r"], like: Tensor
    ) -> Float[Tensor, "*starts batch d dq"]:
        """The sum of basis elements with these factors, in the shape of `like`."""
        if self.basis is not None:
            return torch.einsum("...br,bre->...be", coordinates, self.basis).reshape(like.shape)
        return (self.left * coordinates.unsqueeze(-1)).mT @ self.right  # type: ignore[operator]

    def project(self, weights: Float[Tensor, "*starts batch d dq"]) -> Float[Tensor, "*starts batch d dq"]:
        """The part inside S_fin."""
        if self.basis is not None:
            coordinates = torch.einsum("bre,...be->...br", self.basis, weights.flatten(-2))
        else:
            coordinates = torch.einsum("brd,...bdr->...br", self.left, weights @ self.right.mT)  # type: ignore[union-attr]
        return self.matrix(coordinates, weights)

    def logits(self, tokens: Float[Tensor, "rows d"], queries: Float[Tensor, "rows dq"]) -> Float[Tensor, "rows r"]:
        """``x^T B z`` of each basis element B of a single data set, for pairs of a token and a query."""
        if self.basis is None:
            return (tokens @ self.left[0].mT) * (queries @ self.right[0].mT)  # type: ignore[index]
        return (tokens.unsqueeze(-1) * queries.unsqueeze(-2)).flatten(1) @ self.basis[0].mT


@dataclass(frozen=True, eq=False, repr=False)
class TwoScales(Parameterization):
    """W = finite + growing, the parts inside and outside S_fin of kept sets O_i, each with its own gradient and scale.

    The gradient is split before it is summed. With g_it the gradient in logit t and r_i any token of O_i,

        finite:   Pi_fin( sum_it g_it x_it z_i^T )
        growing:  Pi_perp( sum_{i, t outside O_i} g_it (x_it - x_ir) z_i^T )

    Rows inside O_i lie in S_fin, so that their part outside is 0 and is never computed: its round-off would drown
    the exponentially small rows of the tokens outside. The scale of the growing part is the sum of |g_it| over these,
    so that its mantissa is the gradient of the logarithm of that sum while signs agree. The data are in float64.
    """

    space: FiniteSpace  #: S_fin; give it where it is known
    pairs: SharedPairs | None  #: where tokens and queries come from one vocabulary: steps then cost less
    kept: Bool[Tensor, "batch n T"]  #: O, the real tokens that will keep probability, at least one for each input

    def __init__(
        self,
        data: TokenDataset,
        kept: Bool[Tensor, "*batch n T"],
        pairs: SharedPairs | None = None,
        space: FiniteSpace | None = None,
    ) -> None:
        if data.dtype != torch.float64:
            raise ValueError("TwoScales needs data in float64")
        check_shape(kept, "kept", (*data.batch_shape, data.n, data.T), "batch, n, T")
        sets = kept & data.real
        if not bool(sets.any(-1).all()):
            at = place(torch.nonzero(~sets.any(-1))[0].tolist(), ("input",))
            raise ValueError(f"kept must hold a token of every input; {at} has none")
        space = space or FiniteSpace.of(data, sets)
        vars(self).update(space=space, pairs=pairs, kept=sets.reshape(-1, data.n, data.T))

    def __repr__(self) -> str:
        digest = hashlib.blake2b(self.kept.cpu().numpy().tobytes(), digest_size=4).hexdigest()
        return f"TwoScales({int(self.kept.sum())} kept tokens, {digest})"

    def shapes(self, data: TokenDataset) -> dict[str, tuple[int, int]]:
        made, own = list(self.kept.shape), [math.prod(data.batch_shape), data.n, data.T]
        if own != made:
            raise ValueError(f"TwoScales belongs to the data it was made with, {made}; got {own}")
        return {"finite": (data.d, data.dq), "growing": (data.d, data.dq)}

    def draw(self, data: TokenDataset, stream: Numbers) -> dict[str, np.ndarray]:
        whole = stream.uniform(-1.0, 1.0, (data.d, data.dq)) / math.sqrt(data.d)
        return {"finite": whole, "growing": 0.0 * whole}  # as `Weights()` does; `normal_form` takes it apart

    def normal_form(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        whole = self.weights(parameters)
        inside = self.space.project(whole)
        return {**parameters, "finite": inside, "growing": whole - inside}

    def weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return parameters["finite"] + parameters["growing"]

    def logits(self, data: TokenDataset, parameters: Mapping[str, Tensor]) -> Tensor:
        weights = self.weights(parameters)
        return flat_logits(data, weights) if self.pairs is None else self.pairs.logits(weights)

    def _adjoint(self, data: TokenDataset, rows: Tensor) -> Tensor:
        return flat_adjoint(data, rows) if self.pairs is None else self.pairs.adjoint(rows)

    def gradients(self, parameters: Mapping[str, Tensor], gradient: ScaledTensor) -> dict[str, ScaledTensor]:
        inside = self.space.project(gradient.mantissa)
        return {"finite": gradient.map(inside), "growing": gradient.map(gradient.mantissa - inside)}

    def from_logits(
        self, data: TokenDataset, parameters: Mapping[str, Tensor], risk: RiskGradient
    ) -> dict[str, ScaledTensor]:
        if risk.outside is None:
            raise ValueError("TwoScales needs the gradient outside its kept sets; pass kept= to risk_gradient")
        rows = risk.outside.mantissa
        reference = self.kept.to(torch.uint8).argmax(-1, keepdim=True).expand(*rows.shape[:-1], 1)
        outside = rows.scatter_add(-1, reference, -rows.sum(-1, keepdim=True))
        both = self._adjoint(data, torch.cat([risk.logits.mantissa, outside]))  # one pass over tokens and basis
        inside, shadow = self.space.project(both).split(len(rows))
        across = both[len(rows) :] - shadow
        total = rows.abs().flatten(2).sum(-1)
        total = torch.where(total > 0, total, torch.ones_like(total))
        scaled = ScaledTensor(across / total[..., None, None], risk.outside.log_scale + total.log())
        return {"finite": risk.logits.map(inside), "growing": scaled}


def _generators(data: TokenDataset, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Products that span S_fin: for each different query an orthonormal basis of the token parts, and the query."""
    units, groups = torch.unique(data.queries, dim=0, return_inverse=True)
    reference = data.tokens_of(kept.to(torch.uint8).argmax(-1))
    at, token = torch.nonzero(kept, as_tuple=True)
    differences = data.tokens[at // data.queries_per_sequence, token] - reference[at]
    some = (differences != 0).any(-1)
    rows, owner = differences[some], groups[at][some]
    order = torch.argsort(owner, stable=True)
    present, counts = torch.unique_consecutive(owner[order], return_counts=True)
    lefts, rights = [data.tokens.new_zeros(0, data.d)], [data.tokens.new_zeros(0, data.dq)]
    for query, own in zip(present.tolist(), rows[order].split(counts.tolist()), strict=True):
        length = torch.linalg.vector_norm(units[query])
        if length == 0:
            continue
        _, sizes, directions = torch.linalg.svd(own, full_matrices=False)
        lefts.append(directions[sizes > _RANK * sizes[0]])
        rights.append((units[query] / length).expand(len(lefts[-1]), -1))
    return torch.cat(lefts), torch.cat(rights)


def _orthogonal(right: Tensor) -> bool:
    queries = torch.unique_consecutive(right, dim=0)
    off = queries @ queries.mT - torch.eye(len(queries), dtype=right.dtype, device=right.device)
    return bool((off.abs() <= _ORTHOGONAL).all())


def _orthonormal(left: Tensor, right: Tensor) -> Tensor:
    """An orthonormal basis ``[r, d * dq]`` of the span of products."""
    entries = left.shape[1] * right.shape[1]
    if len(left) * entries <= _LARGE:
        products = (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(1)
        if len(left) == 0:
            return products
        _, sizes, basis = torch.linalg.svd(products, full_matrices=False)
        return basis[sizes > _RANK * sizes[0]]
    # Many products: their second moments, whose eigenvalues are squares and so known to half the digits only.
    moments = left.new_zeros(entries, entries)
    for one, other in zip(left.split(256), right.split(256), strict=True):
        products = (one.unsqueeze(-1) * other.unsqueeze(-2)).flatten(1)
        moments += products.mT @ products
    values, vectors = torch.linalg.eigh(moments)
    return vectors.mT[values > 1e-12 * values[-1]].flip(0)
