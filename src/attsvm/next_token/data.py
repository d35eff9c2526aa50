"""Samples of next-token prediction. The next token occurs in the window: attention can only point at what is there."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attsvm.attention.linear_maps import SharedPairs
from attsvm.data import Seed, TokenDataset, streams
from attsvm.data.checks import ArrayLike, ArrayOrList, as_floating, check_count, check_finite, check_shape
from attsvm.data.machine import check_fits
from attsvm.data.random import unit

Tokenizer = Callable[[str], Sequence[str]]
"""Turns a text into tokens: `words`, `characters`, any function of the kind, or a tokenizer of Hugging Face."""

_WIDEST = 512  # the dimension that is chosen by itself is never larger


def words(text: str) -> list[str]:
    """The words of a text in lower case, and its punctuation marks.

    >>> words("The cat's mat. The hat!")
    ['the', "cat's", 'mat', '.', 'the', 'hat', '!']
    """
    return re.findall(r"\w+(?:['\u2019]\w+)*|[^\w\s]", text.lower())


def characters(text: str) -> list[str]:
    """The characters of a text; every stretch of white space is one space."""
    return list(" ".join(text.split()))


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a UTF-8 file; a `ValueError` if there is none, it cannot be read, or it is not UTF-8."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise ValueError(f"{path} must be UTF-8 text; {wrong} is not: save it as UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def village() -> str:
    """The text that comes with the package: short stories of a village, some 10,000 words, invented for it.

    >>> len(village().split())
    10016
    """
    text = files("attsvm.next_token").joinpath("village.txt").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@dataclass(frozen=True, eq=False, repr=False)
class NextTokenData:
    """Samples (x_1 .. x_T, y): token ids of a window, and the id of the token that comes next."""

    ids: Int[Tensor, "n T"]  #: the windows, the last token at the end of the real part; -1 where there is none
    labels: Int[Tensor, " n"]  #: y, one of the tokens of its window
    embeddings: Float[Tensor, "K d"]  #: e_1 .. e_K, float64
    words: tuple[str, ...]  #: what each token is called, K of them
    left_out: int  #: how many samples were left out because their next token is not in the window
    tokenizer: Tokenizer | None = None  #: what made tokens of the text; None where ids were given

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.ids.shape[0]

    @property
    def K(self) -> int:  # noqa: N802 - the paper's letter
        """Number of tokens of the vocabulary."""
        return self.embeddings.shape[0]

    @property
    def d(self) -> int:
        """Dimension of an embedding."""
        return self.embeddings.shape[1]

    @property
    def mask(self) -> Bool[Tensor, "n T"]:
        """Where there is a token."""
        return self.ids >= 0

    @cached_property
    def last(self) -> Int[Tensor, " n"]:
        """The last token of each window, whose embedding is the query."""
        return self.ids.gather(1, self.mask.sum(1, keepdim=True) - 1).squeeze(1)

    @cached_property
    def dataset(self) -> TokenDataset:
        """The samples as attention sees them: tokens ``[n, T, d]``, queries e_k, repeats as tokens of their own.

        The value of a token is 1 where it is the label and 0 elsewhere, the prediction head adds values up: what the
        layer puts out is the attention on the label, and with `attention.Log()` the risk is
        ``mean_i -log (attention on y_i)``.
        """
        size, what = 8 * self.ids.numel() * self.d, f"{self.n:,} windows of tokens in {self.d} dimensions"
        check_fits(size, self.embeddings.device, what, "use a smaller dimension or a shorter text")
        mask, ones = self.mask, torch.ones(self.n, dtype=torch.float64)
        values = (self.ids == self.labels[:, None]).to(torch.float64)[..., None]
        tokens, queries = self.embeddings[self.ids.clamp(min=0)] * mask[..., None], self.embeddings[self.last]
        return TokenDataset(tokens, queries, ones, None if bool(mask.all()) else mask, values, ones[:1])

    @cached_property
    def pairs(self) -> SharedPairs:
        """Tokens and queries as entries of the table E W E^T, through which training goes."""
        return SharedPairs(self.embeddings[None], (self.ids.clamp(min=0) * self.K + self.last[:, None])[None])

    def encode(self, context: str | Sequence[str] | Sequence[int]) -> list[int]:
        """The ids of a context that is given as a text, as tokens by name, or as ids."""
        given: list[Any] = _tokens(context, self.tokenizer or words) if isinstance(context, str) else list(context)
        if not given:
            raise ValueError("the context must hold at least one token; it is empty")
        if not isinstance(given[0], str):
            return _ids(given, "context", self.K).tolist()
        known = {word: index for index, word in enumerate(self.words)}
        if unknown := [word for word in given if word not in known]:
            raise ValueError(f"{unknown[0]!r} is not among the {self.K} tokens of the data")
        return [known[word] for word in given]

    def __repr__(self) -> str:
        samples = f"{self.n} samples of up to {self.ids.shape[1]} tokens, {self.left_out} left out"
        return f"NextTokenData({samples}, K={self.K}, d={self.d})"


def from_ids(
    sequences: Sequence[Sequence[int]] | ArrayLike,
    labels: Sequence[int] | ArrayLike,
    embeddings: ArrayOrList,
    names: Sequence[str] | None = None,
) -> NextTokenData:
    """Samples from token ids.

    Arguments:
        sequences: the windows, of any lengths; the last token of each is its query.
        labels: the token that comes next after each window; where it does not occur in the window the sample is
            counted and left out.
        embeddings: ``[K, d]``, a row for each token of the vocabulary.
        names: what the tokens are called; by default their numbers.

    A `ValueError` where two embeddings are equal, no label occurs in its window, or no window holds anything else.

    >>> data = from_ids([[0, 1, 2], [1, 1], [2, 0]], [1, 1, 1], np.eye(3))
    >>> data.n, data.left_out, data.last.tolist()
    (2, 1, [2, 1])
    """
    table = as_floating(embeddings, "embeddings").to(torch.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"embeddings must have shape [K, d], a row for each token; got {list(table.shape)}")
    called = tuple(map(str, range(len(table)) if names is None else names))
    if len(called) != len(table):
        raise ValueError(f"names must name each of the {len(table)} tokens that embeddings hold; got {len(called)}")
    if len(set(called)) < len(called):
        raise ValueError(f"names must differ; got {Counter(called).most_common(1)[0][0]!r} twice")
    windows = [_ids(window, f"sequences[{place}]", len(table)) for place, window in enumerate(sequences)]
    following = _ids(labels, "labels", len(table))
    if len(following) != len(windows):
        raise ValueError(f"labels must hold one token for each of the {len(windows)} sequences; got {len(following)}")
    if empty := [place for place, window in enumerate(windows) if len(window) == 0]:
        raise ValueError(f"every sequence needs at least one token; sequences[{empty[0]}] has none")
    ids = np.full((len(windows), max(map(len, windows), default=0)), -1, dtype=np.int64)
    for row, window in zip(ids, windows, strict=True):
        row[: len(window)] = window
    return _kept(ids, following, table, called, None)


def from_text(
    text: str,
    tokenizer: Any = None,
    window: int = 16,
    d: int | None = None,
    seed: Seed = 0,
    embeddings: ArrayOrList | None = None,
) -> NextTokenData:
    """Samples from a text: every `window` consecutive tokens, and the token that comes next.

    Arguments:
        tokenizer: `words` (default), `characters`, a function from a text to its tokens, or a tokenizer of Hugging
            Face.
        window: number of tokens of a sample.
        d: dimension of the embeddings; by default the number K of different tokens, at most 512. They are drawn on the
            sphere, orthonormal where d >= K.
        seed: of the embeddings.
        embeddings: ``[K, d]`` in place of drawn ones; rows in the order in which tokens first occur.

    A `ValueError` as for `from_ids`, and where the text is shorter than the window and one token more.

    >>> data = from_text("a b a b c a b", window=3)
    >>> data.words, data.n, data.left_out
    (('a', 'b', 'c'), 3, 1)
    """
    if not isinstance(text, str):
        raise ValueError(f"text must be a string; got {type(text).__name__}")
    size, split = check_count(window, "window"), tokenizer or words
    tokens = _tokens(text, split)
    if not tokens:
        raise ValueError("the text is empty: it holds no token")
    called = tuple(dict.fromkeys(tokens))
    if len(called) == 1:
        raise ValueError(f"the text holds a single different token, {called[0]!r}: there is no relation to learn")
    if len(tokens) <= size:
        raise ValueError(
            f"a window of {size} and the token that comes next need {size + 1} tokens; the text has {len(tokens)}:"
            " use a shorter window or a longer text"
        )
    if embeddings is None:
        width = min(len(called), _WIDEST) if d is None else check_count(d, "d")
        (draws,) = streams(seed, ())
        if width < len(called):
            table = torch.from_numpy(unit(draws, len(called), width))
        else:  # there is room for orthonormal ones
            table = torch.from_numpy(np.linalg.qr(draws.standard_normal((width, len(called))))[0].T.copy())
    else:
        table = as_floating(embeddings, "embeddings").to(torch.float64)
        check_shape(table, "embeddings", (len(called), table.shape[-1] if d is None else d), "K, d")
    numbers = {word: index for index, word in enumerate(called)}
    stream = np.array([numbers[token] for token in tokens], dtype=np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(stream, size)[:-1]
    return _kept(windows, stream[size:], table, called, split)


def _tokens(text: str, tokenizer: Any) -> list[str]:
    if hasattr(tokenizer, "convert_ids_to_tokens"):  # a tokenizer of Hugging Face
        return list(tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False)))
    if not callable(tokenizer):
        raise ValueError(f"tokenizer must be a function from a text to its tokens; got {tokenizer!r}")
    return list(tokenizer(text))


def _ids(given: Any, name: str, size: int) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must be a list of token ids; got {given!r}"[:200])
    outside = np.flatnonzero((array < 0) | (array >= size))
    if outside.size:
        got = f"got {array[outside[0]]} at {outside[0]}"
        raise ValueError(f"{name} must lie in 0..{size - 1}, the vocabulary that embeddings hold; {got}")
    return array.astype(np.int64)


def _kept(
    ids: np.ndarray, following: np.ndarray, table: Tensor, called: tuple[str, ...], tokenizer: Any
) -> NextTokenData:
    """The samples whose label occurs in the window, after a look at the embeddings."""
    check_finite(table, "embeddings", ("token", "coordinate"))
    _, first, counts = np.unique(table.numpy() + 0.0, axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        same = torch.nonzero((table == table[int(first[counts > 1].min())]).all(1)).flatten().tolist()
        named = " and ".join(repr(called[token]) for token in same[:2])
        raise ValueError(f"embeddings must differ; {named} have the same one, so nothing can tell them apart")
    inside = (ids == following[:, None]).any(1)
    if not inside.any():
        raise ValueError(
            f"no next token occurs in its window ({len(ids)} samples left out): there is nothing that attention could"
            " point at; use a longer window or another text"
        )
    if not ((ids[inside] != following[inside, None]) & (ids[inside] >= 0)).any():
        raise ValueError("no window holds anything but its own label: there is no relation to learn")
    return NextTokenData(
        torch.from_numpy(ids[inside].copy()), torch.from_numpy(following[inside].copy()), table, called,
        left_out=int((~inside).sum()), tokenizer=tokenizer,
    )  # fmt: skip
