from __future__ import annotations

import random
import re

import pytest
from benchmarks.experiments import page_block, put_into

from attsvm.experiments import EXPERIMENTS
from pages import claims_of_benchmarks, claims_of_explain, claims_of_heads, claims_of_next_token, claims_of_sweeps  # noqa: F401  they register what pages say
from pages import claims_of_factors as claims_of_factors
from pages import claims_of_positions as claims_of_positions
from pages.claims_of_experiments import SUMMARIES, page_of, summary
from pages.reading import CLAIMS, NUMBER, problems, read, text_of, words

PAGES = sorted(CLAIMS)
FEWER = {"factor-geometry": 4}
"""Experiments that rest on fewer than eight seeds, as their pages say."""
COMMAND = "PYTHONPATH=tests python -m pages.reading lists the numbers anew that are no measurements"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_was_measured(page):
    found = problems(page, text_of(page))
    assert not found, "\n".join([*found, COMMAND])


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_digit_is_seen(page):
    text = text_of(page)
    where = {each.start() for each in re.finditer(r"(?<![\w.])\.?\d", text)}
    seen = 0
    for place in random.Random(page).sample(sorted(where), min(len(where), 12)):
        digit = re.compile(r"\d").search(text, place)
        other = str((int(digit[0]) + 1) % 10)
        changed = text[: digit.start()] + other + text[digit.end() :]
        if words(changed) != words(text):  # code and addresses are no claims
            seen += 1
            assert problems(page, changed), text[place - 30 : place + 30]
    assert seen or not NUMBER.search(words(text))


def test_every_experiment_has_a_summary():
    assert set(SUMMARIES) == set(EXPERIMENTS)


@pytest.mark.parametrize("experiment", SUMMARIES)
def test_the_page_of_an_experiment_has_the_tables_of_its_summary(experiment):
    text, found = text_of(page_of(experiment)), summary(experiment)
    assert len(found["seeds"]) >= FEWER.get(experiment, 8), found["command"]
    assert put_into(text, page_block(found)) == text, "python -m benchmarks.experiments FOLDER makes them anew"


def test_numbers_nobody_claims_are_found():
    page = PAGES[0]
    text = text_of(page)
    assert read(page, f"{text}\nIt is 98765 times as fast.")[1][-1][0] == "98765"
    assert any("98765" in problem for problem in problems(page, f"{text}\nIt is 98765 times as fast."))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("L0H2 has .158, -.163 and 2,238, at 20,000.", [".158", ".163", "2,238", "20,000"]),
        ("1.4e-9 in `code 5` [7](docs/8.md)\n```python\n9\n```\n", ["1.4e-9", "7"]),
        ("(6, 8, 10) x 38.4x\n\n    indented 4\n", ["6", "8", "10", "38.4"]),
    ],
)
def test_numbers_are_read(text, numbers):
    assert NUMBER.findall(words(text)) == numbers
