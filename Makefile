# The checkout's own commands. `make help` lists them.
# .venv is the launcher's environment; the backends' environments are made by launch/ on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --no-deps
# Stamps, not the folder's date: a set-up that was interrupted is done again.
CREATED := $(VENV)/.created
LAUNCHER := $(VENV)/.launcher
INSTALLED := $(VENV)/.installed
# tests/conftest.py says which tests share a worker, and in which order they are started.
PYTEST := $(BIN)/python -m pytest --dist=loadgroup --no-loadscope-reorder
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url \
	--annotation-style line --custom-compile-command 'make lock'
# NeMo only runs on Linux, and its versions are those of the oldest Python it is locked for.
LOCK_NEMO := $(LOCK) --python-platform x86_64-manylinux_2_28 --python-version 3.11 --emit-build-options \
	nemo_backend/requirements.in

# Settings of the caller's shell that would send imports or packages elsewhere, contradict the lock file, or make every
# start of a script compile it again.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_TARGET PIP_PREFIX PIP_USER PIP_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo gpu test quick lint lock

help:  ## list these commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

install: $(LAUNCHER)  ## install only the launcher, with the command .venv/bin/stepmark
	@echo "ready: $(BIN)/stepmark --help"

demo: $(LAUNCHER)  ## train a tiny Llama 2 with MaxText on this machine's GPU, or its CPU, and say how fast it was
	@$(BIN)/python launch/run.py --backend=jax --model=llama2_tiny --hardware=here --gpus=1

gpu: $(INSTALLED)  ## check on this machine's GPUs what only a GPU can show; FLAGS="--runtime=container" go to every run
	@STEPMARK_GPU_FLAGS="$(FLAGS)" STEPMARK_GPU_ON="$(ON)" $(BIN)/python -m pytest tests/gpu -m gpu -rN --tb=no --verbosity=-1

test: lint  ## check style and types, then run every test (pytest's closing line comes last)
	@# Three workers for two cores: the one with the tests on Slurm mostly waits.
	@$(PYTEST) --numprocesses=3 --durations=30

quick: $(INSTALLED)  ## run the tests that take a moment, and print how long run.py takes to start
	@$(PYTEST) --numprocesses=2 -m "not slow and not every_program and not gpu"
	@# Ratios to the smallest start that Python has with the launcher's libraries; nothing is asserted.
	@$(BIN)/python tests/measure_start_up.py 5

lint: $(INSTALLED)  ## check style, format and types
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

lock: $(INSTALLED)  ## resolve the lock files again from setup.cfg and each backend's requirements.in
	@$(LOCK) --universal --python-version 3.11 --extra dev setup.cfg --output-file requirements-dev.lock
	@# The same versions, without what only the tests and checks need.
	@$(LOCK) --universal --python-version 3.11 setup.cfg --constraints requirements-dev.lock --output-file requirements.lock
	@$(LOCK) --universal --python-version 3.12 jax_backend/requirements.in --output-file jax_backend/requirements.lock
	@# The same versions, and JAX's plugin for CUDA beside them.
	@$(LOCK) --universal --python-version 3.12 jax_backend/requirements-cuda.in \
		--constraints jax_backend/requirements.lock --output-file jax_backend/requirements-cuda.lock
	@$(LOCK_NEMO) --output-file nemo_backend/requirements-cuda.lock
	@# The same versions, with torch-cpu.in for torch and all that torch alone brings.
	@echo torch | $(LOCK_NEMO) --excludes /dev/stdin --constraints nemo_backend/requirements-cuda.lock \
		--output-file nemo_backend/requirements-cpu.lock
	@cat nemo_backend/torch-cpu.in >> nemo_backend/requirements-cpu.lock
	@$(LOCK) --config-file nemo_backend/bridge-uv.toml --python-platform x86_64-manylinux_2_28 --python-version 3.12 \
		--emit-build-options nemo_backend/requirements-bridge.in --output-file nemo_backend/requirements-bridge.lock

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "stepmark: Python 3.11 or newer is needed, not '$(PYTHON)': $$($(PYTHON) --version 2>&1 | head -n 1)" >&2; \
		echo "  next:  make PYTHON=<a newer python3> $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "stepmark: '$(PYTHON)' cannot make virtual environments" >&2; \
		echo "  next:  apt-get install python3-venv     (on Debian and Ubuntu)" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(LAUNCHER): $(CREATED) requirements.lock setup.cfg pyproject.toml
	@echo "installing the launcher's packages into $(VENV)"
	@$(PIP) --quiet --quiet --require-hashes --only-binary :all: -r requirements.lock
	@$(PIP) --quiet --quiet -e .
	@touch $@

$(INSTALLED): $(CREATED) requirements-dev.lock setup.cfg pyproject.toml
	@echo "installing the packages of the launcher and of its tests into $(VENV)"
	@$(PIP) --quiet --quiet --require-hashes --only-binary :all: -r requirements-dev.lock
	@$(PIP) --quiet --quiet -e .
	@touch $@ $(LAUNCHER)
