"""Commands are imported when they are needed, each from the module that the tree names."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import typer

from winlab.cli import main
from winlab.cli.app import App, Commands
from winlab.cli.tree import MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_registers_the_commands_that_the_tree_names(module: str) -> None:
    app = App()
    importlib.import_module(f"winlab.cli.{module}").register(app)
    assert set(typer.main.get_group(app).commands) == set(MODULES[module].split())


def test_listing_commands_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importlib, "import_module", asked.append)
    command: Any = typer.main.get_command(main.app)
    assert {"create", "node", "version"} < set(command.list_commands(None)) == set(Commands())
    assert asked == []


def test_a_command_is_made_once() -> None:
    commands = Commands()
    assert commands["status"] is commands["status"]
    assert commands.get("nothing") is None
    assert len(commands) == len({*commands})
