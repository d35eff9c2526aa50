"""The run-time check of jaxtyping shapes, as `conftest.py` installs it over the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the shapes in a signature, and only those.

    Other annotations stay with the static type checker: public functions answer a wrong type with a sentence of their
    own, and the tests on those sentences must reach it.
    """
    shaped = {name: hint for name, hint in function.__annotations__.items() if _has_shape(hint)}
    if not shaped:
        return function
    function.__annotations__ = shaped
    return beartype(function)


def _has_shape(hint: object) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shape(part) for part in get_args(hint))
