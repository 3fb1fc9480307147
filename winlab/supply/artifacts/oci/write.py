"""Writes container images from files: one layer, an OCI archive; the same files give the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from winlab import documents
from winlab.design.catalog.artifact import ContainerImage
from winlab.design.system import LINUX
from winlab.supply.artifacts.oci import layout
from winlab.supply.artifacts.oci.archive import CONFIG, LAYER, extract, pack

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar"
EPOCH = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class LayerFile:
    """A file of an image: its absolute path there, and a local file, bytes, or the target of a ``link``."""

    path: str
    content: Path | bytes = b""
    mode: int = 0o755
    link: str = ""


@dataclass(frozen=True)
class Folder:
    """A folder of an image with another mode than ``rwxr-xr-x``, or without files."""

    path: str
    mode: int = 0o755


@dataclass(frozen=True)
class Config:
    """How containers of an image start, as in a Dockerfile."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    user: str = ""
    working_dir: str = ""
    env: tuple[str, ...] = (f"PATH={PATH}",)


def write(target: Path, reference: str, items: Iterable[LayerFile | Folder], config: Config, *, work: Path) -> None:
    """Write a Linux image for amd64 of *items* to *target*.

    :param work: an empty folder with room for the layer.
    """
    blobs = layout.Blobs(work)
    layer = _layer(blobs, items)
    document: dict[str, Any] = {
        "architecture": "amd64",
        "os": LINUX.name,
        "created": EPOCH,
        "config": {
            "Env": list(config.env),
            **({"Entrypoint": list(config.entrypoint)} if config.entrypoint else {}),
            **({"Cmd": list(config.cmd)} if config.cmd else {}),
            **({"User": config.user} if config.user else {}),
            **({"WorkingDir": config.working_dir} if config.working_dir else {}),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": EPOCH, "created_by": "winlab"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": layout.MANIFEST,
        "config": blobs.descriptor(_add(blobs, document), CONFIG),
        "layers": [blobs.descriptor(layer, LAYER)],
    }
    root = blobs.descriptor(_add(blobs, manifest), layout.MANIFEST)
    layout.write(target, blobs, {**root, "platform": {"architecture": "amd64", "os": LINUX.name}}, reference)


def add_layer(
    source: Path, target: Path, image: ContainerImage, items: Iterable[LayerFile | Folder], *, work: Path
) -> None:
    """Write the image in the archive *source*, with an additional layer of *items*, to *target*.

    :param work: an empty folder with room for the whole image.
    :raises WinlabError: as :func:`winlab.supply.artifacts.oci.archive.extract`.
    """
    blobs, raw, name = extract(source, image.os, work=work, reference=image.reference)
    layer = _layer(blobs, items)
    manifest = documents.from_json(raw)
    config = blobs.read_json(manifest["config"]["digest"])
    config["rootfs"]["diff_ids"].append(layer)
    config.setdefault("history", []).append({"created": EPOCH, "created_by": "winlab"})
    kind = DOCKER_LAYER if "docker" in str(manifest.get("mediaType")) else LAYER
    manifest["layers"].append(blobs.descriptor(layer, kind))
    manifest["config"] = blobs.descriptor(_add(blobs, config), manifest["config"]["mediaType"])
    pack(target, blobs, blobs.path(_add(blobs, manifest)).read_bytes(), image.os, name)


def _layer(blobs: layout.Blobs, items: Iterable[LayerFile | Folder]) -> str:
    """Add a layer and return its digest."""
    scratch = blobs.folder / "layer"
    _write_layer(scratch, items)
    with scratch.open("rb") as file:
        layer = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    scratch.rename(blobs.path(layer))
    return layer


def _add(blobs: layout.Blobs, document: object) -> str:
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    blobs.add(digest, content)
    return digest


def _write_layer(target: Path, items: Iterable[LayerFile | Folder]) -> None:
    """Write the layer: sorted, owned by root, without times; folders precede their content."""
    entries: dict[str, LayerFile | Folder] = {}
    for item in items:
        for parent in PurePosixPath(item.path).parents:
            entries.setdefault(str(parent), Folder(str(parent)))
        entries[item.path] = item
    entries.pop("/", None)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, item in sorted(entries.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.mode = item.mode
            if isinstance(item, Folder):
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif item.link:
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, item.link, 0o777
                archive.addfile(member)
            elif isinstance(item.content, bytes):
                member.size = len(item.content)
                archive.addfile(member, io.BytesIO(item.content))
            else:
                member.size = item.content.stat().st_size
                with item.content.open("rb") as file:
                    archive.addfile(member, file)
