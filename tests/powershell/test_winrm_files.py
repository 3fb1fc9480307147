"""Files over WinRM, where ssh is missing: the lines of PowerShell that read and write them, run by a real engine."""

from __future__ import annotations

import os
import re
import subprocess  # noqa: TID251 - runs the engine
from collections.abc import Callable, Sequence
from pathlib import Path

import plans
import pytest

from winlab.adapters.guests import base
from winlab.adapters.guests.file_system import BLOCK
from winlab.adapters.guests.winrm_files import WinRmFiles
from winlab.design.plan import tags
from winlab.errors import NotFoundError, UsageError


class Guest:
    """Runs a line as cmd.exe does: PowerShell gets what is in quotation marks."""

    def __init__(self, engine: Path, home: Path) -> None:
        self._engine = engine
        self._environment = {**os.environ, "USERPROFILE": str(home)}

    def execute(
        self,
        command: Sequence[str],
        stdout: Callable[[bytes], None] = base.discard,
        stderr: Callable[[bytes], None] = base.discard,
        stdin: bytes = b"",
        waiting: Callable[[], None] = base.patient,
    ) -> int:
        (line,) = command
        assert len(line) < 8191, "cmd.exe takes no more"
        found = re.fullmatch(r'powershell\.exe (.*) -Command "([^"%]*)"', line)
        assert found is not None, line
        words = [self._engine, *found[1].split(), "-Command", found[2]]
        done = subprocess.run(words, input=stdin, capture_output=True, timeout=300, env=self._environment, check=False)
        stdout(done.stdout)
        stderr(done.stderr)
        return done.returncode

    def close(self) -> None:
        pass


@pytest.fixture
def files(engine: Path, tmp_path: Path) -> WinRmFiles:
    plan = plans.make(plans.KVM, "1-1-1")
    return WinRmFiles(Guest(engine, tmp_path), tags.of(plan, plan.node("node-1")))


def test_a_file_is_written_resumed_read_and_renamed(files: WinRmFiles, tmp_path: Path) -> None:
    content, part, target = os.urandom(BLOCK + 70_000), str(tmp_path / ".part"), str(tmp_path / "it's %a &b.bin")
    files.write(part, 0, [content[:1000], content[1000:50_000]])
    assert Path(part).read_bytes() == content[:50_000]
    files.write(part, 40_000, iter([content[40_000:]]))
    assert Path(part).read_bytes() == content
    Path(target).write_text("old")
    files.replace(part, target, None)
    assert (Path(target).read_bytes(), Path(part).exists()) == (content, False)
    assert b"".join(files.read(target, 10, BLOCK + 5)) == content[10 : BLOCK + 15]
    assert b"".join(files.read(target, len(content) - 3, 100)) == content[-3:]
    entry = files.look(target)
    assert entry is not None
    assert (entry.kind, entry.size, entry.name) == ("file", len(content), "it's %a &b.bin")
    assert entry.changed == int(Path(target).stat().st_mtime)
    files.write(part, 0, [])
    assert Path(part).read_bytes() == b""
    files.remove(part)
    assert files.look(part) is None


def test_folders(files: WinRmFiles, tmp_path: Path) -> None:
    files.make_folder(str(tmp_path / "a/b"))
    files.make_folder(str(tmp_path / "a/b"))
    (tmp_path / "a/ü.txt").write_text("x")
    found = {one.name: one.kind for one in files.entries(str(tmp_path / "a"))}
    assert found == {"b": "folder", "ü.txt": "file"}
    assert list(files.entries(str(tmp_path / "a/b"))) == []
    with pytest.raises(NotFoundError):
        list(files.read(str(tmp_path / "nosuch"), 0, 10))
    with pytest.raises(NotFoundError):
        files.write(str(tmp_path / "no/such/folder"), 0, [b"x"])
    files.remove(str(tmp_path / "no/such/folder"))


def test_paths(files: WinRmFiles, tmp_path: Path) -> None:
    assert files.absolute("c:\\k\\x") == files.absolute("/C:/k/x") == "C:/k/x"
    assert files.absolute("k/x") == f"{tmp_path}/k/x"
    for path in ("C:x", "/k"):
        with pytest.raises(UsageError):
            files.absolute(path)
