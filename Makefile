# Requirements: Python 3.11 to 3.14, make, and a package index.

VENV   ?= .venv
BIN    := $(VENV)/bin
# The first of these that is recent enough is used: make test PYTHON=python3.12
PYTHON ?= $(BIN)/python python3 python3.14 python3.13 python3.12 python3.11
UPLOT_IN := store/view/page/vendor
# Ray starts servers of its own, which do not bear several test processes: these tests run by themselves.
RAY_TESTS := tests/store/test_ray.py tests/store/test_ray_dataset.py

INTERPRETER := $(shell for python in $(PYTHON); do "$$python" -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); \
	print(sys._base_executable)' 2>/dev/null && break; done)
# A virtual environment that was moved or copied, or is of another Python, is made anew: its programs name its place.
WHICH  := -c 'import sys, sysconfig; print(sys.base_prefix, sysconfig.get_config_var("SOABI"))'
USABLE := $(shell grep -qsF '$(abspath $(BIN))/' $(BIN)/pip && \
	[ "$$($(BIN)/python $(WHICH) 2>&1)" = "$$('$(INTERPRETER)' $(WHICH) 2>&1)" ] && echo yes)
MADE   := $(VENV)/pyvenv.cfg
# Errors only. Without build isolation, which would download setuptools for each installation.
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check
INSTALL := @$(PIP) 'setuptools>=77' && $(PIP) --no-build-isolation -e

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench pictures faults nightly ray vendor clean

help:  ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 10

demo: $(VENV)/demo  ## Record a small society, replay it, and compare the two
	$(BIN)/messager demo

# The tests start hundreds of processes. Without compiled files each of them would compile every module.
test: $(VENV)/ray $(VENV)/typescript lint  ## Lint, check the types, and run every test with fixed seeds
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto

# mypy and import-linter see the folder store/ under the name it installs as.
lint: $(VENV)/test  ## Run ruff, mypy --strict, and the contracts between the packages
	@mkdir -p build/typecheck
	@ln -sfn ../../messager build/typecheck/messager
	@ln -sfn ../../messager_pytest build/typecheck/messager_pytest
	@ln -sfn ../../store build/typecheck/messager_store
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/test  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(MADE)  ## Measure side by side with peers: make bench ROWS="append read" ROUNDS=9
	$(BIN)/python bench/run.py $(ROWS) $(if $(ROUNDS),--rounds $(ROUNDS)) $(BENCH)

faults: $(VENV)/test  ## Run the fault harness in its long form, with a random seed: make faults ONLY="redis-killed"
	$(BIN)/python -m tests.faults --long $(foreach name,$(ONLY),--only $(name))

nightly: $(VENV)/ray $(VENV)/typescript lint  ## Run the tests with random seeds, many examples and every database, then make faults
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --nightly --timeout 1200 $(addprefix --ignore ,$(RAY_TESTS))
	@! [ -e $(VENV)/ray ] || $(MAKE) ray
	$(BIN)/python -m tests.faults --long

ray: $(VENV)/ray  ## Run the tests that need Ray, which is an 80 MB download
	$(BIN)/python -m pytest --nightly $(RAY_TESTS)

pictures: $(VENV)/test  ## Draw the pictures of README.md, and take the screenshots
	$(BIN)/python docs/pictures.py
	PYTHONPATH=. $(BIN)/python docs/screenshots.py

vendor:  ## Replace uPlot, which draws the time axis of the page: make vendor UPLOT=1.6.32
	@mkdir -p build && cd build && rm -rf package && tar -xzf "$$(npm pack --silent uplot@$(UPLOT))"
	cp build/package/dist/uPlot.iife.min.js build/package/dist/uPlot.min.css build/package/dist/uPlot.d.ts $(UPLOT_IN)
	cp build/package/LICENSE $(UPLOT_IN)/uPlot.LICENSE

clean:  ## Remove everything that make created
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Debian has venv in a package of its own, python3-venv. Without it, virtualenv does the same.
$(MADE):
	@[ -n "$(INTERPRETER)" ] || { echo "Python 3.11 or later is needed. None of these is: $(PYTHON)." \
		"Name one: make demo PYTHON=/path/to/python3" >&2; exit 2; }
	@rm -rf $(VENV)
	@echo "making $(VENV) with $(INTERPRETER)"
	@'$(INTERPRETER)' -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV) && \
		'$(INTERPRETER)' -m pip install -qq --disable-pip-version-check --target build/virtualenv virtualenv && \
		PYTHONPATH=build/virtualenv '$(INTERPRETER)' -m virtualenv --quiet $(VENV); } || \
		{ echo "Install the package of your system that has venv for $(INTERPRETER), such as python3-venv." >&2; exit 2; }
ifneq ($(USABLE),yes)
.PHONY: $(MADE)
endif

$(VENV)/demo: $(MADE) pyproject.toml
	@echo "installing messager into $(VENV)"
	$(INSTALL) '.[demo]'
	@touch $@

$(VENV)/test: $(MADE) pyproject.toml
	@echo "installing messager and what its tests need into $(VENV)"
	$(INSTALL) '.[lint]'
	@touch $@ $(VENV)/demo

# Ray does not exist for every machine and Python. Its tests are skipped there.
$(VENV)/ray: $(VENV)/test
	$(INSTALL) '.[ray]' && touch $@ || echo "Ray cannot be installed"

# TypeScript checks the types of the page. Its test is skipped without it, and fails where CI is set.
$(VENV)/typescript: $(MADE) tests/store/view/package.json
	@mkdir -p $(VENV)/js && cp tests/store/view/package.json $(VENV)/js
	npm install --prefix $(VENV)/js --no-package-lock --no-audit --no-fund --fetch-retries 1 --silent \
		&& touch $@ || echo "TypeScript cannot be installed"
