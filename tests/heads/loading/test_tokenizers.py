"""Encoding texts: what is refused, what is cut, and single tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attsvm.heads import load
from attsvm.heads.loading.tokenizers import SmilesTokenizer, WhisperTokenizer
from heads.loading.small import attention_error
from heads.weights import real

from . import small


class Letters:
    """The smallest tokenizer that the library's interface allows: letters, framed."""

    bos_token_id, eos_token_id, unk_token_id, mask_token_id = 1, 2, 3, None
    cls_token_id, sep_token_id, pad_token_id = None, None, 0
    all_special_ids = (0, 1, 2, 3)

    def __call__(self, text):
        return {"input_ids": [1, *(ord(letter) % 40 + 4 for letter in text), 2]}

    def convert_ids_to_tokens(self, ids):
        return [f"<{i}>" for i in ids]

    def get_vocab(self):
        return {f"<{i}>": i for i in range(44)}


@pytest.fixture(scope="module")
def model():
    return load(small.bert(), tokenizer=Letters())


@pytest.mark.parametrize(("texts", "sentence"), [
    ([], r"texts must hold at least one sentence; got none"),
    ("one text", r"texts must be a list of sentences; got one str \(put it in a list\)"),
    (None, r"texts must be a list of sentences; got one NoneType"),
    (["good", "  \n"], r"texts\[1\] is blank; leave empty lines out"),
    (["good", ""], r"texts\[1\] is blank"),
    (["good", []], r"texts\[1\] has no tokens"),
    (["good", 3], r"texts\[1\] must be a string or a list of token numbers; got int"),
    ([[1.5, 2.0]], r"texts\[0\] must be a string or a list of token numbers; got list"),
    ([[True]], r"texts\[0\] must be a string or a list of token numbers; got list"),
    ([b"bytes"], r"texts\[0\] must be a string or a list of token numbers; got bytes"),
    ([[-1]], r"texts\[0\] has token number -1; BertModel knows 0..49"),
])  # fmt: skip
def test_bad_texts(model, texts, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.encode(texts)


def test_numbers_may_come_as_arrays(model):
    for ids in (torch.tensor([4, 5]), np.array([4, 5]), (4, 5)):
        assert model.encode([ids])[0].ids.tolist() == [4, 5]


def test_unknown_words_are_not_special(model):
    assert model.encode([[1, 3, 2]])[0].special.tolist() == [True, False, True]


def test_one_token_sentences(model):
    sentence = model.encode([[9]])[0]
    states = model.states(sentence)
    assert torch.equal(states.attention, torch.ones(3, 4, 1, 1).double())
    assert attention_error(model, states).max() == 0
    assert len(load(small.gpt2()).states(sentence).keys[0]) == 1


def test_long_texts_are_cut_with_a_warning(model):
    said = (
        r"1 of 2 texts are longer than the 16 positions of BertModel and were cut; the first, texts\[1\], lost its last"
    )
    with pytest.warns(UserWarning, match=said):
        short, long = model.encode(["abc", "abcdefghijklmnopqrst"])
    assert (short.left_out, long.left_out) == (0, 6)
    assert len(long) == 16
    assert long.ids[[0, -1]].tolist() == [1, 2]  # still framed
    assert long.ids[1:-1].tolist() == [ord(letter) % 40 + 4 for letter in "abcdefghijklmn"]
    assert attention_error(model, model.states(long)).max() < 1e-5


def test_as_long_as_the_table_allows():
    for make, positions in ((small.bert, 16), (small.roberta, 16), (small.gpt2, 16), (small.whisper, 16)):
        model = load(make())
        whole = model.encode([[5] * positions])[0]
        assert whole.left_out == 0
        assert attention_error(model, model.states(whole)).max() < 1e-5
        with pytest.warns(UserWarning, match="lost its last 1 of 17 tokens"):
            assert len(model.encode([[5] * (positions + 1)])[0]) == positions


def test_sentences_of_another_model(model):
    longer = load(small.bert(max_position_embeddings=40)).encode([[5] * 30])[0]
    with pytest.raises(ValueError, match=r"sentence must have 1 to 16 tokens for BertModel; got 30"):
        model.states(longer)


def test_smiles():
    smiles = SmilesTokenizer((real("rxnmapper") / "vocab.txt").read_text(encoding="utf-8").splitlines())
    split = {
        "CC(=O)Cl.[Na+]>>C": ["C", "C", "(", "=", "O", ")", "Cl", ".", "[Na+]", ">>", "C"],
        "BrC1=CC%10[nH]C1": ["Br", "C", "1", "=", "C", "C", "%10", "[nH]", "C", "1"],
        "C/C=C\\F~O": ["C", "/", "C", "=", "C", "\\", "F", "~", "O"],
    }
    for text, pieces in split.items():
        found = smiles.tokens(smiles.encode(text))
        assert found[0] == "[CLS]"
        assert found[-1] == "[SEP]"
        assert found[1:-1] == pieces
    assert smiles.tokens(smiles.encode("[Zz]"))[1] == "[UNK]"


@pytest.mark.parametrize(("text", "named"), [("CC Q", "' '"), ("C[Na", "'\\['"), ("Hello", "'H'")])
def test_no_smiles(text, named):
    smiles = SmilesTokenizer(["[CLS]", "[SEP]", "[UNK]", "C"])
    with pytest.raises(ValueError, match=f"{text!r} is not SMILES: {named} is not an atom".replace("[Na", r"\[Na")):
        smiles.encode(text)


def test_smiles_vocabulary_must_have_a_frame():
    with pytest.raises(ValueError, match=r"vocabulary of a SMILES tokenizer must hold \[SEP\]"):
        SmilesTokenizer(["[CLS]", "C"])


def test_byte_pairs_merge_by_rank():
    # "ab" merges before "bc": abc is ab c. A space stands before every word.
    ranks = {bytes([i]): i for i in range(256)} | {b"bc": 257, b"ab": 256, b" ab": 258}
    words = WhisperTokenizer(ranks, len(ranks) + 2 + 6 + 1501 + 3)
    start, end = len(ranks) + 1, len(ranks)
    assert words.encode("abc bc") == [start, start + 3 + 6, 258, ord("c"), 32, 257, end]
    assert words.tokens([258, end, 200]) == [" ab", "<|endoftext|>", "�"]


def test_ranks_must_fit_the_model(tmp_path):
    with pytest.raises(ValueError, match=r"tokenizer has 1 byte pairs, which do not fit the 100 tokens of the model"):
        WhisperTokenizer({b"a": 0}, 100)
    (tmp_path / "bad.tiktoken").write_text("only-one-column\n")
    with pytest.raises(ValueError, match=r"bad.tiktoken is not a file of byte-pair ranks"):
        WhisperTokenizer.from_file(tmp_path / "bad.tiktoken", 51864)


@pytest.mark.parametrize(("given", "sentence"), [
    (3, r"tokenizer must be a folder, a .tiktoken file or a tokenizer; got int"),
    ("no/such/place", r"tokenizer must be a folder, a .tiktoken file or a tokenizer; no/such/place does not exist"),
])  # fmt: skip
def test_no_tokenizers(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(small.bert(), tokenizer=given)


def test_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(ValueError, match=r"holds none of tokenizer.json, vocab.txt"):
        load(small.bert(), tokenizer=tmp_path)
