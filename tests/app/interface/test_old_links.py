"""Links that the playground of attsvm 0.1 made show what they showed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .playground import Playground

LINKS = json.loads((Path(__file__).parents[2] / "stored" / "0.1" / "links.json").read_text(encoding="utf-8"))


def kept(before: Any, now: Any) -> bool:
    """Whether everything in `before` is in `now`; what was added since does not count."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(name in now and kept(part, now[name]) for name, part in before.items())
    if isinstance(before, list):
        return isinstance(now, list) and len(before) == len(now) and all(map(kept, before, now))
    return bool(before == now)


@pytest.mark.parametrize("number", range(len(LINKS)))
def test_a_link_of_0_1_opens(playground: Playground, number: int) -> None:
    link, before = LINKS[number]["link"], LINKS[number]["state"]
    playground.page.evaluate("(link) => handle.setState(link)", link)
    playground.settle()
    now = playground.state
    for part in ("problem", "settings", "companions", "shown", "time", "view"):
        assert kept(before[part], now[part]), part


def test_the_comparison_can_fail() -> None:
    assert not kept({"time": 3}, {"time": 4})
    assert not kept({"time": 3}, {})
    assert not kept([1, 2], [1])
    assert kept({"time": 3}, {"time": 3, "speed": 1})
