"""Volumes of a machine: files with secrets are on their way in the lab's folder alone; logs are read up to a limit."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any, cast

import libvirt
import plans
import runs

from winlab.adapters.vm.volumes import StoragePool
from winlab.lab_folder import LabFolder
from winlab.steps import volumes


def test_an_iso_with_secrets_is_staged_in_the_labs_folder() -> None:
    seen: list[Path] = []

    class Pool:
        def upload(self, name: str, source: Path) -> None:
            seen.append(source)
            assert source.exists()
            assert stat.S_IMODE(source.stat().st_mode) == 0o600

    run = runs.run(plans.make(plans.TCG, "1-0-1"), pool=Pool())
    volumes.upload_iso(run, run.plan.nodes[0], "lab.node-1.answer.iso", "ANSWER", {"secret.txt": b"password"})
    assert [path.parent.parent for path in seen] == [LabFolder("lab").path]
    assert not seen[0].parent.exists()


class Stream:
    """A log without an end, or with one."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.ended = ""

    def recv(self, most: int) -> bytes:
        piece = min(most, self.left)
        self.left -= piece
        return b"x" * piece

    def finish(self) -> None:
        self.ended = "finish"

    def abort(self) -> None:
        self.ended = "abort"


def read(size: int, most: int) -> tuple[int, str]:
    """How much is read of a volume of this size, and how that ended."""
    stream = Stream(size)

    class Volume:
        def download(self, _stream: Stream, offset: int, _length: int, _flags: int) -> None:
            if offset > size:
                raise libvirt.libvirtError("past the end")
            stream.left -= offset

    pool: Any = object.__new__(StoragePool)
    pool._conn = cast(Any, type("Conn", (), {"newStream": lambda _self, _flags: stream})())
    pool._find = lambda _name: Volume()
    return len(pool.download("log", 10, most)), stream.ended


def test_a_log_is_read_up_to_a_limit() -> None:
    assert read(1 << 40, 1 << 20) == (1 << 20, "abort")
    assert read(1000, 1 << 20) == (990, "finish")
    assert read(5, 1 << 20) == (0, "")
