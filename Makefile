# Everything a checkout needs. Only Python 3.11 or newer with venv is expected to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Four workers on two cores: half of the time of a live test is waiting. Which tests stay together and which come first: tests/conftest.py.
PARALLEL := -n 4 --no-loadscope-reorder

.PHONY: run demo-page compare test test-fast setup install lint types layers wheel docs bench clean

run: install  ## the demo: two users share made-up GPUs for a minute; nothing is left behind
	$(BIN)/fairlead demo

demo-page: install  ## the demo, kept running until Ctrl-C to look around on its page
	$(BIN)/fairlead demo --stay

compare: install  ## compare policies on a built-in synthetic trace; table and an HTML report in out/
	$(BIN)/fairlead compare --out out/compare

test: setup  ## the whole test suite
	$(BIN)/python -m pytest $(PARALLEL)

test-fast: setup  ## without processes, reproductions, learning and all stacks of policies: under two minutes
	$(BIN)/python -m pytest $(PARALLEL) -m 'not slow'

install: $(VENV)/.installed  ## what Fairlead needs to run, and nothing else

setup: $(VENV)/.ready  ## that, and what the tests and checks need

$(VENV)/.installed: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Fairlead needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Setting up $(VENV) with what Fairlead needs to run (half a minute, once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -e '.[live]'
	@touch $@

$(VENV)/.ready: $(VENV)/.installed
	@echo "Adding the tools for tests and checks" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

wheel: setup  ## build the wheel, install it into an empty environment, run the demo from it, uninstall it
	$(BIN)/python .ci/check_wheel.py

docs: setup  ## the documentation as a site with search, in out/docs/index.html; a warning is an error
	$(BIN)/python docs/make_reference.py >/dev/null
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs out/docs
	@echo "out/docs/index.html"

bench: setup  ## how time and memory grow; see bench/README.md
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
