"""Which way imports go in the stand-in: the guest imports nothing of the rest, and no import is circular."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import winlab_standin

PACKAGE = Path(winlab_standin.__file__).parent
GUEST = "winlab_standin.guest"
ALLOWED = {"cryptography", "spnego"}  # what else is in the guest's root file system


def name_of(path: Path) -> str:
    words = ["winlab_standin", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def imports(path: Path) -> set[str]:
    """All modules that a file imports, lazily or for type checking, too; for ``from a import b`` both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


MODULES = {name_of(path): imports(path) for path in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith(GUEST)])
def test_the_guest_imports_nothing_of_winlab(module: str) -> None:
    for imported in MODULES[module]:
        top = imported.partition(".")[0]
        assert top in ALLOWED or top in sys.stdlib_module_names or imported.startswith(GUEST), imported


def test_no_import_is_circular() -> None:
    """A package's __init__ does not count as a neighbour of its own modules: the guest's holds only constants."""
    graph = {
        module: {name for name in found if name in MODULES and name != module and not name_is_package(name)}
        for module, found in MODULES.items()
    }
    assert any(graph.values())
    assert list(TopologicalSorter(graph).static_order())


def name_is_package(name: str) -> bool:
    return (PACKAGE.parent / name.replace(".", "/")).is_dir()
