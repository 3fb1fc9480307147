"""Storage volumes through libvirt's storage API, so that a remote hypervisor needs no file access.

Volumes carry their owner in their names (:mod:`winlab.design.plan.volume_names`). Volumes that labs share are named
``base-<what>-<key>``. A base volume is complete if, and only if, its marker ``<name>.complete`` exists and says
its size: the marker is made last and deleted first. The maker of a base volume holds its claim, ``<name>.claim``.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import files, locks, settings, stopping
from winlab.adapters.vm.connection import answering, explained
from winlab.errors import ConflictError, HostError, NotFoundError, WinlabError

CHUNK = 1 << 18
MOST = 16 << 20  # bytes of a log that are read at once; virtlogd begins a new file at 2 MiB
MARKER = ".complete"
CLAIM = ".claim"
# seconds without growth after which no one is writing a base volume that has no marker, and no claim from this host
ABANDONED = 60.0
REFRESH_TRIES = 600  # a second each: libvirt copies a whole disk meanwhile, even if the winlab that asked was killed
_pool_lock = threading.RLock()  # libvirt refuses changes while a pool is busy with another one


def flush() -> None:
    """Make this host write uploads to its disk: libvirt itself does not (src/util/virfdstream.c)."""
    os.sync()


class StoragePool:
    """winlab's storage pool."""

    def __init__(self, conn: libvirt.virConnect, pool: str = settings.POOL) -> None:
        self._conn = conn
        self.pool = pool
        try:
            self._pool = conn.storagePoolLookupByName(pool)
            if not self._pool.isActive():
                self._pool.create()
        except libvirt.libvirtError as error:
            raise HostError(
                f"libvirt has no usable storage pool '{pool}'.",
                why=str(error),
                cure="Run 'sudo winlab host setup'; it can be run at any time.",
            ) from error

    def refresh(self, tries: int = REFRESH_TRIES) -> None:
        """Make libvirt read the folder again: it does not notice new logs."""
        with explained(f"The storage pool '{self.pool}' can't be refreshed."):
            for attempt in range(tries):
                try:
                    with _pool_lock:
                        self._pool.refresh(0)
                    return
                except libvirt.libvirtError as error:
                    # another process is using the pool
                    if "asynchronous jobs" not in str(error) or attempt == tries - 1:
                        raise
                    stopping.sleep(1)

    @property
    @answering()
    def folder(self) -> Path:
        """The pool's path on the hypervisor."""
        return Path(str(etree.fromstring(self._pool.XMLDesc(0).encode()).findtext("target/path")))

    @answering()
    def free(self, *, patient: bool = True) -> int:
        """How many bytes are free on the pool's file system.

        :param patient: wait while the pool is busy; otherwise what libvirt saw last counts.
        """
        with nullcontext() if patient else suppress(WinlabError):
            self.refresh(REFRESH_TRIES if patient else 1)
        return int(self._pool.info()[3])

    @answering()
    def names(self, prefix: str = "") -> list[str]:
        """The names of the volumes that begin with *prefix*, sorted."""
        with _pool_lock:
            return sorted(name for name in self._pool.listVolumes() if name.startswith(prefix))

    def exists(self, name: str) -> bool:
        """Whether the volume exists."""
        return self._find(name) is not None

    def is_complete(self, name: str) -> bool:
        """Whether a base volume exists with all of its content.

        After a power cut it may be shorter than its marker says. The markers of earlier versions don't say how long.
        """
        if not self.exists(name) or not self.exists(name + MARKER):
            return False
        said = self.download(name + MARKER)
        try:
            return not said or int(json.loads(said)["size"]) == self._physical(name)
        except (ValueError, KeyError, TypeError):
            return False

    def uploaded_digest(self, name: str) -> str:
        """The SHA-256 of what was uploaded into a base volume, from its marker; empty if that does not say."""
        try:
            return str(json.loads(self.download(name + MARKER))["sha256"])
        except (ValueError, KeyError, TypeError):
            return ""

    def digest(self, name: str, tell: Callable[[float], None]) -> str:
        """The SHA-256 of a volume's whole content; ``tell`` is called with the progress, 0 to 1.

        :raises WinlabError: it can't be read.
        """
        size, sent, digest = max(1, self._physical(name)), 0, hashlib.sha256()
        with closing(self.chunks(name)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                sent += len(chunk)
                tell(min(1.0, sent / size))
        return digest.hexdigest()

    @answering()
    def path(self, name: str) -> Path:
        """The volume's path on the hypervisor."""
        return Path(self._get(name).path())

    @answering()
    def capacity(self, name: str) -> int:
        """The volume's size as a guest sees it, in bytes."""
        return int(self._get(name).info()[1])

    @answering()
    def backing(self, name: str) -> Path | None:
        """The path, on the hypervisor, of a volume's backing file; None if it has none."""
        return _backing(self._get(name))

    @answering()
    def backings(self) -> dict[str, Path]:
        """The paths of the backing files of all volumes that have one, by the volumes' names. Reads each one's XML."""
        with _pool_lock:
            volumes = self._pool.listAllVolumes()
        found = {}
        for volume in volumes:
            try:
                path = _backing(volume)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:  # it was just removed
                    raise
            else:
                if path is not None:
                    found[str(volume.name())] = path
        return found

    def create_disk(self, name: str, capacity_mib: int | None, backing: str | None = None) -> None:
        """Make a qcow2 volume, empty or over *backing*. An existing one of that name is replaced.

        :param capacity_mib: at least the size of *backing*, which is also the default.
        :raises ConflictError: *backing* was being removed.
        """
        capacity = (capacity_mib or 0) << 20
        xml = _volume_xml(name, "qcow2", capacity)
        if backing is not None:
            capacity = max(capacity, self.capacity(backing))
            kind = "qcow2" if backing.endswith(".qcow2") else "raw"
            xml = _volume_xml(name, "qcow2", capacity)
            xml.append(X.backingStore(X.path(str(self.path(backing))), X.format(type=kind)))
        self._create(name, xml)
        # retire() deletes the marker before it looks for overlays: it sees this one, or we see no marker
        if backing is not None and not self.is_complete(backing):
            self.delete(name)
            raise ConflictError(
                f"The base volume '{backing}' was removed while a disk was made over it.",
                why="Another winlab is pruning images.",
                cure="Run the same command again; it uploads the image anew.",
            )

    def create_overlay(self, name: str, backing: str) -> None:
        """Make a qcow2 volume over another one that nothing will write to. An existing one of that name is replaced.

        :raises NotFoundError: there is no volume *backing*.
        """
        xml = _volume_xml(name, "qcow2", self.capacity(backing))
        kind = "qcow2" if backing.endswith(".qcow2") else "raw"
        xml.append(X.backingStore(X.path(str(self.path(backing))), X.format(type=kind)))
        self._create(name, xml)

    def copy(self, name: str, source: str) -> None:
        """Make a volume with the content of another one, which stays. An existing one of that name is replaced.

        :raises NotFoundError: there is no volume *source*.
        """
        kind = "qcow2" if source.endswith(".qcow2") else "raw"
        xml = etree.tostring(_volume_xml(name, kind, self.capacity(source)), encoding="unicode")
        with _pool_lock:
            origin = self._get(source)
            self.delete(name)
            try:
                self._pool.createXMLFrom(xml, origin, 0)
            except libvirt.libvirtError as error:
                raise _no_volume(name, error) from error

    @contextmanager
    def filling(self, name: str, capacity: int) -> Iterator[Callable[[int, bytes], None]]:
        """Make a sparse raw volume, and fill it in a with-block. An existing one of that name is replaced.

        Yields a function that takes an offset and bytes, in ascending order; what is left out is zero. If the block
        fails, nothing is left of the volume.

        :param capacity: the volume's size, in bytes.
        """
        volume, stream, at = self._create(name, _volume_xml(name, "raw", capacity)), self._conn.newStream(0), 0

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

    def retire(self, name: str, is_used: Callable[[], bool]) -> bool:
        """Delete a base volume with its marker and claim, unless it is in use; returns whether it was deleted.

        :param is_used: checks whether any machine or other volume needs it.
        """
        marker = self.download(name + MARKER)
        was_complete = self.delete(name + MARKER)
        used = True  # until is_used ends without an error
        try:
            used = is_used()
        finally:
            if used and was_complete:
                self.write(name + MARKER, marker)
        if used:
            return False
        self.delete(name)
        self.delete(name + CLAIM)
        return True

    def upload(self, name: str, source: Path, tell: Callable[[float], None] = lambda _: None) -> None:
        """Make a volume with the content of a local file. An existing one of that name is replaced.

        libvirt detects from the content whether it is qcow2 or raw.

        :param tell: receives the progress, 0 to 1.
        """
        # made as raw: otherwise libvirt would write its own qcow2 header
        self._fill(name, self._create(name, _volume_xml(name, "raw", source.stat().st_size)), source, tell)

    def upload_base(
        self,
        name: str,
        source: Path,
        tell: Callable[[str, float | None], None],
        accept: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Make a base volume, or wait for another winlab that is making it.

        libvirt refuses a second volume of the same name, so making the claim is the lock. A claim whose process is
        gone does not count.

        :param accept: receives the SHA-256 of what was uploaded; if it raises an error, the volume is removed. A volume
            that was there before is neither marked nor replaced without it.
        """
        while not self.is_complete(name):
            with self._claimed(name, tell) as mine:
                if not mine or self.is_complete(name):
                    continue
                if self.exists(name):
                    if self.holds(name, source):  # only its marker was lost; disks may be in use over it
                        accept(digest := files.sha256(source))
                        self.mark(name, digest)
                        continue
                    if not self._stands_still(name, tell):
                        continue  # an earlier version is making it, without a claim
                    accept(files.sha256(source))  # before it is replaced: disks may be based on it
                self.delete(name + MARKER)
                volume = self._create(name, _volume_xml(name, "raw", source.stat().st_size))
                size, digest = self._fill(
                    name, volume, source, lambda fraction: tell("uploading into the pool", fraction)
                )
                if self._claimant(name) != locks.signature():
                    continue  # someone deleted the claim, and may have replaced the volume
                try:
                    accept(digest)
                except BaseException:
                    self.delete(name)
                    raise
                flush()  # a power cut must not leave a marker of a volume that has holes
                self.write(name + MARKER, _marker(size, digest))

    def mark(self, name: str, sha256: str) -> None:
        """Give a base volume its marker again: its whole content has this digest."""
        flush()
        self.write(name + MARKER, _marker(self._physical(name), sha256))

    def restore_base(self, name: str, source: Path, tell: Callable[[str, float | None], None]) -> None:
        """Write a base volume again whose content was lost or has changed.

        Until then, its marker says that it is not complete, and keeps the digest.

        A running machine keeps using the old file until it is started again.

        :param source: the same content as was uploaded first: disks are based on it.
        """
        while True:
            with self._claimed(name, tell) as mine:
                if mine:
                    self.write(name + MARKER, _marker(-1, self.uploaded_digest(name)))
                    volume = self._create(name, _volume_xml(name, "raw", source.stat().st_size))
                    size, digest = self._fill(name, volume, source, lambda part: tell("uploading into the pool", part))
                    flush()
                    self.write(name + MARKER, _marker(size, digest))
                    return

    @contextmanager
    def _claimed(self, name: str, tell: Callable[[str, float | None], None]) -> Iterator[bool]:
        """Hold the claim of a base volume; yields False, after a second, if another winlab holds it."""
        claim, mine = name + CLAIM, locks.signature()
        if locks.is_gone(self._claimant(name)):
            self.delete(claim)
            self.delete(name)  # it may be incomplete: no one else could have finished it
        try:
            with _pool_lock:
                xml = _volume_xml(claim, "raw", len(mine))
                volume = self._pool.createXML(etree.tostring(xml, encoding="unicode"), 0)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_STORAGE_VOL_EXIST:
                raise _no_volume(claim, error) from error
            claimant = self._claimant(name)
            tell(f"another winlab (process {locks.signer(claimant) or '?'}) is uploading it", None)
            if not locks.is_here(claimant) and self._stands_still(name, tell):
                self.delete(claim)  # of another host, or killed before it was signed
            time.sleep(1)
            yield False
            return
        try:
            self._send(claim, volume, len(mine), [mine.encode()])
            yield True
        finally:
            if self._claimant(name) in ("", mine):
                self.delete(claim)

    def _claimant(self, name: str) -> str:
        """Who claims a base volume (:func:`locks.signature`); empty if no one does."""
        return self.download(name + CLAIM).decode(errors="replace").strip("\0")

    def _stands_still(self, name: str, tell: Callable[[str, float | None], None]) -> bool:
        """Whether an incomplete volume has not changed for so long that no one can be writing it."""
        before, since = self.allocation(name), time.monotonic()
        while time.monotonic() - since < ABANDONED:
            tell("another winlab may be uploading it", None)
            time.sleep(1)
            if self.is_complete(name) or self.allocation(name) != before:
                return False
        return True

    def is_abandoned(self, name: str) -> bool:
        """Whether an incomplete base volume is no longer being made. Takes some seconds without a claim."""
        claimant = self._claimant(name)
        if locks.is_here(claimant):
            return locks.is_gone(claimant)
        before = self.allocation(name)
        stopping.sleep(5)
        return not self.is_complete(name) and self.allocation(name) == before

    @answering()
    def allocation(self, name: str) -> int:
        """How many bytes of the pool the volume takes; -1 if there is no such volume."""
        volume = self._find(name)
        return -1 if volume is None else int(volume.info()[2])

    def file_size(self, name: str) -> int:
        """The size of a volume's file in bytes."""
        return self._physical(name)

    def _physical(self, name: str) -> int:
        with answering():
            return int(self._get(name).infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2])

    def _fill(
        self, name: str, volume: libvirt.virStorageVol, source: Path, tell: Callable[[float], None]
    ) -> tuple[int, str]:
        """Upload a file; returns how many bytes that were, and their SHA-256."""
        size, digest, sent = source.stat().st_size, hashlib.sha256(), 0

        def chunks() -> Iterator[bytes]:
            nonlocal sent
            with source.open("rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk
                    digest.update(chunk)
                    sent += len(chunk)
                    tell(sent / size)

        self._send(name, volume, size, chunks())
        self.refresh()
        return sent, digest.hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Make a volume with this content. An existing one of that name is replaced."""
        volume = self._create(name, _volume_xml(name, "raw", len(content)))
        if content:
            self._send(name, volume, len(content), [content])

    def _send(self, name: str, volume: libvirt.virStorageVol, size: int, chunks: Iterable[bytes]) -> None:
        stream = self._conn.newStream(0)
        with explained(f"The upload to the volume '{name}' failed."):
            try:
                volume.upload(stream, 0, size, 0)
                for chunk in chunks:
                    view = chunk
                    while view:
                        view = view[stream.send(view) :]
                stream.finish()
            except BaseException:
                with suppress(libvirt.libvirtError):  # the connection may be lost
                    stream.abort()
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

    def delete(self, name: str) -> bool:
        """Delete a volume; returns whether it existed."""
        volume = self._find(name)
        if volume is None:
            return False
        with _pool_lock, explained(f"The volume '{name}' can't be deleted."):
            volume.delete(0)
        return True

    @answering()
    def _find(self, name: str) -> libvirt.virStorageVol | None:
        with _pool_lock:
            try:
                return self._pool.storageVolLookupByName(name)
            except libvirt.libvirtError as error:
                if error.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
                    return None
                raise

    def _get(self, name: str) -> libvirt.virStorageVol:
        volume = self._find(name)
        if volume is None:
            raise NotFoundError(f"There is no volume '{name}' in the pool '{self.pool}'.")
        return volume

    def _create(self, name: str, xml: etree._Element) -> libvirt.virStorageVol:
        with _pool_lock:
            self.delete(name)
            try:
                return self._pool.createXML(etree.tostring(xml, encoding="unicode"), 0)
            except libvirt.libvirtError as error:
                raise _no_volume(name, error) from error


def _backing(volume: libvirt.virStorageVol) -> Path | None:
    path = etree.fromstring(volume.XMLDesc(0).encode()).findtext("backingStore/path")
    return None if path is None else Path(path)


def _no_volume(name: str, error: libvirt.libvirtError) -> WinlabError:
    cure = "Check that the pool has space: 'winlab doctor' shows it."
    return WinlabError(f"The volume '{name}' can't be made.", why=str(error), cure=cure)


def _marker(size: int, digest: str) -> bytes:
    """What the marker of a base volume says: the size of the complete volume, and the SHA-256 of what was uploaded."""
    return json.dumps({"size": size, "sha256": digest}).encode()


def _volume_xml(name: str, kind: str, capacity: int) -> etree._Element:
    return X.volume(
        X.name(name),
        X.capacity(str(capacity), unit="bytes"),
        X.allocation("0", unit="bytes"),
        # answers and seeds contain secrets: only root and QEMU may read them
        X.target(X.format(type=kind), X.permissions(X.mode("0600"))),
    )
