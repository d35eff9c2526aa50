"""Chromium, as in the tests of the app."""

from __future__ import annotations

from app.browser import browser, page

__all__ = ["browser", "page"]
