"""An OCI image layout under construction: blobs in a folder, written out as one tar archive.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from winlab import documents

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class WrongBlobError(Exception):
    """A blob does not match its digest; another try may succeed."""


class Blobs:
    """Blobs by digest (``sha256:...``), each checked, each a file in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, digest: str) -> Path:
        """Where the blob is, or would be."""
        return self.folder / digest.removeprefix("sha256:")

    def has(self, digest: str) -> bool:
        """Whether the blob exists."""
        return self.path(digest).exists()

    def add(self, digest: str, content: bytes) -> None:
        """Add a small blob whose digest was checked."""
        self.path(digest).write_bytes(content)

    def add_index(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """Add an index of *entries* and return its descriptor."""
        content = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.add(digest, content)
        return self.descriptor(digest, INDEX)

    def descriptor(self, digest: str, kind: str) -> dict[str, Any]:
        """The descriptor of an existing blob."""
        return {"mediaType": kind, "digest": digest, "size": self.path(digest).stat().st_size}

    def read_json(self, digest: str) -> dict[str, Any]:
        """A blob that is a JSON document."""
        return cast(dict[str, Any], documents.from_json(self.path(digest).read_bytes()))

    @contextmanager
    def receive(self, digest: str, size: int) -> Iterator[Callable[[bytes], None]]:
        """Add a blob block by block; it exists once it is complete and its digest matches.

        :raises WrongBlobError: it does not match; nothing is left of it.
        """
        partial = self.path(digest).with_suffix(".partial")
        sha256 = hashlib.sha256()
        have = 0
        try:
            with partial.open("wb") as file:

                def add(block: bytes) -> None:
                    nonlocal have
                    have += len(block)
                    if have > size:
                        raise WrongBlobError(f"it has more than its {size:,} bytes")
                    sha256.update(block)
                    file.write(block)

                yield add
            actual_digest = "sha256:" + sha256.hexdigest()
            if have < size:
                raise WrongBlobError(f"it ended after {have:,} of {size:,} bytes")
            if actual_digest != digest:
                raise WrongBlobError(f"its digest is {actual_digest}")
            partial.rename(self.path(digest))
        finally:
            partial.unlink(missing_ok=True)


def write(target: Path, blobs: Blobs, root: dict[str, Any], reference: str) -> None:
    """Write the archive: the same blobs give the same bytes."""
    tag = reference.rpartition("/")[2].partition("@")[0].partition(":")[2]
    annotations = {"io.containerd.image.name": reference}
    if tag:
        annotations["org.opencontainers.image.ref.name"] = tag
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**root, "annotations": annotations}]}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("oci-layout", _json({"imageLayoutVersion": "1.0.0"})), ("index.json", _json(index))):
            scratch = blobs.folder / f"{name}.scratch"
            scratch.write_bytes(content)
            _add(archive, name, scratch)
            scratch.unlink()
        for digest in sorted(_reachable(blobs, root)):
            _add(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}", blobs.path(digest))


def _reachable(blobs: Blobs, root: dict[str, Any]) -> set[str]:
    """The digests of *root* and of all that it refers to."""
    digests = {str(root["digest"])}
    document = blobs.read_json(root["digest"])
    for entry in document.get("manifests", []):
        digests |= _reachable(blobs, entry)
    for part in [*document.get("layers", []), *([document["config"]] if "config" in document else [])]:
        digests.add(str(part["digest"]))
    return digests


def _add(archive: tarfile.TarFile, name: str, path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.size = path.stat().st_size
    member.mode = 0o444
    with path.open("rb") as file:
        archive.addfile(member, file)


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
