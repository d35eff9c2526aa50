from __future__ import annotations

import pytest

from attsvm.heads import read_texts, sample_reactions, sample_texts


def test_the_sample_is_large_and_varied():
    texts = sample_texts()
    assert len(texts) == len(set(texts)) >= 300
    lengths = [len(text.split()) for text in texts]
    assert min(lengths) <= 2
    assert max(lengths) >= 20
    for share, test in (
        (0.05, lambda text: "?" in text),
        (0.05, lambda text: any(letter.isdigit() for letter in text)),
        (0.02, lambda text: '"' in text),
        (0.02, lambda text: "(" in text or "=" in text),
        (0.3, lambda text: "," in text),
    ):
        assert sum(map(test, texts)) >= share * len(texts)


def test_reactions_have_an_arrow_and_no_new_elements():
    for reaction in sample_reactions():
        reactants, product = reaction.split(">>")
        assert product
        letters = {letter for letter in product.upper() if letter.isalpha()} - {"H"}
        assert letters <= set(reactants.upper()) | {"O"}, reaction  # oxidations and reductions leave out their reagent


def test_a_file_is_read_line_by_line(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("one\n\n  two  \nthree\n", encoding="utf-8")
    assert read_texts(file).lines == ("one", "two", "three")
    assert read_texts(file).note == ""
    few = read_texts(file, most=2)
    assert few.lines == ("one", "two")
    assert few.note == "only the first 2 texts of texts.txt were read"
    assert read_texts(file, most=3).note == ""


def test_a_huge_file_costs_nothing(tmp_path):
    """A sparse file of 40 GB: whoever reads it whole runs out of memory."""
    file = tmp_path / "huge.txt"
    with file.open("wb") as out:
        out.write(b"a line\n" * 1000)
        out.truncate(40 * 2**30)
    assert len(read_texts(file, most=1000).lines) == 1000
    with pytest.raises(ValueError, match="one text per line, of at most 50,000 bytes; line 1001 is longer"):
        read_texts(file, most=1001)


@pytest.mark.parametrize(("content", "words"), [
    (b"", "it is empty"),
    (b"\n \n", "it is empty"),
    (b"fine\n\xff\xfe\n", "must be UTF-8 text; line 2 is not"),
    (b"a\0b\n", "zero byte"),
    (b"x" * 60_000, "line 1 is longer"),
])  # fmt: skip
def test_bad_files(tmp_path, content, words):
    file = tmp_path / "texts.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_texts(file)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_texts(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="cannot be read"):
        read_texts(tmp_path)
