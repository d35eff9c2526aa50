"""The command line: `attsvm demo`, `attsvm train`, `attsvm solve`, `attsvm diagnose`."""

from attsvm.cli.app import app, main

__all__ = ["app", "main"]
