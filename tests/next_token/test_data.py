"""Samples: what is kept, what is left out, what attention sees, and what is refused in which words."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.attention import logits
from attsvm.next_token import characters, from_ids, from_text
from attsvm.next_token.data import words


def test_windows_of_a_text():
    data = from_text("a b a b c a b", window=3)
    # a b a -> b, b a b -> c (not there), a b c -> a, b c a -> b
    assert data.ids.tolist() == [[0, 1, 0], [0, 1, 2], [1, 2, 0]]
    assert data.labels.tolist() == [1, 0, 1]
    assert (data.n, data.left_out, data.K, data.d) == (3, 1, 3, 3)


def test_the_data_set_is_what_attention_sees():
    data = from_ids([[0, 1, 2], [1, 1]], [1, 1], np.eye(3, 4))
    inside = data.dataset
    weights = torch.arange(16.0).reshape(4, 4).double()
    table = data.embeddings
    for i, window in enumerate([[0, 1, 2], [1, 1]]):
        for t, token in enumerate(window):
            assert logits(inside, weights)[i, t] == table[token] @ weights @ table[window[-1]]
    assert inside.real.tolist() == [[True, True, True], [True, True, False]]
    assert inside.values[..., 0].tolist() == [[0, 1, 0], [1, 1, 0]]  # repeats stay tokens


@pytest.mark.parametrize(("d", "orthonormal"), [(3, True), (9, True), (2, False)])
def test_drawn_embeddings(d, orthonormal):
    table = from_text("a b a b c a b", window=3, d=d, seed=4).embeddings
    gram = table @ table.mT
    assert torch.allclose(gram.diagonal(), torch.ones(3).double())
    assert torch.allclose(gram, torch.eye(3).double(), atol=1e-14) == orthonormal
    assert not torch.equal(table, from_text("a b a b c a b", window=3, d=d, seed=5).embeddings)


def test_tokenizers():
    class Pieces:
        """Speaks like a tokenizer of Hugging Face."""

        def encode(self, text, add_special_tokens):
            assert not add_special_tokens
            return [ord(letter) for letter in text]

        def convert_ids_to_tokens(self, ids):
            return [f"<{chr(each)}>" for each in ids]

    assert from_text("abab", characters, window=2).words == ("a", "b")
    assert from_text("abab", Pieces(), window=2).words == ("<a>", "<b>")
    assert words("Don't!  One\u2019s") == ["don't", "!", "one\u2019s"]
    assert characters("a \n b") == ["a", " ", "b"]


EYE = np.eye(3)
SAME = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda: from_ids([[0, 1]], [3], EYE), r"labels must lie in 0\.\.2, the vocabulary .*; got 3 at 0"),
    (lambda: from_ids([[0, 7]], [0], EYE), r"sequences\[0\] must lie in 0\.\.2.*got 7 at 1"),
    (lambda: from_ids([[0, 1], []], [0, 0], EYE), r"sequences\[1\] has none"),
    (lambda: from_ids([[0, 1]], [0, 1], EYE), "one token for each of the 1 sequences; got 2"),
    (lambda: from_ids([[0.5, 1]], [0], EYE), r"sequences\[0\] must be a list of token ids"),
    (lambda: from_ids([[0, 1]], [0], EYE[0]), r"embeddings must have shape \[K, d\].*got \[3\]"),
    (lambda: from_ids([[0, 1]], [0], EYE * np.nan), "embeddings must be finite; got nan at token 0, coordinate 0"),
    (lambda: from_ids([[0, 1]], [0], SAME, "xyz"), "'x' and 'z' have the same one, so nothing can tell them apart"),
    (lambda: from_ids([[0, 1]], [0], EYE, "xy"), "names must name each of the 3 tokens"),
    (lambda: from_ids([[0, 1]], [0], EYE, "xyx"), "names must differ; got 'x' twice"),
    (lambda: from_ids([[0, 1]], [2], EYE), r"no next token occurs in its window \(1 samples left out\)"),
    (lambda: from_ids([[1, 1]], [1], EYE), "no window holds anything but its own label"),
    (lambda: from_text(""), "the text is empty"),
    (lambda: from_text(b"a b"), "text must be a string; got bytes"),
    (lambda: from_text("one"), "a single different token, 'one': there is no relation to learn"),
    (lambda: from_text("one one one", window=1), "a single different token, 'one'"),
    (lambda: from_text("a b c", window=3), "need 4 tokens; the text has 3: use a shorter window"),
    (lambda: from_text("a b c", window=0), "window must be a positive integer; got 0"),
    (lambda: from_text("a b a", window=2, d=0), "d must be a positive integer; got 0"),
    (lambda: from_text("a b a", window=2, embeddings=EYE), r"embeddings must have shape \[2, 3\] \(K, d\)"),
    (lambda: from_text("a b a", "words", window=2), "tokenizer must be a function"),
    (lambda: from_text("a b a", window=2).encode("a z"), "'z' is not among the 2 tokens"),
    (lambda: from_text("a b a", window=2).encode(""), "the context must hold at least one token"),
])  # fmt: skip
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
