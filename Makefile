# make lab               a whole lab on this machine, from nothing: packages, host services, images, cluster
# make test              the tests, with their own set-up, in lanes side by side; 50 to 75 minutes with warm caches
# make test-all          the same with slow variants: every minor of Kubernetes, more machines and installations
# make check             formatting, linting, types, import layers; every line of PowerShell read by a real parser
# make test-unit         three minutes on two cores; no root, no network
# make test-powershell   the scripts for Windows in a real PowerShell engine; a few minutes
# make mutants           what those tests notice of random changes to the scripts (COUNT=20, LEAST=16, SEED=.., ONLY=file)
# make test-fuzz         spoilt inputs for every parser, a small sample
# make fuzz              the same for ten minutes, others each day (FUZZ_SECONDS=..., SEED=..., PARSER=..., REPLAY=file)
# make test-integration  real libvirt, OVN and guests; needs root
# make survive           winlab, the host's daemons and guests killed at every step (docs/survive.md); takes hours
# make bench             what winlab's verbs cost, beside other tools (docs/benchmarks.md; BENCH="clone reset")
# make deb               a Debian package of winlab for this distribution, in dist/
# make docs              the parts of docs/ that are made from code and records
# make cast              docs/session.svg and .cast: a recorded session with a lab (SESSION=..., CAST=... for another)
# make test-docs         the tutorial's commands, to the letter, with a real lab
# make man               a manual page for each command, in build/man
# make setup             the virtual environment and the host's services alone
# make clean             labs, host services and the virtual environment go; packages and cached images stay
# make help              this list

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
WINLAB := $(CURDIR)/$(BIN)/winlab
# Somebody who became a member of the group only now has no such session yet
AS_MEMBER := $(shell [ "$$(id -u)" = 0 ] || id -nG | grep -qw libvirt || echo sg libvirt -c)
SPEC ?= 1-1-1
UNTIL ?= cluster
FUZZ_SECONDS ?= 600
COUNT ?= 20
# of the COUNT changes these must be noticed: 16 of 20
LEAST ?= $(shell echo $$(($(COUNT) * 4 / 5)))
SURVIVE ?= --spec 1-1-1 --rehearse
LIVES ?= all
# names of measurements and flags, such as --cold; none: all that need no flag
BENCH ?=
BENCH_SPEC ?= --spec 1-1-1 --rehearse
# which tests of 'make test-powershell', such as "not slow"; none: all
MARKS ?=
# seconds until a test counts as hanging
TIMEOUT ?= 600
BENCH_COMMAND = env PYTHONPATH=tools $(BIN)/python -m bench --spec='$(BENCH_SPEC)' $(BENCH)
# what 'make cast' records, and where the recording goes, without an ending
SESSION ?= tools/cast/session.txt
CAST ?= docs/session
# labs of their own: yours stays as it is
WITH_WINLAB = env PATH=$(CURDIR)/$(BIN):$$PATH WINLAB_LAB=$(1)
CAST_COMMAND = $(call WITH_WINLAB,session) PYTHONPATH=tools $(BIN)/python -m cast $(SESSION) $(CAST)
TEST_DOCS = $(call WITH_WINLAB,tutorial) $(BIN)/python tools/console_blocks.py docs/tutorial.md
CREATE = --spec $(SPEC) --rehearse --until $(UNTIL)

.DEFAULT_GOAL := help
.PHONY: help lab test test-all test-unit test-fuzz fuzz survive test-powershell mutants test-integration check bench deb docs cast man test-docs setup clean


help:
	@sed -n 's/^# \(make .*\)/\1/p' $(firstword $(MAKEFILE_LIST))

$(VENV)/.installed: pyproject.toml standin/pyproject.toml tools/make-venv $(wildcard tools/requirements/*.txt)
	tools/make-venv $(VENV)
	touch $@

setup: $(VENV)/.installed
	$(SUDO) "$(WINLAB)" host setup --install
	@[ -z "$(SUDO)" ] || id -nG | grep -qw libvirt || $(SUDO) usermod -aG libvirt "$$(id -un)"

lab: setup
	$(if $(AS_MEMBER),$(AS_MEMBER) "$(BIN)/winlab create $(CREATE)",$(BIN)/winlab create $(CREATE))
	@command -v winlab >/dev/null || echo "To have 'winlab' in this shell: export PATH=$(CURDIR)/$(BIN):\$$PATH"

man: $(VENV)/.installed
	$(BIN)/python tools/make_man.py build/man

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=standin $(BIN)/lint-imports
	$(BIN)/pytest -q --timeout "$(TIMEOUT)" tests/powershell/test_syntax.py

test-unit: $(VENV)/.installed
	$(BIN)/pytest -n auto --timeout "$(TIMEOUT)" tests/unit standin/tests

test-powershell: $(VENV)/.installed
	$(BIN)/pytest -n auto --dist loadfile --timeout "$(TIMEOUT)" -m "$(MARKS)" tests/powershell

mutants: $(VENV)/.installed
	$(SUDO) $(BIN)/python tests/powershell/mutants.py --count "$(COUNT)" --seed "$(SEED)" --only "$(ONLY)" \
		--least "$(LEAST)"

test-fuzz: $(VENV)/.installed
	$(BIN)/pytest -n auto --timeout "$(TIMEOUT)" tests/fuzz

fuzz: $(VENV)/.installed
	$(BIN)/python tests/fuzz/run.py --seconds "$(FUZZ_SECONDS)" --seed "$(SEED)" --parser "$(PARSER)" $(if $(REPLAY),--replay "$(REPLAY)")

test-integration: $(VENV)/.installed
	$(SUDO) env CI="$(CI)" $(BIN)/pytest --durations=25 tests/integration

test: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m lanes $(LANES)

test-all: $(VENV)/.installed
	PYTHONPATH=tests $(BIN)/python -m lanes --all $(LANES)

survive: setup
	$(SUDO) env PYTHONPATH=tests $(BIN)/python -m survive --lives "$(LIVES)" --spec "$(SURVIVE)" --table docs/survive.md

bench: setup
	$(if $(AS_MEMBER),$(AS_MEMBER) "$(BENCH_COMMAND)",$(BENCH_COMMAND))

deb: $(VENV)/.installed
	tools/make-deb $(VENV)

cast: setup
	$(if $(AS_MEMBER),$(AS_MEMBER) "$(CAST_COMMAND)",$(CAST_COMMAND))

test-docs: setup
	$(if $(AS_MEMBER),$(AS_MEMBER) "$(TEST_DOCS)",$(TEST_DOCS))

docs: $(VENV)/.installed
	$(BIN)/python tools/generate_docs.py

clean:
	-[ ! -x "$(WINLAB)" ] || $(SUDO) "$(WINLAB)" host teardown --force
	rm -rf $(VENV)
