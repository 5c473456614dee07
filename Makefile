SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Two processes share the cores of a small machine well; more only when asked: `make test WORKERS=8`.
WORKERS ?= 2
ARGS ?=

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# What `rota` itself needs; a checkout that is set up for development has it already.
$(VENV)/.core: requirements/lock.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/lock.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed: requirements/dev.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.core

.PHONY: install
install: $(VENV)/.installed ## everything for development, into .venv

.PHONY: up
up: $(VENV)/.core ## start Rota here with the example workflows: API, scheduler and a worker in one process
	$(BIN)/rota up --data-dir rota-data --workflows examples/workflows $(ARGS)

.PHONY: servers
servers: $(VENV)/.installed
	@scripts/ensure_servers.sh

.PHONY: test
test: $(VENV)/.installed servers ## all tests, on SQLite and PostgreSQL (ARGS="-k name" narrows)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: lint
lint: $(VENV)/.installed ## format and style, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: fmt
fmt: $(VENV)/.installed ## format and mend what can be mended
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .

.PHONY: types
types: $(VENV)/.installed ## types: strict in src, bodies of tests too
	$(BIN)/mypy

.PHONY: imports
imports: $(VENV)/.installed ## who may import whom
	$(BIN)/lint-imports --no-logo

.PHONY: generated
generated: $(VENV)/.installed ## generated files are what their generators write
	@scripts/check_generated.sh

.PHONY: check
check: lint types imports generated test ## what CI runs

.PHONY: e2e
e2e: $(VENV)/.installed servers ## only the tests with real processes
	$(BIN)/python -m pytest tests/acceptance $(ARGS)

.PHONY: bench
bench: $(VENV)/.installed servers ## measure against the budget
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: chaos
chaos: $(VENV)/.installed servers ## kill owners at random and look for stranded work
	$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: failover
failover: $(VENV)/.installed servers ## kill the leader of a PostgreSQL cluster (Patroni) ten times under load
	$(BIN)/python -m tests.failover $(ARGS)

.PHONY: lock
lock: ## resolve pyproject.toml into requirements/ (ARGS=--upgrade takes newer versions)
	scripts/lock.sh $(ARGS)

.PHONY: clean
clean: ## remove everything that can be made again
	rm -rf $(VENV) .venv-lock dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
