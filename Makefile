# Every target sets up what it needs first. Start with: make demo
PYTHON ?= python3
export PYTHON
# Images set this. Then each of the hundreds of Pythons that tests start compiles all it imports: four seconds, not one.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
VERSIONS ?= 3.10 4.0 4.3
# Which of the broker tests; "not slow" is what make test runs.
MARK ?= slow or not slow
PYTEST := $(BIN)/pytest
# Each worker has a broker of its own, and much of a broker test is waiting.
ABREAST := -n 6 --dist worksteal

.PHONY: help setup postgres chromium demo test check house read lint types mypy basedpyright imports format brokers test-brokers attacks chaos bench lock clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup:
	@scripts/setup

demo: setup ## watch it work, on a private RabbitMQ
	@$(BIN)/dlq demo

test: setup postgres chromium house ## everything but the attacks, on the RabbitMQ that is installed (or gets installed)
	$(PYTEST) $(ABREAST) -m "not slow" --ignore tests/attacks --ignore tests/seeds tests

check: setup house ## the quick part: format, lint, types, imports, the tests of units, properties and the memory broker
	$(PYTEST) -q $(ABREAST) -m "not rabbitmq and not postgresql and not slow" tests/unit tests/property tests/contract

# What reads the code and runs none of it, side by side; each one's words stay together.
house: setup
	@$(MAKE) --no-print-directory -j 4 -Otarget -k lint types imports read

# Pytest keeps what it makes of a test module. In a new checkout every worker would make all of them, at once.
read: setup
	@test -e .cache/tests-read || { mkdir -p .cache; $(PYTEST) --collect-only -qq tests >/dev/null 2>&1; touch .cache/tests-read; }

lint: setup
	@$(BIN)/ruff format --check -q . || { echo "not formatted; run: make format"; exit 1; }
	@$(BIN)/ruff check -q .

types: mypy basedpyright

mypy: setup
	@$(BIN)/mypy

basedpyright: setup
	@$(BIN)/basedpyright

imports: setup
	@$(BIN)/lint-imports --no-cache >.cache-imports 2>&1 || { cat .cache-imports; rm -f .cache-imports; exit 1; }; rm -f .cache-imports

format: setup ## put the code into shape
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

postgres:
	@scripts/setup-postgres

chromium:
	@scripts/setup-chromium

brokers: ## fetch the RabbitMQ versions that are not installed (root, Debian or Ubuntu)
	@scripts/fetch-brokers

test-brokers: setup postgres brokers ## the broker suite on every version: make test-brokers VERSIONS="4.0 4.3"
	@for version in $(VERSIONS); do \
		echo "== RabbitMQ $$version"; \
		$(PYTEST) -q $(ABREAST) -m "$(MARK)" tests/broker tests/contract tests/attacks tests/seeds --broker $$version || exit 1; done

attacks: setup postgres brokers ## what was tried to lose, multiply or strand a letter, on every version: make attacks VERSIONS=4.3
	@for version in $(VERSIONS); do \
		echo "== RabbitMQ $$version"; \
		$(PYTEST) -q $(ABREAST) -m "$(MARK)" tests/attacks tests/seeds --broker $$version || exit 1; done

chaos: setup postgres brokers ## five minutes of kill -9: the service, the broker, PostgreSQL; then every letter is counted
	$(BIN)/python -m tests.chaos --minutes 5 --rate 500 --broker 3.10
	$(BIN)/python -m tests.chaos --minutes 5 --rate 500 --broker 4.3

bench: setup brokers ## every measurement, one after the other, on a machine that does nothing else; or some: make bench NAMES="movers check"
	$(BIN)/python -m bench $(NAMES)

lock: setup ## compile requirements.lock anew
	@uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --system-certs --group dev pyproject.toml -o requirements.lock

clean: ## remove the environment and the caches, not the brokers
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
