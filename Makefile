# make demo: the main job on the embedded default.  make test, make lint: what CI runs.
# Another interpreter: make test PYTHON=python3.12.  Your own torch: make test CONSTRAINTS=my-constraints.txt

PYTHON ?= python3
CONSTRAINTS ?= requirements/dev.txt
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
# pip leaves an editable install uncompiled, and PYTHONDONTWRITEBYTECODE would keep it so: 0.1 s at every start.
COMPILE := $(BIN)/python -m compileall -q src
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := demo
.PHONY: demo train check bench test test-long lint fix readme

demo: $(VENV)/base.stamp
	@$(BIN)/meshwright plan

# A small model on this machine's CPUs or GPUs, and the proof that layouts compute what one process computes.
train: $(VENV)/dev.stamp
	@$(BIN)/meshwright train --train.steps 100

check: $(VENV)/dev.stamp
	@$(BIN)/meshwright check

bench: $(VENV)/dev.stamp
	@$(BIN)/meshwright bench --repeats 1 --steps 5

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n 2 -q

# Sweeps that take minutes: every pair of modes, layouts of three axes on eight ranks.
test-long: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -q -m long

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

readme: $(VENV)/base.stamp
	$(BIN)/python scripts/readme.py

$(VENV)/made.stamp:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here; Meshwright needs Python 3.11 to 3.13." >&2; exit 1; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "error: Meshwright needs Python 3.11 to 3.13, $(PYTHON) is" \
	    "$$($(PYTHON) -V 2>&1). Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base.stamp: $(VENV)/made.stamp pyproject.toml $(CONSTRAINTS)
	@echo "Installing Meshwright into $(VENV); a minute the first time."
	@$(PIP_INSTALL) --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/dev.stamp: $(VENV)/made.stamp pyproject.toml $(CONSTRAINTS)
	@echo "Installing Meshwright with torch and the development tools into $(VENV); minutes the first time."
	@$(PIP_INSTALL) --editable ".[dev,train,data]"
	@$(COMPILE)
	@touch $@ $(VENV)/base.stamp
