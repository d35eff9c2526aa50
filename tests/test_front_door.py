"""The names at the top of `attsvm`: which they are, where they live, and that nothing loads before it is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import attsvm

ROOT = Path(__file__).parent.parent
SOURCE = Path(attsvm.__file__)
ROOMS = sorted(path.parent.name for path in SOURCE.parent.glob("*/__init__.py") if path.parent.name != "cli")
MOST = 60
# Names that users, examples and checks outside this repository rely on.
PROMISED = (
    "TokenDataset", "LinearHead", "ReluHead", "QuadraticHead", "ModuleHead", "token_scores", "optimal_tokens",
    "optimal_token_set", "best_risk", "lipschitz_bound", "logits", "logits_adjoint", "fit", "Run", "Weights",
    "KeyQuery", "GradientDescent", "NormalizedGradientDescent", "SteepestDescent", "MirrorDescent", "Adam",
    "PolyakDescent", "Logistic", "AttentionSVM", "solve", "Frobenius", "Nuclear", "MaxEntry", "Spectral", "Entrywise",
    "SumEntry", "Exponential", "Cvxpy", "direction_cosine", "margin_efficiency", "label_svm", "is_locally_optimal",
    "diagnose", "verify", "regularization_path", "generalized_components", "data",
)  # fmt: skip


def static_imports() -> dict[str, str]:
    """What a type checker sees: every name under TYPE_CHECKING, and the room it comes from ("" for a room itself)."""
    found = {}
    for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attsvm"):
            room = f"{node.module}.".split(".")[1]
            found |= {alias.name: room for alias in node.names}
    return found


def loaded_after(code: str) -> set[str]:
    """Modules loaded in a new process once `code` has run."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_at_the_top(name):
    assert hasattr(attsvm, name)
    assert name in attsvm.__all__


def test_the_names_are_few_and_each_stands_there_once():
    assert len(attsvm.__all__) == len(set(attsvm.__all__)) <= MOST


def test_type_checkers_and_users_see_the_same():
    seen = static_imports()
    assert {name for name, room in seen.items() if not room} == attsvm._ROOMS == set(ROOMS)
    assert {name: room for name, room in seen.items() if room} == attsvm._HOMES
    assert set(attsvm.__all__) == {*attsvm._HOMES, "data", "__version__"}
    assert {name for name in dir(attsvm) if not name.startswith("__")} == {*attsvm._HOMES, *attsvm._ROOMS}


def test_every_name_is_that_of_its_room():
    for name, room in attsvm._HOMES.items():
        home = importlib.import_module(f"attsvm.{room}")
        assert getattr(attsvm, name) is getattr(home, name), name
        assert name in home.__all__, name
    assert {*attsvm.__all__, *ROOMS} <= set(dir(attsvm))


def test_unknown_names_raise():
    for name in ("Linear", "RULES", "gradient", "nowhere"):
        with pytest.raises(AttributeError, match=f"module 'attsvm' has no attribute '{name}'"):
            getattr(attsvm, name)
        with pytest.raises(ImportError):
            exec(f"from attsvm import {name}")


def test_importing_the_package_loads_nothing_else():
    loaded = loaded_after("import attsvm; dir(attsvm)")
    assert {name for name in loaded if name.startswith("attsvm")} == {"attsvm"}
    assert not loaded & {"torch", "numpy"}


def test_names_load_their_own_rooms_only():
    loaded = loaded_after("from attsvm import fit, solve, diagnose")
    assert not loaded & {"matplotlib", "cvxpy", "clarabel", "transformers", "distributed", "pyarrow", "typer"}
    assert not loaded & {f"attsvm.{room}" for room in ("heads", "experiments", "plots", "app", "cli")}


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_rooms_load_on_first_use(room):
    assert f"attsvm.{room}" in loaded_after(f"import attsvm\nassert attsvm.{room}.__name__ == 'attsvm.{room}'")


def used_names(text: str) -> set[str]:
    """Names of the top that a text uses, as `attsvm.name` or from an import.

    >>> sorted(used_names("from attsvm import fit, Run as R\\nattsvm.solve(attsvm.svm.Conic())  # attsvm.nothing"))
    ['Run', 'fit', 'nothing', 'solve', 'svm']
    """
    listed = ",".join(re.findall(r"from attsvm import (\([^)]*\)|[^\n({]+)", text))
    return {*re.findall(r"\battsvm\.([A-Za-z]\w*)", text), *re.findall(r"(?:^|[,(])\s*(\w+)", listed)}


def test_every_name_used_in_docs_tests_and_benchmarks_exists():
    passed_over = {"test_front_door.py", "test_architecture.py"}  # they name what must not be there
    missing = {}
    for path in sorted(
        path for folder in ("docs", "tests", "benchmarks", "src") for path in (ROOT / folder).rglob("*")
    ):
        built = {"_build", "examples"} & set(path.relative_to(ROOT).parts)
        if path.suffix in (".py", ".md", ".rst") and path.name not in passed_over and not built:
            unknown = used_names(path.read_text(encoding="utf-8")) - {*dir(attsvm), "cli", "css"}
            if unknown:
                missing[str(path.relative_to(ROOT))] = unknown
    assert missing == {}


def calls() -> dict[str, tuple[tuple[object, ...], dict[str, object]]]:
    """Small calls of the functions at the top, each of whose arguments can be replaced by a wrong one."""
    data = attsvm.data.random_sphere(n=2, T=3, d=4, seed=0)
    best = attsvm.optimal_tokens(data)
    problem, run = attsvm.AttentionSVM(data, best), attsvm.fit(data, steps=2)
    return {
        "AttentionSVM": ((data, best), {}),
        "diagnose": ((data,), {}),
        "direction_cosine": ((run.weights, run.weights), {}),
        "fit": ((data,), {"steps": 2}),
        "generalized_components": ((data, run.attention, run.weights), {}),
        "initial_parameters": ((data,), {}),
        "is_locally_optimal": ((data, None, best), {}),
        "label_svm": ((data, best), {}),
        "margin_efficiency": ((run.weights, problem), {}),
        "optimal_tokens": ((data,), {}),
        "predict_selection": ((data,), {}),
        "regularization_path": ((data,), {"radii": [1.0], "restarts": 0}),
        "solve": ((problem,), {}),
        "token_scores": ((data,), {}),
        "verify": ((attsvm.diagnose(data), run), {}),
    }


def test_an_argument_of_a_wrong_kind_is_a_value_error_of_one_line() -> None:
    wrong = []
    for name, (positional, keywords) in calls().items():
        function = getattr(attsvm, name)
        for place, argument in enumerate(inspect.signature(function).parameters):
            if argument in ("progress", "device"):  # called late, and PyTorch's own
                continue
            for given in ("name", object(), len):
                own, named = list(positional), dict(keywords)
                if place < len(own):
                    own[place] = given
                else:
                    named[argument] = given
                try:
                    function(*own, **named)
                except ValueError as error:
                    if "\n" in str(error):
                        wrong.append(f"{name}({argument}={given!r}): {error}")
                except Exception as error:  # whatever else it is, it is wrong
                    wrong.append(f"{name}({argument}={given!r}): {type(error).__name__}: {error}")
    assert wrong == []
