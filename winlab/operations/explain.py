"""Names the known causes that a log or an archive of logs shows. Either may come from anyone.

Nothing is unpacked: the archive's texts are read one after another, each within bounds.
"""

from __future__ import annotations

import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from winlab.design.cause.catalog import CAUSES
from winlab.design.cause.reading import Explanation, Log, explain, log_of
from winlab.errors import UsageError
from winlab.printable import printable

LARGEST = 32 << 20  # bytes of a log
MOST = 8 << 20  # bytes of one text of an archive; winlab's own have half of that at most
TOTAL = 96 << 20  # bytes of an unpacked archive; winlab's own have two thirds of that at most
MOST_MEMBERS = 20_000
HEAD = 4096  # bytes that show a file's kind
GZIP, TAR, TAR_AT = b"\x1f\x8b", b"ustar", 257
# what tarfile raises for broken archives; the last one for endlessly nested headers
BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, RecursionError)
# what winlab wanted, not what happened; and runs before the last ones
PLANS = ("README.txt", "manifest.json", "spec.json", "plan.json", "domain.xml", "journal.1.jsonl")
FOLDERS = re.compile(r"(builders/[^/]+/)?(applying/)?(rendered|host|network)/")
PICTURES = (".png", ".ppm")


@dataclass(frozen=True)
class Explained:
    """What a log or an archive shows.

    :param causes: the known causes, with their evidence; what ended the run comes first.
    :param logs: how many texts were read.
    :param left: why not all of it was read; empty if it was.
    """

    file: Path
    causes: list[Explanation]
    logs: int
    left: str

    @property
    def known(self) -> int:
        """How many causes winlab knows."""
        return len(CAUSES)

    def document(self) -> dict[str, Any]:
        """The same as JSON's values."""
        return {
            "file": str(self.file),
            "logs": self.logs,
            "left": self.left,
            "known": self.known,
            "causes": [_row(one) for one in self.causes],
        }


def _row(shown: Explanation) -> dict[str, Any]:
    cause = shown.cause
    return {
        "name": cause.name,
        "effect": cause.effect.value,
        "what": cause.what,
        "why": cause.why,
        "cure": cause.cure,
        "source": cause.source,
        "lines": shown.lines,
        "evidence": [{"file": line.log, "line": line.number, "text": line.text} for line in shown.evidence],
    }


def explain_file(path: Path) -> Explained:
    """The known causes that a file shows: a log, or an archive of logs (.tar.gz, .tar).

    :raises UsageError: it can't be read, or is neither.
    """
    texts = _Texts(path)
    causes = explain(texts.each())
    return Explained(path, causes, texts.count, texts.left)


@dataclass
class _Texts:
    """The texts of a file, one after another. ``count`` and ``left`` are right once all have been taken."""

    path: Path
    count: int = 0
    left: str = field(default="", init=False)

    def each(self) -> Iterator[Log]:
        for log in self._read():
            self.count += 1
            yield log

    def _read(self) -> Iterator[Log]:
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise UsageError(
                    f"'{self.path}' is not a file.", cure="Name one log, or an archive that 'winlab support' has made."
                )
            with self.path.open("rb") as file:
                head = file.read(HEAD)
                file.seek(0)
                if head.startswith(GZIP) or head[TAR_AT : TAR_AT + len(TAR)] == TAR:
                    yield from self._members(file, packed=head.startswith(GZIP))
                    return
                content = file.read(LARGEST + 1)
        except OSError as error:
            raise UsageError(f"'{self.path}' can't be read.", why=error.strerror or str(error)) from error
        if len(content) > LARGEST:
            raise UsageError(
                f"'{self.path}' is larger than a log: more than {LARGEST >> 20} MiB.",
                cure=f"Give its end: tail -c {LARGEST >> 20}M FILE > end.log",
            )
        if not _is_text(head):
            raise UsageError(
                f"'{self.path}' is not a text file.",
                cure="Give a log (serial.log, setuperr.log, bootstrap.log) or an archive of 'winlab support'.",
            )
        yield log_of(self.path.name, content)

    def _members(self, file: BinaryIO, *, packed: bool) -> Iterator[Log]:
        """The texts of an archive. What is damaged or too large ends the reading, not the answer."""
        source = _Bounded(file, packed=packed)
        try:
            with tarfile.open(fileobj=source, mode="r|", errorlevel=0) as archive:  # type: ignore[call-overload]
                for number, row in enumerate(archive):
                    if number == MOST_MEMBERS:
                        self.left = f"only its first {MOST_MEMBERS} files were read"
                        return
                    name = row.name.partition("/")[2] or row.name
                    if not row.isreg() or not _may_tell(name) or (member := archive.extractfile(row)) is None:
                        continue
                    content = member.read(MOST)
                    if row.size > MOST:
                        self.left = f"only the first {MOST >> 20} MiB of {printable(name)} were read"
                    if _is_text(content[:HEAD]):
                        yield log_of(printable(name), content)
        except BROKEN as error:
            if source.total > TOTAL:
                self.left = f"only its first {TOTAL >> 20} MiB were read"
            elif self.count:
                self.left = "it is damaged or incomplete: what follows was not read"
            else:
                raise UsageError(f"'{self.path}' is not a readable archive.", why=str(error)) from error


class _Bounded:
    """The bytes of an archive, unpacked, up to :data:`TOTAL`: a small file may unpack to any number."""

    def __init__(self, file: BinaryIO, *, packed: bool) -> None:
        self._file = file
        self._unpack = zlib.decompressobj(wbits=31) if packed else None
        self._rest = b""
        self.total = 0

    def read(self, count: int) -> bytes:
        """So many bytes, or fewer at the end.

        :raises OSError: there are more than the limit.
        """
        pieces, wanted = list[bytes](), min(count, TOTAL + 1)
        while wanted > 0 and (piece := self._piece(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
            self.total += len(piece)
            if self.total > TOTAL:
                raise OSError("the archive is too large")
        return b"".join(pieces)

    def _piece(self, most: int) -> bytes:
        most = min(most, 1 << 20)
        if self._unpack is None:
            return self._file.read(most)
        while not self._unpack.eof:
            waiting = self._unpack.unconsumed_tail or self._file.read(1 << 16)
            piece = self._unpack.decompress(waiting, most)
            if piece:
                return piece
            if not waiting:
                raise EOFError("the archive ends too early")
        return b""


def _may_tell(name: str) -> bool:
    """Whether a file of an archive may say what happened."""
    last = name.rpartition("/")[2]
    return last not in PLANS and not last.endswith(PICTURES) and FOLDERS.match(name) is None


def _is_text(head: bytes) -> bool:
    """Whether a file begins like a text. A serial port's log has control characters, too; half of UTF-16 is zeros."""
    strange = sum(byte < 32 and byte not in b"\t\n\f\r\x1b\0" for byte in head)
    zeros = head.count(0)
    return strange <= len(head) // 32 and (zeros <= len(head) // 10 or len(head) // 3 <= zeros <= len(head) * 2 // 3)
