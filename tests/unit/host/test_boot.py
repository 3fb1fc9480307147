"""Root runs winlab at boot only if no one else can change it, or the user accepts that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import winlab
from winlab.events import Event, Note, Quiet
from winlab.host import boot, daemons, units
from winlab.host.changes import Record
from winlab.host.setup import Wanted
from winlab.operations import host

NOBODY = 65534


class Tree:
    """Folders and files of root's, under any account that runs the tests; some with other owners and modes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.other: dict[Path, tuple[int, int, int]] = {}  # owner, group, mode
        self.root = root
        real = Path.stat

        def stat(path: Path, **more: Any) -> Any:
            found = real(path, **more)
            if root not in (path, *path.parents):  # folders above the test's belong to the host
                return SimpleNamespace(st_uid=0, st_gid=0, st_mode=0o40755)
            owner, group, mode = self.other.get(path, (0, 0, 0o755))
            return SimpleNamespace(st_uid=owner, st_gid=group, st_mode=found.st_mode & ~0o7777 | mode)

        monkeypatch.setattr(Path, "stat", stat)


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tree:
    for folder in ("opt/winlab/bin", "home/ann/lab", "tmp"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "opt/winlab/bin/python3").touch()
    (tmp_path / "opt/winlab/bin/python").symlink_to("python3")
    return Tree(monkeypatch, tmp_path)


def test_files_that_only_root_can_change_are_trusted(tree: Tree) -> None:
    tree.other[tree.root / "tmp"] = (0, 0, 0o1777)
    tree.other[tree.root / "opt/winlab"] = (0, 0, 0o775)  # root's own group
    (tree.root / "tmp/winlab").mkdir()
    assert boot.doubts([tree.root / "opt/winlab/bin/python", tree.root / "tmp/winlab"]) == []


@pytest.mark.parametrize(
    ("where", "what", "says"),
    [
        ("opt/winlab/bin/python3", (NOBODY, 0, 0o755), "belongs to nobody"),
        ("opt/winlab", (NOBODY, 0, 0o755), "belongs to nobody"),
        ("opt", (1234567, 0, 0o755), "belongs to user 1234567"),
        ("opt/winlab/bin", (0, 0, 0o757), "can be written by others than root"),
        ("opt/winlab", (0, 50, 0o2775), "can be written by others than root"),
        ("opt/winlab/bin/python3", (0, 0, 0o757), "can be written by others than root"),
    ],
)
def test_every_part_of_a_path_that_others_can_change_is_named(
    tree: Tree, where: str, what: tuple[int, int, int], says: str
) -> None:
    tree.other[tree.root / where] = what
    assert boot.doubts([tree.root / "opt/winlab/bin/python"]) == [f"'{tree.root / where}' {says}"]


def test_a_link_to_a_place_that_others_can_change_is_noticed(tree: Tree) -> None:
    (tree.root / "opt/linked").symlink_to(tree.root / "home/ann/lab")
    tree.other[tree.root / "home/ann"] = (NOBODY, 0, 0o700)
    assert boot.doubts([tree.root / "opt/linked"]) == [f"'{tree.root / 'home/ann'}' belongs to nobody"]


def test_a_world_writable_folder_of_modules_is_refused_even_with_a_sticky_bit(tree: Tree) -> None:
    tree.other[tree.root / "tmp"] = (0, 0, 0o1777)  # nothing in it can be replaced, but modules can be added
    assert boot.doubts([tree.root / "tmp"]) == [f"'{tree.root / 'tmp'}' can be written by others than root"]


def test_the_interpreter_its_library_and_winlab_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", f"/nowhere{os.pathsep}{tmp_path}")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "cwd"), str(tmp_path), str(Path(__file__).parent), *sys.path])
    found = boot.places()
    assert {Path(sys.executable), Path(winlab.__file__).parent, Path(os.__file__).parent} <= {*found}
    assert Path(__file__).parent in found
    assert tmp_path not in found  # python -I does not look there


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A host with systemd on which others can change winlab; what systemctl is asked for."""
    asked: list[str] = []
    monkeypatch.setattr(units, "UNIT", tmp_path / "winlab-host.service")
    monkeypatch.setattr(daemons, "has_systemd", lambda: True)
    monkeypatch.setattr(boot, "run", lambda words, **_: asked.append(words[1]))
    monkeypatch.setattr(boot, "doubts", lambda _: ["'/home/ann' belongs to ann"])
    return asked


def ensure(tmp_path: Path, *, trust: bool) -> str:
    boot.ensure(Record(tmp_path / "changes.yaml"), Quiet(), trust=trust)
    return units.UNIT.read_text() if units.UNIT.exists() else ""


def test_the_unit_is_written_where_root_alone_can_change_winlab(
    machine: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(boot, "doubts", lambda _: [])
    assert "host setup\n" in ensure(tmp_path, trust=False)
    assert machine == ["daemon-reload", "enable"]
    assert boot.warning() == ""


def test_without_trust_the_unit_is_not_written_and_the_user_is_warned(machine: list[str], tmp_path: Path) -> None:
    assert ensure(tmp_path, trust=False) == ""
    assert machine == []
    for words in (
        "'/home/ann' belongs to ann",
        "Nor can other hosts join",
        "After a reboot run 'sudo winlab host setup'",
        "--trust-python",
        "/opt",
    ):
        assert words in boot.warning()


def test_a_trusted_unit_stays_for_the_same_python_alone(
    machine: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = ensure(tmp_path, trust=True)
    assert "host setup --trust-python\n" in text
    assert boot.warning() == ""
    assert ensure(tmp_path, trust=False) == text
    monkeypatch.setattr(sys, "executable", "/home/eve/python")
    assert ensure(tmp_path, trust=False) == ""
    assert machine[-2:] == ["disable", "daemon-reload"]


def test_the_unit_of_an_earlier_version_goes(machine: list[str], tmp_path: Path) -> None:
    units.UNIT.write_text(units.unit_text(sys.executable))
    assert ensure(tmp_path, trust=False) == ""


def test_setup_continues_and_warns(machine: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Wanted] = []
    monkeypatch.setattr(host.setting_up, "setup", lambda _progress, wanted: asked.append(wanted))
    told: list[Event] = []
    host.setup(told.append, trust_python=True)
    assert asked == [Wanted(trust_python=True)]
    assert any(isinstance(event, Note) and "after a reboot" in event.text for event in told)
