# Two commands matter: `make up` and `make test`. Both install what they need. `make help` lists all.
PYTHON ?= python3
BIN := .venv/bin
# Tests that share a real component stay on one worker, so that it starts once; tests/conftest.py orders these groups.
PYTEST := $(BIN)/pytest --dist loadgroup --no-loadscope-reorder

# Only these tests measure coverage: tracing would slow all others down.
COVERED := tests/core tests/whereabouts

# Tests start hundreds of processes; none of them should compile podpool again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up check format test test-fast parts sim model soak fuzz mutants bench docs manifests screenshots site image image-sign lock clean

help: ## list the commands
	@echo "podpool: IP address management for Kubernetes Pods"; echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  make bench-NAME   run one benchmark; QUICK=1 takes about a minute and records nothing"

up: .venv/.runtime ## run the demo cluster on this machine; OPTIONS="--step" passes options to podpool up
	@$(BIN)/podpool up $(OPTIONS)

test: .venv/.dev parts sim ## run all tests, including those on real components
	@HYPOTHESIS_PROFILE=ci $(PYTEST) -n 2 $(COVERED) --cov --cov-report=term
	@HYPOTHESIS_PROFILE=ci $(PYTEST) -n 4 $(COVERED:%=--ignore=%)

test-fast: .venv/.dev ## run the unit tests: no processes, no real components; about a minute
	@HYPOTHESIS_PROFILE=fast $(PYTEST) -n 2 -m "not real and not integration and not simulation"

parts: .venv/.dev ## build the real components for tests (once, into the user's cache)
	@$(BIN)/python -m parts

check: .venv/.dev ## run linters, type checker and import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --cache-dir .import_linter_cache

format: .venv/.dev ## format the code and apply automatic fixes
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

sim: .venv/.dev ## run fixed seeds of every profile in the simulator; some ten minutes
	@$(BIN)/podpool sim --seeds 1-20 --profile calm
	@$(BIN)/podpool sim --seeds 1-100 --profile storm
	@$(BIN)/podpool sim --seeds 1-50 --profile shared-subnet
	@$(BIN)/podpool sim --seeds 1-220 --profile narrow
	@$(BIN)/podpool sim --seeds 1-60 --profile narrow-tight
	@$(BIN)/podpool sim --seeds 1-150 --profile narrow-manual-edits
	@$(BIN)/podpool sim --seeds 1-270 --profile narrow-restores
	@$(BIN)/podpool sim --seeds 1-220 --profile narrow-shared-subnet
	@$(BIN)/podpool sim --seeds 1-100 --profile narrow-damaged-journals
	@$(BIN)/podpool sim --seeds 1-100 --profile narrow-underlay
	@$(BIN)/podpool sim --seeds 1-60 --profile narrow-clock-steps
	@$(BIN)/podpool sim --seeds 1-20 --profile narrow-lost-dels
	@$(BIN)/podpool sim --seeds 1-20 --profile narrow-lost-dels-pods-only
	@$(BIN)/podpool sim --seeds 1-20 --profile slices-lost-dels
	@$(BIN)/podpool sim --seeds 1-100 --profile slices
	@$(BIN)/podpool sim --seeds 1-100 --profile slices-restores
	@$(BIN)/podpool sim --seeds 1-40 --profile slices-replacements

model: .venv/.dev ## search the model of lost commits with larger budgets; some minutes
	@$(BIN)/python -m tests.ledger.continuity_search

SEEDS ?= 1000-3000
soak: .venv/.dev ## search longer: SEEDS=5000-9000 in the simulator, EXAMPLES=20000 in property tests
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile shared-subnet
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile narrow-tight
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile narrow-manual-edits
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile narrow-restores
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile narrow-shared-subnet
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile narrow-damaged-journals
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile slices
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile slices-restores
	@$(BIN)/podpool sim --seeds $(SEEDS) --profile slices-replacements
	@HYPOTHESIS_PROFILE=soak $(PYTEST) -n 2 -m "not real and not integration and not simulation" --timeout 0

MINUTES ?= 20
fuzz: .venv/.dev ## fuzz the C plugin, guided by coverage: MINUTES=60
	@$(BIN)/python -m tools.fuzz --minutes $(MINUTES)

mutants: .venv/.dev ## run mutation tests on core; writes docs/mutants.md
	@$(BIN)/python -m tools.mutants

bench: .venv/.dev ## run all benchmarks; writes docs/benchmarks.{json,md} and figures
	@$(BIN)/python -m bench $(if $(QUICK),--quick)

bench-%: .venv/.dev
	@$(BIN)/python -m bench $* $(if $(QUICK),--quick)

docs: .venv/.dev ## regenerate the pages, tables and figures in docs/
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m bench --report-only

manifests: .venv/.dev ## render deploy/manifests from the Helm chart
	@$(BIN)/python -c "from parts import recipes; recipes.build(recipes.recipe('helm'))"
	@$(BIN)/python -m tools.chart

screenshots: .venv/.dev ## take the dashboard screenshots from a real podpool up; needs Chromium
	@$(BIN)/python -m tools.screenshots

site: .venv/.dev ## build docs/ as a static site in site/
	@$(BIN)/python -m tools.site

image: .venv/.dev ## build the container image for amd64 and arm64 in dist/
	@$(BIN)/python -m tools.image build

image-sign: .venv/.dev ## sign everything in dist/ with a local key: KEY=key.pem
	@$(BIN)/python -m tools.image sign --key $(KEY)

lock: .venv/.dev ## update the lock files from pyproject.toml
	@$(BIN)/uv pip compile -q pyproject.toml --group build $(LOCKED) -o requirements.lock
	@$(BIN)/uv pip compile -q pyproject.toml --group build --group dev -c requirements.lock $(LOCKED) -o requirements-dev.lock
LOCKED := --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
  --custom-compile-command "make lock"

clean: ## remove build results, except the user's cache of real components
	@rm -rf .venv mutants dist site .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +

.venv/.runtime: pyproject.toml requirements.lock tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py
	@touch $@

.venv/.dev: pyproject.toml requirements.lock requirements-dev.lock tools/bootstrap.py
	@$(PYTHON) tools/bootstrap.py --dev
	@touch $@ .venv/.runtime
