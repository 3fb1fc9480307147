"""Programs: their digests, computed once and recorded, and copying them from the CD."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from pathlib import Path

from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def digest_of(path: Path) -> str:
    """A file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Record:
    """Digests of files with their sizes and times, kept in the node: hashing is slow on an emulated CPU."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._path = "var/lib/winlab/files.json"
        self._known: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError, ValueError):
            self._known = json.loads(node.path(self._path).read_text())

    def sha256(self, path: Path) -> str:
        """A file's digest, from the record if the file is unchanged; empty if there is no file."""
        try:
            stat = path.stat()
        except OSError:
            return ""
        row = self._known.get(str(path))
        if row is None or row[:2] != [stat.st_size, stat.st_mtime_ns]:
            row = self._known[str(path)] = [stat.st_size, stat.st_mtime_ns, digest_of(path)]
        return str(row[2])

    def install(self, source: Path, target: Path, sha256: str, crc32: int | None = None) -> None:
        """Copy a program, and check its content on the way.

        winlab checked the SHA-256 of what it put on the CD. Here *crc32* is enough to detect damage in between: an
        emulated CPU hashes about 10 MB/s with SHA-256, and a node has half a gigabyte to copy.

        :raises NodeError: the content is wrong.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.winlab-new")
        digest, check = hashlib.sha256(), 0
        try:
            with source.open("rb") as old, new.open("wb") as file:
                while piece := old.read(1 << 20):
                    if crc32 is None:
                        digest.update(piece)
                    else:
                        check = zlib.crc32(piece, check)
                    file.write(piece)
        except FileNotFoundError:
            raise NodeError(f"'{source.name}' is missing on winlab's CD.") from None
        if digest.hexdigest() != sha256 if crc32 is None else check != crc32:
            new.unlink()
            raise NodeError(f"'{source.name}' on winlab's CD is not what payload.json says: its checksum differs.")
        new.chmod(0o755)
        new.replace(target)  # a running program keeps its old file
        stat = target.stat()
        self._known[str(target)] = [stat.st_size, stat.st_mtime_ns, sha256]

    def keep(self) -> None:
        """Write the record, after the recorded files are safely on disk."""
        os.sync()
        self._node.write(self._path, json.dumps(self._known))
