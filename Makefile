# Everything a person runs here. Needs Python 3.11 or newer and make; the rest is installed into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread per process: two busy torch processes with two threads each spin more than they work.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

.PHONY: demo test test-nightly test-oracle proof lint docs clean

demo: $(VENV)/.core
	$(BIN)/python examples/cartpole.py --out out/demo

test: lint docs
	$(PYTEST)

test-nightly: $(VENV)/.dev test-oracle
	$(PYTEST) -m "nightly or not nightly"

# A second implementation of the bounds, auto_LiRPA 0.3, as a witness. Its own requirements are years old, so it is
# installed without them.
test-oracle: $(VENV)/.dev
	$(PIP) --no-deps auto-LiRPA==0.3 appdirs tqdm
	$(PYTEST) tests/oracle_test.py -m "nightly or not nightly"

# The release figures, results/proof.md: hours. It goes on where it stopped; PROOF="--only exact --share 0.1" for less.
proof: $(VENV)/.dev
	$(PIP) --no-deps auto-LiRPA==0.3 appdirs tqdm
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/proof.py $(PROOF)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[report]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable ".[dev]"
	@touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) docs/_build out
