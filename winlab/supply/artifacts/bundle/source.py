"""The source ``bundle``; and copying a bundle's images (qcow2, iso) into the cache of images."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from winlab import files, settings
from winlab.design.catalog.artifact import Artifact, Obtained
from winlab.errors import HostError, NotFoundError
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
            cure="A bundle fits the winlab that made it; make it again with this one.",
        )
    if there := next((image for image in cache.entries() if image.key == key), None):
        if there.sha256 == row.sha256:
            return there
        cache.remove(key)  # another build of the same recipe
    progress.say(f"taking {row.recipe.name} out of the bundle")
    begun = time.time()
    final = settings.cache_dir() / "images" / key
    with store.workspace() as work:  # on the same file system as the cache of images
        folder = work / key
        folder.mkdir()
        file = folder / f"image.{row.recipe.format}"
        bundle.take(row, file, progress)
        manifest = {
            "recipe": row.recipe.model_dump(mode="json"),
            "key": key,
            "file": file.name,
            "sha256": row.sha256,
            "size": row.size,
            "origin": str(bundle.path),
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
            "seconds": round(time.time() - begun, 1),
            **({"packages": row.packages} if row.packages else {}),
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        file.chmod(0o444)
        for path in (file, folder / "manifest.json", folder):  # after a power failure, no rename without the data
            files.sync(path)
        try:
            folder.rename(final)
        except OSError as error:
            if not final.is_dir():
                raise HostError(f"The cache '{final.parent}' can't be written.", why=str(error)) from error
            # another winlab was first, or the existing entry is incomplete: then it is not found below
    found = next((image for image in cache.entries() if image.key == key), None)
    if found is None:
        raise HostError(
            f"The cache holds a broken image in '{final}'.", cure="Remove it with 'winlab image prune', and try again."
        )
    return found
