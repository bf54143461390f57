# The two commands that matter: make run, make test.
PYTHON ?= python3
PY := .venv/bin/python
SETUP := $(PYTHON) -m scripts.setup
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run test test-quick lint bench faults clean setup setup-test constraints

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: setup ## Start Upshot with a demo workspace on http://127.0.0.1:8000
	@exec .venv/bin/upshot serve --demo

test: setup-test ## Lint and run every test
	@$(PY) -m scripts.run_tests

test-quick: setup-test ## Run the tests in two minutes: no browser, no servers, no exhaustive walks
	@$(PY) -m scripts.run_tests --quick

lint: setup-test ## Check style and types
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet
	@$(PY) -m mypy --no-error-summary

bench: setup-test ## Measure what the README promises, as JSON
	@$(PY) -m bench

faults: setup-test ## Kill processes under load and check what survives
	@$(PY) -m pytest -n 0 tests/faults --full

clean: ## Remove everything that make built; your data in var/ stays
	@rm -rf .venv .cache node_modules app/static/vendor build upshot.egg-info .mypy_cache .ruff_cache .hypothesis test-results
	@find app bench migrations scripts tests -name __pycache__ -prune -exec rm -rf {} +

setup: ## Install the pinned packages and build the browser assets
	@$(SETUP)

setup-test: ## The same, with what the tests need
	@$(SETUP) --test

constraints: ## Pin the newest versions that pyproject.toml allows
	@$(PYTHON) -m scripts.pin_packages
