# make demo   install, then find the cheapest configuration of a real job on this machine
# make test   install what the tests need, then run all of them
#
# PYTHON=... names an interpreter; otherwise the first of python3, python3.13, 3.12, 3.11 that is new enough.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Many tests start programs: without compiled modules each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?=
DEMO := examples/compress/job.yaml
OUT := .tradewind/demo
KUBERNETES ?= /var/tmp/tradewind-kubernetes

.PHONY: help demo test test-all test-engines coverage compiled test-fast lint docs prices-age site kubernetes system clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 18

$(BIN)/python:
	@python=''; \
	for candidate in $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: Tradewind needs Python 3.11 or later; $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>/dev/null || echo not there). Write: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if ! "$$python" -m venv $(VENV); then \
	  rm -rf $(VENV); \
	  echo "make: $$python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; \
	fi

# One stamp for each set of extras: pip runs again only when pyproject.toml has changed.
$(VENV)/.plots: pyproject.toml | $(BIN)/python
	@echo 'Installing Tradewind into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plots]'
	@touch $@

# Python compiles a module when it is first imported: of these packages few are, and to compile all takes a minute.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo 'Installing Tradewind and what its tests need into $(VENV) ...'
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[dev,plots,pandas,polars,postgresql]'
	@touch $@ $(VENV)/.plots $(VENV)/.site

$(VENV)/.site: pyproject.toml | $(BIN)/python
	@echo 'Installing MkDocs and what it needs into $(VENV) ...'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

demo: $(VENV)/.plots ## tune the real job of examples/compress, about a minute, then its report
	$(BIN)/tradewind tune $(DEMO)
	@mkdir -p $(OUT)
	$(BIN)/tradewind report $(DEMO) --html $(OUT)/report.html --png $(OUT)/plots

test: ## install what the tests need, then all checks and all tests but the thorough ones
	@$(MAKE) -j2 system lint compiled
	$(BIN)/python -m pytest

test-all: ## as test, with the thorough tests and the long ones of real engines; more than an hour
	@$(MAKE) -j2 system lint compiled
	TRADEWIND_ENGINES=all $(BIN)/python -m pytest

test-fast: $(VENV)/.dev ## the tests that take less than half a second each: three minutes on two cores
	$(BIN)/python -m pytest -m 'not slow'

test-engines: $(VENV)/.dev system ## all tests of real engines, the long ones too; half an hour and more
	TRADEWIND_ENGINES=all $(BIN)/python -m pytest tests/deployer tests/examples tests/cli tests/workflow

coverage: $(VENV)/.dev system ## every test, the long ones of real engines too, and which lines they reach
	TRADEWIND_ENGINES=all $(BIN)/python -m pytest --cov --cov-report=term

lint: $(VENV)/.dev ## ruff, formatting, mypy --strict, who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

compiled: $(VENV)/.dev
	@$(BIN)/python -m tests.compile_kernels >/dev/null

docs: $(VENV)/.dev ## write docs/reference again from the code
	$(BIN)/python tools/generate_reference.py

prices-age: $(VENV)/.dev ## how old the shipped prices are; fails where they are too old for a release
	$(BIN)/python -m tools.prices.age

site: $(VENV)/.site ## make the web site of the documentation in build/site
	$(BIN)/python tools/build_site.py

kubernetes: $(VENV)/.dev ## build a real Kubernetes (10 to 30 minutes the first time) and test its runner on it
	bash tools/kubernetes/build.sh $(KUBERNETES)
	$(BIN)/python tools/kubernetes/check.py $(KUBERNETES)

system: | $(BIN)/python
	@bash tools/system_packages.sh
	@bash tools/terraform_engine.sh

clean: ## remove the virtual environment and everything that tools have left
	rm -rf $(VENV) .venv-* .tradewind .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf build dist htmlcov .coverage .coverage.* src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
