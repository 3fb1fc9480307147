"""Gathers what a spec needs into a bundle: artifacts, catalog images, and the person's own media by their hash."""

from __future__ import annotations

from pathlib import Path

from winlab import catalog
from winlab.artifacts import bundle, choice
from winlab.artifacts.build import BuildSource
from winlab.artifacts.bundle import Bundle
from winlab.artifacts.bundle_format import OwnMediaRow
from winlab.artifacts.bundle_source import restore_image
from winlab.artifacts.model import Artifact, Source
from winlab.cluster import locking, versions, wanted
from winlab.events import Progress
from winlab.media import cache
from winlab.plan import Plan


def source(plan: Plan, kind: choice.Kind | None, mirror: str | None) -> tuple[Source, list[Artifact], str]:
    """The source that the bundle is filled from, what it gives of all that the plan needs, and why it was taken.

    :raises NotFoundError: no source has everything.
    """
    every = wanted.every(plan)
    optional = {artifact for artifact in every if wanted.optional(artifact)}
    chosen, why = choice.choose(
        every,
        pins=versions.load().pins,
        build=lambda: BuildSource(plan.cluster.versions.kubernetes),
        kind=kind,
        mirror=mirror,
        optional=optional,
    )
    missing = chosen.cannot(optional)
    return chosen, [artifact for artifact in every if artifact not in missing], why


def create(
    plan: Plan, path: Path | None, chosen: Source, artifacts: list[Artifact], mirror: str | None, progress: Progress
) -> Bundle:
    """Obtain everything and write the bundle; without *path* into the cache, where create finds it by itself.

    :raises WinlabError: something can't be had, or the bundle not be written.
    """
    obtained = chosen.obtain_all(artifacts, progress)
    media = [cache.obtain(recipe, progress, mirror=mirror) for recipe in _recipes(plan)]
    own = [
        OwnMediaRow(name=row.file, sha256=row.sha256, size=_size(plan, row.file))
        for row in locking.media(plan, progress)
    ]
    inputs = {
        "versions": plan.cluster.versions.model_dump(),
        "profile": plan.cluster.profile,
        "images": sorted({node.image for node in plan.nodes}),
    }
    name = f"kubernetes-{plan.cluster.versions.kubernetes}-{'-'.join(sorted({node.image for node in plan.nodes}))}.tar"
    return bundle.write(path or bundle.folder() / name, [*obtained, *media, *own], inputs, progress)


def restore_images(plan: Plan, path: Path, progress: Progress) -> None:
    """Bring the catalog's images that the plan needs out of a bundle into the cache, where they are looked for.

    :raises NotFoundError: the bundle lacks one.
    :raises TransferError: one is damaged.
    """
    opened = bundle.open_bundle(path)
    for recipe in _recipes(plan):
        if cache.lookup(recipe) is None:
            progress.say(f"taking {recipe.name} out of the bundle")
            restore_image(opened, cache.key(recipe), progress)


def _recipes(plan: Plan) -> list[catalog.Recipe]:
    """The catalog's images that the plan needs; media of the person's own are none."""
    names = {node.image for node in plan.nodes if node.windows is None or node.windows.media is None}
    recipes = [catalog.get(name) for name in sorted(names)]
    return [recipe for recipe in recipes if recipe.download is not None or recipe.build is not None]


def _size(plan: Plan, name: str) -> int:
    for node in plan.nodes:
        if node.windows is not None:
            for path in (node.windows.media, node.windows.drivers, node.windows.openssh):
                if path is not None and path.name == name:
                    return path.stat().st_size
    return 0
