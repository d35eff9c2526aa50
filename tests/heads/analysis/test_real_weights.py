"""Heads of real models whose work is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from attsvm.heads import SelectionKind, analyze, load, sample_texts
from heads.weights import real

ROOT = Path(__file__).parents[3]


def atoms() -> ModuleType:
    """The benchmarks are no package of the tests, so the file is read by its path."""
    spec = importlib.util.spec_from_file_location("heads_atoms", ROOT / "benchmarks" / "heads_atoms.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_minilm_has_a_head_for_the_token_before():
    report = analyze(load(real("minilm")), sample_texts()[:40], heads=["L0H2", "L3H3"], queries=40, draws=2)
    head = report["L0H2"]
    assert head.attention_error < 1e-5
    assert head.main_kind == SelectionKind.PREVIOUS
    assert head.rule.startswith("the token before, or else ")
    assert head.selectivity.confident > 0.99
    found = head.comparisons[0]
    assert found.head.solved
    assert 0.01 < head.efficiency.smallest <= 1
    assert head.cosine > 2 * max(draw.cosine_projected for draw in found.random_weights)
    sink = report["L3H3"]
    assert sink.main_kind == SelectionKind.FIRST
    assert sink.comparisons[0].head.agreement > 0.95


@pytest.mark.slow
def test_rxnmapper_selects_the_atoms_that_products_come_from():
    """Its authors read atom maps from head 5 of layer 10; the maps here are written by hand."""
    known = atoms()
    checks = known.atom_checks(load(real("rxnmapper")))
    mapper = checks["L10H5"]
    print(f"L10H5 finds {mapper.right:.1%} of {mapper.atoms} atoms; chance {mapper.chance:.1%}")
    assert mapper.atoms > 200
    assert mapper.right > 0.85
    assert mapper.chance < 0.3
    others = [check.right for name, check in checks.items() if not name.endswith("H5")]
    assert max(others) < 0.8


def test_the_maps_by_hand_keep_every_element():
    """A wrong letter would map an atom to another element, or to none."""
    known = atoms()
    for text, letters in known.TRUTH.items():
        left, right = (known._ATOM.findall(side) for side in text.split(">>"))
        before, after = (side.replace(".", "") for side in letters.split(">>"))
        assert (len(left), len(right)) == (len(before), len(after)), text
        elements = dict(zip(before, (atom.upper() for atom in left), strict=True))
        assert [elements[letter] for letter in after] == [atom.upper() for atom in right], text
