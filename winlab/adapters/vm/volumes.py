"""Storage volumes through libvirt's storage API, so that a remote hypervisor needs no file access.

Volumes carry their owner in their names: ``<lab>.<node>.<what>``; a lab's name has no dot. Volumes that labs share are
named ``base-<what>-<key>``. A base volume is complete if, and only if, its marker ``<name>.complete``
exists: the marker is made last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import settings
from winlab.adapters.vm.connection import answering, explained
from winlab.errors import HostError, NotFoundError, WinlabError

CHUNK = 1 << 18
MOST = 16 << 20  # bytes of a log that are read at once; virtlogd begins another file at 2 MiB
MARKER = ".complete"
ABANDONED = 60.0  # seconds without growth after which nobody is writing an incomplete base volume
REFRESH_TRIES = 60
_pool_lock = threading.RLock()  # libvirt refuses changes while a pool is busy with another one


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

    def refresh(self) -> None:
        """Have libvirt read the folder again: it does not notice new logs."""
        with explained(f"The storage pool '{self.pool}' can't be refreshed."):
            for attempt in range(REFRESH_TRIES):
                try:
                    with _pool_lock:
                        self._pool.refresh(0)
                    return
                except libvirt.libvirtError as error:
                    # another process is using the pool
                    if "asynchronous jobs" not in str(error) or attempt == REFRESH_TRIES - 1:
                        raise
                    time.sleep(1)

    @property
    @answering()
    def folder(self) -> Path:
        """The pool's path on the hypervisor."""
        return Path(str(etree.fromstring(self._pool.XMLDesc(0).encode()).findtext("target/path")))

    @answering()
    def free(self) -> int:
        """How many bytes are free on the pool's file system."""
        self.refresh()
        return int(self._pool.info()[3])

    @answering()
    def names(self, prefix: str = "") -> list[str]:
        """The names of the volumes that begin with *prefix*, sorted."""
        with _pool_lock:
            return sorted(name for name in self._pool.listVolumes() if name.startswith(prefix))

    def labs(self) -> set[str]:
        """The labs that have volumes, by the volumes' names."""
        return {name.split(".")[0] for name in self.names() if name.count(".") >= 2 and not name.startswith("base-")}

    def exists(self, name: str) -> bool:
        """Whether the volume exists."""
        return self._find(name) is not None

    def is_complete(self, name: str) -> bool:
        """Whether a base volume exists with all of its content."""
        return self.exists(name) and self.exists(name + MARKER)

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
        path = etree.fromstring(self._get(name).XMLDesc(0).encode()).findtext("backingStore/path")
        return None if path is None else Path(path)

    def create_disk(self, name: str, capacity_mib: int | None, backing: str | None = None) -> None:
        """Make a qcow2 volume, empty or over *backing*. An existing one of that name is replaced.

        :param capacity_mib: at least the size of *backing*, which is also the default.
        """
        capacity = (capacity_mib or 0) << 20
        xml = _volume_xml(name, "qcow2", capacity)
        if backing is not None:
            capacity = max(capacity, self.capacity(backing))
            kind = "qcow2" if backing.endswith(".qcow2") else "raw"
            xml = _volume_xml(name, "qcow2", capacity)
            xml.append(X.backingStore(X.path(str(self.path(backing))), X.format(type=kind)))
        self._create(name, xml)

    def upload(self, name: str, source: Path) -> None:
        """Make a volume with the content of a local file. An existing one of that name is replaced.

        libvirt detects from the content whether it is qcow2 or raw.
        """
        # made as raw: libvirt would write a qcow2 header of its own otherwise
        self._fill(name, self._create(name, _volume_xml(name, "raw", source.stat().st_size)), source, lambda _: None)

    def upload_base(self, name: str, source: Path, tell: Callable[[str, float | None], None]) -> None:
        """Make a base volume, or wait for another winlab that is making it.

        libvirt refuses a second volume of the same name, so making it is the lock. One that has stopped growing was
        left by a winlab that was killed, and is made again.
        """
        grown, since = -1, time.monotonic()
        while not self.is_complete(name):
            try:
                with _pool_lock:
                    xml = _volume_xml(name, "raw", source.stat().st_size)
                    volume = self._pool.createXML(etree.tostring(xml, encoding="unicode"), 0)
            except libvirt.libvirtError as error:
                if error.get_error_code() != libvirt.VIR_ERR_STORAGE_VOL_EXIST:
                    raise _no_volume(name, error) from error
                tell("another winlab is uploading it", None)
                size = self.allocation(name)
                if size != grown:
                    grown, since = size, time.monotonic()
                elif time.monotonic() - since > ABANDONED:
                    self.delete(name)
                time.sleep(1)
                continue
            self._fill(name, volume, source, lambda fraction: tell("uploading into the pool", fraction))
            self._create(name + MARKER, _volume_xml(name + MARKER, "raw", 0))

    def is_abandoned(self, name: str) -> bool:
        """Whether a base volume without its marker has stopped growing. Takes some seconds."""
        before = self.allocation(name)
        time.sleep(5)
        return not self.is_complete(name) and self.allocation(name) == before

    @answering()
    def allocation(self, name: str) -> int:
        """How many bytes of the pool the volume takes; -1 if there is no such volume."""
        volume = self._find(name)
        return -1 if volume is None else int(volume.info()[2])

    def _fill(self, name: str, volume: libvirt.virStorageVol, source: Path, tell: Callable[[float], None]) -> None:
        size = source.stat().st_size
        stream = self._conn.newStream(0)
        with source.open("rb") as file, explained(f"The upload of '{source}' to the volume '{name}' failed."):
            try:
                volume.upload(stream, 0, size, 0)
                while chunk := file.read(CHUNK):
                    view = chunk
                    while view:
                        view = view[stream.send(view) :]
                    tell(file.tell() / size)
                stream.finish()
            except BaseException:
                stream.abort()
                self.delete(name)
                raise
        self.refresh()

    def download(self, name: str, offset: int = 0, most: int = MOST) -> bytes:
        """The volume's content from *offset* on, at most *most* bytes. Empty if there is no such volume."""
        volume = self._find(name)
        if volume is None:
            return b""
        stream = self._conn.newStream(0)
        found = bytearray()
        # an offset past the end, or a log that was rotated meanwhile: there is nothing to read now
        with suppress(libvirt.libvirtError):
            volume.download(stream, offset, 0, 0)
            while len(found) < most and (chunk := stream.recv(min(CHUNK, most - len(found)))):
                found += chunk
            if len(found) < most:
                stream.finish()
            else:
                stream.abort()
        return bytes(found)

    def download_to(self, name: str, target: Path, tell: Callable[[float], None]) -> None:
        """Write the whole content of a volume to a local file; *tell* is called with the progress, 0 to 1.

        :raises WinlabError: the download failed.
        """
        self.refresh()
        size = self.allocation(name)  # approximately; only for the progress
        with target.open("wb") as file, closing(self._chunks(name)) as chunks:
            for chunk in chunks:
                file.write(chunk)
                tell(min(1.0, file.tell() / max(1, size)))

    def holds(self, name: str, source: Path) -> bool:
        """Whether a volume has the same content as a local file. Reads all of it.

        :raises WinlabError: it can't be read.
        """
        with source.open("rb") as file, closing(self._chunks(name)) as chunks:
            return all(file.read(len(chunk)) == chunk for chunk in chunks) and not file.read(1)

    def _chunks(self, name: str) -> Generator[bytes, None, None]:
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
        """Delete a volume; whether it existed."""
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


def _no_volume(name: str, error: libvirt.libvirtError) -> WinlabError:
    cure = "Check that the pool has space: 'winlab doctor' shows it."
    return WinlabError(f"The volume '{name}' can't be made.", why=str(error), cure=cure)


def _volume_xml(name: str, kind: str, capacity: int) -> etree._Element:
    return X.volume(
        X.name(name),
        X.capacity(str(capacity), unit="bytes"),
        X.allocation("0", unit="bytes"),
        # answers and seeds contain secrets: only root and QEMU may read them
        X.target(X.format(type=kind), X.permissions(X.mode("0600"))),
    )
