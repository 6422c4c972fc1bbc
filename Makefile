# Two commands matter: `make up` and `make test`. Both install what they need. `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
# 2 workers fit 2 cores; tests of one real part stay together on one worker, so that it starts once
PYTEST := $(BIN)/pytest -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help up check format test test-fast parts sim soak fuzz mutants bench docs pictures site lock clean

help: ## this list
	@echo "podpool: addresses for Pods, from subnets that are running out"; echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make bench-NAME one benchmark; QUICK=1 for a minute's version"

up: .venv/.runtime ## the whole system on this machine, and a story that it plays; OPTIONS="--step" for what it takes
	@$(BIN)/podpool up $(OPTIONS)

test: .venv/.dev parts sim ## every test: fast ones, histories, and those on a real API server, PostgreSQL and namespaces
	@HYPOTHESIS_PROFILE=ci $(PYTEST) --cov --cov-report=term

test-fast: .venv/.dev ## the tests that start no program but Python; four minutes
	@HYPOTHESIS_PROFILE=ci $(PYTEST) -m "not real and not histories"

parts: .venv/.dev ## fetch and build the real programs that the tests run on (once; kept in the user's cache)
	@$(BIN)/python -m parts

check: .venv/.dev ## lint, types, layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --cache-dir .import_linter_cache

format: .venv/.dev ## put the code into its form
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

sim: .venv/.dev ## histories in the simulator: faults of every kind on virtual time, fixed seeds; four minutes
	@$(BIN)/podpool sim --seeds 1-80 --climate storm
	@$(BIN)/podpool sim --seeds 1-30 --climate shared
	@$(BIN)/podpool sim --seeds 1-220 --climate narrow
	@$(BIN)/podpool sim --seeds 1-60 --climate narrow-tight
	@$(BIN)/podpool sim --seeds 1-150 --climate narrow-meddled
	@$(BIN)/podpool sim --seeds 1-270 --climate narrow-restores
	@$(BIN)/podpool sim --seeds 1-200 --climate narrow-shared
	@$(BIN)/podpool sim --seeds 1-100 --climate narrow-spoilt
	@$(BIN)/podpool sim --seeds 1-100 --climate narrow-underlay
	@$(BIN)/podpool sim --seeds 1-60 --climate slices
	@$(BIN)/podpool sim --seeds 1-60 --climate slices-restores

SEEDS ?= 1000-3000
soak: .venv/.dev ## the random searches, long: SEEDS=5000-9000 for histories, EXAMPLES=20000 for properties
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate shared
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate narrow-tight
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate narrow-meddled
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate narrow-restores
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate narrow-shared
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate narrow-spoilt
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate slices
	@$(BIN)/podpool sim --seeds $(SEEDS) --climate slices-restores
	@HYPOTHESIS_PROFILE=soak $(PYTEST) -m "not real and not histories" --timeout 0

MINUTES ?= 20
fuzz: .venv/.dev ## search for inputs that break the plugin in C, guided by coverage: MINUTES=60
	@$(BIN)/python -m tools.fuzz --minutes $(MINUTES)

mutants: .venv/.dev ## change core in small ways and see whether the tests notice; writes docs/mutants.md
	@$(BIN)/python -m tools.mutants

bench: .venv/.dev ## every benchmark; writes docs/benchmarks.{json,md} and pictures
	@$(BIN)/python -m bench $(if $(QUICK),--quick)

bench-%: .venv/.dev
	@$(BIN)/python -m bench $* $(if $(QUICK),--quick)

docs: .venv/.dev ## the pictures and tables in docs/, made again from their sources
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m bench --report-only

pictures: .venv/.dev ## the page's pictures in README and docs/, taken anew from a real `podpool up`; needs Chromium
	@$(BIN)/python -m tools.portraits

site: .venv/.dev ## docs/ as a site, in site/: works without a network
	@$(BIN)/python -m tools.site

lock: .venv/.dev ## bring the lock files in step with pyproject.toml
	@$(BIN)/uv pip compile -q pyproject.toml --group build $(LOCKED) -o requirements.lock
	@$(BIN)/uv pip compile -q pyproject.toml --group build --group dev -c requirements.lock $(LOCKED) -o requirements-dev.lock
LOCKED := --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock"

clean: ## everything made here, but not the user's cache of real programs
	@rm -rf .venv mutants dist site .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +

.venv/.runtime: pyproject.toml requirements.lock tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py
	@touch $@

.venv/.dev: pyproject.toml requirements.lock requirements-dev.lock tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py --dev
	@touch $@ .venv/.runtime
