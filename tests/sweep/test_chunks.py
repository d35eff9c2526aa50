from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
import torch

from attsvm.sweep import Piece, describe_columns
from attsvm.sweep.chunks import Chunk, DamagedChunkError, as_chunk, decode, encode, parquet_bytes

SPENT = {"computing": 1.0, "compiling": 0.5, "importing": 0.25}
COLUMNS = {"rows": {"number": "a number", "name": "a name", "flag": "yes or no"}, "other": {"x": "the only one"}}


def chunk(**changes: object) -> Chunk:
    table = {"number": torch.arange(4.0, dtype=torch.float64), "name": list("abcd"), "flag": True, **changes}
    piece = Piece(
        tables={"rows": table, "other": {"x": 1}},
        arrays={"path": torch.ones(2, 3), "order": np.arange(6).reshape(3, 2).T},
        counts={"lost": np.int64(2), "none": 0},
    )
    return as_chunk(piece, COLUMNS, SPENT)


def test_there_and_back():
    first = chunk()
    content = encode(first, "print", "task-1")
    found = decode(content, "print", "task-1")
    assert found.tables == first.tables
    assert found.tables["rows"].to_pydict() == {
        "number": [0.0, 1.0, 2.0, 3.0], "name": ["a", "b", "c", "d"], "flag": [True] * 4,
    }  # fmt: skip
    assert describe_columns(found.tables["rows"]) == COLUMNS["rows"]
    assert np.array_equal(found.arrays["order"], np.arange(6).reshape(3, 2).T)
    assert found.counts == {"lost": 2, "none": 0}
    assert found.spent == SPENT
    assert encode(found, "print", "task-1") == content


def test_the_same_table_gives_the_same_bytes():
    once = chunk().tables["rows"]
    again = pa.concat_tables([once.slice(0, 1), once.slice(1)]).combine_chunks()
    assert parquet_bytes(again) == parquet_bytes(once)


def test_every_flipped_bit_is_seen():
    content = encode(chunk(), "print", "task-1")
    chooser = random.Random(0)
    places = {0, len(content) - 1, *(chooser.randrange(len(content)) for _ in range(300))}
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << chooser.randrange(8)
        with pytest.raises(DamagedChunkError):
            decode(bytes(damaged), "print", "task-1")


@pytest.mark.parametrize("length", [0, 1, 20, 90, 200, -1])
def test_a_truncated_chunk_is_seen(length):
    with pytest.raises(DamagedChunkError, match="empty" if length == 0 else "checksum"):
        decode(encode(chunk(), "print", "task-1")[:length], "print", "task-1")


def test_a_chunk_of_something_else_is_seen():
    content = encode(chunk(), "print", "task-1")
    with pytest.raises(DamagedChunkError, match="another configuration"):
        decode(content, "other", "task-1")
    with pytest.raises(DamagedChunkError, match="another task, task-1"):
        decode(content, "print", "task-2")


def test_no_rows_keep_their_types():
    empty = chunk(number=torch.zeros(0, dtype=torch.float64), name=np.zeros(0, dtype="<U1")).tables["rows"]
    assert empty.num_rows == 0
    assert empty.schema == chunk().tables["rows"].schema


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (Piece(tables={"rows": {"number": [1]}}), "missing .'flag', 'name'., not declared"),
        (Piece(tables={"else": {}}), "tables must be among"),
        (Piece(tables={"other": {"x": np.ones((2, 2))}}), "column 'x' of 'other' must be one-dimensional"),
        (Piece(tables={"rows": {"number": [1, 2], "name": ["a"], "flag": True}}), r"one length; got \[1, 2\]"),
        (Piece(counts={"lost": 1.5}), "'lost'. must be a non-negative integer; got 1.5"),
        (Piece(counts={"lost": -1}), "must be a non-negative integer; got -1"),
        (Piece(arrays={"path": np.array(3.0)}), "array 'path' must have a first axis"),
    ],
)
def test_a_piece_that_is_not_as_declared_is_refused(piece, words):
    with pytest.raises(ValueError, match=words):
        as_chunk(piece, COLUMNS, SPENT)
