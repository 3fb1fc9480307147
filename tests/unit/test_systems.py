"""What differs between Linux and Windows is in two files a floor: no other module asks which of them a node runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import winlab

ROOT = Path(winlab.__file__).parent
NAMES = {"linux", "windows"}
NODES = {"LinuxNode", "WindowsNode"}
# Of Linux or Windows by name; where a floor chooses between the two; the classes themselves; golden images (Windows')
OWN = {"linux.py", "windows.py", "systems.py"}
CHOOSE = {"design/plan/model.py", "design/plan/golden.py"}


def _questions(tree: ast.AST) -> Iterator[int]:
    """The lines that ask for a system: comparisons with its name, tables by it, tests of a node's class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Constant) and side.value in NAMES for side in sides):
                yield node.lineno
        elif isinstance(node, ast.Dict):
            if {key.value for key in node.keys if isinstance(key, ast.Constant)} >= NAMES:
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
            if names & NODES:
                yield node.lineno
        elif isinstance(node, ast.Match):
            classes = {
                one.cls.id
                for case in node.cases
                for one in ast.walk(case.pattern)
                if isinstance(one, ast.MatchClass) and isinstance(one.cls, ast.Name)
            }
            if classes & NODES:
                yield node.lineno


MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_nobody_else_asks_for_the_system(module: str) -> None:
    path = ROOT / module
    if path.name in OWN or module in CHOOSE or {"linux", "windows"} & set(Path(module).parts):
        return
    assert list(_questions(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "text",
    [
        'node.os == "linux"',
        '"windows" != tag.os',
        '{"linux": 1, "windows": 2}[os]',
        "isinstance(node, WindowsNode)",
        "isinstance(node, LinuxNode | WindowsNode)",
    ],
)
def test_a_question_is_found(text: str) -> None:
    assert list(_questions(ast.parse(text))) == [1]


def test_data_is_no_question() -> None:
    assert list(_questions(ast.parse('Program("kubectl", version, "linux")\nimage.os == system.name'))) == []
