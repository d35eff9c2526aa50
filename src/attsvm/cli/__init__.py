"""The command line: one file for each command, and what commands share in `common`."""

from attsvm.cli.app import app, main

__all__ = ["app", "main"]
