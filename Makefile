# Everything happens in .venv; nothing is installed outside this folder.
#   make run    start a broker, replay a year of flights into it, run the Spark job, show the result
#   make test   every test, real clients and real Spark included
#   make serve  keep a broker up
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:9092
DATA_DIR ?= data
SOURCES := broker protocol storage purgatory transcript spark_jobs src tests benchmarks

.DEFAULT_GOAL := help
.PHONY: help run serve test test-fast lint check format conformance bench profile clean

help:
	@sed -n '2,4s/^#   //p' Makefile
	@echo "make check  format, lint, types and the fast tests;  make bench  ratios to raw sockets and Apache Kafka;"
	@echo "make profile  where a FETCH spends its time, by stage and by function"
	@echo "make conformance  the same conversations with Apache Kafka 2.0.1 and with us, compared"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "minibroker needs Python 3.11 or later; $(PYTHON) is older. Name another: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo "no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# One stamp per set of extras: a second `make` installs nothing.
$(VENV)/.serve: $(BIN)/python pyproject.toml
	@echo "Installing minibroker into $(VENV) ..."
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[cli]' && touch $@

$(VENV)/.demo: $(BIN)/python pyproject.toml
	@echo "Installing minibroker, Spark and the flights into $(VENV) (first time: pyspark is 430 MB) ..."
	@$(BIN)/pip install --disable-pip-version-check -e '.[demo]' && touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	@echo "Installing minibroker and its test tools into $(VENV) (first time: pyspark is 430 MB) ..."
	@$(BIN)/pip install --disable-pip-version-check -e '.[demo,dev]' && touch $@

run: $(VENV)/.demo
	@$(BIN)/python -m minibroker.demo

serve: $(VENV)/.serve
	@exec $(BIN)/minibroker serve --listen $(LISTEN) --data-dir $(DATA_DIR)

test: $(VENV)/.dev
	@$(BIN)/python tests/setup_clients.py
	@$(BIN)/python -m pytest

test-fast: $(VENV)/.dev
	@$(BIN)/python -m pytest -q -m "not slow and not integration and not spark"

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy

check: lint
	@$(BIN)/python -m pytest -q -m "not slow and not integration and not spark"

format: $(VENV)/.dev
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

conformance: $(VENV)/.dev
	@$(BIN)/python -m tests.conformance --seeds 1000

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks $(BENCH)

profile: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.profile $(PROFILE)

clean:
	rm -rf $(VENV) .venvs .deps data out build dist *.egg-info
