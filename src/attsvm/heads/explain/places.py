"""Tokens by name, as people write them."""

from __future__ import annotations

import re

from attsvm.heads.model import Sentence


def plain_word(token: str) -> str:
    """A token without the marks of its tokenizer for spaces and for pieces of words.

    >>> plain_word("Ġdog"), plain_word("##ing"), plain_word("▁cat")
    ('dog', 'ing', 'cat')
    """
    return token.removeprefix("##").strip("Ġ▁ ").removesuffix("</w>")


def query_place(sentence: Sentence, query: int | str | None, name: str = "query") -> int:
    """The position of a token: a number, or a word that occurs once, whose last token counts.

    Digits are a position. None means the last token that is not special.

    Raises:
        ValueError: if there is no such position, or the word occurs nowhere or more than once.
    """
    length = len(sentence)
    if query is None:
        return max((k for k in range(length) if not bool(sentence.special[k])), default=length - 1)
    if isinstance(query, str) and re.fullmatch(r"-?\d+", query.strip()):
        query = int(query)
    if isinstance(query, int) and not isinstance(query, bool):
        if not 0 <= query < length:
            raise ValueError(f"{name} must be a position in 0..{length - 1} or a word of the text; got {query}")
        return query
    if not isinstance(query, str):
        raise ValueError(f"{name} must be a position or a word; got {query!r}")
    words = [plain_word(token) for token in sentence.tokens]
    for same in (str, str.lower):  # as it is written first
        wanted = same(query.strip())
        found = [
            last for last in range(length) for first in range(last + 1)
            if wanted and same("".join(words[first : last + 1])) == wanted and words[first] and words[last]
        ]  # fmt: skip
        if len(found) == 1:
            return found[0]
        if found:
            where = ", ".join(map(str, found))
            raise ValueError(
                f"{name} {query!r} occurs {len(found)} times, at tokens {where}; give one of these numbers"
            )
    shown = " ".join(f"{k}:{token}" for k, token in enumerate(sentence.tokens[:40]))
    raise ValueError(f"{name} {query!r} is not in the text; its tokens are {shown}")
