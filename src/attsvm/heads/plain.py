"""Frozen records to and from what JSON can hold."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from enum import Enum
from typing import Any, TypeVar

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
