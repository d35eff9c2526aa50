"""The command line: `attsvm demo`, `attsvm train`, `attsvm solve`."""

from attsvm.cli.app import app, main

__all__ = ["app", "main"]
