# Everything a checkout needs. Only Python 3.11 or newer with venv is expected to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run compare test setup lint types layers bench clean

run: setup  ## a controller on made-up GPUs that schedules real processes, for half a minute
	$(BIN)/fairlead demo

compare: setup  ## compare policies on a built-in synthetic trace; table, plots and an HTML report in out/
	$(BIN)/fairlead compare --out out/compare

test: setup  ## the whole test suite
	$(BIN)/python -m pytest

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Fairlead needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

bench: setup  ## how time and memory grow; see bench/README.md
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
