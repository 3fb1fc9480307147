"""The content of volumes: written and read through libvirt's streams."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import libvirt

from winlab import files
from winlab.adapters.vm import far_end
from winlab.adapters.vm.connection import explained
from winlab.adapters.vm.pool import Pool, volume_xml
from winlab.adapters.vm.source import CHUNK, Source
from winlab.stopping import Stopped

MOST = 16 << 20  # bytes of a log that are read at once; virtlogd begins a new file at 2 MiB


class Contents(Pool):
    """A storage pool whose volumes are written and read."""

    def digest(self, name: str, tell: Callable[[float], None]) -> str:
        """The SHA-256 of a volume's whole content; ``tell`` is called with the progress, 0 to 1.

        :raises WinlabError: it can't be read.
        """
        if self._there is not None:
            tell(0.0)
            return far_end.sha256(self._there, self.pool, name, self.file_size(name))  # its time depends on that
        size, sent, digest = max(1, self.file_size(name)), 0, hashlib.sha256()
        with closing(self.chunks(name)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                sent += len(chunk)
                tell(min(1.0, sent / size))
        return digest.hexdigest()

    @contextmanager
    def filling(self, name: str, capacity: int) -> Iterator[Callable[[int, bytes], None]]:
        """Make a sparse raw volume, and fill it in a with-block. An existing one of that name is replaced.

        Yields a function that takes an offset and bytes, in ascending order; what is left out is zero. If the block
        fails, nothing is left of the volume.

        :param capacity: the volume's size, in bytes.
        """
        volume, stream, at = self._create(name, volume_xml(name, "raw", capacity)), self._conn.newStream(0), 0

        def put(offset: int, content: bytes) -> None:
            nonlocal at
            if offset > at:
                stream.sendHole(offset - at, 0)
            view = memoryview(content)
            while view:
                view = view[stream.send(view.tobytes() if len(view) < CHUNK else bytes(view[:CHUNK])) :]
            at = offset + len(content)

        with explained(f"The volume '{name}' can't be written."):
            try:
                volume.upload(stream, 0, 0, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
                yield put
                if at < capacity:
                    stream.sendHole(capacity - at, 0)
                stream.finish()
            except BaseException:
                with suppress(libvirt.libvirtError):  # the connection may be lost
                    stream.abort()
                self.delete(name)
                raise

    def upload(self, name: str, source: Path, tell: Callable[[float], None] = lambda _: None) -> None:
        """Make a volume with the content of a local file. An existing one of that name is replaced.

        libvirt detects from the content whether it is qcow2 or raw.

        :param tell: receives the progress, 0 to 1.
        """
        # made as raw: otherwise libvirt would write its own qcow2 header
        self._fill(name, self._create(name, volume_xml(name, "raw", 0)), Source(source), tell)

    def _fill(
        self,
        name: str,
        volume: libvirt.virStorageVol,
        source: Source,
        tell: Callable[[float], None],
        *,
        kept: bool = False,
    ) -> None:
        """Upload what was not read of a file to the same place of a volume. Holes stay holes.

        :param kept: leave the volume as it is if the work is stopped.
        """

        def pieces() -> Iterator[bytes | int]:
            for piece in source.pieces():
                tell(source.part)
                yield piece
            tell(source.part)

        self._send(name, volume, pieces(), source.at, kept=kept)
        self.refresh()

    def write(self, name: str, content: bytes) -> None:
        """Make a volume with this content. An existing one of that name is replaced."""
        volume = self._create(name, volume_xml(name, "raw", len(content)))
        if content:
            self._send(name, volume, [content])

    def _send(
        self,
        name: str,
        volume: libvirt.virStorageVol,
        pieces: Iterable[bytes | int],
        offset: int = 0,
        *,
        kept: bool = False,
    ) -> None:
        """Write bytes and holes into a volume; it is removed if that fails.

        :param kept: leave it if the work is stopped. If the connection is lost, it is left in any case.
        """
        stream = self._conn.newStream(0)
        with explained(f"The upload to the volume '{name}' failed."):
            try:
                # length 0: no limit. A hole sets the volume's size to where it ends (src/util/virfdstream.c)
                volume.upload(stream, offset, 0, libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM)
                for piece in pieces:
                    if isinstance(piece, int):
                        stream.sendHole(piece, 0)
                        continue
                    view = piece
                    while view:
                        view = view[stream.send(view) :]
                stream.finish()
            except BaseException as error:
                with suppress(libvirt.libvirtError):  # the connection may be lost
                    stream.abort()
                if not (kept and isinstance(error, (Stopped, KeyboardInterrupt))):
                    self.delete(name)
                raise

    def download(self, name: str, offset: int = 0, most: int = MOST) -> bytes:
        """The volume's content from *offset* on, at most *most* bytes. Empty if there is no such volume."""
        volume = self._find(name)
        if volume is None:
            return b""
        stream = self._conn.newStream(0)
        content = bytearray()
        # an offset past the end, or a log that was just rotated: there is nothing to read now
        with suppress(libvirt.libvirtError):
            volume.download(stream, offset, 0, 0)
            while len(content) < most and (chunk := stream.recv(min(CHUNK, most - len(content)))):
                content += chunk
            if len(content) < most:
                stream.finish()
            else:
                stream.abort()
        return bytes(content)

    def download_to(self, name: str, target: Path, tell: Callable[[float], None]) -> None:
        """Write the whole content of a volume to a local file; ``tell`` is called with the progress, 0 to 1.

        :raises WinlabError: the download failed.
        """
        self.refresh()
        size = self.allocation(name)  # approximately; only for the progress
        with target.open("wb") as file, closing(self.chunks(name)) as chunks:
            for chunk in chunks:
                file.write(chunk)
                tell(min(1.0, file.tell() / max(1, size)))

    def holds(self, name: str, source: Path) -> bool:
        """Whether a volume has the same content as a local file. Reads all of it.

        :raises WinlabError: it can't be read.
        """
        if self._there is not None:
            same_size = self.file_size(name) == source.stat().st_size
            return same_size and self.digest(name, lambda _: None) == files.sha256(source)
        with source.open("rb") as file, closing(self.chunks(name)) as chunks:
            return all(file.read(len(chunk)) == chunk for chunk in chunks) and not file.read(1)

    def chunks(self, name: str) -> Generator[bytes, None, None]:
        """The whole content of a volume in pieces; aborted if the caller stops."""
        volume = self._get(name)
        stream = self._conn.newStream(0)
        with explained(f"The download of the volume '{name}' failed."):
            try:
                volume.download(stream, 0, 0, 0)
                while chunk := stream.recv(CHUNK):
                    yield chunk
                stream.finish()
            except BaseException:
                stream.abort()
                raise
