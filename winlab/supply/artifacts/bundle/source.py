"""The source ``bundle``; and copying a bundle's images (qcow2, iso) into the cache of images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program
from winlab.design.catalog.pins import FilePin, Pins
from winlab.design.catalog.recipes import Recipe
from winlab.errors import NotFoundError, TransferError
from winlab.events import Progress
from winlab.supply import disk_format
from winlab.supply.artifacts import store
from winlab.supply.artifacts.bundle.file import Bundle, check_kind, open_bundle
from winlab.supply.download import check_space
from winlab.supply.images import cache


class BundleSource:
    """Takes artifacts out of a bundle; needs no network."""

    name = "bundle"

    def __init__(self, path: Path, pins: Pins | None = None, digest: str | None = None) -> None:
        """Open the bundle.

        :param pins: published digests, which the bundle's files must have.
        :param digest: the digest that the bundle must have; it then verifies the bundle as a whole, even for builds
            of your own under published names.
        :raises WinlabError: as :func:`winlab.supply.artifacts.bundle.file.open_bundle`.
        """
        self.bundle = open_bundle(path, digest)
        self._pins = pins if digest is None else None
        self._meant = digest is not None

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """The parts of *wanted* that are not in the bundle, or not as they were published."""
        reasons = {}
        for artifact in wanted:
            row = self.bundle.row(artifact)
            if row is None:
                reasons[artifact] = "it is not in the bundle"
            elif (pin := self._pin(artifact)) is not None and pin.sha256 not in (None, row.sha256):
                reasons[artifact] = "it is not the published one: for a build of your own, give --bundle-digest"
        return reasons

    def without_digest(self, wanted: Iterable[Artifact]) -> int:
        """How many of *wanted* come without a known digest: only the bundle itself lists their digests."""
        if self._pins is None:
            return 0
        return sum(self._pin(artifact) is None for artifact in wanted)

    def pinned(self, program: Program) -> bool:
        """Whether the bundle's digest was given, or the program's own is published."""
        return self._meant or self._pin(program) is not None

    def _pin(self, artifact: Artifact) -> FilePin | None:
        """The pin with the digest of this very file; that of an archive, or of a container image's index, is not."""
        if self._pins is None or isinstance(artifact, ContainerImage):
            return None
        if isinstance(artifact, Program):
            program = self._pins.program(artifact)
            pin: FilePin | None = None if program is None or program.member is not None else program
        else:
            pin = self._pins.manifest(artifact)
        return pin if pin is not None and pin.sums_url is None else None

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """Take one artifact from the bundle, or from the cache if it was taken before.

        :raises NotFoundError: the bundle does not have it.
        :raises TransferError: it is damaged, not the published one, or for another kind of machine.
        """
        row = self.bundle.row(artifact)
        if row is None:
            raise NotFoundError(f"The bundle '{self.bundle.path}' has no {artifact}.")
        pin = self._pin(artifact)
        if why := self.cannot([artifact]).get(artifact):
            raise TransferError(f"The bundle '{self.bundle.path}' has another {artifact}.", why=why)
        key = store.key({"bundled": str(artifact), "sha256": row.sha256})
        if (there := store.lookup(key)) and (pin is None or pin.sha512 is None):
            return there
        with store.workspace() as work:
            file = work / artifact.file
            self.bundle.take(row, file, progress)
            check_kind(artifact, file, str(self.bundle.path))
            if pin is not None and pin.sha512 is not None:
                _check_sha512(file, pin.sha512, f"The bundle '{self.bundle.path}' has another {artifact}.")
            return store.keep(key, artifact, file, str(self.bundle.path), move=True)

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for several: one after the other, because they share one disk."""
        return [self.obtain(artifact, progress) for artifact in artifacts]


def _check_sha512(file: Path, wanted: str, problem: str) -> None:
    """Compare a file with its published SHA-512, where the bundle has only its SHA-256.

    :raises TransferError: they differ.
    """
    with file.open("rb") as reader:
        sha512 = hashlib.file_digest(reader, "sha512").hexdigest()
    if sha512 != wanted:
        raise TransferError(problem, why=f"Its SHA-512 is {sha512}, and the published one's is {wanted}.")


def restore_image(bundle: Bundle, recipe: Recipe, progress: Progress) -> cache.CachedImage:
    """Copy an image of the catalog from the bundle into the cache, where ``cache.lookup`` finds it.

    :param recipe: the catalog's; what the bundle says about the image does not count.
    :raises NotFoundError: the bundle does not have it.
    :raises TransferError: it is damaged, or not the published image.
    :raises UsageError: it is a disk that does not stand by itself (:mod:`winlab.supply.disk_format`).
    :raises HostError: the cache can't be written.
    """
    key = cache.key(recipe)
    row = bundle.image(key)
    if row is None:
        raise NotFoundError(
            f"The bundle '{bundle.path}' has no image with the key {key[:12]}.",
            why="It has: "
            + (", ".join(f"{one.recipe.name} ({one.key[:12]})" for one in bundle.contents.media) or "none"),
            cure="A bundle fits only the version of winlab that made it; create it again with this one.",
        )
    problem = f"The bundle '{bundle.path}' does not have the published image '{recipe.name}'."
    pin = recipe.download
    if pin is not None and pin.sha256 not in (None, row.sha256):
        raise TransferError(problem, why=f"Its SHA-256 is {row.sha256}, and the catalog pins {pin.sha256}.")
    # Another build of the same recipe stays until the bundle's is whole
    there = next((image for image in cache.entries() if image.key == key), None)
    if there is not None and there.sha256 == row.sha256:
        return there
    progress.say(f"extracting {recipe.name} from the bundle")

    def fill(output: Path) -> tuple[str, str]:
        check_space(output.parent, row.size)
        bundle.take(row, output, progress)
        if pin is not None and pin.sha512 is not None:
            _check_sha512(output, pin.sha512, problem)
        disk_format.check(output, recipe.format, str(bundle.path))
        return row.sha256, str(bundle.path)

    more: dict[str, Any] = {"packages": row.packages} if row.packages else {}
    if pin is None:
        more["imported"] = str(bundle.path)
    return cache.keep(recipe, key, fill, progress, lambda: more, instead=there is not None)
