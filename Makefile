# Everything lives in this folder: the virtual environment in .venv, runs in runs/, servers' data in .whitney/.

PYTHON ?= python3
# On Linux the default build of PyTorch is the CUDA one, of several GB. For the CPU build, give the address of PyTorch's
# CPU index:  make demo TORCH_INDEX_URL=<address>   (README, "PyTorch").
TORCH ?= torch==2.13.0
TORCH_INDEX_URL ?=

# What is installed beside the embedded gateway, separated by commas:  make install EXTRAS=math,mcp
EXTRAS ?=

# Who installs: pip, which goes by your pip's settings; or uv, which does not, and takes a fifth of the time.
INSTALLER ?= pip

# Tests run in so many processes, a file in one of them, in the order that tests/conftest.py gives them. More than there
# are cores: most of the time they wait for servers and other processes.
WORKERS ?= 4

comma := ,
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL_BY_pip := $(PIP) install
INSTALL_BY_uv := $(PIP) install -c requirements.lock uv && $(BIN)/uv pip install --quiet --python $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help demo install test test-slow lint bench chaos learn docs lock

help:
	@echo "make demo     watch a small language model learn to add, in the terminal and in the Prefect UI"
	@echo "make install  the same environment without the demo; EXTRAS=math,mcp adds extras (README, \"Extras\")"
	@echo "make test     lint, types, import rules, tests"
	@echo "make test-slow tests that take minutes: kills of whitney up, PostgreSQL, every step of every retry"
	@echo "make lint     the first three of these"
	@echo "make bench    measure; prints a table, writes benchmarks/results.json"
	@echo "make chaos    300 scenarios of faults and Retry, each held against a run that nothing disturbed"
	@echo "make learn    train every algorithm on SmolLM2-135M (an hour or two); writes docs/learning.md"
	@echo "make docs     write the pages that are made from the code"
	@echo "make lock     pin what is installed in requirements.lock"

demo: .venv/installed-local
	@$(BIN)/whitney demo $(ARGS)

install: .venv/installed-local$(if $(EXTRAS),$(comma)$(EXTRAS))
	@echo "The whitney command is in $(BIN): source $(BIN)/activate"

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: .venv/installed-test
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: .venv/installed-test
	$(BIN)/python -m benchmarks $(ARGS)

chaos: .venv/installed-test
	$(BIN)/python -m benchmarks.chaos --scenarios 300 $(ARGS)

learn: .venv/installed-test
	$(BIN)/python -m benchmarks.learn $(ARGS)

docs: .venv/installed-test
	$(BIN)/python -m tasks.glossary > docs/metrics.md
	$(BIN)/python -m cli.config_pages > docs/configuration.md
	$(BIN)/python -m cli.cost_pages > docs/costs.md
	$(BIN)/python -m cli.algorithm_pages
	$(BIN)/python -m cli.plan_schema > docs/plan.schema.json

lock: .venv/installed-test
	(sed '/^[^#]/,$$d' requirements.lock; $(PIP) freeze --exclude-editable --exclude torch | grep -v '^nvidia-') > lock.new
	mv lock.new requirements.lock

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, this is " \
		+ sys.version.split()[0] + ": name another one, e.g. make demo PYTHON=python3.12")'
	@echo "Making .venv"
	@$(PYTHON) -m venv .venv

# PyTorch alone from its own index; what it depends on comes with the rest, at the locked versions.
.venv/installed-torch: .venv/bin/python
	@echo "Installing $(TORCH) into .venv"
	@$(PIP) install --no-deps --no-compile $(if $(TORCH_INDEX_URL),--index-url $(TORCH_INDEX_URL)) "$(TORCH)"
	@touch $@

.venv/installed-%: .venv/installed-torch pyproject.toml requirements.lock
	@echo "Installing whitney-pipelines[$*] into .venv"
	@$(INSTALL_BY_$(INSTALLER)) -c requirements.lock -e ".[$*]"
	@touch $@
