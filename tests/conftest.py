"""Shapes checked at run time, one thread, one hypothesis profile, one browser and one shared folder for all tests."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

from app.browser import browser, page

# Fixtures; here, since a process can run one Playwright only.
__all__ = ["browser", "page"]

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Numba compiles such modules from their source and cannot see through a decorator; they have no shapes to check.
KERNEL = re.compile(r"^(from|import) numba\b", re.MULTILINE)


def checked_modules() -> list[str]:
    """Every module of the package except kernels; packages are left out, since naming one names all inside."""
    files = [path for path in sorted(SOURCE.glob("attsvm/**/*.py")) if path.stem != "__init__"]
    plain = [path.relative_to(SOURCE) for path in files if not KERNEL.search(path.read_text(encoding="utf-8"))]
    return [".".join(path.with_suffix("").parts) for path in plain]


if find_spec("beartype") is not None:  # a bare GPU machine may lack it; the extra `dev` brings it
    install_import_hook(checked_modules(), "shapes.checked")
torch.set_num_threads(1)
settings.register_profile(
    "attsvm", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# pytest --hypothesis-profile=thorough: other examples each time, and many more of them.
settings.register_profile("thorough", settings.get_profile("attsvm"), max_examples=400, derandomize=False)
# `make quick`: a few of the same examples.
settings.register_profile("quick", settings.get_profile("attsvm"), max_examples=10)
settings.load_profile("attsvm")


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of one test run share; what is no fixture finds it in the environment."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["ATTSVM_TESTS_SHARE"] = str(folder)
    return folder
