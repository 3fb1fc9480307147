"""Reads archives of container images, and checks every byte: OCI archives, and what ``docker save`` writes.

An OCI archive is an image layout in a tar (https://github.com/opencontainers/image-spec/blob/main/image-layout.md);
``io.containerd.image.name`` in its index is the name under which ``ctr images import`` keeps the image. The other kind
has a ``manifest.json`` (https://github.com/moby/docker-image-spec). Either may be compressed with gzip.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from winlab import documents
from winlab.design.catalog.artifact import ContainerImage
from winlab.design.system import SystemName
from winlab.errors import TransferError, UsageError
from winlab.supply import tars
from winlab.supply.artifacts.oci import layout
from winlab.supply.download import check_space

BLOCK = 1 << 20
SMALL = 4 << 20  # bytes; documents are smaller, layers are skipped
DOCUMENTS = 64 << 20  # bytes of all of them together
DEEPEST = 4  # indexes within each other
MOST_ENTRIES = 1000  # of all indexes together
NAME = "io.containerd.image.name"
REF_NAME = "org.opencontainers.image.ref.name"
LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFESTS = (layout.MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
INDEXES = (layout.INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
# The grammar of https://pkg.go.dev/github.com/distribution/reference
_HUB = "docker.io"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
_WORD = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"{_HOST}(?::[0-9]+)?/(?P<path>{_WORD}(?:/{_WORD})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?"
)
_ID = re.compile("[0-9a-f]{64}")
MAKE = "Make one with 'docker save', 'podman save' or 'skopeo copy ... oci-archive:FILE:NAME:TAG'."
LONGEST_PATH = 255  # characters of a name without registry and tag
LONGEST_REFERENCE = 1024  # characters of all of it
_BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError)  # what tarfile raises for a broken archive


@dataclass(frozen=True)
class Blob:
    """One file of an archive that belongs to an image: its digest (``sha256:...``), size in bytes, media type."""

    digest: str
    size: int
    kind: str

    @property
    def descriptor(self) -> dict[str, Any]:
        """The descriptor by which manifests refer to it."""
        return {"mediaType": self.kind, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Found:
    """An image in an archive, for one platform; all its parts are present and valid.

    ``references`` are its full names in the archive; ``roots`` are the digests of its manifest and of the indexes that
    lead to it. ``others`` are full names by which ``ctr`` would not import it, but podman and skopeo wrote them.
    """

    references: tuple[str, ...]
    os: str
    architecture: str
    config: Blob
    layers: tuple[Blob, ...]
    manifest: bytes
    roots: frozenset[str]
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its full names, those first by which ``ctr`` would import it."""
        return tuple(dict.fromkeys((*self.references, *self.others)))

    def __str__(self) -> str:
        return f"{', '.join(self.names) or 'an image without a name'} ({self.os}/{self.architecture})"


def inspect(path: Path) -> list[Found]:
    """The images in the archive *path*, every blob checked.

    :raises TransferError: it is damaged or truncated.
    :raises UsageError: it is not an archive of container images, or can't be read.
    """
    return _Archive(path).images()


def verify(path: Path, image: ContainerImage, digest: str | None = None) -> None:
    """Check that *path* is an OCI archive that ``ctr images import`` will import as *image*, for amd64.

    :param digest: the published digest (``sha256:...``) of its manifest or index.
    :raises TransferError: it is damaged, or another image.
    :raises UsageError: it is not an archive of container images, or can't be read.
    """
    archive = _Archive(path)
    images = archive.images()
    fit = [one for one in images if (one.os, one.architecture) == (image.os, "amd64")]
    has = "It has " + ("; ".join(map(str, images)) or "none") + "."
    if not fit:
        raise TransferError(f"'{path}' has no image for {image.os}/amd64.", why=has)
    names = {image.reference, full_name(image.reference)}  # the kubelet asks for the full name
    if not archive.is_oci or not any(names & {*one.references} for one in fit):
        raise TransferError(
            f"'{path}' would not be imported as {image.reference}.",
            why=has if archive.is_oci else "It was made by 'docker save' and is not an OCI archive.",
            cure=f"Convert it to an OCI archive whose index has the annotation {NAME} with that name.",
        )
    if digest and not any(digest in one.roots for one in fit):
        digests = ", ".join(sorted({root for one in fit for root in one.roots}))
        raise TransferError(
            f"'{path}' is not the published image {image.reference}.",
            why=f"Its digest should be {digest} and is {digests}.",
        )


def convert(path: Path, target: Path, os: SystemName, *, work: Path, reference: str = "") -> ContainerImage:
    """Write the image in *path*, for amd64, as a plain OCI archive to *target*.

    :param work: an empty folder on a file system with room for it.
    :param reference: the name that it gets; if the archive has several images, the one with this name is used.
    :raises TransferError: the archive is damaged or truncated.
    :raises UsageError: it has no such image, or several, or the image has no name.
    :raises HostError: there is no room for it.
    """
    blobs, manifest, name = extract(path, os, work=work, reference=reference)
    pack(target, blobs, manifest, os, name)
    return ContainerImage(name, os)


def pack(target: Path, blobs: layout.Blobs, manifest: bytes, os: SystemName, name: str) -> None:
    """Write the image with this manifest, whose other parts are among *blobs*, as an OCI archive to *target*."""
    digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
    blobs.add(digest, manifest)
    kind = documents.from_json(manifest).get("mediaType", layout.MANIFEST)
    root = {**blobs.descriptor(digest, kind), "platform": {"architecture": "amd64", "os": os}}
    layout.write(target, blobs, root, name)


def extract(path: Path, os: SystemName, *, work: Path, reference: str = "") -> tuple[layout.Blobs, bytes, str]:
    """Extract the image in *path*, for amd64: its configuration and layers, its manifest, its name.

    Parameters and errors are those of :func:`convert`.
    """
    archive = _Archive(path)
    images = archive.images()
    fit = [one for one in images if (one.os, one.architecture) == (os, "amd64")]
    name = full_name(reference) if reference else ""
    if len(fit) > 1:
        fit = [one for one in fit if name in one.names] or fit
    if len(fit) != 1:
        raise UsageError(
            f"'{path}' has {'several images' if fit else 'no image'} for {os}/amd64.",
            why="It has " + ("; ".join(map(str, images)) or "none") + ".",
            cure="Save one image, for that platform, to a file of its own.",
        )
    image = fit[0]
    if not name:
        if not image.names:
            raise UsageError(
                f"The image in '{path}' has no name.",
                cure="Save it by its name, not by its ID, or pass a name for it.",
            )
        name = image.names[0]
    # each is copied out, and then packed again
    check_space(work, 2 * sum({blob.digest: blob.size for blob in (image.config, *image.layers)}.values()))
    blobs = layout.Blobs(work)
    archive.extract([image.config, *image.layers], blobs)
    return blobs, image.manifest, name


def full_name(reference: str) -> str:
    """The full name (``docker.io/library/nginx:latest``) of Docker's short one (``nginx``).

    As https://pkg.go.dev/github.com/distribution/reference#ParseDockerRef: a tag beside a digest is dropped.

    :raises UsageError: it is not the name of an image.
    """
    head, slash, rest = reference.partition("/")
    if not slash:
        head, rest = _HUB, reference
    elif head == "index.docker.io":
        head = _HUB
    elif not ("." in head or ":" in head or head == "localhost" or head != head.lower()):
        head, rest = _HUB, reference
    if head == _HUB and "/" not in rest:
        rest = f"library/{rest}"
    match = _NAME.fullmatch(f"{head}/{rest}") if len(reference) <= LONGEST_REFERENCE else None
    if match is None or len(match["path"]) > LONGEST_PATH or _ID.fullmatch(reference):
        raise UsageError(
            f"'{reference[:LONGEST_PATH]}' is not a name of a container image.",
            cure="Write it as docker.io/library/nginx:1.29: a registry, lower-case words with slashes, and a tag of at"
            " most 128 letters, digits, dots, hyphens and underscores.",
        )
    name, digest = f"{head}/{match['path']}", match["digest"]
    return f"{name}@{digest}" if digest else f"{name}:{match['tag'] or 'latest'}"


def _usable(references: Iterable[str]) -> tuple[str, ...]:
    """The full names of these, without what is none: ``docker save`` also writes ``<none>:<none>``."""
    names = []
    for reference in references:
        with contextlib.suppress(UsageError):
            names.append(full_name(reference))
    return tuple(dict.fromkeys(names))


@dataclass
class _Archive:
    """An archive that was read once, from beginning to end: digests of all files, contents of the small ones."""

    path: Path
    files: dict[str, Blob] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    entries: int = 0  # of indexes, that were followed

    def __post_init__(self) -> None:
        kept_bytes = 0
        for name, member, content in self._members():
            if member.issym() or member.islnk():
                base = posixpath.dirname(name) if member.issym() else ""
                self.links[name] = posixpath.normpath(posixpath.join(base, member.linkname))
            elif member.isfile():
                sha256 = hashlib.sha256()
                kept = b""
                for block in content:
                    sha256.update(block)
                    if member.size <= SMALL or not kept:
                        kept += block
                blob = Blob("sha256:" + sha256.hexdigest(), member.size, _layer_kind(kept))
                if self.files.setdefault(name, blob) != blob:
                    raise self._damaged(f"'{name}' is in it twice, with different contents.")
                if member.size <= SMALL and kept.lstrip()[:1] in (b"{", b"["):  # JSON; layers are not kept
                    self.small[name] = kept
                    kept_bytes += len(kept)
                    if kept_bytes > DOCUMENTS:
                        raise self._damaged(f"Its documents have more than {DOCUMENTS:,} bytes.")
        if not self.is_oci and "manifest.json" not in self.files:
            raise UsageError(
                f"'{self.path}' is not an archive of container images.",
                why="It has neither an index.json (OCI) nor a manifest.json (docker save)"
                + (", or is cut off." if self.files else "."),
                cure=MAKE,
            )

    @property
    def is_oci(self) -> bool:
        return "index.json" in self.files

    def _members(self) -> Iterator[tuple[str, tarfile.TarInfo, Iterator[bytes]]]:
        """All members in order, with their contents.

        :raises WinlabError: an error of tarfile, explained.
        """
        begun = False
        try:
            with tars.opened(self.path, packed=True) as archive:
                for member in tars.members(archive):
                    begun = True
                    yield posixpath.normpath(member.name), member, self._blocks(archive, member)
        except _BROKEN as error:
            if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
                raise UsageError(f"'{self.path}' can't be read.", why=str(error), causes=[error]) from error
            if not begun:
                raise UsageError(
                    f"'{self.path}' is not an archive of container images.",
                    why=f"It is not a tar archive, plain or gzipped ({error}).",
                    cure=MAKE,
                    causes=[error],
                ) from error
            raise self._damaged(str(error)) from error

    def _blocks(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
        file = archive.extractfile(member) if member.isfile() else None
        try:
            while file and (block := file.read(BLOCK)):
                yield block
        except _BROKEN as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> TransferError:
        return TransferError(
            f"The archive '{self.path}' is damaged or truncated.", why=why, cure="Create or download it again."
        )

    def _json(self, name: str) -> Any:
        if name not in self.small:
            raise self._damaged(f"'{name}' is missing.")
        try:
            return documents.from_json(self.small[name])
        except ValueError as error:
            raise self._damaged(f"'{name}' is not valid JSON: {error}.") from error

    def images(self) -> list[Found]:
        try:
            return self._oci_images() if self.is_oci else self._docker_images()
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise self._damaged(f"A document in it lacks a required field: {error!r}.") from error

    def _oci_images(self) -> list[Found]:
        for name, file in self.files.items():
            if name.startswith("blobs/sha256/") and file.digest != _digest(name):
                raise self._damaged(f"The digest of '{name}' is {file.digest}.")
        images: dict[str, Found] = {}
        for entry in self._json("index.json")["manifests"]:
            notes = entry.get("annotations", {})
            reference, other = notes.get(NAME), notes.get(REF_NAME)
            if not isinstance(reference, str | None) or not isinstance(other, str | None):
                raise self._damaged("The name of an image in it is not text.")
            named = bool(other) and any(sign in str(other) for sign in ":/@")  # otherwise it is a tag alone
            for one in self._resolve(entry, frozenset(), top=True):
                digest = "sha256:" + hashlib.sha256(one.manifest).hexdigest()
                before = images.get(digest)
                names = dict.fromkeys(
                    [*(before.references if before else ()), *(_usable([reference]) if reference else ())]
                )
                roots = one.roots | (before.roots if before else frozenset())
                others = (*(before.others if before else ()), *(_usable([str(other)]) if named else ()))
                images[digest] = Found(
                    tuple(names), one.os, one.architecture, one.config, one.layers, one.manifest, roots, others
                )
        return list(images.values())

    def _resolve(self, entry: dict[str, Any], roots: frozenset[str], *, top: bool) -> Iterator[Found]:
        """The images that an entry of an index leads to."""
        digest = str(entry["digest"])
        name = _blob(digest)
        self.entries += 1
        if self.entries > MOST_ENTRIES or len(roots) > DEEPEST or digest in roots:
            raise self._damaged("Its indexes have too many entries, or lead to each other.")
        if not top and (name not in self.files or entry.get("platform", {}).get("os") == "unknown"):
            return  # another platform that was not saved, or a build attestation
        document = self._json(name)
        roots |= {digest}
        kind = entry.get("mediaType") or document.get("mediaType")
        if kind in INDEXES:
            for child in document["manifests"]:
                yield from self._resolve(child, roots, top=False)
            return
        if kind not in MANIFESTS:
            return  # not an image: a signature, a chart
        parts = [self._part(item) for item in [document["config"], *document["layers"]]]
        yield self._found(parts[0], _blob(parts[0].digest), tuple(parts[1:]), (), self.small[name], roots)

    def _part(self, descriptor: dict[str, Any]) -> Blob:
        file = self.files.get(_blob(descriptor["digest"]))
        if file is None:
            kind = str(descriptor.get("mediaType"))
            if descriptor.get("urls") or ".foreign." in kind or ".nondistributable." in kind:
                raise UsageError(
                    f"The archive '{self.path}' has no copy of a layer of Windows.",
                    why=f"Of the layer {descriptor['digest']} it has only the address, where each node would get it.",
                    cure="Save the image with all layers: 'skopeo copy ... docker-archive:FILE:NAME:TAG'.",
                )
            raise self._damaged(f"The blob {descriptor['digest']} is missing.")
        if not isinstance(descriptor["size"], int):
            raise self._damaged(f"The size of the blob {file.digest} is not a number.")
        if file.size != descriptor["size"]:
            raise self._damaged(f"The blob {file.digest} has {file.size:,} bytes, not {descriptor['size']:,}.")
        return Blob(file.digest, file.size, str(descriptor["mediaType"]))

    def _docker_images(self) -> list[Found]:
        images = []
        for entry in self._json("manifest.json"):
            names = [posixpath.normpath(name) for name in (entry["Config"], *entry["Layers"])]
            files = [self.files.get(self.links.get(name, name)) for name in names]
            if None in files:
                raise self._damaged(f"'{names[files.index(None)]}' is missing.")
            parts = [file for file in files if file is not None]
            config = Blob(parts[0].digest, parts[0].size, CONFIG)
            manifest = {
                "schemaVersion": 2,
                "mediaType": layout.MANIFEST,
                "config": config.descriptor,
                "layers": [layer.descriptor for layer in parts[1:]],
            }
            content = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
            references = _usable(entry.get("RepoTags") or [])
            images.append(self._found(config, names[0], tuple(parts[1:]), references, content, frozenset()))
        return images

    def _found(
        self,
        config: Blob,
        name: str,
        layers: tuple[Blob, ...],
        references: tuple[str, ...],
        manifest: bytes,
        roots: frozenset[str],
    ) -> Found:
        document = self._json(self.links.get(name, name))
        if len(document["rootfs"]["diff_ids"]) != len(layers):
            raise self._damaged("Its configuration and its manifest disagree about the number of layers.")
        return Found(references, str(document["os"]), str(document["architecture"]), config, layers, manifest, roots)

    def extract(self, wanted: list[Blob], blobs: layout.Blobs) -> None:
        """Copy these blobs out, in a second reading."""
        missing = {blob.digest for blob in wanted}
        for name, member, content in self._members():
            if member.isfile() and (digest := self.files[name].digest) in missing:
                try:
                    with blobs.receive(digest, member.size) as add:
                        for block in content:
                            add(block)
                except layout.WrongBlobError as error:
                    raise self._damaged(f"'{name}' changed while it was read: {error}.") from error
                missing.remove(digest)


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(name: str) -> str:
    return "sha256:" + name.rpartition("/")[2]


def _layer_kind(head: bytes) -> str:
    """The media type of a layer, by its first bytes (RFC 1952, RFC 8878)."""
    if head.startswith(b"\x1f\x8b"):
        return f"{LAYER}+gzip"
    return f"{LAYER}+zstd" if head.startswith(b"\x28\xb5\x2f\xfd") else LAYER
