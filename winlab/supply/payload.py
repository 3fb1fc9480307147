"""The payload CD: everything that the nodes of one system need for Kubernetes, so that they need no network for it.

::

    programs/   kubelet, kubectl, containerd ... (with .exe on Windows)
    cni/        the reference plug-ins
    images/     container images as OCI archives
    scripts/    winlab's own, the same bytes for every node (unattend/windows/worker)
    payload.json    what each file is, with its SHA-256

The CD depends on its contents alone, so labs share it: in the pool it is a base volume like an image.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from winlab import data
from winlab.design import system as systems
from winlab.design.catalog.artifact import ContainerImage, Obtained, Program
from winlab.design.system import System, SystemName
from winlab.supply import intact
from winlab.supply.media import small_iso

LABEL = "WINLAB_K8S"
PREFIX = "base-kubernetes-"


class PayloadCd:
    """A planned payload CD: ``volume`` is its name in the pool.

    :raises TransferError: a program has changed since it was obtained: nodes compare it only with its CRC-32.
    """

    def __init__(self, system: SystemName, obtained: Iterable[Obtained], plugins: Iterable[Program]) -> None:
        self.system = system
        self.files: dict[str, bytes | Path] = {}
        self._images: list[Obtained] = []
        listed: dict[str, dict[str, dict[str, str | int]]] = {"programs": {}, "cni": {}, "images": {}}
        plugins = set(plugins)
        for item in obtained:
            artifact = item.artifact
            row: dict[str, str | int]
            if isinstance(artifact, ContainerImage):
                self._images.append(item)
                folder, row = "images", {"reference": artifact.reference, "sha256": item.sha256}
            else:
                folder = "cni" if artifact in plugins else "programs"
                row = {"version": getattr(artifact, "version", ""), "sha256": item.sha256, "crc32": intact.verify(item)}
            self.files[f"{folder}/{artifact.file}"] = item.path
            listed[folder][artifact.file] = row
        self.files["payload.json"] = (json.dumps(listed, indent=1, sort_keys=True) + "\n").encode()
        self.files.update(scripts(systems.get(system)))
        digest = hashlib.sha256()
        for name, content in sorted(self.files.items()):
            if isinstance(content, bytes):  # the others' digests are in payload.json
                digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.volume = f"{PREFIX}{system}-{digest.hexdigest()[:16]}.iso"

    @property
    def size(self) -> int:
        """The approximate size of the CD in bytes."""
        return sum(len(c) if isinstance(c, bytes) else c.stat().st_size for c in self.files.values())

    def write(self, path: Path) -> None:
        """Write the CD.

        :raises TransferError: a container image has changed since it was obtained. Programs were read before.
        """
        for item in self._images:
            intact.verify(item)
        small_iso.write(path, LABEL, self.files)


def scripts(system: System) -> dict[str, bytes]:
    """winlab's scripts for a system, by their paths on the CD."""
    if not system.cd_scripts:
        return {}
    folder = data.folder("unattend") / system.cd_scripts
    return {f"scripts/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.ps1"))}
