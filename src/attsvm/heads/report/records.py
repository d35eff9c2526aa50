"""Everything that is known about one head."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from attsvm.heads.analysis.comparison import Efficiency, Fit, Spectrum
from attsvm.heads.analysis.selections import Selectivity
from attsvm.heads.analysis.views import SelectionKind


@dataclass(frozen=True)
class SupportToken:
    """A constraint that holds the solution in place: this query's selected token is hardest to tell from `token`.

    Arguments:
        share: of this constraint in the sum of all multipliers.
        sentence: index of the sentence.
        query_position, selected_position, token_position: in the sentence.
        query, selected, token: their names.
        text: of the sentence.
    """

    share: float
    sentence: int
    query_position: int
    selected_position: int
    token_position: int
    query: str
    selected: str
    token: str
    text: str

    def __str__(self) -> str:
        return f"{self.query!r} selects {self.selected!r}, not {self.token!r} ({self.share:.1%}): {self.text}"


@dataclass(frozen=True)
class Example:
    """A sentence with its attention.

    Arguments:
        sentence: index of the sentence.
        tokens: their names.
        attention: in thousandths, row = query; 0 where a token is no candidate.
        selected: the selected position of each query, -1 where it has no choice or a tie.
        drawn: whether the query is in the problem.
        support: (query, token, share of all multipliers) of its support tokens.
    """

    sentence: int
    tokens: tuple[str, ...]
    attention: tuple[tuple[int, ...], ...]
    selected: tuple[int, ...]
    drawn: tuple[bool, ...]
    support: tuple[tuple[int, int, float], ...]


@dataclass(frozen=True)
class Comparison:
    """A head in one norm, beside its controls.

    Arguments:
        head: its weights and its own selections.
        random_weights: weights with the same spectrum and random directions, and *their* own selections; None where
            ties leave them no confident query.
        shuffled: the head's weights against its selections dealt out at random within each sentence.
        untrained: the same head of a freshly initialised model, and its own selections; None where there is none.
    """

    head: Fit
    random_weights: Fit | None
    shuffled: Fit
    untrained: Fit | None


@dataclass(frozen=True)
class HeadReport:
    """One head: what it selects, and how close to max-margin it is.

    Arguments:
        layer, head: counted from 0.
        outcome: in a sentence, how far the analysis came.
        selectivity: over all queries.
        kinds: share of each kind of selection among confident queries.
        attention_error: largest difference between the model's own attention and the one recomputed from the form.
        spectrum: of the head's weights.
        rule: the best rule without weights, on the queries of the problem.
        rule_agreement: how often it holds on held-out queries.
        confident_queries: in all sentences.
        held_out_queries: confident ones drawn from held-out sentences.
        comparisons: one a norm; empty without confident queries.
        untrained_selectivity: of the same head of the untrained model, if there is one.
        support_tokens: in the first norm, largest share first.
        examples: sentences with attention.
    """

    layer: int
    head: int
    outcome: str
    selectivity: Selectivity
    kinds: dict[SelectionKind, float]
    attention_error: float
    spectrum: Spectrum
    rule: str
    rule_agreement: float
    confident_queries: int
    held_out_queries: int
    comparisons: tuple[Comparison, ...]
    untrained_selectivity: Selectivity | None
    support_tokens: tuple[SupportToken, ...]
    examples: tuple[Example, ...]

    @property
    def name(self) -> str:
        """Such as ``L3H7``."""
        return f"L{self.layer}H{self.head}"

    @property
    def fit(self) -> Fit | None:
        """The head in the first norm."""
        return self.comparisons[0].head if self.comparisons else None

    @property
    def efficiency(self) -> Efficiency:
        """Margin efficiency in the first norm, W projected on the spans of the data."""
        return self.fit.efficiency_projected if self.fit else Efficiency(math.nan, math.nan, math.nan)

    @property
    def cosine(self) -> float:
        """Direction cosine of the projected W and W_mm in the first norm."""
        return self.fit.cosine_projected if self.fit else math.nan

    @property
    def main_kind(self) -> SelectionKind | None:
        """What it selects most often; None without confident queries."""
        kind = max(self.kinds, key=lambda kind: self.kinds[kind])
        return kind if self.kinds[kind] > 0 else None

    def comparison(self, norm: str) -> Comparison:
        """The comparison in the norm of this name.

        Raises:
            ValueError: if it was not asked for.
        """
        for found in self.comparisons:
            if found.head.norm == norm:
                return found
        there = ", ".join(found.head.norm for found in self.comparisons) or "none"
        raise ValueError(f"norm must be one of those analysed for {self.name} ({there}); got {norm!r}")

    def __repr__(self) -> str:
        return f"HeadReport({self.name}, efficiency {self.efficiency.smallest:.3g}, cosine {self.cosine:.3g})"


Record = TypeVar("Record")


def to_plain(value: Any) -> Any:
    """Records become dictionaries, tuples lists, enum members their values, and numbers that are not finite None.

    >>> to_plain((1, float("nan")))
    [1, None]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: type[Record], value: Any) -> Record:
    """The record that `to_plain` turned into `value`; None where a number is expected is NaN.

    Raises:
        TypeError, KeyError, ValueError: if `value` was not made from such a record.
    """
    made: Record = _read(kind, value)
    return made


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(_read(arguments[0], part) for part in value)
        return tuple(_read(part, element) for part, element in zip(arguments, value, strict=True))
    if origin is dict:
        return {_read(arguments[0], key): _read(arguments[1], part) for key, part in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: _read(hints[name], value[name]) for name in names})  # type: ignore[operator]
    if kind is float:
        return math.nan if value is None else float(value)
    if isinstance(kind, type) and issubclass(kind, (Enum, int, str)):
        return kind(value)
    raise TypeError(f"cannot read a {kind!r}")
