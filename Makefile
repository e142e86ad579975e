# One word each:  make demo | test | check | bench | compare | soak | clean
# Everything is set up on the way; what only the system can install is named with the command that installs it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NPM_STAMPS := tests/wire/node_modules/.installed tests/board/node_modules/.installed
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=
# Tests that run side by side: most of their time is waiting, each worker has servers of its own.
JOBS ?= 4

# A package of the system: installed when we may, else named. $(1) program, $(2) package
define need
	@command -v $(1) >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "installing $(2)"; \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(2) >/dev/null; \
		else \
			echo "$(1) is missing. Install it with: sudo apt-get install $(2)" >&2; exit 1; \
		fi; }
endef

.PHONY: help setup demo test check lint types format bench bench-full compare soak build clean system npm

help:
	@echo "make demo     run a pool on an embedded server and kill a worker in the middle"
	@echo "make test     every test that takes seconds"
	@echo "make check    format, lint, types, tests"
	@echo "make soak     every test that takes minutes"
	@echo "make bench    the benchmarks, the set of some minutes; bench-full: all of them"
	@echo "make compare  the same work by other libraries, each in a throw-away environment"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is missing. Install it with: sudo apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "venv is missing. Install it with: sudo apt-get install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Node and BullMQ are the judge of the wire, and a web board for BullMQ that of what people see and press.
$(NPM_STAMPS): %/node_modules/.installed: %/package-lock.json %/package.json
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

system:
	$(call need,redis-server,redis-server)
	$(call need,node,nodejs)
	$(call need,npm,npm)
	$(call need,faketime,faketime)
	$(call need,openssl,openssl)
	$(call need,chromium,chromium chromium-driver)
	$(call need,chromedriver,chromium-driver)

npm: | system
	@$(MAKE) --no-print-directory $(NPM_STAMPS)

demo: $(STAMP)
	@$(BIN)/python -m echomq_pool.demo

test: $(STAMP) npm
	$(PYTEST) -m "forks and not soak" $(PYTEST_ARGS)
	@# What fails beside others is asked once more, alone: a machine with more tests than cores gives no verdict.
	$(PYTEST) -m "not forks and not soak" -n $(JOBS) --dist worksteal $(PYTEST_ARGS) \
		|| $(PYTEST) -m "not forks and not soak" --last-failed $(PYTEST_ARGS)

soak: $(STAMP) npm
	$(PYTEST) -m soak --timeout 1800 $(PYTEST_ARGS)

bench: $(STAMP) npm
	$(PYTEST) --benchmark --quick -q $(PYTEST_ARGS)

bench-full: $(STAMP) npm
	$(PYTEST) --benchmark -q $(PYTEST_ARGS)

compare: $(STAMP) npm
	$(BIN)/python -m benchmarks.compare $(COMPARE_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy --strict

check: lint types test

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(STAMP)
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/wire/node_modules tests/board/node_modules
