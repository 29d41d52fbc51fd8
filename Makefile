# Everything a fresh machine needs: Python 3.11 or later, make, and a package index.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench faults ray clean

help:  ## Say what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 10

demo: $(VENV)/demo  ## Run a small society, record it, replay it, check it
	$(BIN)/messager demo

# The tests start hundreds of processes: what is not kept compiled, each of them compiles anew.
test: $(VENV)/ray lint  ## Lint, type-check, and run every test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto

# mypy and import-linter see the folder store/ under the name it installs as.
lint: $(VENV)/test  ## Ruff, mypy --strict, and the one-direction rule between the packages
	@mkdir -p build/typecheck
	@ln -sfn ../../messager build/typecheck/messager
	@ln -sfn ../../store build/typecheck/messager_store
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/test  ## Put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/bin/python  ## Measure, side by side: make bench ROWS="append read" ROUNDS=9
	$(BIN)/python bench/run.py $(ROWS) $(if $(ROUNDS),--rounds $(ROUNDS)) $(BENCH)

faults: $(VENV)/test  ## Kill, cut, fill, lock and step, many times: the long form of tests/faults
	$(BIN)/python -m tests.faults --long

ray: $(VENV)/ray  ## Run the tests that need Ray (80 MB to download)
	$(BIN)/python -m pytest tests/store/test_ray.py

clean:  ## Remove what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV) || ($(PYTHON) -m pip install --user virtualenv && $(PYTHON) -m virtualenv $(VENV))

$(VENV)/demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/test: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lint]'
	@touch $@ $(VENV)/demo

# Not for every machine and every Python is there a Ray: its tests are skipped there, and say so.
$(VENV)/ray: $(VENV)/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[ray]' && touch $@ || echo "Ray cannot be installed"
