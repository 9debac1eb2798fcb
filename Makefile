# streamoe's commands. `make` lists them. Needs make and a Python of 3.11 or newer; the rest goes into .venv.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
INSTALLED_DEV := .venv/installed-dev
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A prompt reaches the program through its environment, so that quotes, dollars and newlines stay as typed:
# $(value) takes the text unexpanded, and make must not export PROMPT itself, for that would expand it.
ifeq ($(origin PROMPT),command line)
export STREAMOE_PROMPT := $(value PROMPT)
endif
unexport PROMPT

.DEFAULT_GOAL := help
.PHONY: help chat doctor test test-all lint format types lock vendor clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

chat: $(INSTALLED) ## chat with the model that comes along; PROMPT="..." answers once
	@$(BIN)/streamoe chat

doctor: $(INSTALLED) ## check this machine
	@$(BIN)/streamoe doctor

# Two workers, a file to one of them: a file's servers and models are made once. More would not fit a small machine.
test: lint types ## lint, types and the tests of the default run
	$(BIN)/python -m pytest -n 2 --dist loadfile

# One after another: some of these empty the machine's page cache, or take most of its memory.
test-all: lint types ## the slow tests too
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(INSTALLED_DEV) ## ruff and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

format: $(INSTALLED_DEV) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(INSTALLED_DEV) ## mypy, strict
	$(BIN)/mypy

lock: $(INSTALLED_DEV) ## write the installed versions to requirements.lock
	$(BIN)/python -m pip freeze --exclude-editable > requirements.lock

vendor: ## fetch the page's libraries anew, as VENDOR.toml pins them; needs npm
	$(PYTHON) deploy/vendor_page.py

clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml requirements.lock setup.py $(wildcard engine/streamoe_engine/kernels/src/*)
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("streamoe needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name another, as in make chat PYTHON=python3.12" % v[:2])'
	@echo "installing into .venv, once" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@# setuptools warns at every editable install of several source roots, at length; nothing here is ambiguous.
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint requirements.lock --editable .
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@$(BIN)/python -m pip install --quiet --constraint requirements.lock --group dev
	@touch $@
