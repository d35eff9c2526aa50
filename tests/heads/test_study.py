"""The study in the documentation shows pictures and names commands that exist; tests/pages holds its numbers."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = (ROOT / "docs" / "heads_study.md").read_text(encoding="utf-8")


def test_pictures_and_commands_exist():
    for picture in re.findall(r"\]\((images/[^)]+)\)", STUDY):
        assert (ROOT / "docs" / picture).exists()
    assert "python -m benchmarks.heads" in STUDY
    for module in re.findall(r"python -m (benchmarks\.\w+)", STUDY):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists()
