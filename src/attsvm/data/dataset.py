"""The container every other part of the library reads: tokens, queries, labels."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attsvm.data import checks
from attsvm.data.checks import ArrayOrList as Array
from attsvm.data.checks import as_floating, as_tensor, check_axes, check_dataset, place
from attsvm.data.files import read_arrays, write_arrays

_FIELDS = ("tokens", "queries", "labels", "mask", "values", "head")


@dataclass(frozen=True, eq=False, repr=False)
class TokenDataset:
    """Inputs of a one-layer attention model: X_i, z_i, Y_i for i = 1..n, for a batch of data sets.

    Logits are ``a_it = x_it^T W z_i``; prediction heads and scores read `values` (by default the tokens themselves).
    Several queries may share one sequence of tokens: input ``i = sequence * queries_per_sequence + position``, so that
    causal data store each token once. Tensors and NumPy arrays are not copied.

    >>> import numpy as np
    >>> data = TokenDataset(np.eye(3)[None], np.ones((1, 2)), [1])
    >>> data.n, data.T, data.d, data.dq, data.batch_shape
    (1, 3, 3, 2, ())
    """

    tokens: Float[Tensor, "*batch sequences T d"]  #: keys, of n / queries_per_sequence sequences
    queries: Float[Tensor, "*batch n dq"]
    labels: Float[Tensor, "*batch n"]  #: +1 or -1
    mask: Bool[Tensor, "*batch n T"] | None  #: True where a token is real; None means all are
    values: Float[Tensor, "*batch sequences T dv"]  #: what the prediction head reads; None means the tokens
    head: Float[Tensor, "*batch dv"] | None  #: the vector v of a linear prediction head that belongs to the data
    queries_per_sequence: int  #: how many consecutive inputs share one sequence of tokens

    def __init__(
        self,
        tokens: Array,
        queries: Array,
        labels: Array,
        mask: Array | None = None,
        values: Array | None = None,
        head: Array | None = None,
        queries_per_sequence: int = 1,
    ) -> None:
        keys = as_floating(tokens, "tokens")
        vars(self).update(  # past the frozen dataclass
            tokens=keys,
            queries=as_floating(queries, "queries"),
            labels=as_tensor(labels, "labels"),
            mask=None if mask is None else checks.as_mask(mask, "mask"),
            values=keys if values is None or values is tokens else as_floating(values, "values"),
            head=None if head is None else as_floating(head, "head"),
            queries_per_sequence=queries_per_sequence,
        )
        check_dataset(self)
        vars(self).update(labels=self.labels.to(self.dtype))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; () for a single data set."""
        return tuple(self.tokens.shape[:-3])

    @property
    def n(self) -> int:
        """Number of inputs."""
        return self.queries.shape[-2]

    @property
    def T(self) -> int:  # noqa: N802 - the papers' letter
        """Number of token positions, masked ones included."""
        return self.tokens.shape[-2]

    @property
    def d(self) -> int:
        """Dimension of a token (key)."""
        return self.tokens.shape[-1]

    @property
    def dq(self) -> int:
        """Dimension of a query."""
        return self.queries.shape[-1]

    @property
    def dv(self) -> int:
        """Dimension of a value, what the prediction head reads."""
        return self.values.shape[-1]

    @property
    def sequences(self) -> int:
        """Number of stored token sequences; n unless several queries share one."""
        return self.tokens.shape[-3]

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""
        return self.tokens.dtype

    @property
    def device(self) -> torch.device:
        """Where every tensor lives."""
        return self.tokens.device

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError("a single data set has no length; len() counts a batch of them")
        return self.batch_shape[0]

    def __repr__(self) -> str:
        parts = [f"n={self.n}", f"T={self.T}", f"d={self.d}", f"dq={self.dq}"]
        if self.batch_shape:
            parts.insert(0, f"batch={list(self.batch_shape)}")
        if self.queries_per_sequence > 1:
            parts.append(f"queries_per_sequence={self.queries_per_sequence}")
        if self.values is not self.tokens:
            parts.append(f"dv={self.dv}")
        parts += [name for name in ("mask", "head") if getattr(self, name) is not None]
        return f"TokenDataset({', '.join(parts)}, {str(self.dtype).removeprefix('torch.')}, {self.device})"

    @property
    def real(self) -> Bool[Tensor, "*batch n T"]:
        """True where a token is real: `mask`, or where that is None all True (a view of one number)."""
        if self.mask is not None:
            return self.mask
        return torch.ones((), dtype=torch.bool, device=self.device).expand(*self.batch_shape, self.n, self.T)

    @property
    def input_tokens(self) -> Float[Tensor, "*batch n T d"]:
        """The keys of each input; copied only where several inputs share a sequence."""
        return self._of_inputs(self.tokens)

    @property
    def input_values(self) -> Float[Tensor, "*batch n T dv"]:
        """The values of each input; copied only where several inputs share a sequence."""
        return self._of_inputs(self.values)

    def fill_masked(self, numbers: Tensor, value: float) -> Tensor:
        """`numbers` ``[*starts, *batch, n, T]`` with `value` at masked tokens; the same tensor where none is masked."""
        return numbers if self.mask is None else numbers.masked_fill(~self.mask, value)

    def __getitem__(self, index: Any) -> TokenDataset:
        """One data set, or some of them, along the batch: an integer, slice, tuple or index array."""
        if not self.batch_shape:
            raise TypeError("a single data set cannot be indexed; indexing runs along the batch")
        within = checks.batch_index(index, self.batch_shape, self.device)
        return self._map(lambda tensor: tensor[within])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> TokenDataset:
        """The same data on another device or in another precision; a ValueError if a number overflows in it."""
        if device is not None:
            device = checks.as_device(device, "device")
        if dtype in (None, self.dtype):
            return self._map(lambda tensor: tensor.to(device=device))
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64; got {dtype}")
        changed = self._map(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
        check_dataset(changed)
        return changed._map(lambda tensor: tensor.to(device=device))

    def flatten(self) -> TokenDataset:
        """The same data with all batch axes in one (batch 1 for a single data set), without a copy where possible."""
        axes = len(self.batch_shape)
        if axes == 1:
            return self
        return self._map(lambda tensor: tensor[None] if axes == 0 else tensor.flatten(0, axes - 1))

    def take_inputs(self, index: Array) -> TokenDataset:
        """The inputs `index` ``[*batch, k]`` of each data set, each with its own copy of its tokens."""
        chosen = checks.checked_index(index, (*self.batch_shape, "k"), self.n, self.device)
        sequence = chosen // self.queries_per_sequence
        tokens = checks.gather_inputs(self.tokens, sequence)
        values = tokens if self.values is self.tokens else checks.gather_inputs(self.values, sequence)
        own = ("queries", "labels") if self.mask is None else ("queries", "labels", "mask")
        rows = {name: checks.gather_inputs(getattr(self, name), chosen) for name in own}
        return replace_unchecked(self, tokens=tokens, values=values, queries_per_sequence=1, **rows)

    def tokens_of(self, index: Array) -> Float[Tensor, "*batch n d"]:
        """The key x_{i, index_i} of every input, for `index` ``[*batch, n]``: ``[*batch, n, d]``."""
        chosen = checks.checked_index(index, (*self.batch_shape, self.n), self.T, self.device)
        wide = chosen.reshape(*self.batch_shape, self.sequences, self.queries_per_sequence, 1)
        rows = self.tokens.gather(-2, wide.expand(*wide.shape[:-1], self.d))
        return rows.reshape(*self.batch_shape, self.n, self.d)

    def with_head(self, head: Array | None) -> TokenDataset:
        """The same data with the vector of another linear prediction head."""
        return replace(self, head=None if head is None else as_floating(head, "head"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to .npz or .safetensors; `load` gives back the same bits."""
        about = {"kind": "TokenDataset", "queries_per_sequence": self.queries_per_sequence}
        return write_arrays(path, self._own(), about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TokenDataset:
        """Read .npz or .safetensors holding tokens, queries, labels and, where there are, mask, values, head.

        A file that is truncated, or holds an array that no token data set has, such as a misspelled one, is refused.
        """
        arrays, metadata = read_arrays(path)
        _check_names(path, arrays)
        fields: dict[str, Any] = {name: arrays.get(name) for name in _FIELDS}
        try:
            return cls(**fields, queries_per_sequence=metadata.get("queries_per_sequence", 1))  # type: ignore[arg-type]
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def self_attention(
        cls,
        tokens: Array,
        labels: Array,
        *,
        query_token: int = 0,
        mask: Array | None = None,
        values: Array | None = None,
        head: Array | None = None,
    ) -> TokenDataset:
        """The query is one of the input's own tokens, z_i = x_{i, query_token} (the first by convention)."""
        keys = as_floating(tokens, "tokens")
        check_axes(keys)
        if not isinstance(query_token, numbers.Integral) or not -keys.shape[-2] <= query_token < keys.shape[-2]:
            raise ValueError(f"query_token must lie in 0..{keys.shape[-2] - 1}; got {query_token!r}")
        data = cls(keys, keys[..., query_token, :], labels, mask, None if values is tokens else values, head)
        if data.mask is not None and not bool(data.mask[..., query_token].all()):
            at = place(torch.nonzero(~data.mask[..., query_token])[0].tolist(), ("input",))
            raise ValueError(f"query_token {query_token} is masked at {at}; choose a real token")
        return data

    @classmethod
    def sequence(
        cls, tokens: Array, labels: Array, *, values: Array | None = None, head: Array | None = None
    ) -> TokenDataset:
        """Every position k of every sequence is an input with z = x_k over the whole sequence; tokens are stored once.

        Tokens are ``[*batch, sequences, T, d]``, all real, since a masked position cannot be an input; labels
        ``[*batch, sequences, T]``.
        """
        keys = as_floating(tokens, "tokens")
        check_axes(keys)
        *batch, sequences, length, d = keys.shape
        sign = as_tensor(labels, "labels")
        checks.check_shape(sign, "labels", (*batch, sequences, length), "batch, sequences, T")
        queries, sign = keys.reshape(*batch, sequences * length, d), sign.reshape(*batch, sequences * length)
        return cls(keys, queries, sign, None, None if values is tokens else values, head, queries_per_sequence=length)

    @classmethod
    def causal(
        cls, tokens: Array, labels: Array, *, values: Array | None = None, head: Array | None = None
    ) -> TokenDataset:
        """As `sequence`, but position k sees its prefix x_1..x_k only."""
        whole = cls.sequence(tokens, labels, values=values, head=head)
        prefix = torch.ones(whole.T, whole.T, dtype=torch.bool, device=whole.device).tril().repeat(whole.sequences, 1)
        return replace_unchecked(whole, mask=prefix.expand(*whole.batch_shape, whole.n, whole.T))

    @classmethod
    def prompt(
        cls,
        tokens: Array,
        labels: Array,
        weights: Array | None = None,
        *,
        mask: Array | None = None,
        head: Array | None = None,
    ) -> TokenDataset:
        """Prompt attention, logits X_i W^T p with W fixed and p trained: keys X W^T, values X, dq = 1, query 1.

        The trained weights ``[*batch, d, 1]`` are the prompt p. Tokens are ``[*batch, n, T, dv]``, the fixed weights
        ``[*batch, d, dv]`` or ``[d, dv]``; None means the identity.
        """
        keys = values = as_floating(tokens, "tokens")
        check_axes(values)
        checks.check_finite(values, "tokens", ("input", "token", "coordinate"))
        if weights is not None:
            fixed = checks.as_prompt_weights(weights, values)
            keys = values @ (fixed if fixed.ndim == 2 else fixed.unsqueeze(-3)).mT
        queries = torch.ones(*values.shape[:-2], 1, dtype=values.dtype, device=values.device)
        return cls(keys, queries, labels, mask, None if keys is values else values, head)

    def _of_inputs(self, tokens: Tensor) -> Tensor:
        shared = self.queries_per_sequence
        return tokens if shared == 1 else tokens.repeat_interleave(shared, -3)

    def _map(self, function: Any) -> TokenDataset:
        made = {name: function(tensor) for name, tensor in self._own().items()}
        return replace_unchecked(self, **{"values": made["tokens"], **made})

    def _own(self) -> dict[str, Tensor]:
        """The tensors that there are; values only where they are not the tokens."""
        found = {name: getattr(self, name) for name in _FIELDS if getattr(self, name) is not None}
        if self.values is self.tokens:
            del found["values"]
        return found


def _check_names(path: str | os.PathLike[str], arrays: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless `arrays` has the three fields that every data set has, and nothing that none has."""
    missing = [name for name in _FIELDS[:3] if name not in arrays]
    unknown = [name for name in sorted(arrays) if name not in _FIELDS]
    near = {name: found[0] for name in unknown if (found := get_close_matches(name.lower(), _FIELDS, n=1))}
    hint = "; ".join(f"did you mean {right} by {wrong!r}?" for wrong, right in near.items() if right not in arrays)
    if missing:
        held = ", ".join(sorted(arrays)) or "nothing"
        said = f"{path} is not a token data set: it lacks {', '.join(missing)} (found {held})"
        raise ValueError(f"{said}; {hint}" if hint else said)
    if unknown:
        raise ValueError(
            f"{path} holds {', '.join(map(repr, unknown))}, which a token data set does not have:"
            f" {hint or 'rename or leave out'} (its arrays are {', '.join(_FIELDS[:3])} and, where there are,"
            f" {', '.join(_FIELDS[3:])})"
        )


def replace_unchecked(data: TokenDataset, **changes: Any) -> TokenDataset:
    """A copy with some fields exchanged, its validation left to the caller."""
    made = copy(data)
    vars(made).update(changes)
    return made


def together(parts: Sequence[TokenDataset]) -> TokenDataset:
    """Data sets of one size as a batch."""
    names = ("tokens", "queries", "labels", "values", "head")
    fields: dict[str, Any] = {name: torch.stack([getattr(part, name) for part in parts]) for name in names}
    return TokenDataset(**fields)


def repeated(data: TokenDataset, shape: tuple[int, ...]) -> TokenDataset:
    """The data with the batch axes `shape`, whose last are its own, without a copy."""
    axes = len(data.batch_shape)
    return data._map(lambda tensor: tensor.expand(*shape, *tensor.shape[axes:]))
