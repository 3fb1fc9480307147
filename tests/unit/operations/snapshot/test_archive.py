"""The file of an exported snapshot: read with limits, and only as it was written."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import disk_faults
import pytest

from winlab.errors import HostError, NotFoundError, TransferError, UsageError, WinlabError
from winlab.operations.snapshot import archive
from winlab.operations.snapshot.archive import Content

MEMBERS = {"record.json": b"{}", "node-1.memory": bytes(5 << 20) + b"end", "empty": b""}


def content(of: bytes) -> Content:
    def pieces() -> Generator[bytes, None, None]:
        for at in range(0, len(of), 1 << 18):
            yield of[at : at + (1 << 18)]

    return pieces


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    archive.write(path, {name: content(of) for name, of in MEMBERS.items()})
    return path


def test_what_is_written_is_read_and_any_tar_reads_it(file: Path) -> None:
    with archive.opened(file) as source:
        assert {name: b"".join(source.chunks(name)) for name in source.rows} == MEMBERS
        assert source.read("record.json", 2) == b"{}"
        with pytest.raises(TransferError, match="is damaged"):
            source.read("record.json", 1)
        assert max(map(len, source.chunks("node-1.memory"))) == archive.BLOCK
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size < 50_000
    with tarfile.open(file) as tar:
        assert tar.getnames() == ["snapshot.json", *MEMBERS]
        assert [zlib.decompress(tar.extractfile(name).read()) for name in MEMBERS] == list(MEMBERS.values())  # type: ignore[union-attr]


def remade(file: Path, change: Callable[[dict[str, Any], dict[str, bytes]], object]) -> None:
    """Make the file again, with changes to its index and its members."""
    with tarfile.open(file) as tar:
        held = {row.name: tar.extractfile(row).read() for row in tar}  # type: ignore[union-attr]
    index = json.loads(held.pop("snapshot.json"))
    change(index, held)
    with tarfile.open(file, "w") as tar:
        for name, of in {"snapshot.json": json.dumps(index).encode(), **held}.items():
            row = tarfile.TarInfo(name)
            row.size = len(of)
            tar.addfile(row, io.BytesIO(of))


def row(index: dict[str, Any]) -> dict[str, Any]:
    return index["members"][1]  # type: ignore[no-any-return]


BOMB = zlib.compress(bytes(64 << 20), 9)
CHANGES: dict[str, Callable[[dict[str, Any], dict[str, bytes]], object]] = {
    "another digest": lambda index, held: row(index).update(sha256="0" * 64),
    "another size": lambda index, held: row(index).update(size=row(index)["size"] - 1),
    "a larger size": lambda index, held: row(index).update(size=row(index)["size"] + 1),
    "more content than its size": lambda index, held: (
        held.update({"node-1.memory": BOMB}),
        row(index).update(packed=len(BOMB), size=1 << 20),
    ),
    "cut off": lambda index, held: (
        held.update({"node-1.memory": held["node-1.memory"][:-5]}),
        row(index).update(packed=row(index)["packed"] - 5),
    ),
    "something after it": lambda index, held: (
        held.update({"node-1.memory": held["node-1.memory"] + b"more"}),
        row(index).update(packed=row(index)["packed"] + 4),
    ),
    "not compressed": lambda index, held: (
        held.update({"node-1.memory": b"plain"}),
        row(index).update(packed=5, size=5),
    ),
    "a member that is missing": lambda index, held: held.pop("empty"),
    "a member that is not listed": lambda index, held: held.update(other=b""),
    "another order": lambda index, held: index["members"].reverse(),
    "a member twice": lambda index, held: index["members"].append(row(index)),
    "a path": lambda index, held: row(index).update(name="../x"),
    "another format": lambda index, held: index.update(format=2),
    "a huge size": lambda index, held: row(index).update(size=1 << 60),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_does_not_match_is_refused(file: Path, how: str) -> None:
    remade(file, lambda *_: None)
    read(file)
    remade(file, CHANGES[how])
    with pytest.raises((TransferError, UsageError)) as error:
        read(file)
    assert error.value.cure


def read(file: Path) -> None:
    with archive.opened(file) as source:
        for name in source.rows:
            for piece in source.chunks(name):
                assert len(piece) <= archive.BLOCK


def negative() -> bytes:
    """Found by tests/fuzz: an index of less than no bytes."""
    row = tarfile.TarInfo("snapshot.json")
    row.size = -1000
    return row.tobuf(tarfile.GNU_FORMAT) + bytes(10240)


@pytest.mark.parametrize("of", [b"", b"x" * 2000, bytes(10240), negative()])
def test_other_files_are_refused(tmp_path: Path, of: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(of)
    with pytest.raises(UsageError, match="is not an exported snapshot"), archive.opened(path):
        pass
    with pytest.raises(NotFoundError), archive.opened(tmp_path / "none"):
        pass
    with pytest.raises(UsageError, match="is not an exported snapshot"), archive.opened(tmp_path):
        pass


@pytest.mark.parametrize("size", [600, 3000, 12_000])
def test_a_file_that_is_cut_off_is_refused(file: Path, size: int) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: min(size, len(whole) - 11_000)])
    with pytest.raises(WinlabError):
        read(file)


@pytest.mark.parametrize("number", [1, 2, 4, 8, 16])
def test_a_full_disk_leaves_nothing(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file"
    with (
        disk_faults.failing(tmp_path, number, 28, stays=True) as disk,
        pytest.raises(HostError, match="can't be written"),
    ):
        archive.write(path, {name: content(of) for name, of in MEMBERS.items()})
    assert disk.failed
    assert list(tmp_path.iterdir()) == []
