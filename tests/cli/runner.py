"""Running the command line: in this process for its output, in a new one for what the shell sees."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from attsvm.cli import app

COMMAND = (sys.executable, "-c", "from attsvm.cli import main; main()")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def invoke(*arguments: object) -> Result:
    """Run in this process; a warning that a library logs would show on a user's stderr, and fails the test."""
    heard: list[logging.LogRecord] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = heard.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    finally:
        logging.getLogger().removeHandler(handler)
    assert [f"{record.name}: {record.getMessage()}" for record in heard] == []
    return result


def shell(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=ENVIRONMENT,
        check=False,
    )


def refused(result: Result, *words: str) -> str:
    """Check that a command ended in one sentence on stderr and exit code 2; return the sentence."""
    assert result.exit_code == 2, result.output
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("attsvm: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]
