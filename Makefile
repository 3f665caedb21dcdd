# `make` lists the targets. Nothing here needs a compiler, except `make pyemma`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
UV ?= uv
# A worker takes one file of tests after another, in the order of tests/conftest.py.
PYTEST_ARGS ?= -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

BIN := .venv/bin
# The lock is the only place that names torch's version; `make lock TORCH=...` changes it.
TORCH ?= $(shell sed -n 's/^torch==\([^ ;]*\).*/\1/p' requirements.lock)
SMOKE := results/smoke
# What is installed keeps its version where something is added that the lock does without.
PINS := $(BIN)/pip freeze --exclude-editable

# What torch's Linux wheel on PyPI requires for CUDA. Left out of the lock, so that a machine
# without a GPU never downloads it; a GPU machine gets it with torch itself (see `env`).
CUDA := triton cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 \
        nvidia-nccl-cu13 nvidia-nvshmem-cu13

.DEFAULT_GOAL := help
.PHONY: help env docs notebooks tables test test-all coverage attack bench gpu lint format lock explore pyemma clean

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 19

env: .venv/.stamp ## create .venv with the exact versions of requirements.lock (GPU=1: torch with CUDA)

# `make env GPU=1` asks for CUDA where no nvidia-smi can tell, as on the login node of a cluster. It
# also puts a build with CUDA in place of one without; the file lets a later `make env` keep it.
.venv/.gpu:
	@mkdir -p .venv && touch $@

.venv/.stamp: requirements.lock pyproject.toml $(if $(filter 1,$(GPU)),.venv/.gpu)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "uqsonet needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	       "Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@# torch first: the CPU wheel unless there is an NVIDIA GPU. Its index is tried only briefly;
	@# where it is out of reach pip's own configuration decides.
	@if [ -e .venv/.gpu ] || nvidia-smi >/dev/null 2>&1; then \
	  echo "NVIDIA GPU found or asked for: installing torch $(TORCH) with CUDA"; \
	  $(BIN)/python -c 'import sys, torch; sys.exit(torch.version.cuda is None)' 2>/dev/null || \
	    $(BIN)/pip uninstall -q -y torch; \
	  $(BIN)/pip install -q "torch==$(TORCH)"; \
	else \
	  echo "No NVIDIA GPU: installing torch $(TORCH) for the CPU"; \
	  $(BIN)/pip install -q "torch==$(TORCH)" --no-deps --timeout 15 --retries 0 \
	    --index-url https://download.pytorch.org/whl/cpu 2>/dev/null || \
	  { echo "download.pytorch.org is out of reach: trying pip's default index"; \
	    $(BIN)/pip install -q "torch==$(TORCH)"; }; \
	fi
	@echo "Installing requirements.lock"
	@$(BIN)/pip install -q -r requirements.lock
	@$(BIN)/pip install -q --no-deps -e .
	@touch $@

tables: env ## the whole pipeline in small: data, training, every table and figure
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 MPLBACKEND=Agg \
	  $(BIN)/snakemake --cores $(CORES) --configfile config/smoke.yaml
	@printf '%s\n' '' \
	  'Done, in small: the numbers show that everything runs, not what the method can do.' \
	  '  tables      $(SMOKE)/tables/all.tex (and .csv)' \
	  '  figures     $(SMOKE)/figures/*.pdf (and .png)' \
	  '  all of it   source $(BIN)/activate && snakemake --configfile config/smoke.yaml --report report.html' \
	  'Full scale:' \
	  '  source $(BIN)/activate && snakemake --cores 8 results/tables/all.tex'

# Two suites (tests/suites.py): docs/contributing.md says which test belongs to which.
test: lint ## lint, types, layers and the first suite: a test of every idea and every road
	$(PYTEST) $(PYTEST_ARGS) --first

test-all: lint ## both suites: also LaTeX, browser, SLURM, PyEMMA, kills, fuzzing, all examples
	$(PYTEST) $(PYTEST_ARGS)

coverage: env ## which lines and branches of the sources both suites reach: build/coverage/index.html
	$(PYTEST) $(PYTEST_ARGS) --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

PYTEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m pytest

attack: env ## kills at every moment of a job, then 20,000 damaged files of each reader and 3,000 calls
	$(PYTEST) tests/reliability -m 'kill or fuzz'
	@mkdir -p results
	$(BIN)/python -m tests.reliability.fuzz_files --count 20000 --log results/fuzz-files.csv
	$(BIN)/python -m tests.reliability.fuzz_calls --count 3000 --log results/fuzz-calls.csv

# BENCH=quick: small sizes, under a minute, and peers only as far as they are installed.
BENCH ?= full
bench: env ## speed against peers, memory; results/benchmarks/
	@# Peers are here to be compared with, so the lock does without them.
	$(if $(filter quick,$(BENCH)),,$(BIN)/pip install -q --constraint <($(PINS)) \
	  'pykrige>=1.7' 'gstools>=1.7')
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 MPLBACKEND=Agg \
	  $(BIN)/python -W ignore -m benchmarks $(if $(filter quick,$(BENCH)),--quick) --out results/benchmarks

gpu: env ## on a GPU: its tests, every recipe against the CPU, speed, memory: ten minutes; results/benchmarks/gpu/
	PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -W ignore -m benchmarks.gpu

explore: env ## build the program of `uqsonet explore` (needs node) and the pictures of its page
	cd explore && npm ci --no-audit --no-fund && npm run build
	$(BIN)/python -m docs.explore_pictures

docs: env ## the documentation as a site with search: build/site/index.html
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site
	@mkdir -p build/site/explore
	$(BIN)/python -m uqsonet explore-exact diffusion1d -o build/site/explore/diffusion1d.html
	$(BIN)/python -m uqsonet explore navier_stokes -o build/site/explore/navier_stokes.html
	@echo 'Open $(CURDIR)/build/site/index.html'

notebooks: env ## run docs/notebooks and keep what they show
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -W ignore -m docs.run_notebooks

lint: env ## style, formatting, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: env ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile workflow

# Packages keep their versions unless pyproject.toml forbids it; UV_ARGS=--upgrade renews them all.
lock: ## write requirements.lock anew (needs uv; UV_ARGS=--upgrade for new versions)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	  printf '%s\n' $(CUDA) > "$$tmp/excludes" && \
	  echo 'torch==$(TORCH)' | $(UV) pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	    --extra all --group dev --generate-hashes --excludes "$$tmp/excludes" --constraints - --no-header \
	    --no-annotate $(UV_ARGS) --output-file requirements.lock pyproject.toml && \
	  { printf '%s\n' \
	    '# Exact versions and digests for Python 3.11 on, development tools included, by `make lock`.' \
	    '# The CUDA packages of torch are left out. Without a GPU, install torch first, or pip takes' \
	    '# the CUDA build (several GB); `make env` does all of this:' \
	    '#   pip install torch==$(TORCH) --index-url https://download.pytorch.org/whl/cpu' \
	    '#   pip install -r requirements.lock' \
	    '#   pip install --no-deps -e .'; cat requirements.lock; } > "$$tmp/lock" && \
	  cat "$$tmp/lock" > requirements.lock

# PyEMMA 2.5.12, the last release, is source only. It builds and runs with NumPy 2 and current
# Cython, so it shares .venv.
pyemma: env ## add PyEMMA to .venv (compiles: needs a C++ compiler and Python's headers)
	$(BIN)/pip install -q --constraint <($(PINS)) 'pyemma>=2.5.12'
	$(BIN)/python -W ignore -c 'import numpy as n, pyemma.coordinates as c; \
	  c.cluster_regspace(n.eye(3, dtype=n.float32), dmin=0.5, n_jobs=1); print("PyEMMA works")'

clean: ## remove the environment and caches; results/ stays
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src tests workflow -name __pycache__ -prune -exec rm -rf {} +
