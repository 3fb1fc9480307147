"""Bundles: all that a lab needs in one verified file, for hosts and guests without a network.

A bundle is an uncompressed tar archive, so that ``tar -tf`` and ``tar -xf`` read it::

    bundle.json        first: the version of the format, what it was made for, and a row for each file
    files/<sha256>     the files, each once, in the order of the rows

The rows hold each file's SHA-256 and size, so the digest of ``bundle.json`` (:attr:`Bundle.digest`) covers the whole
bundle. The same members give the same bytes. A file is checked whenever it is extracted; :func:`verify` checks all.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from winlab import files, settings
from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import tars
from winlab.supply.artifacts import executable, store
from winlab.supply.artifacts.bundle.format import (
    Contents,
    FileRow,
    MediaRow,
    OwnMediaRow,
    artifact_row,
    media_row,
    what,
)
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.download import check_space
from winlab.supply.images.cache import CachedImage
from winlab.supply.store import Store

CONTENTS = "bundle.json"
LARGEST_CONTENTS = 64 * 1024 * 1024  # bytes
_BLOCK = 1024 * 1024


def folder() -> Path:
    """Where the default choice of a source looks for bundles; created if missing.

    :raises AccessError: it can't be created.
    """
    path = settings.cache_dir() / "bundles"
    with Store.writing("bundles"):
        files.make_private(path)
    return path


def write(
    path: Path,
    members: Iterable[Obtained | CachedImage | OwnMediaRow],
    inputs: Mapping[str, Any],
    progress: Progress,
) -> Bundle:
    """Write a bundle to *path*, atomically by a rename; an existing file is replaced.

    :param members: artifacts and catalog images, which go in, and the user's own media, which are only listed.
    :param inputs: what the bundle is made for (plain JSON values): the spec, the versions.
    :raises TransferError: a member has changed since it was obtained; the message names it.
    :raises UsageError: *path* is a stream, device, pipe or socket.
    :raises HostError: there is no space, or *path* can't be written.
    """
    files.check_named(path, stream=False)
    every = list(members)
    artifacts = [one for one in every if isinstance(one, Obtained)]
    images = [one for one in every if isinstance(one, CachedImage)]
    for one in artifacts:
        check_kind(one.artifact, one.path, str(one.path))
    contents = Contents(
        inputs=dict(inputs),
        artifacts=tuple(sorted((artifact_row(one) for one in artifacts), key=what)),
        media=tuple(sorted((media_row(one) for one in images), key=lambda row: (row.recipe.name, row.key))),
        own_media=tuple(sorted((one for one in every if isinstance(one, OwnMediaRow)), key=lambda row: row.sha256)),
    )
    places = {one.sha256: one.path for one in artifacts} | {one.sha256: one.path for one in images}
    total = sum(row.size for row in contents.files())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.sweep(path)  # what a killed winlab left may be what is in the way
        check_space(path.parent, total)
        with files.replacing(path) as partial:
            with partial.open("wb") as file:
                _write(file, contents, places, total, progress)
            files.sync(partial)
    except OSError as error:
        raise HostError(f"The bundle '{path}' can't be written.", why=str(error), causes=[error]) from error
    return open_bundle(path)


def _write(file: BinaryIO, contents: Contents, places: Mapping[str, Path], total: int, progress: Progress) -> None:
    have = 0
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        text = contents.to_json()
        _add_header(archive, CONTENTS, len(text))
        file.write(text)
        _pad(archive, file, len(text))
        for row in contents.files():
            _add_header(archive, row.member, row.size)
            sha256, size = hashlib.sha256(), 0
            with places[row.sha256].open("rb") as reader:
                while block := reader.read(_BLOCK):
                    sha256.update(block)
                    size += len(block)
                    if size > row.size:
                        break
                    file.write(block)
                    have += len(block)
                    progress.say(f"packing {what(row)}", have / max(total, 1))
            if (sha256.hexdigest(), size) != (row.sha256, row.size):
                raise TransferError(
                    f"{what(row)} has changed since it was obtained.",
                    why=f"'{places[row.sha256]}' had the SHA-256 {row.sha256}.",
                    cure="Remove it from the cache, and run it again.",
                )
            _pad(archive, file, row.size)


def _add_header(archive: tarfile.TarFile, name: str, size: int) -> None:
    """Write a member's header; the caller writes its content, block by block, while checking it."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o444
    assert archive.fileobj is not None
    header = member.tobuf(archive.format, archive.encoding or "utf-8", archive.errors or "strict")
    archive.fileobj.write(header)
    archive.offset += len(header)


def _pad(archive: tarfile.TarFile, file: BinaryIO, size: int) -> None:
    fill = -size % tarfile.BLOCKSIZE
    file.write(b"\0" * fill)
    archive.offset += size + fill


@dataclass(frozen=True)
class Bundle:
    """A bundle whose structure was checked. ``digest`` covers all of its content."""

    path: Path
    contents: Contents
    digest: str
    offsets: Mapping[str, int]

    def row(self, artifact: Artifact) -> FileRow | None:
        """The row of *artifact*, or None."""
        return next((row for row in self.contents.artifacts if row.artifact == artifact), None)

    def image(self, key: str) -> MediaRow | None:
        """The row of the catalog image with that key of the cache, or None."""
        return next((row for row in self.contents.media if row.key == key), None)

    def take(self, row: FileRow, target: Path | None, progress: Progress) -> None:
        """Copy a file to *target* and check it; only check it if *target* is None.

        :raises TransferError: the file does not match its row: the bundle was altered or truncated.
        :raises HostError: *target* can't be written.
        """
        sha256, left = hashlib.sha256(), row.size
        try:
            with self.path.open("rb") as reader, (target or Path(os.devnull)).open("wb") as writer:
                reader.seek(self.offsets[row.member])
                while left and (block := reader.read(min(_BLOCK, left))):
                    left -= len(block)
                    sha256.update(block)
                    writer.write(block)
                    progress.say(f"reading {what(row)}", 1 - left / row.size)
        except OSError as error:
            raise HostError(f"{what(row)} can't be extracted from '{self.path}'.", why=str(error)) from error
        if left or sha256.hexdigest() != row.sha256:
            if target is not None:
                target.unlink()
            raise TransferError(
                f"The bundle '{self.path}' is damaged: {what(row)} does not match its row.",
                why=f"{left:,} bytes are missing."
                if left
                else f"Its SHA-256 is {sha256.hexdigest()}, and should be {row.sha256}.",
                cure="Copy the bundle again, or create it again with 'winlab bundle create'.",
            )


def open_bundle(path: Path, digest: str | None = None) -> Bundle:
    """Open a bundle and check its structure. Quick: the files themselves are not read.

    :param digest: the digest that the bundle must have, ``sha256:...``; None: any.
    :raises NotFoundError: there is no such file.
    :raises UsageError: it is not a bundle, or this winlab does not know the version of its format.
    :raises TransferError: it is truncated, or files are missing or superfluous.
    """
    if files.is_no_file(path):
        raise _no_bundle(path, "It is not a file.")
    try:
        with path.open("rb") as file:
            bundle = _open(path, file)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"There is no bundle '{path}'.", cure="Create one with 'winlab bundle create' on a machine with a network."
        ) from error
    except OSError as error:
        raise HostError(f"The bundle '{path}' can't be read.", why=str(error), causes=[error]) from error
    if digest is not None and bundle.digest != _hex(digest):
        raise TransferError(
            f"'{path}' is not the expected bundle.",
            why=f"Its digest is sha256:{bundle.digest}, and should be sha256:{_hex(digest)}.",
            cure="Copy it again, and compare its digest with the one that 'winlab bundle create' printed.",
        )
    return bundle


def _hex(digest: str) -> str:
    """The hexadecimal digits of ``sha256:...``.

    :raises UsageError: it is not a digest.
    """
    digits = digest.lower().removeprefix("sha256:")
    if not re.fullmatch("[0-9a-f]{64}", digits):
        raise UsageError(
            f"'{digest}' is not the digest of a bundle.",
            cure="It is 'sha256:' and 64 hexadecimal digits; 'winlab bundle create' and 'bundle verify' print it.",
        )
    return digits


def _open(path: Path, file: BinaryIO) -> Bundle:
    size = os.fstat(file.fileno()).st_size
    try:
        with tars.over(file) as archive:
            return _checked(path, file, archive, size)
    except tarfile.TarError as error:
        raise _no_bundle(path, f"It is not a tar archive, or is damaged: {error}.") from error


def _checked(path: Path, file: BinaryIO, archive: tarfile.TarFile, size: int) -> Bundle:
    first = tars.following(archive)
    if first is None or first.name != CONTENTS or first.size > LARGEST_CONTENTS:
        raise _no_bundle(path, f"It does not begin with '{CONTENTS}'.")
    text = file.read(first.size)
    try:
        contents = _contents(path, text)
        offsets: dict[str, int] = {}
        for row in contents.files():
            member = tars.following(archive)
            if member is None or (member.name, member.size) != (row.member, row.size) or not member.isreg():
                raise _damaged(path, f"{what(row)} is not at its expected place.")
            if member.offset_data + member.size > size:
                raise _damaged(path, f"{what(row)} is truncated: the file ends too early.")
            offsets[row.member] = member.offset_data
        if tars.following(archive) is not None:
            raise _damaged(path, "It contains more than it lists.")
    except tarfile.TarError as error:
        raise _damaged(path, f"It can't be read to its end: {error}.") from error
    last = max((offsets[row.member] + row.size for row in contents.files()), default=first.offset_data + first.size)
    ends = -(-last // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE
    if size != -(-ends // tarfile.RECORDSIZE) * tarfile.RECORDSIZE:
        raise _damaged(path, f"It has {size:,} bytes: its end is missing, or something was added to it.")
    return Bundle(path, contents, hashlib.sha256(text).hexdigest(), offsets)


def _contents(path: Path, text: bytes) -> Contents:
    try:
        return Contents.model_validate_json(text)
    except ValidationError as error:
        formats = [one for one in error.errors() if one["loc"] == ("format",)]
        if formats:
            raise UsageError(
                f"The bundle '{path}' has a format that this winlab does not know: {formats[0]['input']!r}.",
                cure="Use the version of winlab that made it, or a newer one.",
            ) from error
        raise _damaged(path, f"Its '{CONTENTS}' can't be used: {error.errors()[0]['msg']}.") from error


def _no_bundle(path: Path, why: str) -> UsageError:
    return UsageError(f"'{path}' is not a winlab bundle.", why=why, cure="Create one with 'winlab bundle create'.")


def _damaged(path: Path, why: str) -> TransferError:
    return TransferError(
        f"The bundle '{path}' is damaged.",
        why=why,
        cure="Copy it again, or create it again with 'winlab bundle create'.",
    )


def verify(path: Path, progress: Progress) -> Bundle:
    """Read a whole bundle and check everything in it.

    :raises WinlabError: as :func:`open_bundle` and :meth:`Bundle.take`.
    """
    bundle = open_bundle(path)
    with store.workspace() as work:
        for row in bundle.contents.files():
            artifacts = [other.artifact for other in bundle.contents.artifacts if other.sha256 == row.sha256]
            checked = work / "file" if artifacts else None
            bundle.take(row, checked, progress)
            for artifact in artifacts:
                assert checked is not None
                check_kind(artifact, checked, str(path))
    return bundle


def check_kind(artifact: Artifact, file: Path, place: str) -> None:
    """Check that a file is of the kind that its row says, for amd64.

    :raises TransferError: it is not; the message names the artifact.
    """
    if isinstance(artifact, Program) and (why := executable.wrong(file, artifact)):
        raise TransferError(f"'{place}' has a wrong {artifact}.", why=why)
    if isinstance(artifact, ContainerImage):
        oci.verify(file, artifact)
