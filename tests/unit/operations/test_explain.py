"""A log, or an archive of logs, from any source: what it shows, within bounds."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from winlab import GuestError, Lab, UsageError
from winlab.operations import explain, support
from winlab.operations.support_sources import File
from winlab.steps import evidence

DRIVER = "2026-01-01 10:00:03, Error      SP     Result = 0x80070103"
NO_SSH = "winlab: phase=bootstrap\r\nwinlab: warning=ssh: OpenSSH is not available\r\nwinlab: phase=ready\r\n"


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz", top: str = "winlab-support-lab/") -> Path:
    with tarfile.open(path, mode) as made:  # type: ignore[call-overload]
        for name, content in members.items():
            row = tarfile.TarInfo(f"{top}{name}")
            row.size = len(content)
            made.addfile(row, io.BytesIO(content))
    return path


def names(path: Path) -> list[str]:
    return [one.cause.name for one in Lab.explain(path).causes]


@pytest.mark.parametrize("how", ["utf-8", "utf-16", "utf-16-le"])
def test_a_log(tmp_path: Path, how: str) -> None:
    path = tmp_path / "setuperr.log"
    path.write_bytes(f"first\r\n{DRIVER}\r\n".encode(how))
    made = Lab.explain(path)
    assert (made.logs, made.left) == (1, "")
    (shown,) = made.causes
    (line,) = shown.evidence
    assert (shown.cause.name, line.log, line.number, line.text) == ("driver-refused", "setuperr.log", 2, DRIVER)
    assert json.loads(json.dumps(made.document()))["causes"][0]["evidence"] == [
        {"file": "setuperr.log", "line": 2, "text": DRIVER}
    ]


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_an_archive_names_the_member_and_the_line(tmp_path: Path, mode: str) -> None:
    members = {
        "README.txt": DRIVER.encode(),
        "plan.json": DRIVER.encode(),
        "rendered/node-1/Autounattend.xml": DRIVER.encode(),
        "builders/golden-1/rendered/node-1/Autounattend.xml": DRIVER.encode(),
        "builders/golden-1/nodes/node-1/serial.log": NO_SSH.encode(),
        "host/doctor.json": DRIVER.encode(),
        "nodes/node-1/serial.log": NO_SSH.encode(),
        "nodes/node-1/screen.png": b"\x89PNG" + DRIVER.encode(),
        "nodes/node-1/core": bytes(range(256)) * 8 + DRIVER.encode(),
        "evidence/node-1/Panther-setuperr.log": f"x\r\n{DRIVER}\r\n".encode("utf-16"),
        "empty.log": b"",
    }
    made = Lab.explain(archive(tmp_path / "it.tar.gz", members, mode))
    shown = {one.cause.name: [(line.log, line.number) for line in one.evidence] for one in made.causes}
    assert shown == {
        "driver-refused": [("evidence/node-1/Panther-setuperr.log", 2)],
        "no-ssh": [("builders/golden-1/nodes/node-1/serial.log", 2), ("nodes/node-1/serial.log", 2)],
    }
    assert (made.logs, made.left) == (4, "")


def test_a_node_or_lab_with_the_name_of_a_folder_is_read(tmp_path: Path) -> None:
    path = archive(tmp_path / "it.tar.gz", {"nodes/host/serial.log": NO_SSH.encode()})
    assert names(path) == ["no-ssh"]


def test_an_archive_that_winlab_did_not_make(tmp_path: Path) -> None:
    assert names(archive(tmp_path / "it.tgz", {"setuperr.log": DRIVER.encode()}, top="")) == ["driver-refused"]


def test_an_archive_of_winlab_can_be_explained(tmp_path: Path) -> None:
    """Its own writer, with a failure whose message names a known cause: no other cause shows."""
    error = GuestError("A command ended with exit code 1191.", cure="Look.")
    evidence.name_cause(error)
    parts = [support._failure(error), File("nodes/node-1/serial.log", NO_SSH.encode())]
    path = tmp_path / "it.tar.gz"
    path.write_bytes(support._pack("winlab-support-lab", parts))
    assert names(path) == ["restart-refused", "no-ssh"]


def test_no_known_cause_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "serial.log"
    for content in (b"", b"all is well\r\n", b"\x1b[2Jwinlab: phase=ready\r\n"):
        path.write_bytes(content)
        assert Lab.explain(path).causes == []


def test_members_that_are_not_files_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "it.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            row = tarfile.TarInfo(f"x/{kind!r}")
            row.type, row.linkname = kind, "/etc/passwd"
            made.addfile(row)
    assert Lab.explain(path).logs == 0


def test_names_of_members_are_printable(tmp_path: Path) -> None:
    (shown,) = Lab.explain(archive(tmp_path / "it.tar.gz", {"\x1b]0;title\x07.log": DRIVER.encode()})).causes
    assert "\x1b" not in shown.evidence[0].log


def test_a_truncated_archive_is_read_as_far_as_possible(tmp_path: Path) -> None:
    path = archive(tmp_path / "it.tar.gz", {"a.log": DRIVER.encode(), "b.log": os.urandom(1 << 20)})
    path.write_bytes(path.read_bytes()[: 1 << 19])
    made = Lab.explain(path)
    assert [one.cause.name for one in made.causes] == ["driver-refused"]
    assert "damaged or incomplete" in made.left


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "TOTAL", 1 << 20)
    made = Lab.explain(archive(tmp_path / "it.tar.gz", {"a.log": DRIVER.encode(), "b.log": bytes(4 << 20)}))
    assert [one.cause.name for one in made.causes] == ["driver-refused"]
    assert "only its first 1 MiB" in made.left


def _header(name: str, size: int, kind: bytes) -> bytes:
    row = tarfile.TarInfo(name)
    row.size, row.type = size, kind
    return row.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "bomb",
    [
        _header("p", 1 << 40, tarfile.XHDTYPE) + b"9 a=bbbb\n" * 300_000,
        _header("p", 1 << 40, tarfile.GNUTYPE_LONGNAME) + b"a" * (3 << 20),
        (_header("p", 10, tarfile.XHDTYPE) + b"10 a=bbbb\n".ljust(512, b"\0")) * 5000,
        _header("x/z.log", 1 << 40, tarfile.REGTYPE) + bytes(3 << 20),
    ],
    ids=["a long header", "a long name", "headers of headers", "a long file"],
)
def test_false_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: bytes) -> None:
    monkeypatch.setattr(explain, "TOTAL", 2 << 20)
    path = tmp_path / "it.tar.gz"
    path.write_bytes(gzip.compress(_header("x/a.log", 10, tarfile.REGTYPE) + b"0x80070570".ljust(512, b"\0") + bomb))
    made = Lab.explain(path)
    assert [one.cause.name for one in made.causes] == ["medium-damaged"]
    assert made.left


def test_an_archive_of_very_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST_MEMBERS", 2)
    made = Lab.explain(archive(tmp_path / "it.tar.gz", {name: DRIVER.encode() for name in "abc"}))
    assert made.logs == 2
    assert "only its first 2 files" in made.left


def test_of_a_long_member_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "MOST", 1000)
    long = (b"x" * 99 + b"\n") * 20 + DRIVER.encode()
    made = Lab.explain(archive(tmp_path / "it.tar.gz", {"a.log": long, "b.log": NO_SSH.encode()}))
    assert [one.cause.name for one in made.causes] == ["no-ssh"]
    assert "of a.log were read" in made.left


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF" + bytes(range(32)) * 200, "is not a text file"),
        (b"PK\x03\x04" + bytes(range(1, 32)) * 200, "is not a text file"),
        (gzip.compress(b"a log, and no archive " * 500), "not a readable archive"),
        (b"\x1f\x8b no gzip at all", "not a readable archive"),
        (b"\x1f\x8b", "not a readable archive"),
    ],
)
def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "it"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        Lab.explain(path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing", "a" * 300):
        with pytest.raises(UsageError):
            Lab.explain(tmp_path / name)
    monkeypatch.setattr(explain, "LARGEST", 100)
    (tmp_path / "long").write_bytes(b"x" * 101)
    with pytest.raises(UsageError, match="larger than a log") as caught:
        Lab.explain(tmp_path / "long")
    assert "tail -c" in caught.value.cure
