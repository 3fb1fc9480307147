"""What differs between Linux and Windows is in two files per layer: no other module asks which of them a node runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import winlab

ROOT = Path(winlab.__file__).parent
NAMES = {"linux", "windows"}
CONSTANTS = {"LINUX", "WINDOWS"}
NODES = {"LinuxNode", "WindowsNode"}
# What else has a `windows`: a recipe the release in its image, the smoke test its Windows nodes, a gate whether it is
# about them
OTHERS = {"recipe", "testpods", "gate"}
CATALOGS = {"catalog", "recipes"}  # whose get() returns a recipe
# Of Linux or Windows by name; where a layer chooses between the two; the classes themselves; golden images (Windows');
# the plugin, whose marker says how many nodes of each a test needs
OWN = {"linux.py", "windows.py", "systems.py"}
CHOOSE = {"design/plan/model.py", "design/plan/node_plan.py", "design/plan/golden.py", "pytest_plugin.py"}


def _questions(tree: ast.AST) -> list[int]:
    """The lines that ask for a system.

    Those are comparisons with its name, tables by it, tests of a node's class, and of whether a node has what only
    Windows nodes have.
    """
    return sorted({*_of_the_name(tree), *_of_the_class(tree), *_of_the_part(tree)})


def _of_the_name(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if any(_names_a_system(side) for side in (node.left, *node.comparators)):
                yield node.lineno
        elif isinstance(node, ast.Dict) and {key.value for key in node.keys if isinstance(key, ast.Constant)} >= NAMES:
            yield node.lineno


def _names_a_system(side: ast.expr) -> bool:
    """Whether it is ``"windows"``, ``WINDOWS``, ``WINDOWS.name``, ``system.WINDOWS``, or some of them."""
    if isinstance(side, ast.Constant):
        return side.value in NAMES
    if isinstance(side, ast.Tuple | ast.List | ast.Set):
        return any(_names_a_system(one) for one in side.elts)
    return ast.unparse(side).removeprefix("system.").removesuffix(".name") in CONSTANTS


def _of_the_class(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
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


def _of_the_part(tree: ast.AST) -> Iterator[int]:
    """The questions whether a node's ``windows`` is None; a Linux node's is."""
    kept = {name for node in ast.walk(tree) for name in _kept(node)}
    for node in ast.walk(tree):
        for asked in _asked(node):
            value = asked.value if isinstance(asked, ast.NamedExpr) else asked
            if _is_windows_of_a_node(value) or (isinstance(value, ast.Name) and value.id in kept):
                yield asked.lineno


def _kept(node: ast.AST) -> Iterator[str]:
    """The names that an assignment gives to a node's ``windows``, also as one of several."""
    if isinstance(node, ast.NamedExpr) and _is_windows_of_a_node(node.value):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=False) if several else [(target, node.value)]
            yield from (name.id for name, value in pairs if isinstance(name, ast.Name) and _is_windows_of_a_node(value))


def _asked(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that *node* takes as true or false, or compares with None."""
    if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        yield node.test
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.comprehension):
        yield from node.ifs
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("any", "all", "bool"):
        for argument in node.args:
            yield argument.elt if isinstance(argument, ast.GeneratorExp | ast.ListComp | ast.SetComp) else argument
    elif isinstance(node, ast.Match):
        yield node.subject
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) and side.value is None for side in sides):
            yield from sides


def _is_windows_of_a_node(value: ast.expr) -> bool:
    """Whether it is ``<something>.windows`` of what is none of the others that have one: so new names are asked."""
    if not isinstance(value, ast.Attribute) or value.attr != "windows":
        return False
    owner = value.value
    if isinstance(owner, ast.Call):
        called = owner.func
        return not (
            isinstance(called, ast.Attribute)
            and called.attr == "get"
            and isinstance(called.value, ast.Name)
            and called.value.id in CATALOGS
        )
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) not in OTHERS


MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_no_other_module_asks_for_the_system(module: str) -> None:
    path = ROOT / module
    if path.name in OWN or module in CHOOSE or {"linux", "windows"} & set(Path(module).parts):
        return
    assert _questions(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "text",
    [
        'node.os == "linux"',
        '"windows" != tag.os',
        "node.os == WINDOWS.name",
        "system.LINUX is node.system",
        'node.os in ("linux", "none")',
        "node.os in (LINUX.name,)",
        '{"linux": 1, "windows": 2}[os]',
        "isinstance(node, WindowsNode)",
        "isinstance(node, LinuxNode | WindowsNode)",
        "node.windows is None",
        "old.windows is not None and new.windows is not None",
        "None != plan.node(name).windows",
        "if self._node.windows: pass",
        "x = 1 if nodes[0].windows else 2",
        "x = node.windows and node.windows.golden",
        "x = not node.windows",
        "any(node.windows for node in nodes)",
        "[node for node in nodes if node.windows]",
        "bool(node.windows)",
        "assert node.windows",
        "while (windows := node.windows) is not None: pass",
    ],
)
def test_a_question_is_found(text: str) -> None:
    assert _questions(ast.parse(text)) == [1]


def test_a_question_about_a_stored_system_is_found() -> None:
    assert _questions(ast.parse("windows = node.windows\nif windows is None: pass")) == [2]
    assert _questions(ast.parse("name, windows = node.name, node.windows\nx = windows or 1")) == [2]


@pytest.mark.parametrize(
    "text",
    [
        'Program("kubectl", version, "linux")',
        "image.os == system.name",
        "[node for node in plan.windows_nodes() if node.windows.golden]",
        "node.windows.release",
        "recipe.windows is not None",
        "self.image.recipe.windows or 2",
        "catalog.get(name).windows is not None",
        "windows = recipe.windows\nif windows: pass",
        "need is Need.WINDOWS and not testpods.windows",
    ],
)
def test_data_is_not_a_question(text: str) -> None:
    assert _questions(ast.parse(text)) == []
