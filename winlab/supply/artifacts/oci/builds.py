"""The builds of Windows that container images are for.

Windows runs an image in a process of its own kernel only if its build fits, which containerd decides by the index that
the image came with. An image that does not fit is found out only when a pod is to start ("no match for platform").
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from winlab import documents
from winlab.design.catalog.artifact import ContainerImage, Obtained
from winlab.design.plan.model import Plan
from winlab.design.render.runtime_classes import BUILDS
from winlab.design.system import get
from winlab.design.system.windows import runs_image
from winlab.supply import tars
from winlab.supply.artifacts.oci.archive import DEEPEST, DOCUMENTS, SMALL


def unfit(plan: Plan, obtained: Iterable[Obtained]) -> list[str]:
    """A sentence for each image, and each release of Windows among the plan's members that it is not for."""
    releases = sorted({node.windows.release for node in plan.windows_nodes() if node.is_member})
    said = []
    for item in obtained:
        image = item.artifact
        if not isinstance(image, ContainerImage) or not get(image.os).own_layers:
            continue
        versions = of(item.path)
        for release in releases:
            if not any(runs_image(BUILDS[release], version) for version in versions):
                said.append(
                    f"{image.reference} has no image for Windows Server {release} ({BUILDS[release]}): its pods can't "
                    f"start there. It has images for {', '.join(versions)}."
                )
    return said


def of(path: Path) -> list[str]:
    """The ``os.version`` of each image in an OCI archive; an empty text where none is given, which fits everywhere.

    What can't be read counts as such, because this is only for advice: the archive was checked when it was obtained.
    """
    try:
        small = _documents(path)
        index = documents.from_json(small["index.json"])
        return sorted({version for entry in index["manifests"] for version in _versions(entry, small, 0)})
    except (tarfile.TarError, OSError, EOFError, LookupError, TypeError, ValueError, AttributeError):
        return [""]


def _documents(path: Path) -> dict[str, bytes]:
    """The small files of an archive, by name; its layers are skipped."""
    small: dict[str, bytes] = {}
    room = DOCUMENTS
    with tars.opened(path) as archive:
        for member in tars.members(archive):
            content = archive.extractfile(member) if member.isfile() and member.size <= SMALL else None
            if content is not None and (room := room - member.size) >= 0:
                small[posixpath.normpath(member.name)] = content.read()
    return small


def _versions(entry: dict[str, Any], small: dict[str, bytes], depth: int) -> Iterator[str]:
    document = _blob(entry, small)
    if "manifests" in document and depth < DEEPEST:
        for child in document["manifests"]:
            yield from _versions(child, small, depth + 1)
    elif "config" in document:
        named = (entry.get("platform") or {}).get("os.version")
        yield str(named or _blob(document["config"], small).get("os.version") or "")


def _blob(descriptor: dict[str, Any], small: dict[str, bytes]) -> dict[str, Any]:
    found = documents.from_json(small[f"blobs/{str(descriptor['digest']).replace(':', '/')}"])
    if not isinstance(found, dict):
        raise TypeError("it is not an object")
    return found
