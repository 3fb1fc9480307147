"""The source ``bundle``; and copying a bundle's images (qcow2, iso) into the cache of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from winlab.design.catalog.artifact import Artifact, Obtained
from winlab.errors import NotFoundError
from winlab.events import Progress
from winlab.supply.artifacts import store
from winlab.supply.artifacts.bundle.file import Bundle, check_kind, open_bundle
from winlab.supply.images import cache


class BundleSource:
    """Takes artifacts out of a bundle; needs no network."""

    name = "bundle"

    def __init__(self, path: Path) -> None:
        """Open the bundle.

        :raises WinlabError: as :func:`winlab.supply.artifacts.bundle.file.open_bundle`.
        """
        self.bundle = open_bundle(path)

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """The parts of *wanted* that are not in the bundle."""
        return {artifact: "it is not in the bundle" for artifact in wanted if self.bundle.row(artifact) is None}

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """Take one artifact from the bundle, or from the cache if it was taken before.

        :raises NotFoundError: the bundle does not have it.
        :raises TransferError: it is damaged, or for another kind of machine.
        """
        row = self.bundle.row(artifact)
        if row is None:
            raise NotFoundError(f"The bundle '{self.bundle.path}' has no {artifact}.")
        key = store.key({"bundled": str(artifact), "sha256": row.sha256})
        if there := store.lookup(key):
            return there
        with store.workspace() as work:
            file = work / artifact.file
            self.bundle.take(row, file, progress)
            check_kind(artifact, file, str(self.bundle.path))
            return store.keep(key, artifact, file, str(self.bundle.path), move=True)

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for several: one after the other, because they share one disk."""
        return [self.obtain(artifact, progress) for artifact in artifacts]


def restore_image(bundle: Bundle, key: str, progress: Progress) -> cache.CachedImage:
    """Copy the catalog image *key* from the bundle into the cache, where ``cache.lookup`` finds it.

    :raises NotFoundError: the bundle does not have it.
    :raises TransferError: it is damaged.
    :raises HostError: the cache can't be written.
    """
    row = bundle.image(key)
    if row is None:
        raise NotFoundError(
            f"The bundle '{bundle.path}' has no image with the key {key[:12]}.",
            why="It has: "
            + (", ".join(f"{one.recipe.name} ({one.key[:12]})" for one in bundle.contents.media) or "none"),
            cure="A bundle fits only the version of winlab that made it; create it again with this one.",
        )
    if there := next((image for image in cache.entries() if image.key == key), None):
        if there.sha256 == row.sha256:
            return there
        cache.remove(key)  # another build of the same recipe
    progress.say(f"extracting {row.recipe.name} from the bundle")

    def fill(output: Path) -> tuple[str, str]:
        bundle.take(row, output, progress)
        return row.sha256, str(bundle.path)

    return cache.keep(row.recipe, key, fill, progress, lambda: {"packages": row.packages} if row.packages else {})
