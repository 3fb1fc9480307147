"""A storage pool and its volumes through libvirt's storage API, so that a remote hypervisor needs no file access."""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import settings, stopping
from winlab.adapters.remote import Remote
from winlab.adapters.vm.connection import answering, explained
from winlab.errors import HostError, NotFoundError, WinlabError

REFRESH_TRIES = 600  # a second each: libvirt copies a whole disk meanwhile, even if the winlab that asked was killed


class Pool:
    """A storage pool: which volumes it has, and new ones without content."""

    def __init__(self, conn: libvirt.virConnect, pool: str = settings.POOL) -> None:
        self._conn = conn
        self.pool = pool
        self._lock = threading.RLock()  # libvirt refuses changes while a pool is busy with another one
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

    @cached_property
    def _there(self) -> Remote | None:
        """Its host, if ssh brings the connection there."""
        return Remote.of(self._conn.getURI())

    def refresh(self, tries: int = REFRESH_TRIES) -> None:
        """Make libvirt read the folder again: it does not notice new logs."""
        with explained(f"The storage pool '{self.pool}' can't be refreshed."):
            for attempt in range(tries):
                try:
                    with self._lock:
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
        with self._lock:
            return sorted(name for name in self._pool.listVolumes() if name.startswith(prefix))

    def exists(self, name: str) -> bool:
        """Whether the volume exists."""
        return self._find(name) is not None

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
        with self._lock:
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

    def create_overlay(self, name: str, backing: str) -> None:
        """Make a qcow2 volume over another one that nothing will write to. An existing one of that name is replaced.

        :raises NotFoundError: there is no volume *backing*.
        """
        xml = volume_xml(name, "qcow2", self.capacity(backing))
        kind = "qcow2" if backing.endswith(".qcow2") else "raw"
        xml.append(X.backingStore(X.path(str(self.path(backing))), X.format(type=kind)))
        self._create(name, xml)

    def copy(self, name: str, source: str) -> None:
        """Make a volume with the content of another one, which stays. An existing one of that name is replaced.

        :raises NotFoundError: there is no volume *source*.
        """
        kind = "qcow2" if source.endswith(".qcow2") else "raw"
        xml = etree.tostring(volume_xml(name, kind, self.capacity(source)), encoding="unicode")
        with self._lock:
            origin = self._get(source)
            self.delete(name)
            try:
                self._pool.createXMLFrom(xml, origin, 0)
            except libvirt.libvirtError as error:
                raise no_volume(name, error) from error

    @answering()
    def allocation(self, name: str) -> int:
        """How many bytes of the pool the volume takes; -1 if there is no such volume."""
        volume = self._find(name)
        return -1 if volume is None else int(volume.info()[2])

    def _physical(self, name: str) -> int:
        """The size of a volume's file in bytes."""
        with answering():
            return int(self._get(name).infoFlags(libvirt.VIR_STORAGE_VOL_GET_PHYSICAL)[2])

    def delete(self, name: str) -> bool:
        """Delete a volume; returns whether it existed."""
        volume = self._find(name)
        if volume is None:
            return False
        with self._lock, explained(f"The volume '{name}' can't be deleted."):
            volume.delete(0)
        return True

    @answering()
    def _find(self, name: str) -> libvirt.virStorageVol | None:
        with self._lock:
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
        with self._lock:
            self.delete(name)
            try:
                return self._pool.createXML(etree.tostring(xml, encoding="unicode"), 0)
            except libvirt.libvirtError as error:
                raise no_volume(name, error) from error


def _backing(volume: libvirt.virStorageVol) -> Path | None:
    path = etree.fromstring(volume.XMLDesc(0).encode()).findtext("backingStore/path")
    return None if path is None else Path(path)


def no_volume(name: str, error: libvirt.libvirtError) -> WinlabError:
    """The error for a volume that libvirt did not make."""
    cure = "Check that the pool has space: 'winlab doctor' shows it."
    return WinlabError(f"The volume '{name}' can't be made.", why=str(error), cure=cure)


def volume_xml(name: str, kind: str, capacity: int) -> etree._Element:
    """The definition of a sparse volume; *kind* is its format, *capacity* its size in bytes."""
    return X.volume(
        X.name(name),
        X.capacity(str(capacity), unit="bytes"),
        X.allocation("0", unit="bytes"),
        # answers and seeds contain secrets: only root and QEMU may read them
        X.target(X.format(type=kind), X.permissions(X.mode("0600"))),
    )
