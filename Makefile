# The verbs of this repository; `make` alone lists them.
# setup makes .venv from constraints.txt and installs again only when constraints.txt or pyproject.toml has changed.

PYTHON ?= python3
TORCH_INDEX ?=

BIN := .venv/bin
INSTALLED := .venv/installed
APT := apt-get install -y python3 python3-venv python3-dev make g++
USERNS := /proc/sys/kernel/apparmor_restrict_unprivileged_userns

.DEFAULT_GOAL := help
.PHONY: help setup quickstart experiment test test-slow lint bench soak docs

help:
	@echo "make VERB, where VERB is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16
	@echo "Variables: PYTHON=python3.12 (at least 3.11), TORCH_INDEX=https://download.pytorch.org/whl/cpu (torch without CUDA)"

setup: $(INSTALLED) ## make .venv and install everything, once
	@if [ "$$(cat $(USERNS) 2>/dev/null)" = 1 ] && [ "$$(id -u)" != 0 ]; then \
		echo "This system keeps user namespaces, which the sandbox needs, from ordinary users. An administrator allows them with"; \
		echo "  echo kernel.apparmor_restrict_unprivileged_userns=0 | sudo tee /etc/sysctl.d/60-posttrain.conf && sudo sysctl --system"; \
	fi

quickstart: setup ## fetch a small model, train it on four domains and show the result
	$(BIN)/posttrain models get smollm2-135m
	$(BIN)/posttrain train configs/quickstart.toml $(if $(wildcard runs/quickstart/manifest.json),--resume)
	$(BIN)/posttrain show runs/quickstart

experiment: setup ## the quickstart with three seeds, and SFT alone with the same compute (about two hours)
	$(BIN)/posttrain models get smollm2-135m
	$(BIN)/python benchmarks/experiment.py

test: setup ## run the tests, without the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: setup ## run the tests that take minutes or need the converted model
	$(BIN)/python -m pytest -m slow

lint: setup ## check format, style, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup ## measure tokens a second of both engines and of the learner, and executions a second of the sandbox
	$(BIN)/posttrain models get smollm2-135m
	$(BIN)/python benchmarks/speed.py
	@mkdir -p benchmarks/results
	$(BIN)/posttrain bench sandbox --json > benchmarks/results/sandbox.part
	@mv benchmarks/results/sandbox.part benchmarks/results/sandbox.json
	@echo "benchmarks/results/sandbox.json has the sandbox's"

soak: setup ## run innocent and hostile programs for ten minutes; runs/soak has the throughput and what stayed behind
	$(BIN)/python -m benchmarks.soak_sandbox --minutes 10 --out runs/soak

docs: setup ## build the documentation into site/; needs no network
	$(BIN)/mkdocs build
	@echo "open site/index.html"

$(BIN)/pip: # the last thing that venv writes: an environment without it was interrupted
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "posttrain needs Python 3.11 or newer, and $(PYTHON) is not. Name another (make setup PYTHON=python3.12) or, as root on Debian and Ubuntu: $(APT)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a virtual environment; as root on Debian and Ubuntu: $(APT)"; exit 1; }
	$(PYTHON) -m venv --clear .venv

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(BIN)/python -m pip install --disable-pip-version-check \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -c constraints.txt -e '.[dev,docs]'
	$(BIN)/python -c 'from posttrain.engines.kernels.build import prepare_kernels; print(prepare_kernels())'
	@touch $@
