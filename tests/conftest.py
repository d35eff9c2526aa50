"""Shapes checked at run time, one thread, one hypothesis profile, one browser and one shared folder for all tests."""

from __future__ import annotations

import os
import re
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --fresh 3 tests/theory`: the same tests on random numbers that nobody has seen."""
    parser.addoption(
        "--fresh", type=int, default=0, metavar="N", help="other random numbers, the N-th; 0: the tests' own"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Draw afresh before any module of tests is imported, since some draw then; know Ctrl-C, which tests send.

    What a shell runs in the background ignores it, and so would every command that a test starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--fresh"):
        draw_afresh(config.getoption("--fresh"))


def draw_afresh(number: int) -> None:
    """Give every seed other random numbers: those of NumPy's seed sequences and generators, and of torch's."""
    sequence, generator, plain = np.random.SeedSequence, np.random.default_rng, torch.Generator

    class Fresh(plain):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(seed + 1_000_003 * number)

    def fresh_sequence(entropy: object, *, spawn_key: tuple[int, ...] = ()) -> np.random.SeedSequence:
        return sequence(entropy, spawn_key=(*spawn_key, 1000 + number))  # purposes of streams are smaller

    np.random.SeedSequence = fresh_sequence
    np.random.default_rng = lambda seed: generator([seed, number] if isinstance(seed, int) else seed)
    torch.Generator = Fresh


@pytest.fixture(scope="session", autouse=True)
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of one test run share; what is no fixture finds it in the environment."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["ATTSVM_TESTS_SHARE"] = str(folder)
    return folder
