"""winlab's storage pool: volumes by their names, and the base volumes that labs share.

Volumes carry their owner in their names (:mod:`winlab.design.plan.volume_names`). Volumes that labs share are named
``base-<what>-<key>``. A base volume is complete if, and only if, its marker ``<name>.complete`` exists and says
its size: the marker is made last and deleted first. The maker of a base volume holds its claim, ``<name>.claim``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import files, locks, stopping
from winlab.adapters.vm.contents import Contents
from winlab.adapters.vm.pool import lock, no_volume, volume_xml
from winlab.errors import ConflictError

MARKER = ".complete"
CLAIM = ".claim"
# seconds without growth after which no one is writing a base volume that has no marker, and no claim from this host
ABANDONED = 60.0


def flush() -> None:
    """Make this host write uploads to its disk: libvirt itself does not (src/util/virfdstream.c)."""
    os.sync()


class StoragePool(Contents):
    """winlab's storage pool."""

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

    def create_disk(self, name: str, capacity_mib: int | None, backing: str | None = None) -> None:
        """Make a qcow2 volume, empty or over *backing*. An existing one of that name is replaced.

        :param capacity_mib: at least the size of *backing*, which is also the default.
        :raises ConflictError: *backing* was being removed.
        """
        capacity = (capacity_mib or 0) << 20
        xml = volume_xml(name, "qcow2", capacity)
        if backing is not None:
            capacity = max(capacity, self.capacity(backing))
            kind = "qcow2" if backing.endswith(".qcow2") else "raw"
            xml = volume_xml(name, "qcow2", capacity)
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
                volume = self._create(name, volume_xml(name, "raw", source.stat().st_size))
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
                    volume = self._create(name, volume_xml(name, "raw", source.stat().st_size))
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
            with lock:
                xml = volume_xml(claim, "raw", len(mine))
                volume = self._pool.createXML(etree.tostring(xml, encoding="unicode"), 0)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_STORAGE_VOL_EXIST:
                raise no_volume(claim, error) from error
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


def _marker(size: int, digest: str) -> bytes:
    """What the marker of a base volume says: the size of the complete volume, and the SHA-256 of what was uploaded."""
    return json.dumps({"size": size, "sha256": digest}).encode()
