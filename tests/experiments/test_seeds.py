"""Several seeds of one experiment: computed each by itself, judged together."""

from __future__ import annotations

import dataclasses
import json

import pytest

from attsvm.experiments import Check, SweepResult, Verdict, run, run_seeds
from attsvm.experiments.seeds import AcrossSeeds, Judged, SeedRow, judge
from experiments.tiny import TINY
from sweep.files import chunk_files, stored
from sweep.tiny import Tiny

SMALL = Tiny(draws=4)


def by_sign(result):
    """Does not hold where the first total is negative."""
    first = result.column("sums", "total")[0]
    return [
        Check("first total", "positive", f"{first:.2f}", Verdict.of(first > 0), "a fair coin decides"),
        Check("number", "four", f"{result.tables['sums'].num_rows} of 4", Verdict.HOLDS),
    ]


SIGNED = dataclasses.replace(TINY, checks=by_sign)


def test_every_seed_is_computed_as_it_would_be_alone(tmp_path):
    across = run_seeds(SIGNED, Tiny(draws=4, seed=3), seeds=4, folder=tmp_path / "all")
    assert across.seeds == [3, 4, 5, 6]
    assert across.configuration == {"draws": 4, "chunk_size": 2, "fail_at": -1}
    signs = []
    for seed in across.seeds:
        alone = run(SIGNED, Tiny(draws=4, seed=seed), folder=tmp_path / f"{seed}")
        assert stored(tmp_path / "all" / f"seed-{seed}") == stored(alone.folder)
        signs.append(alone.column("sums", "total")[0] > 0)
    assert len(set(signs)) == 2  # else these seeds would test nothing
    row, number = across.rows
    assert row.verdicts == [Verdict.of(bool(sign)) for sign in signs]
    assert row.count(Verdict.HOLDS) == sum(signs)
    assert number.range == "4 of 4"


def test_what_is_stored_says_it_all(tmp_path):
    across = run_seeds(SIGNED, SMALL, seeds=3, folder=tmp_path)
    found = json.loads((tmp_path / "seeds.json").read_text())
    assert found == across.to_json()
    check = found["checks"][0]
    assert sum(check["counts"].values()) == 3
    assert [[float(text)] for text in check["measured"]] == check["numbers"]
    assert found["counts"]["negative"] == [
        SweepResult.load(tmp_path / f"seed-{seed}").counts["negative"] for seed in range(3)
    ]


def test_seeds_are_resumed_and_added_to(tmp_path):
    run_seeds(SIGNED, SMALL, seeds=1, folder=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in chunk_files(tmp_path)}
    with pytest.raises(ValueError, match="seed-0 holds tiny with this configuration, finished"):
        run_seeds(SIGNED, SMALL, seeds=2, folder=tmp_path)
    assert not (tmp_path / "seed-1").exists()  # refused before anything was computed
    again = run_seeds(SIGNED, SMALL, seeds=2, folder=tmp_path, resume=True)
    assert again.seeds == [0, 1]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_seeds_that_are_finished_are_judged_although_a_later_one_fails(tmp_path):
    broken = dataclasses.replace(SIGNED, compute=lambda configuration, task, device: 1 / (1 - configuration.seed))
    folder = tmp_path / "seed-0"
    run(SIGNED, SMALL, folder=folder)
    with pytest.raises(ZeroDivisionError):
        run_seeds(broken, SMALL, seeds=2, folder=tmp_path, resume=True)
    assert json.loads((tmp_path / "seeds.json").read_text())["seeds"] == [0]


def test_no_seeds_and_other_configurations_are_refused(tmp_path):
    with pytest.raises(ValueError, match="seeds must be a positive number of seeds; got 0"):
        run_seeds(SIGNED, SMALL, seeds=0, folder=tmp_path)
    with pytest.raises(ValueError, match="no result"):
        AcrossSeeds.of([])
    results = [run(TINY, Tiny(draws=2 + seed, seed=seed), folder=tmp_path / f"seed-{seed}") for seed in range(2)]
    with pytest.raises(ValueError, match=r"seed-1 differs from .*seed-0 in more than its seed \(draws 3 instead of 2"):
        AcrossSeeds.of([judge(TINY, result) for result in results])


def test_a_check_that_some_seed_lacks_is_not_judged_there(tmp_path):
    def judged(seed: int, *names: str) -> Judged:
        return Judged("a", tmp_path, {"seed": seed}, [Check(name, "", "1", Verdict.HOLDS) for name in names], {})

    across = AcrossSeeds.of([judged(1, "often"), judged(0, "often", "once")])
    assert [row.verdicts for row in across.rows] == [[Verdict.HOLDS] * 2, [Verdict.HOLDS, Verdict.OPEN]]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["none", "none"], "none"),
        ([".9992 at 2,238, least .942", ".9990 at 2,238, least .95"], ".9990 to .9992 at 2,238, least .942 to .95"),
        (["1,228 of 4,000", "901 of 4,000"], "901 to 1,228 of 4,000"),
        (["1.4e-9", "3e-10"], "3e-10 to 1.4e-9"),
        (["-.16, 2%", "+.2, 1.5%"], "-.16 to +.2, 1.5 to 2%"),
        (["9.5x less", "12x less"], "9.5 to 12x less"),
        (["0.1 0.5 1", "0.2 0.4 1"], "0.1 0.4 1 to 0.2 0.5 1"),
        (["1, 2, 3", "1, 2, 3"], "1, 2, 3"),
        (["nan", "3"], "first seed: nan"),
    ],
)
def test_texts_become_ranges(texts, expected):
    assert SeedRow("", "", "", texts, [Verdict.HOLDS] * len(texts)).range == expected
