# Everything starts here; nothing is needed beforehand but Python 3.11 or newer, pip and make.
#   make lab        set up, fetch the model, open walkthrough 01 in JupyterLab   (ARGS="--no-browser --port 8899")
#   make test       the default test tier: CPU, tiny model, one thread, no network (PYTEST_ARGS="-k name")
#   make check      every gate: ruff, basedpyright, import contracts, house tests, default tests
#   make bench      decode speed on this machine beside transformers
#   make gpu        CUDA tests and benchmark; needs no .venv                     (PYTHON=python3 OUT=folder)
#   make notebooks  build the walkthroughs and the README's pictures, and run the walkthroughs' tests
# PIP_ARGS is handed to pip in `make setup`, for example to choose another torch build (README, "Linux laptops").

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.stepscope-setup
ARGS ?=
PIP_ARGS ?=
PYTEST_ARGS ?=
OUT ?= out
MODEL := smollm2-135m
# jaxtyping checks dtypes and axis letters of the boundary records, in tests only.
SHAPES := --jaxtyping-packages=engine.inputs.records,beartype.beartype

.DEFAULT_GOAL := help
.PHONY: help setup lab test lint check bench gpu notebooks model

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Stepscope needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make setup PYTHON=python3.12"; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	 elif $(PYTHON) -c 'import pip' 2>/dev/null; then \
	   $(PYTHON) -m venv --without-pip $(VENV) && \
	   $(PYTHON) -m pip --python $(PY) install --quiet --ignore-installed pip; \
	 else false; fi || { \
	  echo "This Python cannot make a virtual environment with pip in it."; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv, then run make again."; exit 1; }
	@echo "Installing Stepscope and its tools into $(VENV) (once; a few minutes)"
	@$(PY) -m pip install --disable-pip-version-check --quiet --progress-bar off $(PIP_ARGS) -e '.[dev]'
	@touch $(STAMP)

model: $(STAMP)
	@$(PY) -m lab.cli.main models pull $(MODEL)

lab: $(STAMP)
	@$(PY) -m lab.cli.main models pull $(MODEL) || \
	  echo "Going on without $(MODEL): the walkthroughs run on the built-in tiny model instead."
	@$(PY) -m lab.cli.main lab $(ARGS)

test: $(STAMP)
	OMP_NUM_THREADS=1 $(PY) -m pytest --timeout=240 $(SHAPES) $(PYTEST_ARGS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m basedpyright --warnings
	$(PY) -c 'from importlinter.cli import lint_imports_command as c; c()'

check: lint test

bench: $(STAMP)
	$(PY) -m lab.cli.main bench cpu $(ARGS)

# The machine with the GPU may have its own torch and no network: PYTHON given on the command line wins, then .venv.
GPU_PY = $(if $(filter command line,$(origin PYTHON)),$(PYTHON),$(if $(wildcard $(PY)),$(PY),$(PYTHON)))
GPU_TESTS := tests/gpu tests/lab/bench/test_gpu.py tests/lab/bench/test_clock.py
gpu:
	@mkdir -p $(OUT)
	$(GPU_PY) -m pytest -m gpu $(GPU_TESTS) $(PYTEST_ARGS)
	$(GPU_PY) -m lab.cli.main bench gpu --json > $(OUT)/bench-gpu.json
	@cat $(OUT)/bench-gpu.json

notebooks: $(STAMP)
	$(PY) walkthroughs/build.py $(ARGS)
	$(PY) walkthroughs/motion.py
	$(PY) -m pytest -m notebooks --timeout=300 $(PYTEST_ARGS)
