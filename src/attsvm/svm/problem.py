"""The max-margin problem of a selection of tokens, in any norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from attsvm.attention.linear_maps import folded, logits, logits_adjoint
from attsvm.data import TokenDataset
from attsvm.data.checks import (
    ArrayLike,
    ArrayOrList,
    as_mask,
    as_tensor,
    check_finite,
    check_kind,
    check_shape,
    place,
    type_name,
)


@dataclass(frozen=True, eq=False, repr=False)
class AttentionSVM:
    """Separate the tokens attention keeps from the tokens it drops, for a batch of data sets.

    One selected token per input (`selected`), r_i its index:

        min N(W)   s.t.   (x_i,r_i - x_it)^T W z_i >= b_it   for every real token t != r_i

    Several selected tokens per input (`selected_set`, a mask; r_i its first token): equality rows
    ``(x_i,r_i - x_it)^T W z_i = c_it`` for the other tokens t of the set, inequality rows for tokens outside it. One
    representative suffices: within the set all logits agree up to the c's.

    Arguments:
        data: ``[*batch]`` data sets; ragged masks, prompts (dq = 1), sequence and causal data included.
        selected: ``[*batch, n]`` token indices.
        selected_set: ``[*batch, n, T]`` mask, in place of `selected`.
        right_hand_side: b: one number (default 1), one per input ``[*batch, n]``, or one per row ``[*batch, n, T]``.
        equality_values: c, ``[*batch, n, T]``, read at the tokens of `selected_set`; default 0. Only differences to the
            representative's value matter.
        rows: mask ``[*batch, n, T]`` of the inequality rows to keep, for relaxed problems that leave some tokens out;
            None keeps them all. Equality rows always stay. A `selected_set` may keep every token of an element only
            where `rows` or `equality_values` are given: by itself it leaves nothing to separate.
        offsets: fixed numbers that are added to the logits, ``[*batch, n, T]``: a row then asks for its right-hand side
            minus what they give it already, o_i,r_i - o_it.

    Raises:
        ValueError: naming the argument, what was expected, what came and where.
    """

    data: TokenDataset
    reference: Int[Tensor, "*batch n"]  #: r_i
    inequalities: Bool[Tensor, "*batch n T"]  #: where there is an inequality row
    equalities: Bool[Tensor, "*batch n T"]  #: where there is an equality row
    #: of every row, b or the representative's c minus the token's, less what the offsets give; 0 where there is none
    right_hand_side: Float[Tensor, "*batch n T"]

    def __init__(
        self,
        data: TokenDataset,
        selected: ArrayOrList | None = None,
        *,
        selected_set: ArrayOrList | None = None,
        right_hand_side: ArrayLike | float = 1.0,
        equality_values: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        offsets: ArrayLike | None = None,
    ) -> None:
        check_kind(data, TokenDataset, "data", "a TokenDataset")
        if (selected is None) == (selected_set is None):
            raise ValueError("give either selected (one token per input) or selected_set (a mask), and not both")
        if equality_values is not None and selected_set is None:
            raise ValueError("equality_values belong to a selected_set; one selected token has no equality rows")
        data = data.to(dtype=torch.float64)
        shape = (*data.batch_shape, data.n, data.T)

        def numbers(value: ArrayLike, name: str) -> Tensor:
            given = as_tensor(value, name).to(device=data.device, dtype=torch.float64)
            check_shape(given, name, shape, "batch, n, T")
            return given

        if selected is not None:
            reference = _checked_selection(selected, data)
            kept = torch.zeros(shape, dtype=torch.bool, device=data.device).scatter(-1, reference.unsqueeze(-1), True)
        else:
            kept = _checked_set(selected_set, data, alone=rows is None and equality_values is None)
            reference = kept.to(torch.uint8).argmax(-1)
        equalities = kept.scatter(-1, reference.unsqueeze(-1), False)
        inequalities = data.real & ~kept
        if rows is not None:
            mask = as_mask(rows, "rows").to(data.device)
            check_shape(mask, "rows", shape, "batch, n, T")
            inequalities = inequalities & mask
        sides = _right_hand_side(right_hand_side, data).masked_fill(~inequalities, 0.0)
        if equality_values is not None:
            given = numbers(equality_values, "equality_values")
            _check_equality_values(given, kept, data)
            sides = torch.where(equalities, given.gather(-1, reference.unsqueeze(-1)) - given, sides)
        if offsets is not None:
            given = numbers(offsets, "offsets")
            check_finite(given, "offsets", ("input", "token"))
            sides = (sides - given.gather(-1, reference.unsqueeze(-1)) + given) * (inequalities | equalities)
        self._fill(data, reference, inequalities, equalities, sides)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes; () for a single problem."""
        return self.data.batch_shape

    @cached_property
    def rows(self) -> Bool[Tensor, "*batch n T"]:
        """Where there is a row, equality or inequality."""
        return self.inequalities | self.equalities

    @property
    def most_rows(self) -> int:
        """How many rows the problem with the most has; 0 in an empty batch."""
        return int(self.rows.flatten(-2).sum(-1).max()) if self.rows.numel() else 0

    @cached_property
    def asking(self) -> Bool[Tensor, "*batch n T"]:
        """Rows that W = 0 does not meet."""
        return (self.inequalities & (self.right_hand_side > 0)) | (self.equalities & (self.right_hand_side != 0))

    @cached_property
    def scalable(self) -> Bool[Tensor, "*batch"]:
        """Where scaling W up keeps it feasible: equalities ask for 0 and no row asks for a negative margin."""
        return ~(torch.where(self.equalities, self.right_hand_side != 0, self.right_hand_side < 0)).any(-1).any(-1)

    def __repr__(self) -> str:
        counts = f"{int(self.inequalities.sum())} inequalities"
        if bool(self.equalities.any()):
            counts += f", {int(self.equalities.sum())} equalities"
        return f"AttentionSVM({counts}, {self.data!r})"

    def __getitem__(self, index: Any) -> AttentionSVM:
        """One problem, or some of them, along the batch."""
        return self._with(self.data[index], lambda tensor: tensor[index])

    def flatten(self) -> AttentionSVM:
        """The same problems with all batch axes in one."""
        axes = len(self.batch_shape)
        if axes == 1:
            return self
        return self._with(self.data.flatten(), lambda x: x.flatten(0, axes - 1) if axes else x.unsqueeze(0))

    def cpu(self) -> AttentionSVM:
        """The same problems on the CPU, in plain order."""
        return self._with(self.data.to("cpu"), lambda tensor: tensor.cpu().contiguous())

    def keeping(self, rows: Bool[Tensor, "*batch n T"]) -> AttentionSVM:
        """The same problems with these of their inequality rows alone."""
        kept = self.inequalities & rows
        sides = self.right_hand_side.masked_fill(~(kept | self.equalities), 0.0)
        return object.__new__(AttentionSVM)._fill(self.data, self.reference, kept, self.equalities, sides)

    def _with(self, data: TokenDataset, change: Callable[[Tensor], Tensor]) -> AttentionSVM:
        """These problems on other data, every tensor of them changed, unchecked."""
        return object.__new__(AttentionSVM)._fill(data, *(change(getattr(self, name)) for name in _TENSORS))

    def _fill(self, data: TokenDataset, *tensors: Tensor) -> AttentionSVM:
        """Set the fields, past the frozen dataclass and unchecked."""
        vars(self).update(data=data, **dict(zip(_TENSORS, tensors, strict=True)))
        return self

    def margins(self, weights: ArrayLike) -> Float[Tensor, "*lead n T"]:
        """``(x_i,r_i - x_it)^T W z_i`` of every row: one attention forward; 0 where there is no row."""
        scores = logits(self.data, weights)
        reference = self.reference.expand(scores.shape[:-1]).unsqueeze(-1)
        return (scores.gather(-1, reference) - scores).masked_fill(~self.rows, 0.0)

    def smallest_ratio(self, margins: Float[Tensor, "*lead n T"]) -> Float[Tensor, "*lead"]:
        """The smallest margin / b over inequality rows with b > 0; inf where there are none."""
        asks = self.inequalities & (self.right_hand_side > 0)
        return (margins / self.right_hand_side).masked_fill(~asks, torch.inf).amin((-1, -2))

    def combine(self, multipliers: ArrayLike) -> Float[Tensor, "*lead d dq"]:
        """``sum_it lam_it (x_i,r_i - x_it) z_i^T``, the adjoint of `margins`: one attention backward."""
        data = self.data
        _, lead = folded(data, multipliers, (data.n, data.T), "multipliers", "n, T")
        lam = as_tensor(multipliers, "multipliers").reshape(*lead, data.n, data.T)
        lam = lam.masked_fill(~self.rows | self.vanishing, 0.0)
        reference = self.reference.expand(lam.shape[:-1]).unsqueeze(-1)
        return logits_adjoint(data, (-lam).scatter_add(-1, reference, lam.sum(-1, keepdim=True)))

    @cached_property
    def vanishing(self) -> Bool[Tensor, "*batch n T"]:
        """Rows that are zero to the last bit: a token equal to the representative, or a zero query.

        They add exactly nothing to `combine`, where multiplying out and subtracting would leave round-off.
        """
        flat = self.flatten()
        silent = (flat.data.queries == 0).all(-1, keepdim=True)
        vanishing = flat.rows & silent
        candidates = flat.rows & ~silent & (flat.row_norms == 0)  # tiny rows underflow to 0 there, so look again
        if bool(candidates.any()):
            element, sample, token = torch.nonzero(candidates, as_tuple=True)
            keys, sequence = flat.data.tokens, sample // flat.data.queries_per_sequence
            same = keys[element, sequence, token] == keys[element, sequence, flat.reference[element, sample]]
            vanishing[element, sample, token] = same.all(-1)
        return vanishing.reshape(self.rows.shape)

    def differences(self) -> Float[Tensor, "*batch n T d"]:
        """The rows' token parts x_i,r_i - x_it, 0 where there is no row: for problems small enough to hold them."""
        chosen = self.data.tokens_of(self.reference).unsqueeze(-2)
        return (chosen - self.data.input_tokens).masked_fill(~self.rows.unsqueeze(-1), 0.0)

    def listed(self, places: Int[Tensor, "batch m"]) -> tuple[Float[Tensor, "batch m d"], Float[Tensor, "batch m dq"]]:
        """x_i,r_i - x_it and z_i of the rows at these places among n T, of problems with one batch axis."""
        data, element = self.data, torch.arange(len(places), device=places.device)[:, None]
        inputs, tokens = places // data.T, data.tokens.reshape(-1, data.d)
        first = (element * data.sequences + inputs // data.queries_per_sequence) * data.T
        kept, dropped = first + self.reference.gather(1, inputs), first + places % data.T
        # embedding looks rows up several times faster than indexing
        return embedding(kept, tokens) - embedding(dropped, tokens), data.queries[element, inputs]

    @cached_property
    def row_norms(self) -> Float[Tensor, "*batch n T"]:
        """Frobenius norm of every row, ``||x_i,r_i - x_it|| ||z_i||``; 0 where there is no row.

        Computed sequence by sequence, so that shared tokens are never copied for each query.
        """
        data, shared = self.data, self.data.queries_per_sequence
        chosen = data.tokens_of(self.reference).reshape(*self.batch_shape, data.sequences, shared, data.d)
        distances = torch.cdist(chosen, data.tokens, compute_mode="donot_use_mm_for_euclid_dist")
        lengths = distances.reshape(self.rows.shape) * torch.linalg.vector_norm(data.queries, dim=-1)[..., None]
        return lengths.masked_fill(~self.rows, 0.0)


_TENSORS = ("reference", "inequalities", "equalities", "right_hand_side")


def _checked_selection(selected: ArrayOrList, data: TokenDataset) -> Tensor:
    index = as_tensor(selected, "selected")
    if index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(f"selected must hold token indices; got {type_name(index)}")
    index = index.to(device=data.device, dtype=torch.int64)
    check_shape(index, "selected", (*data.batch_shape, data.n), "batch, n")
    outside = (index < 0) | (index >= data.T)
    if bool(outside.any()):
        where, said = _first(outside, "input")
        raise ValueError(f"selected must lie in 0..{data.T - 1}; got {index[where].item()} at {said}")
    hidden = ~data.real.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    if bool(hidden.any()):
        where, said = _first(hidden, "input")
        raise ValueError(f"selected must be a real token; token {index[where].item()} of {said} is masked")
    return index


def _checked_set(selected_set: Any, data: TokenDataset, alone: bool) -> Tensor:
    """The mask; by itself (`alone`) it must leave a token to separate, unless every input has but one."""
    kept = as_mask(selected_set, "selected_set").to(data.device)
    check_shape(kept, "selected_set", (*data.batch_shape, data.n, data.T), "batch, n, T")
    hidden, empty = kept & ~data.real, ~kept.any(-1)
    if bool(hidden.any()):
        raise ValueError(f"selected_set must hold real tokens; {_first(hidden, 'input', 'token')[1]} is masked")
    if bool(empty.any()):
        raise ValueError(f"selected_set must keep a token of every input; {_first(empty, 'input')[1]} has none")
    full = (kept == data.real).all(-1).all(-1) & (data.real.sum(-1) > 1).any(-1)
    if alone and bool(full.any()):
        element = f" of {_first(full)[1]}" if full.ndim else ""
        raise ValueError(
            f"selected_set keeps every token{element}, so there is nothing to separate;"
            " use finite_component for equalities alone"
        )
    return kept


def _right_hand_side(value: ArrayLike | float, data: TokenDataset) -> Tensor:
    sides = as_tensor(value, "right_hand_side").to(device=data.device, dtype=torch.float64)
    full, inputs = (*data.batch_shape, data.n, data.T), (*data.batch_shape, data.n)
    if tuple(sides.shape) == inputs:
        sides = sides.unsqueeze(-1)
    elif sides.ndim != 0 and tuple(sides.shape) != full:
        raise ValueError(
            f"right_hand_side must be one number, {list(inputs)} (batch, n) or {list(full)} (batch, n, T);"
            f" got {list(sides.shape)}"
        )
    check_finite(sides, "right_hand_side", ("input", "token")[: min(sides.ndim, 2)])
    return sides.expand(full)


def _check_equality_values(given: Tensor, kept: Tensor, data: TokenDataset) -> None:
    """Finite on the tokens that are kept, and equal where these are."""
    check_finite(given.masked_fill(~kept, 0.0), "equality_values", ("input", "token"))
    tokens = data.input_tokens
    for t in range(data.T):
        twins = kept & kept[..., t, None] & (given != given[..., t, None]) & (tokens == tokens[..., t, None, :]).all(-1)
        if bool(twins.any()):
            *where, other = torch.nonzero(twins)[0].tolist()
            raise ValueError(
                f"tokens {t} and {other} of {place(where, ('input',))} are equal but are asked for different values;"
                " no weights can tell them apart"
            )


def _first(wrong: Tensor, *axes: str) -> tuple[tuple[int, ...], str]:
    """The first place where a mask is True, as an index and in words; `axes` name the trailing axes."""
    where = torch.nonzero(wrong)[0].tolist()
    return tuple(where), place(where, axes)
