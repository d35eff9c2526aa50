from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from attsvm.sweep import Configuration
from attsvm.sweep.task import differences
from sweep.tiny import Fixed, Tiny


@dataclass(frozen=True, kw_only=True)
class Kinds(Configuration):
    size: int = 3
    rate: float = 0.5
    name: str = "a"
    sizes: tuple[int, ...] = (1, 2)
    anything: object = None


def test_fields_of_every_kind_go_to_json_and_back():
    plain = Kinds(rate=1, sizes=(4,)).to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain == {"seed": 0, "size": 3, "rate": 1, "name": "a", "sizes": [4], "anything": None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": -1}, "seed must be a non-negative integer; got -1"),
        ({"seed": 1.5}, "seed must be an integer; got 1.5"),
        ({"size": "many"}, "size must be an integer; got 'many'"),
        ({"size": True}, "size must be an integer; got True"),
        ({"rate": "fast"}, "rate must be a number"),
        ({"name": 3}, "name must be a string"),
        ({"sizes": ()}, "sizes must be a tuple with something in it"),
        ({"sizes": (1, "b")}, "every part of sizes must be an integer; got 'b'"),
        ({"speed": 3}, "Kinds has no field 'speed'; it has seed, size"),
    ],
)
def test_bad_fields_are_named(change, words):
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(")):
        Kinds().with_values(**change)


@pytest.mark.parametrize("value", [math.nan, math.inf, np.int64(3), object()])
def test_what_json_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="Kinds must hold finite numbers"):
        Kinds(anything=value).to_json()


@pytest.mark.parametrize("runs", [0, -3, 1.5, True, "many"])
def test_runs_must_be_a_positive_integer(runs):
    with pytest.raises(ValueError, match="runs must be a positive integer"):
        Tiny().with_runs(runs)
    with pytest.raises(ValueError, match="draws must be"):
        Tiny(draws=runs)


def test_runs_change_the_field_that_counts_data_sets():
    assert Tiny().with_runs(5) == Tiny(draws=5)
    with pytest.raises(ValueError, match="Fixed has no number of data sets"):
        Fixed().with_runs(5)


def test_fingerprints_tell_everything_apart():
    seen = [
        Tiny().fingerprint("tiny", "cpu"),
        Tiny(seed=1).fingerprint("tiny", "cpu"),
        Tiny(draws=13).fingerprint("tiny", "cpu"),
        Tiny(chunk_size=3).fingerprint("tiny", "cpu"),
        Tiny().fingerprint("tiny", "cuda"),
        Tiny().fingerprint("other", "cpu"),
    ]
    assert len(set(seen)) == len(seen)
    assert Tiny(draws=12).fingerprint("tiny", "cpu") == seen[0]


def test_a_field_called_like_the_hashs_own_parts_still_counts():
    @dataclass(frozen=True, kw_only=True)
    class Named(Configuration):
        experiment: str = "a"
        device: str = field(default="b")

    assert Named().fingerprint("x", "cpu") != Named(experiment="c").fingerprint("x", "cpu")
    assert Named().fingerprint("x", "cpu") != Named(device="c").fingerprint("x", "cpu")


def test_differences_name_new_and_lost_fields():
    assert (
        differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == "a None instead of 1, b 3 instead of 2, c 4 instead of None"
    )
