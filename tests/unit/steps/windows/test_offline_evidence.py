"""Windows' logs off the disk of a clone: read without root, from a copy of the base; what is missing is reported."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import plans
import pytest
import runs

from winlab.adapters.vm import agent, definitions, display, power
from winlab.design.cause.reading import recognise
from winlab.design.plan import golden
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Quiet
from winlab.run import CommandError, Result
from winlab.steps import evidence, systems
from winlab.supply import download
from winlab.supply.images import golden as golden_cache
from winlab.supply.media import offline

BASE = b"the golden image"
ACTIVITY = b"2026-01-01 10:00:00, Info       IBS    selected image\r\n"
LOG = b"2026-01-01 10:00:00, Error      IBS    0x80070570\r\n"
FILES = {"Windows/Panther/setuperr.log": LOG, "$WINDOWS.~BT/Sources/Panther/setupact.log": ACTIVITY}


class Pool:
    """A clone's overlay on a golden image in the pool, whose file only root and QEMU may read."""

    folder = Path("/pool")

    def __init__(self, node: NodePlan) -> None:
        self.disk, self.base = node.volume("disk").name, node.volume("base").name
        self.over: dict[str, str] = {self.disk: self.base}
        self.fetched: list[str] = []

    def exists(self, name: str) -> bool:
        return name in (*self.over, self.base)

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.over if name.startswith(prefix)]

    def refresh(self) -> None: ...

    def backings(self) -> dict[str, Path]:
        return {name: self.folder / base for name, base in self.over.items()}

    def backing(self, name: str) -> Path | None:
        return self.backings().get(name)

    def allocation(self, name: str) -> int:
        return len(BASE)

    def holds(self, name: str, source: Path) -> bool:
        assert name == self.base
        return source.read_bytes() == BASE

    def download(self, name: str) -> bytes:
        return b"serial"

    def download_to(self, name: str, target: Path, tell: Callable[[float], None]) -> None:
        self.fetched.append(name)
        target.write_bytes(BASE if name == self.base else b"overlay")


class Programs:
    """qemu-img and ntfscat; the first converts a disk only if it stands on a file that may be read."""

    def __init__(self, *, installed: bool = True) -> None:
        self.installed = installed
        self.base: Path | None = None
        self.rebased: list[str] = []

    def find(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if self.installed else None

    def run(self, args: list[str | Path], *, check: bool = True) -> Result:
        words = [str(word) for word in args]
        if words[1] == "rebase":
            self.base = Path(words[words.index("-b") + 1])
            self.rebased.append(f"{Path(words[-1]).name} on {self.base.name}")
            assert words[words.index("-F") + 1] == "qcow2"
            assert "-u" in words
        elif self.base is None and words[0] == "qemu-img":
            raise CommandError(Result(tuple(words), 1, "", "Could not open '/pool/base': Permission denied", 0.0))
        elif words[1] == "measure":
            return Result(tuple(words), 0, json.dumps({"required": 1000}), "", 0.0)
        elif words[1] == "convert":
            row = struct.pack("<4xB3xII", offline.NTFS_TYPE, 2, 1)
            table = (b"\0" * 446 + row).ljust(2 * offline.SECTOR, b"\0")
            Path(words[-1]).write_bytes(table + b"\xeb\x52\x90NTFS    ".ljust(offline.SECTOR, b"\0"))
        return Result(tuple(words), 0, "", "", 0.0)

    def head(self, args: list[str | Path], most: int, timeout: float) -> bytes | None:
        assert args[0] == "ntfscat"
        return FILES.get(str(args[-1]))


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch) -> tuple[Run, NodePlan]:
    monkeypatch.setattr(display, "screenshot", lambda *_: b"PNG")
    monkeypatch.setattr(power, "paused", lambda *_: nullcontext())
    monkeypatch.setattr(definitions, "persistent", lambda *_: None)
    monkeypatch.setattr(golden_cache, "find", lambda _: None)
    monkeypatch.setattr(agent, "answers", lambda *_: False)
    plan = plans.make(plans.KVM, "1-1-1")
    node = plan.node("node-1")
    return runs.run(plan, pool=Pool(node)), node


@pytest.mark.parametrize(("cached", "fetched"), [(BASE, 1), (b"made again since", 2), (None, 2)])
def test_a_clone_s_disk_is_based_on_a_readable_copy(
    clone: tuple[Run, NodePlan], cached: bytes | None, fetched: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, node = clone
    file = tmp_path / "image.qcow2"
    if cached is not None:
        file.write_bytes(cached)
        assert node.windows is not None
        key = node.windows.golden
        monkeypatch.setattr(golden_cache, "find", lambda wanted: SimpleNamespace(path=file) if wanted == key else None)
    programs = Programs()
    monkeypatch.setattr(offline, "run", programs)
    folder, logs = evidence.collect(run, node, systems.of(run, node).disk_logs, Quiet())
    assert (folder / "Panther-setuperr.log").read_bytes() == LOG
    assert (folder / "WINDOWS.~BT-Sources-Panther-setupact.log").read_bytes() == ACTIVITY
    known = recognise(*logs)
    assert known is not None
    assert known.name == "medium-damaged"  # the activity log says "selected image", and means no harm
    assert cast(Any, run.on(node).pool).fetched == [node.volume("disk").name, node.volume("base").name][:fetched]
    assert programs.base is not None
    assert (programs.base == file) is (fetched == 1)
    names = {"Panther-setuperr.log", "WINDOWS.~BT-Sources-Panther-setupact.log", "screen.png", "serial.log"}
    assert {path.name for path in folder.iterdir()} == names


def test_a_disk_of_a_later_generation_is_put_on_copies_of_all_under_it(
    clone: tuple[Run, NodePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, node = clone
    pool = cast(Pool, run.on(node).pool)
    pool.over = {"lab.node-1.disk-2.qcow2": pool.disk, **pool.over}
    programs = Programs()
    monkeypatch.setattr(offline, "run", programs)
    folder, _ = evidence.collect(run, node, systems.of(run, node).disk_logs, Quiet())
    assert (folder / "Panther-setuperr.log").read_bytes() == LOG
    assert pool.fetched == ["lab.node-1.disk-2.qcow2", pool.disk, pool.base]
    assert programs.rebased == [f"disk.qcow2 on {pool.disk}", f"{pool.disk} on {pool.base}"]


@pytest.mark.parametrize(
    ("installed", "free", "says"),
    [(False, 1 << 30, "ntfs-3g"), (True, 10, "not enough space"), (True, 1500, "not enough space")],
)
def test_missing_evidence_is_reported(
    clone: tuple[Run, NodePlan], installed: bool, free: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, node = clone

    def refuse(*_: object) -> bytes:
        raise WinlabError("There is no screen.")

    monkeypatch.setattr(display, "screenshot", refuse)
    monkeypatch.setattr(offline, "run", Programs(installed=installed))
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    said: list[str] = []
    folder, logs = evidence.collect(
        run, node, systems.of(run, node).disk_logs, cast(Any, SimpleNamespace(say=said.append))
    )
    told = (folder / evidence.MISSING).read_text()
    assert "the screen: There is no screen." in told
    assert says in told
    assert any(line.startswith("the logs on the disk can't be read: ") for line in said)
    assert logs == ["serial"]
    assert (folder / "serial.log").exists()
    # what was missing then and exists now is no longer reported
    monkeypatch.setattr(display, "screenshot", lambda *_: b"PNG")
    monkeypatch.setattr(offline, "run", Programs())
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 30))
    evidence.collect(run, node, systems.of(run, node).disk_logs, Quiet())
    assert not (folder / evidence.MISSING).exists()


def test_the_key_in_a_base_volume_s_name(clone: tuple[Run, NodePlan]) -> None:
    _, node = clone
    assert node.windows is not None
    assert golden.key_of(node.volume("base").name) == node.windows.golden
    assert golden.key_of("base-debian-13-0123456789abcdef.qcow2") is None


def test_a_guests_file_of_any_size_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sparse file takes no room in the guest."""
    limits: list[tuple[int, float]] = []

    class Endless(Programs):
        def head(self, args: list[str | Path], most: int, timeout: float) -> bytes | None:
            limits.append((most, timeout))
            return super().head(args, most, timeout)

    programs = Endless()
    programs.base = tmp_path
    monkeypatch.setattr(offline, "run", programs)
    offline.read(tmp_path / "disk.qcow2", ["Windows/Panther/setuperr.log"], tmp_path)
    assert limits == [(16 << 20, 300.0)]
    assert not list(tmp_path.iterdir())
