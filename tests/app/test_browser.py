"""Where no browser can be had tests are skipped with a sentence, never in CI."""

from __future__ import annotations

import pytest

from .browser import chromium, missing


def test_skips_with_a_sentence(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser here"):
        missing("no browser here")


def test_fails_in_continuous_integration(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no browser here"):
        missing("no browser here")


def test_no_chromium_on_the_path(monkeypatch):
    pytest.importorskip("playwright")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(pytest.skip.Exception, match="none is on the PATH"), chromium():
        pass


def test_a_page_computes(page):
    page.set_content("<p id=one>1</p>")
    assert page.evaluate("Number(document.querySelector('#one').textContent) + 1") == 2
