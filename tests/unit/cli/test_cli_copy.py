"""winlab cp: what it passes on, and what it prints."""

from __future__ import annotations

from typing import Any

import commands
import pytest
import results

from winlab import Lab
from winlab.operations.copied import Copied


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The lab, the sources, the target and the rights of each copy."""
    calls: list[Any] = []

    def copy(self: Lab, sources: list[str], target: str, *, root: bool, **_more: Any) -> Copied:
        calls.append((self.name, sources, target, root))
        return Copied(3, 41984, ("d/link",))

    monkeypatch.setattr(Lab, "copy", copy)
    return calls


def test_the_result_is_counted(asked: list[Any]) -> None:
    done = commands.ran("cp", "-r", "a", "b", "node-1:C:/k/", "--lab", "ci", "--sudo")
    assert (done.exit_code, done.stdout) == (0, "3 files, 41.0 KiB\n")
    assert "d/link" in done.stderr
    assert asked == [("ci", ["a", "b"], "node-1:C:/k/", True)]
    done = commands.ran("cp", "node-1:C:/a", "x", "-o", "json")
    found = results.item(done.stdout)
    assert (found["name"], found["files"], found["bytes"]) == ("x", 3, 41984)
    assert found["skipped"]


def test_a_place_can_name_its_lab(asked: list[Any]) -> None:
    assert commands.ran("cp", "ci/node-1:C:/a:b", "ci/node-2:/x", "./ci/node-1:c", "out/").exit_code == 0
    assert asked == [("ci", ["node-1:C:/a:b", "node-2:/x", "./ci/node-1:c"], "out/", False)]


@pytest.mark.parametrize("words", [("a",), ("node-1:a", "-", "-o", "json"), ("a/node-1:x", "b/node-1:x")])
def test_what_is_refused(asked: list[Any], words: tuple[str, ...]) -> None:
    assert commands.ran("cp", *words).exit_code == 2
    assert asked == []
