"""The contract between host and nodes is kept: by the scripts on both sides, by the stand-in, by the document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from winlab import data
from winlab.design.cni.model import HnsEndpoint, HnsNetwork, Masquerade
from winlab.design.contract import on_both, on_linux, on_windows
from winlab.design.contract.call import QUESTION, WORK, Call, CallResult
from winlab.design.distribution import known  # noqa: F401 - has calls, too
from winlab_node import __main__ as program

TOP = Path(__file__).resolve().parents[3]
WORKER = data.folder("unattend") / "windows/worker"
PACKAGE = data.folder("unattend") / "linux/winlab_node"
STANDIN = TOP / "standin/winlab_standin/guest"
PARTS = {"common", "images", "network", "services", "tasks"}  # of other scripts
Tree = dict[str, Any]  # the names in a result; nested names are a tree, otherwise None


def calls(system: str) -> dict[str, type[Call[Any]]]:
    """The scripts of a system by their names."""
    return {one.script: one for one in Call.__subclasses__() if system in one.on}


LINUX, WINDOWS = calls("linux"), calls("windows")


def differences(told: Tree | None, result: type[CallResult], at: str = "") -> list[str]:
    """Where a script's result is not what the contract has."""
    if told is None:
        return [f"{at}: no names can be read"]
    wanted = result.model_fields
    found = [f"{at}{name}: not in the contract" for name in told.keys() - wanted.keys()]
    found += [f"{at}{name}: missing" for name in wanted if name not in told]
    for name, field in wanted.items():
        below = field.annotation
        if name in told and isinstance(below, type) and issubclass(below, CallResult):
            found += differences(told[name], below, f"{at}{name}.")
    return found


def check(returned: list[Tree], call: type[Call[Any]]) -> None:
    """Every result of a script is whole; but one that needs a restart first may leave out the rest."""
    assert returned, f"{call.script} returns nothing"
    short = [one for one in returned if call is on_windows.Seal and one.keys() == {"restart"}]
    for one in returned:
        assert one in short or differences(one, call.result) == []
    assert len(short) < len(returned)


def test_no_two_scripts_of_a_system_have_one_name() -> None:
    for system, found in (("linux", LINUX), ("windows", WINDOWS)):
        assert len(found) == sum(system in one.on for one in Call.__subclasses__())


# -- PowerShell


def words(text: str) -> Iterator[str]:
    """The tokens of PowerShell's text, without comments; a string is one."""
    pattern = r"'(?:[^']|'')*'|\"(?:[^\"`]|`.)*\"|#[^\n]*|@\{|[\w$.:\\-]+|\n|\S"
    return (found[0] for found in re.finditer(pattern, text) if not found[0].startswith("#"))


def table(tokens: Iterator[str]) -> Tree:
    """The names in a hash table, from after its opening brace to its closing one."""
    found: Tree = {}
    entry: list[str] = []
    depth = 0
    for token in tokens:
        if depth == 0 and token == "}":
            return found
        if depth == 0 and token == "@{" and len(entry) == 2:
            found[entry[0]] = table(tokens)
        elif token in ("@{", "{", "(", "["):
            depth += 1
        elif token in ("}", ")", "]"):
            depth -= 1
        elif depth == 0 and token in (";", "\n"):
            entry = []
        elif depth == 0:
            entry.append(token)
            if len(entry) == 2 and token == "=":
                found[entry[0]] = None
    raise AssertionError("the hash table does not end")


def returned_by_powershell(text: str) -> list[Tree]:
    step = text[text.index("Invoke-Step {") :]
    assert step.count("return ") == step.count("return @{")
    return [table(words(step[found.end() :])) for found in re.finditer(r"return @\{", step)]


def powershell(name: str) -> str:
    return (WORKER / f"{name}.ps1").read_text(encoding="ascii")


def test_every_script_of_windows_is_in_the_contract() -> None:
    assert {path.stem for path in WORKER.glob("*.ps1")} - PARTS == WINDOWS.keys()


@pytest.mark.parametrize("name", WINDOWS)
def test_powershell_knows_these_settings_and_no_others(name: str) -> None:
    wanted = WINDOWS[name].known("windows")
    assert set(re.findall(r"\$settings\.([a-z_]+)", powershell(name))) == wanted
    assert ("Read-Settings @($input)" in powershell(name)) is bool(wanted)


@pytest.mark.parametrize("name", WINDOWS)
def test_powershell_results_match_the_contract(name: str) -> None:
    check(returned_by_powershell(powershell(name)), WINDOWS[name])


def test_powershell_knows_the_fields_of_settings() -> None:
    rows = set(re.findall(r"\$row\.([a-z_]+)", powershell("routes")))
    assert rows == {one.name for one in fields(on_both.RouteSetting)}
    network = powershell("cni") + powershell("network")
    assert HnsNetwork.__annotations__.keys() <= set(re.findall(r"\$(?:Network|Wish)\.([a-z_]+)", network))
    assert HnsEndpoint.__annotations__.keys() <= set(re.findall(r"\.endpoint\.([a-z_]+)", network))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("boot_id = $boot", "bootid = $boot", {"bootid: not in the contract", "boot_id: missing"}),
        ("joined = Test-Joined", "", {"kubelet.joined: missing"}),
        ("pushed = $pushed", "pushed = $pushed\n        colour = 'red'", {"colour: not in the contract"}),
        ("        cni = $networks", "        # cni = $networks", {"cni: missing"}),
    ],
)
def test_a_script_with_another_result_is_noticed(old: str, new: str, says: set[str]) -> None:
    text = powershell("status")
    assert old in text
    (told,) = returned_by_powershell(text.replace(old, new))
    assert set(differences(told, on_windows.WindowsFacts)) == says


# -- Python: the package for Linux nodes, and the stand-in


class Module:
    """A module's source."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def function(self, name: str) -> ast.FunctionDef:
        (found,) = (one for one in self.tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
        return found


def returned_by_python(function: ast.FunctionDef) -> list[Tree]:
    """The names in each dict that a function returns."""
    inner = {one.name: one for one in ast.walk(function) if isinstance(one, ast.FunctionDef) and one is not function}
    within = {id(node) for one in inner.values() for node in ast.walk(one)}
    found = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and id(node) not in within]
    trees = [_names(value, inner) for value in found]
    assert None not in trees, f"{function.name} returns something else than a dict that is written out"
    return [tree for tree in trees if tree is not None]


def _names(value: ast.expr | None, inner: dict[str, ast.FunctionDef]) -> Tree | None:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in inner:
        (tree,) = returned_by_python(inner[value.func.id])
        return tree
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant | None) for key in value.keys):
        return None
    found: Tree = {}
    for key, below in zip(value.keys, value.values, strict=True):
        if isinstance(key, ast.Constant):
            found[key.value] = _names(below, inner)
        else:  # **
            found |= _names(below, inner) or {}
    return found


def read_by_python(function: ast.FunctionDef, given: str) -> set[str]:
    """The settings that a function takes out of the dict *given*."""
    found: set[str] = set()
    for node in ast.walk(function):
        found |= _subscripts(node, given)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{given}.get":
            found |= _constants(node.args[0])
        if isinstance(node, ast.GeneratorExp) and f"{given}.get(" in ast.unparse(node.elt):
            found |= set().union(*(_constants(one.iter) for one in node.generators))
    return found


def _constants(node: ast.expr) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def verb(name: str) -> ast.FunctionDef:
    module, function = program.VERBS[name]
    return Module(PACKAGE / f"{module}.py").function(function)


def test_every_verb_is_in_the_contract() -> None:
    assert program.VERBS.keys() == LINUX.keys()


@pytest.mark.parametrize("name", LINUX)
def test_a_verb_knows_these_settings_and_no_others(name: str) -> None:
    assert read_by_python(verb(name), "settings") == LINUX[name].known("linux")


@pytest.mark.parametrize("name", LINUX)
def test_a_verb_s_result_matches_the_contract(name: str) -> None:
    check(returned_by_python(verb(name)), LINUX[name])


def test_verbs_know_the_fields_of_settings() -> None:
    rows = {one for node in ast.walk(verb("routes")) for one in _subscripts(node, "r")}
    assert rows == {one.name for one in fields(on_both.RouteSetting)}
    translated = Module(PACKAGE / "network.py").function("_masquerade")
    assert read_by_python(translated, "wanted") == {one.name for one in fields(Masquerade)}
    written = Module(PACKAGE / "rendered.py").function("write_files")
    assert read_by_python(written, "row") == {one.name for one in fields(on_linux.NodeFile)}


def _subscripts(node: ast.AST, name: str) -> set[str]:
    return _constants(node.slice) if isinstance(node, ast.Subscript) and ast.unparse(node.value) == name else set()


def players() -> dict[str, ast.FunctionDef]:
    """The stand-in's functions by the names of the scripts that they simulate."""
    found: dict[str, ast.FunctionDef] = {}
    for path in sorted(STANDIN.glob("*.py")):
        module = Module(path)
        for node in module.tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PLAYERS":
                assert isinstance(node.value, ast.Dict)
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    assert isinstance(key, ast.Constant)
                    found[key.value.removesuffix(".ps1")] = module.function(ast.unparse(value))
    return found


def test_the_stand_in_simulates_every_script() -> None:
    assert players().keys() == WINDOWS.keys()


@pytest.mark.parametrize("name", WINDOWS)
def test_the_stand_in_keeps_the_contract(name: str) -> None:
    player = players()[name]
    assert read_by_python(player, "given") <= WINDOWS[name].known("windows")
    check(returned_by_python(player), WINDOWS[name])


# -- the document

DOCUMENT = (TOP / "docs/worker-scripts.md").read_text(encoding="utf-8")


def rows(system: str) -> dict[str, dict[str, str]]:
    """What a system's section says of each script: its settings, what it does, its result."""
    section = DOCUMENT.split(f"\n## {system.capitalize()}\n")[1].split("\n## ")[0]
    found = {}
    for part in section.split("\n### ")[1:]:
        items = re.findall(r"^- \*\*(\w+):\*\* (.*(?:\n  .*)*)", part, re.M)
        if items:
            found[part.partition("\n")[0]] = {name: " ".join(text.split()) for name, text in items}
    return found


def named(cell: str) -> set[str]:
    """The names that a cell is about; what comes after a colon explains them."""
    return {name for part in cell.split(";") for name in re.findall(r"`([a-z0-9_]+)`", part.partition(":")[0])}


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_the_document_has_the_contract(system: str) -> None:
    wanted = calls(system)
    assert rows(system).keys() == wanted.keys()
    for name, cells in rows(system).items():
        assert named(cells["Settings"]) == wanted[name].known(system), f"settings of {name}"
        if name != "status":
            assert named(cells["Result"]) == wanted[name].result.model_fields.keys(), f"result of {name}"


def test_the_document_has_the_results_of_windows() -> None:
    block = DOCUMENT.split("`status`:\n```\n")[1].split("```")[0]
    assert set(re.findall(r'"([a-z0-9_]+)":', block)) == all_names(on_windows.WindowsFacts)


def test_the_document_has_the_results_of_linux() -> None:
    paragraph = DOCUMENT.split("\n`status`: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) - {"prepare"} == on_linux.LinuxFacts.model_fields.keys()


def all_names(result: type[CallResult]) -> set[str]:
    """The names in a result, and in what is inside of it."""
    found = set(result.model_fields)
    for field in result.model_fields.values():
        if isinstance(field.annotation, type) and issubclass(field.annotation, CallResult):
            found |= all_names(field.annotation)
    return found


def test_the_document_says_how_long_a_script_may_be_silent() -> None:
    told = " ".join(DOCUMENT.split("- **Silence**")[1].split("- Only one script")[0].split())
    assert f"silent for {QUESTION / 60:.0f} minutes, other scripts for {WORK / 60:.0f}" in told
    for call in Call.__subclasses__():
        if call.quiet not in (QUESTION, WORK):
            assert re.search(rf"`{call.script}`[^.\d]* {call.quiet / 60:.0f} \(", told), call.script
    assert {one.script for one in Call.__subclasses__() if one.quiet == QUESTION} == {
        *("status", "probe", "sealed", "logs")
    }
    assert on_both.Logs(everything=True).silence / 60 == 10
    assert "`logs` with `everything` 10" in told
