"""configure.ps1: the files and registry values of add-ons are written, restored, and removed when unused."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from powershell.cases import GIVEN, MOTD, done, refused
from powershell.doubles.machine import Machine
from powershell.stages import read, write

FILE = r"C:\ProgramData\motd\motd.txt"


def value(node: Machine, name: str, key: str = MOTD) -> Any:
    return json.loads((node.folder / "registry.json").read_text()).get(key, {}).get(name)


def wanted() -> dict[str, dict[str, str]]:
    files = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in GIVEN["files"].items()}
    values = {rf"{row['key']}\{row['name']}": f"{row['type']} {row['data']}" for row in GIVEN["registry"]}
    return {"files": files, "registry": values}


def test_configure_changes_a_node_once(node: Machine) -> None:
    done(node.run("status"), files={}, registry={})
    done(node.run("configure", GIVEN), changed=True)
    assert read(node, FILE).startswith("hellö")
    done(node.run("status"), **wanted())
    done(node.run("configure", GIVEN), changed=False)


@pytest.mark.parametrize("text", ["by hand", "\ufeffhellö\r\n"])
def test_a_changed_file_is_written_again(node: Machine, text: str) -> None:
    done(node.run("configure", GIVEN), changed=True)
    write(node, FILE, text)
    assert node.run("status").result["files"][FILE] != wanted()["files"][FILE]
    told = node.run("configure", GIVEN)
    done(told, changed=True)
    assert f"winlab: {FILE} differs: it is written again" in told.out
    done(node.run("status"), **wanted())


def test_a_changed_value_is_set_again(node: Machine) -> None:
    done(node.run("configure", GIVEN), changed=True)
    node.registry(MOTD, "number", 11)
    assert node.run("status").result["registry"][rf"{MOTD}\number"] == "dword 0000000b"
    told = node.run("configure", GIVEN)
    done(told, changed=True)
    assert rf"winlab: {MOTD}\number differs: it is set again" in told.out
    done(node.run("status"), **wanted())


def test_files_that_are_no_longer_named_are_removed_and_the_rest_stays(node: Machine) -> None:
    node.registry(MOTD, "other", "not winlab's")
    done(node.run("configure", GIVEN), changed=True)
    done(node.run("configure", {"files": {}, "registry": GIVEN["registry"][:1]}), changed=True)
    assert not node.path(FILE).exists()
    assert (value(node, "number"), value(node, "text"), value(node, "other")) == (10, None, "not winlab's")
    done(node.run("status"), files={}, registry={rf"{MOTD}\number": "dword 0000000a"})
    done(node.run("configure", {"files": {}, "registry": []}), changed=True)
    done(node.run("configure", {"files": {}, "registry": []}), changed=False)
    assert value(node, "other") == "not winlab's"


def test_a_file_that_was_removed_manually_is_noticed(node: Machine) -> None:
    done(node.run("configure", GIVEN), changed=True)
    node.path(FILE).unlink()
    assert node.run("status").result["files"][FILE] == ""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"files": {"motd.txt": ""}}, "'motd.txt' is no absolute path"),
        ({"files": {r"C:\a\..\b": ""}}, "is no absolute path"),
        ({"registry": [{"key": "HKCU\\x", "name": "x", "type": "dword", "data": "00000000"}]}, "no value below HKLM"),
        ({"registry": [{"key": MOTD, "name": "", "type": "dword", "data": "00000000"}]}, "no value below HKLM"),
        ({"registry": [{"key": MOTD, "name": "x", "type": "qword", "data": "1"}]}, "has the type 'qword'"),
        ({"registry": [{"key": MOTD, "name": "x", "type": "dword", "data": "1"}]}, "not eight hexadecimal digits"),
    ],
)
def test_invalid_input_is_refused(node: Machine, settings: dict[str, Any], text: str) -> None:
    refused(node.run("configure", {"files": {}, "registry": [], **settings}), text)
    assert not node.path(r"C:\winlab\given.json").exists()
