# Everything a person or a CI run does here. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := .setup/main-$(shell cksum < pyproject.toml | cut -d' ' -f1)
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := instrumentation collector converters training dashboard tests examples benchmarks docs

# Three processes on two cores, because most tests wait for other processes. tests/conftest.py distributes them.
SIDE_BY_SIDE := --numprocesses 3 --no-loadscope-reorder

# Tests start hundreds of processes. Without bytecode on disk, each would compile spanloop again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test fast-tests test-slow test-frameworks check check-mypy check-pyright check-imports check-packaging check-docs bench docs screenshots clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install everything into .venv, and the serving environment next to it
	@$(BIN)/spanloop doctor --fix

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=26,<27'
	$(PIP) install --quiet --editable '.[all]' --group dev
	@mkdir -p .setup && rm -f .setup/main-* && touch $@

demo: setup ## See an agent fail, be trained on its own traces, and do better (20 minutes; DEMO="--seed 1 --no-serve")
	$(BIN)/spanloop demo $(DEMO)

test: setup ## All checks and tests except the slow ones
	@$(MAKE) --no-print-directory --jobs 2 check fast-tests

fast-tests: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" --ignore tests/packaging $(SIDE_BY_SIDE) --durations 10

test-slow: setup ## Fault storms and long training
	$(BIN)/python -m pytest -m slow --timeout 1800 --hypothesis-profile explore

test-frameworks: $(STAMP) ## Newest frameworks, unchanged, each in its own environment: what is recorded (45 minutes; ROWS="crewai dspy")
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix.resolution
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix.dependency_range
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix $(ROWS)
	$(BIN)/python docs/generate.py

check: $(STAMP) ## Format, lint, types, import rules, wheel contents, documentation
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	@$(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs 2 --output-sync=target) check-mypy check-pyright check-imports check-packaging check-docs

check-mypy:
	$(BIN)/mypy

# With room for young objects, node collects garbage less often: a quarter less CPU time.
check-pyright:
	NODE_OPTIONS=--max-semi-space-size=64 $(BIN)/pyright --warnings

check-imports:
	$(BIN)/lint-imports

check-packaging:
	$(BIN)/python -m pytest -q tests/packaging

check-docs:
	$(BIN)/python docs/generate.py --check
	$(BIN)/zensical build --strict --clean

docs: $(STAMP) ## Write the generated pages and build the site into site/, strictly
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --strict --clean

bench: setup ## Every benchmark, each under a minute; not blind.py, whose answers tell what to write rules for, nor learning.py and examples.py, which take hours
	@for script in $(filter-out benchmarks/peers.py benchmarks/blind.py benchmarks/learning.py benchmarks/examples.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

screenshots: setup ## Pictures of every page over a data directory, DATA=folder, into docs/screenshots (needs chromium)
	$(BIN)/python docs/screenshots.py $(if $(DATA),--data-dir $(DATA))

clean: ## Remove what was installed and built
	rm -rf $(VENV) .venv-serving .venv-overhead .venv-peers .setup dist build site .frameworks .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
