# Everything is installed in .venv, nothing outside this folder.
#   make run    start a broker, replay a year of flights into it beside a Spark job, show the result
#   make demo   the same, slower (SPEED=3 days a second), on a web page that shows what the broker does
#   make test   run every test, with real clients and real Spark: twenty minutes on two cores
#   make serve  start a broker
# MINIBROKER_COMPILE=1 make serve (run, test-fast ...) does it with the compiled form.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:9092
DATA_DIR ?= data
LISTEN_CONSOLE ?= 127.0.0.1:8080
SPEED ?= 3
# Each worker has a broker and clients of its own. Two more than there are cores: they wait for half of their time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# Tests make and remove 30,000 files, for which ext4 may take more time than the tests do for all else: they are in memory
# where there is enough of it, and nobody has said where they are to be.
IN_MEMORY = $(if $(TMPDIR),,$(shell [ -w /dev/shm ] && awk '/^MemAvailable/ { exit $$2 < 12000000 }' /proc/meminfo \
	&& df -Pk /dev/shm | awk 'NR == 2 && $$4 > 8000000 { print "TMPDIR=/dev/shm" }'))
# In place of the shell: a signal for make's child is one for pytest.
PYTEST = $(IN_MEMORY) exec $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 8
FAST := not slow and not integration and not spark
SEEDS ?= 1000
# A night has 10,000 seeds, and others than the night before.
OF_THE_NIGHT ?= --seeds 3334 --first-seed $(shell expr $$(date +%s) / 86400 '*' 10000)
MINUTES ?= 120
BROKERS ?= 3
SOURCES := broker protocol storage purgatory schemas simulation conformance zookeeper transcript spark_jobs src tests benchmarks docs/diagrams docs/pictures docs/reference/generate.py setup.py build_tools
# The compiled form, where it is found before the sources.
COMPILED := build/installed
AS_COMPILED := PYTHONPATH=$(CURDIR)/$(COMPILED)
# Left out for it: tests that replace parts of modules; what they are about is in Python in both forms, or the same code.
ON_COMPILED := $(FAST) and not pure
# What the compiled form is tested by: codecs, logs, the wheel, and what a broker answers. All tests run on it at night.
OF_COMPILED := tests/broker/test_conversations.py tests/conformance tests/fetch_path tests/protocol tests/purgatory tests/storage tests/test_compiled_form.py
ifeq ($(MINIBROKER_COMPILE),1)
FORM := $(COMPILED)/.made
export PYTHONPATH := $(CURDIR)/$(COMPILED)
endif
# Without compiled modules each process that a test starts would compile the package again: a tenth of all their time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run demo serve wheel test test-issue test-fast test-compiled nightly matrix mutants nemesis simulate fuzz endurance lint check format conformance bench profile clean

help:
	@sed -n '2,5s/^#   //p' Makefile
	@echo "make check  format, lint, types and the fast tests;  make bench  ratios to raw sockets and Apache Kafka;"
	@echo "make profile  where a FETCH spends its time, by stage and by function"
	@echo "make wheel  the compiled form, in dist/;  make test-compiled  the books, and the fast tests of codecs and logs, on it"
	@echo "make conformance  compare minibroker with Apache Kafka 2.0.1, field by field"
	@echo "make mutants  plant small faults in copies of the source; the fast tests must notice each"
	@echo "make nemesis  kill, pause and cut off brokers of a cluster beside real clients, and judge what these saw"
	@echo "make simulate  a cluster in one process, from SEEDS seeds, with every fault of disk, network and clock"
	@echo "make fuzz  any bytes for what reads bytes, by the coverage that they reach: FUZZ=\"frames --runs 1000000\""
	@echo "make endurance  three brokers under load while their clock is turned by 90 days, in MINUTES"
	@echo "make matrix  what each version of each client can do, in docs/reference/clients.md"
	@echo "make nightly  conformance, mutants, nemesis, and the tests of which \`make test\` runs a sample"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "minibroker needs Python 3.11 or later; $(PYTHON) is older. Name another: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); echo "no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

# One stamp per set of extras, which stands for the smaller sets too: a second `make` installs nothing.
$(VENV)/.serve: $(BIN)/python pyproject.toml
	@echo "Installing minibroker into $(VENV) ..."
	@MINIBROKER_COMPILE= $(BIN)/pip install -q --disable-pip-version-check -e . && touch $@

$(VENV)/.demo: $(BIN)/python pyproject.toml
	@echo "Installing minibroker, Spark and the flights into $(VENV) (first time: minutes, for 500 MB) ..."
	@MINIBROKER_COMPILE= $(BIN)/pip install -q --disable-pip-version-check -e '.[demo]' && touch $@ $(VENV)/.serve

$(VENV)/.dev: $(BIN)/python pyproject.toml
	@echo "Installing minibroker and its test tools into $(VENV) (first time: minutes, for 500 MB) ..."
	@MINIBROKER_COMPILE= $(BIN)/pip install -q --disable-pip-version-check -e '.[demo,dev]' && touch $@ $(VENV)/.demo $(VENV)/.serve

wheel: $(COMPILED)/.made

# What a build has generated and compiled stays in build/: the next one compiles what has changed.
$(COMPILED)/.made: $(VENV)/.dev setup.py $(wildcard build_tools/*.py) benchmarks/frames.py $(shell find -L src/minibroker -name '*.py')
	@rm -rf $(COMPILED) dist/minibroker-*-linux_*.whl
	@MINIBROKER_COMPILE=1 PYTHONPATH= $(BIN)/pip wheel -q --disable-pip-version-check --no-build-isolation --no-deps -w dist .
	@$(BIN)/python -m zipfile -e dist/minibroker-*-linux_*.whl $(COMPILED) && touch $@

# `make demo` is `make run CONSOLE=1`: slower, and on a web page. Not a make of its own, which would report a Ctrl-C.
demo: CONSOLE := 1
run demo: $(VENV)/.demo $(FORM)
	@$(BIN)/python -m minibroker.demo --end-with-parent $(if $(CONSOLE),--console $(LISTEN_CONSOLE) --days-per-second $(SPEED)) $(DEMO)

serve: $(VENV)/.serve $(FORM)
	@exec $(BIN)/minibroker serve --listen $(LISTEN) --data-dir $(DATA_DIR)

test: $(VENV)/.dev
	@$(BIN)/python tests/setup_clients.py
	@echo "Running every test with $(WORKERS) workers (twenty minutes on two cores; the percentage is of tests) ..."
	@$(PYTEST)

# The tests that keep a past defect away: N=3 for row 3 of docs/testing.md.
test-issue: $(VENV)/.dev
	@$(BIN)/python -m tests.past_defects $(N)

test-fast: $(VENV)/.dev $(FORM)
	@$(PYTEST) -q -m "$(FAST)"

# They hardly wait, and each worker imports all of it.
test-compiled: WORKERS := $(shell getconf _NPROCESSORS_ONLN)
test-compiled: wheel
	@$(AS_COMPILED) $(BIN)/python -m minibroker --version | grep -q compiled
	@$(AS_COMPILED) $(PYTEST) -q -m "$(ON_COMPILED)" $(OF_COMPILED)
	@$(AS_COMPILED) $(PYTEST) -n 1 -q tests/integration/test_bad_input.py

nightly: $(VENV)/.dev
	@$(BIN)/python tests/setup_clients.py --earlier
	@$(MAKE) --no-print-directory wheel
	@$(PYTEST) -m nightly
	@$(AS_COMPILED) $(PYTEST) -m "not pure and not spark and not nightly" --deselect tests/integration/test_compose.py
	@! docker version >/dev/null 2>&1 || MINIBROKER_COMPILE=1 docker compose build -q # takes longer than a test may
	@MINIBROKER_COMPILE=1 $(PYTEST) tests/integration/test_compose.py
	@$(BIN)/python -m tests.conformance --seeds $(SEEDS)
	@$(IN_MEMORY) $(BIN)/python -m tests.mutants
	@$(MAKE) --no-print-directory fuzz FUZZ="--runs 5000000 --minutes 60"
	@$(BIN)/python -m tests.simulation.small_scope
	@$(BIN)/python -m tests.simulation.small_scope_transactions
	@$(IN_MEMORY) $(BIN)/python -m tests.simulation.small_scope_groups
	@$(BIN)/minibroker simulate --brokers 3 $(OF_THE_NIGHT)
	@$(BIN)/minibroker simulate --brokers 1 $(OF_THE_NIGHT)
	@$(BIN)/minibroker simulate --zookeeper $(OF_THE_NIGHT)
	@$(IN_MEMORY) $(BIN)/python -m tests.nemesis --rounds 200
	@$(IN_MEMORY) $(BIN)/python -m tests.nemesis --rounds 1 --kind mixed
	@$(IN_MEMORY) $(BIN)/python -m tests.spark_jobs.nemesis --rounds 20

matrix: $(VENV)/.dev
	@$(BIN)/python tests/setup_clients.py --earlier
	@$(IN_MEMORY) $(BIN)/python -m tests.client_matrix -n $(WORKERS) --maxprocesses 8
	@$(BIN)/python docs/reference/generate.py

simulate: $(VENV)/.dev
	@exec nice $(BIN)/minibroker simulate --brokers $(BROKERS) --seeds $(SEEDS) $(SIMULATE)

# Under atheris, which has no wheel for each Python: only this needs it.
fuzz: $(VENV)/.dev
	@$(BIN)/pip install -q --disable-pip-version-check atheris
	@$(IN_MEMORY) exec nice $(BIN)/python -m tests.fuzz $(FUZZ)

# Three brokers under load while 90 days pass, in so many minutes.
endurance: $(VENV)/.dev
	@$(IN_MEMORY) exec $(BIN)/python -m tests.endurance --minutes $(MINUTES)

mutants: $(VENV)/.dev
	@$(IN_MEMORY) $(BIN)/python -m tests.mutants $(MUTANTS)

nemesis: $(VENV)/.dev
	@$(IN_MEMORY) exec $(BIN)/python -m tests.nemesis $(NEMESIS)

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/python -m tests.first_sentences

check: lint
	@$(PYTEST) -q -m "$(FAST)"

format: $(VENV)/.dev
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

conformance: $(VENV)/.dev
	@$(BIN)/python -m tests.conformance --seeds $(SEEDS)
	@$(BIN)/python -m tests.books kafka-2.0.1

bench: $(VENV)/.dev $(if $(findstring --compiled,$(BENCH)),$(COMPILED)/.made)
	@$(BIN)/python -m benchmarks $(BENCH)

profile: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.profile $(PROFILE)

clean:
	rm -rf $(VENV) .venvs .deps data out build dist *.egg-info
