"""The measurements of explanations: parts that are taken out, changes that are run, fine-tuning beside edits."""

from __future__ import annotations

import pytest
from benchmarks.explain import ablated_gap, fine_tuned, flipped

from attsvm.heads import Reading, edit, load, why
from attsvm.heads.explain.trace import in_float64
from heads.loading.small import IDS, albert, bert, lately, whisper

MODELS = {"bert": bert, "albert": albert, "llama": lambda: lately("Llama"), "whisper": whisper}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_last_acts_directly_only(name):
    model = load(MODELS[name]())
    with in_float64(model):
        reading = Reading(model, IDS, "L2H1")
        found = reading.why(5)
        for part, same in (("L1 MLP", True), ("L0H1", False)):
            held, anew = (ablated_gap(model, reading.trace, reading, found, part, kept) for kept in (True, False))
            assert held != pytest.approx(found.gap, rel=1e-6)
            assert (held == pytest.approx(anew, rel=1e-9)) == same


@pytest.mark.parametrize("name", MODELS)
def test_changes_are_run_all_at_once(name):
    model = load(MODELS[name]())
    with in_float64(model):
        reading = Reading(model, IDS, "L1H1", upstream=False)
        for query in (3, 6):
            assert flipped(model, reading, reading.why(query), (0.9, 1.001)) == [[False, True]] * 3


def test_fine_tuning_meets_the_demand_with_a_larger_change():
    model = load(lately("Llama"))
    chosen = why(model, IDS, "L1H1", 6).chosen
    token = 2 if chosen != 2 else 3
    found = edit(model, "L1H1", [(IDS, 6, token)])
    tuned, met = fine_tuned(model, found)
    assert met
    assert why(tuned, IDS, "L1H1", 6).chosen == token
    moved = float((tuned.weights(1, 1).query - model.weights(1, 1).query).norm())
    assert moved >= float(found.solution.weights.norm()) * (1 - 1e-6)
