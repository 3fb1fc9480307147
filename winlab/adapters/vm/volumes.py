"""winlab's storage pool: volumes by their names, and the base volumes that labs share.

Volumes carry their owner in their names (:mod:`winlab.design.plan.volume_names`). Volumes that labs share are named
``base-<what>-<key>``. A base volume is complete if, and only if, its marker ``<name>.complete`` exists and says
its size: the marker is made last and deleted first. The maker of a base volume holds its claim, ``<name>.claim``.

A base volume without a marker grows while it is uploaded, so its size says how far that came. On another host it stays
if the upload is interrupted. The next one resumes there if the host computes the same digest of it as the image has up
to there. Before the marker is made, the host computes the digest of all of it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import documents, files, locks, stopping
from winlab.adapters.remote import Remote
from winlab.adapters.vm import far_end
from winlab.adapters.vm.contents import Contents
from winlab.adapters.vm.pool import no_volume, volume_xml
from winlab.adapters.vm.source import Source
from winlab.errors import ConflictError, HostError, TransferError

MARKER = ".complete"
CLAIM = ".claim"
UPLOADING = "uploading into the pool"
LARGEST = 4096  # bytes of a marker or claim that are read
SHA256 = re.compile("[0-9a-f]{64}")
# seconds without growth after which no one is writing a base volume that has no marker, and no claim from this host
ABANDONED = 60.0
_lost: set[tuple[str, str]] = set()  # claims of this process whose hosts were cut off, as host and name


class StoragePool(Contents):
    """winlab's storage pool."""

    def is_complete(self, name: str) -> bool:
        """Whether a base volume exists with all of its content.

        After a power cut it may be shorter than its marker says. The markers of earlier versions don't say how long.
        """
        if not self.exists(name) or not self.exists(name + MARKER):
            return False
        said = self.download(name + MARKER, most=LARGEST)
        try:
            return not said or documents.from_json(said)["size"] == self.file_size(name)
        except (ValueError, KeyError, TypeError):
            return False

    def uploaded_digest(self, name: str) -> str:
        """The SHA-256 of what was uploaded into a base volume, from its marker; empty if that does not say."""
        try:
            found = str(documents.from_json(self.download(name + MARKER, most=LARGEST))["sha256"])
        except (ValueError, KeyError, TypeError):
            return ""
        return found if SHA256.fullmatch(found) else ""

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
                cure="Run the same command again; it uploads the image from the start.",
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
                if mine and not self.is_complete(name):
                    self._make(name, source, tell, accept)

    def _make(
        self, name: str, path: Path, tell: Callable[[str, float | None], None], accept: Callable[[str], None]
    ) -> None:
        """Make a base volume that this process claims, or what is missing of it. Not if someone else is making it."""
        exists = self.exists(name)
        source = self._begun(name, path, tell) if exists else None
        if source is not None and source.at == source.size:  # only its marker was lost; disks may be in use over it
            accept(source.sha256)
            self.mark(name, source.sha256)
            return
        if source is None and exists:
            if self._there is None and not self._stands_still(name, tell):
                return  # an earlier version is making it, without a claim
            accept(files.sha256(path))  # before it is replaced: disks may be based on it
        self.delete(name + MARKER)
        resumes = source is not None
        if source is None:
            source = Source(path)
            self._create(name, volume_xml(name, "raw", 0))
        else:
            tell(f"resuming at {source.at >> 20} of {source.size >> 20} MiB", source.part)
        self._fill(name, self._get(name), source, partial(tell, UPLOADING), kept=self._there is not None)
        if self._claimant(name) != locks.signature():
            return  # someone deleted the claim, and may have replaced the volume
        try:
            accept(source.sha256)
        except BaseException:
            if not resumes:  # disks may be based on it
                self.delete(name)
            raise
        self._settle(name, source, tell)

    def _begun(self, name: str, path: Path, tell: Callable[[str, float | None], None]) -> Source | None:
        """The file that a volume was to have, read as far as the volume has it; None if the volume has anything else.

        In a pool of this host, the volume must have the whole file: there is no need to resume.

        :raises WinlabError: the volume can't be read.
        """
        source = Source(path)
        if self._there is None:
            return source if self.holds(name, path) and all(True for _ in source.pieces()) else None
        length = self.file_size(name)
        for _ in source.pieces(length):
            tell("comparing it with what is in the pool", source.part)
        if source.at != length:
            return None  # the volume is longer
        same = length == 0 or self._sha256_there(self._there, name, source, tell) == source.sha256
        return source if same else None

    def _sha256_there(self, there: Remote, name: str, source: Source, tell: Callable[[str, float | None], None]) -> str:
        tell(f"{there} computes the digest of the {source.at >> 20} MiB that it has", source.part)
        return far_end.sha256(there, self.pool, name, source.at)

    def _settle(self, name: str, source: Source, tell: Callable[[str, float | None], None]) -> None:
        """Give a base volume its marker, once it is on its host's disk; on another host, if it has the same digest.

        :raises TransferError: it has another one. The volume is removed.
        """
        self.flush()  # a power cut must not leave a marker of a volume that has holes
        if self._there is not None:
            found = self._sha256_there(self._there, name, source, tell)
            if found != source.sha256:
                self.delete(name)
                raise TransferError(
                    f"The volume '{name}' on '{self._there}' is not what was uploaded.",
                    why=f"Its SHA-256 is {found}, and that of '{source.path}' is {source.sha256}.",
                    cure="Run the same command again; it uploads it from the start. If this happens again, check the "
                    "disk of that host.",
                )
        self.write(name + MARKER, _marker(source.at, source.sha256))

    def flush(self) -> None:
        """Make the pool's host write what was uploaded to its disk: libvirt does not (src/util/virfdstream.c).

        :raises HostError: ssh does not connect, or the host does not end in time.
        """
        if self._there is None:
            os.sync()
        else:
            self._there.call("sync", far_end.LIMIT)

    def mark(self, name: str, sha256: str) -> None:
        """Give a base volume its marker again: its whole content has this digest."""
        self.flush()
        self.write(name + MARKER, _marker(self.file_size(name), sha256))

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
                    upload, volume = Source(source), self._create(name, volume_xml(name, "raw", 0))
                    self._fill(name, volume, upload, partial(tell, UPLOADING), kept=self._there is not None)
                    self._settle(name, upload, tell)
                    return

    @contextmanager
    def _claimed(self, name: str, tell: Callable[[str, float | None], None]) -> Iterator[bool]:
        """Hold the claim of a base volume; yields False, after a second, if another winlab holds it."""
        claim, mine = name + CLAIM, locks.signature()
        if self._is_left(name):
            self.delete(claim)
            if self._there is None:
                self.delete(name)  # it may be incomplete: no one else could have finished it
        _lost.discard((str(self._there), claim))
        try:
            with self._lock:
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
            self._send(claim, volume, [mine.encode()])
            yield True
        finally:
            try:
                if self._claimant(name) in ("", mine):
                    self.delete(claim)
            except HostError:  # it is cut off
                _lost.add((str(self._there), claim))

    def _is_left(self, name: str) -> bool:
        """Whether a base volume is claimed by a process that has ended, or by this one over a lost connection."""
        claimant = self._claimant(name)
        lost = (str(self._there), name + CLAIM) in _lost and claimant == locks.signature()
        return lost or locks.is_gone(claimant)

    def _claimant(self, name: str) -> str:
        """Who claims a base volume (:func:`locks.signature`); empty if no one does."""
        return self.download(name + CLAIM, most=LARGEST).decode(errors="replace").strip("\0")

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
