"""The reason that another library gives, as a clause of our own sentence."""

from __future__ import annotations


def reason(error: BaseException, longest: int = 200) -> str:
    """What `error` says, on one line and not too long.

    >>> reason(ValueError("first\\n   second"))
    'first second'
    >>> reason(KeyError())
    'KeyError'
    """
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= longest else said[: longest - 3] + "..."
