# Everything a person or a CI run does here. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := .setup/main-$(shell cksum < pyproject.toml | cut -d' ' -f1)
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := instrumentation collector converters training gateway evaluation dashboard foundation tests examples benchmarks docs docker

# Three processes on two cores, because most tests wait for other processes. tests/conftest.py distributes them. More
# threads of polars and torch would wait for each other: minutes, where another process holds a core.
SIDE_BY_SIDE := --numprocesses 3 --no-loadscope-reorder

# Keeps the files of tests in memory if 8 GB are free there (a container has 64 MB), so that no test waits for a disk, and
# removes them afterwards. A test that you run by itself leaves its files in /tmp.
define with_files_in_memory
free=$$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1); folder=; \
	test "$${free:-0}" -ge 8 && folder=$$(mktemp --directory /dev/shm/spanloop-XXXXXX); \
	trap 'test -z "$$folder" || rm -rf "$$folder"' EXIT; trap 'exit 130' INT TERM; \
	$(1) $${folder:+--basetemp="$$folder/tests"}
endef

# Tests start hundreds of processes. Without bytecode on disk, each would compile spanloop again.
unexport PYTHONDONTWRITEBYTECODE

# Containers. DEVICE=cuda builds for GPUs; IMAGE_OPTIONS go to `docker build`; PROFILE=embedded needs no foreign image.
DOCKER ?= docker
COMPOSE ?= $(shell $(DOCKER) compose version >/dev/null 2>&1 && echo $(DOCKER) compose || echo docker-compose)
DEVICE ?= cpu
PROFILE ?= databases
IMAGE_OPTIONS ?=
IMAGE_TAG := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
STACK := $(COMPOSE) --file docker/compose.yaml --profile $(PROFILE)

# What `make test-gpu` reads and writes, and the parts that it runs (recipes 1.5b 0.5b 7b; the first three by default).
GPU_FOLDER ?= .gpu
PARTS ?=

# Runs a command and shows its newest line, on one line of a terminal; all of them are in .setup/log, the last ones are
# printed when it fails.
define with_progress
mkdir -p .setup && { $(1) 2>&1; echo "exit status $$?"; } | tee .setup/log | { \
	number=0; while IFS= read -r line; do case $$line in \
		"exit status "*) status=$${line#exit status };; \
		*) number=$$((number + 1)); \
			if [ -t 2 ]; then printf '\r\033[K%s: %.100s' $$number "$$line" >&2; \
			elif [ $$((number % 25)) = 1 ]; then printf '%s: %.100s\n' $$number "$$line" >&2; fi;; \
	esac; done; \
	if [ -t 2 ]; then printf '\r\033[K' >&2; fi; \
	if [ $$status != 0 ]; then tail -n 30 .setup/log >&2; fi; exit $$status; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup demo test fast-tests test-slow test-frameworks test-openenv test-gpu check check-mypy check-pyright check-imports check-packaging check-docs bench docs screenshots images compose-up test-containers clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Install everything into .venv, and the serving environment next to it
	@$(BIN)/spanloop doctor --fix

$(STAMP): pyproject.toml
	@echo "Installing into $(VENV): about 6 GB, in three to five minutes; the serving environment follows."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade 'pip>=26,<27'
	@$(call with_progress,$(PIP) install --progress-bar off --editable '.[all]' --group dev)
	@mkdir -p .setup && rm -f .setup/main-* && touch $@

demo: setup ## See an agent fail, be trained on its own traces, and do better (21 minutes, 11 GB of memory; DEMO="--seed 1 --no-serve")
	$(BIN)/spanloop demo $(DEMO)

test: setup ## All checks and tests except the slow ones
	@$(MAKE) --no-print-directory --jobs 2 check fast-tests

fast-tests: $(STAMP)
	@$(call with_files_in_memory,OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -m "not slow" --ignore tests/packaging $(SIDE_BY_SIDE) --durations 10)

test-slow: setup ## Fault storms and long training
	$(BIN)/python -m pytest -m slow --ignore tests/containers --timeout 1800 --hypothesis-profile explore

test-gpu: ## Recipes, step times and memory on a GPU, in eight minutes; PYTHON has CUDA torch and the packages (benchmarks/gpu_bundle.py)
	@test -e $(GPU_FOLDER)/rows.parquet || { mkdir -p $(GPU_FOLDER) && $(PYTHON) benchmarks/gpu_rows.py $(GPU_FOLDER)/rows.parquet; }
	$(PYTHON) benchmarks/gpu.py --record --folder $(GPU_FOLDER)
	$(PYTHON) benchmarks/gpu.py --folder $(GPU_FOLDER) $(PARTS)

test-frameworks: $(STAMP) ## Newest frameworks, unchanged, each in its own environment: what is recorded (45 minutes; ROWS="crewai dspy"); MODEL=FOLDER: chats with a served model
ifdef MODEL
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix --model $(MODEL) $(ROWS)
else
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix.resolution
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix.dependency_range
	PYTHONPATH=tests/frameworks $(BIN)/python -m framework_matrix $(ROWS)
endif
	$(BIN)/python docs/generate.py

test-openenv: $(STAMP) ## Environments on OpenEnv's own server, in an environment of its own; needs the package index
	$(PYTHON) -m venv .venv-openenv
	.venv-openenv/bin/pip install --quiet 'openenv-core==0.3.0'
	$(BIN)/python -m pytest -q tests/evaluation/environments/test_openenv.py

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

bench: setup ## Every benchmark, each under a minute; not blind.py, whose answers tell what to write rules for, nor learning.py and examples.py, which take hours, nor those that need a GPU
	@for script in $(filter-out benchmarks/peers.py benchmarks/blind.py benchmarks/learning.py benchmarks/examples.py $(wildcard benchmarks/gpu*.py),$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script --quick || exit 1; done

screenshots: setup ## Pictures of every page over a data directory, DATA=folder, into docs/screenshots (needs chromium)
	$(BIN)/python docs/screenshots.py $(if $(DATA),--data-dir $(DATA))

images: ## Build the images spanloop-server, -training and -serving (DEVICE=cuda IMAGE_OPTIONS="--build-arg ...")
	@for image in server training serving; do \
		tag=spanloop-$$image:$(IMAGE_TAG); \
		if [ $(DEVICE) = cuda ] && [ $$image != server ]; then tag=$$tag-cuda; fi; \
		$(DOCKER) build --file docker/Dockerfile --target $$image --build-arg DEVICE=$(DEVICE) $(IMAGE_OPTIONS) --tag $$tag . || exit 1; \
	done
	@$(DOCKER) image ls --filter 'reference=spanloop-*'

compose-up: ## Start everything in containers, building missing images, and print the addresses (PROFILE=embedded)
	@$(DOCKER) image inspect spanloop-server:$(IMAGE_TAG) spanloop-training:$(IMAGE_TAG) spanloop-serving:$(IMAGE_TAG) \
		>/dev/null 2>&1 || $(MAKE) --no-print-directory images
	$(STACK) up --detach --wait
	@echo
	@echo "collector  http://$$($(STACK) port collector 4318), OTLP/gRPC on $$($(STACK) port collector 4317)"
	@echo "gateway    OPENAI_BASE_URL=http://$$($(STACK) port gateway 8010)/v1"
	@echo "dashboard  http://$$($(STACK) port dashboard 8501), user operator"
	@echo "assistants http://$$($(STACK) port mcp 8011)/mcp"
	@echo "The keys and the password were generated at the first start. Each command prints one:"
	@for file in app.key assistant.key admin.key dashboard-password; do \
		echo "  $(STACK) run --rm --entrypoint cat cli /run/spanloop/operator/$$file"; \
	done

test-containers: $(STAMP) ## The stack in containers: the tiny demo through it, then kill -9 of each (needs a Docker engine, DOCKER_HOST)
	@$(DOCKER) version >/dev/null || { echo "No Docker engine answers. Start one, or name it: export DOCKER_HOST=unix:///path/docker.sock" >&2; exit 1; }
	IMAGE_OPTIONS='$(IMAGE_OPTIONS)' COMPOSE='$(COMPOSE)' $(BIN)/python -m pytest tests/containers --timeout 3600

clean: ## Remove what was installed and built
	rm -rf $(VENV) .venv-serving .venv-overhead .venv-peers .venv-openenv .setup dist build site .frameworks .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
