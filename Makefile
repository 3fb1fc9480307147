# make lab   a whole lab on this machine, from nothing: packages, virtual environment, host services, images, cluster
# make test  all tests, with their own set-up
# make check formatting, linting, types
# make clean labs, host services and the virtual environment go again; packages, secrets of labs and cached images stay

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
WINLAB := $(CURDIR)/$(BIN)/winlab
# Somebody who became a member of the group only now has no such session yet
AS_MEMBER := $(shell [ "$$(id -u)" = 0 ] || id -nG | grep -qw libvirt || echo sg libvirt -c)
SPEC ?= 1-1-1
UNTIL ?= cluster
CREATE = --spec $(SPEC) --rehearse --until $(UNTIL)

.PHONY: lab test test-unit test-integration check setup clean

$(VENV)/.installed: pyproject.toml standin/pyproject.toml tools/make-venv
	tools/make-venv $(VENV)
	touch $@

setup: $(VENV)/.installed
	$(SUDO) "$(WINLAB)" host setup --install
	@[ -z "$(SUDO)" ] || id -nG | grep -qw libvirt || $(SUDO) usermod -aG libvirt "$$(id -un)"

lab: setup
	$(if $(AS_MEMBER),$(AS_MEMBER) "$(BIN)/winlab create $(CREATE)",$(BIN)/winlab create $(CREATE))

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test-unit: $(VENV)/.installed
	$(BIN)/pytest --timeout 60 tests/unit standin/tests

test-integration: $(VENV)/.installed
	$(SUDO) env CI="$(CI)" $(BIN)/pytest --durations=25 tests/integration

test: check test-unit test-integration

clean:
	-[ ! -x "$(WINLAB)" ] || $(SUDO) "$(WINLAB)" host teardown --force
	rm -rf $(VENV)
