"""Gathers what a spec needs into a bundle: artifacts, catalog images, and the user's own media by their hash."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from winlab import files
from winlab.design.catalog import recipes as catalog
from winlab.design.catalog.artifact import Artifact, Source
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.errors import UsageError
from winlab.events import Listener, Note, Progress, Told
from winlab.operations import carry_out, lock_inputs
from winlab.operations.lock_file import LockedMedium
from winlab.steps import sources
from winlab.steps.sources import Origin, Supply
from winlab.supply.artifacts import select
from winlab.supply.artifacts.bundle import file
from winlab.supply.artifacts.bundle.file import Bundle
from winlab.supply.artifacts.bundle.format import OwnMediaRow
from winlab.supply.artifacts.bundle.source import restore_image
from winlab.supply.artifacts.oci import builds
from winlab.supply.images import cache, windows_media


def gather(plan: Plan, stock: Stock, path: Path | None, origin: Origin, tell: Listener) -> Bundle:
    """Gather everything that a plan needs into a bundle, and report where it comes from.

    :param path: the bundle; None: in the cache, where create finds it by itself.
    :raises UsageError: *path* is a stream, device, pipe or socket.
    :raises NotFoundError: no source has everything.
    :raises WinlabError: as :func:`create`.
    """
    if path is not None:
        files.check_named(path, stream=False)
    chosen, artifacts, why = source(plan, origin)
    tell(Note(lab=plan.lab, text=f"Filled from {why}"))
    work = partial(create, plan, stock, path, chosen, artifacts, origin.mirror)
    return carry_out.one_step("bundle", work, tell, usual=1200)


def report(plan: Plan, chosen: Supply, why: str, origin: Origin, tell: Listener, *, made: Plan | None = None) -> Supply:
    """Report the source of a plan's artifacts; if it is a bundle that the user did not name, restore its images.

    :param made: the plan whose images are restored; by default the same.
    """
    if chosen.bundle is not None and origin.bundle is None:
        restore_lacking(made or plan, chosen.bundle, Told(tell, "images of the bundle"))
    if plan.kubernetes is not None:
        tell(Note(lab=plan.lab, text=f"Kubernetes {plan.kubernetes.versions.kubernetes} comes from {why}"))
    return chosen


def source(plan: Plan, origin: Origin) -> tuple[Source, list[Artifact], str]:
    """The source that the bundle is filled from, which of the plan's artifacts it has, and why it was chosen.

    :raises NotFoundError: no source has everything.
    """
    chosen, why = sources.choose(plan, origin, runs=False)
    artifacts = [artifact for artifact in required.every(plan) if artifact not in chosen.missing]
    # the host that creates the lab may not run the cluster's own kubectl unless something verifies it
    kubectl = select.for_host(chosen.source, required.kubectls(plan.cluster.versions))
    return chosen.source, list(dict.fromkeys([*artifacts, *([kubectl] if kubectl is not None else [])])), why


def create(
    plan: Plan,
    stock: Stock,
    path: Path | None,
    chosen: Source,
    artifacts: list[Artifact],
    mirror: str | None,
    progress: Progress,
) -> Bundle:
    """Obtain everything and write the bundle; without *path*, into the cache, where create finds it.

    :raises UsageError: it would hold the user's own Kubernetes where other labs look for the published one.
    :raises WinlabError: something can't be obtained, or the bundle can't be written.
    """
    if plan.cluster.source is not None and path is None:
        raise UsageError(
            "A bundle with your own Kubernetes does not go into the cache.",
            why=f"Any lab with {plan.cluster.versions.kubernetes} would use it from there.",
            cure="Give the file to write with --to FILE.",
        )
    obtained = chosen.obtain_all(artifacts, progress)
    for sentence in builds.unfit(plan, obtained):
        progress.say(sentence)
    media = [cache.obtain(recipe, progress, mirror=mirror if recipe.download else None) for recipe in recipes(plan)]
    brought = {image.sha256 for image in media}  # the published drivers go into the bundle
    own = [
        OwnMediaRow(name=row.file, sha256=row.sha256, size=_size(plan, stock, row))
        for row in lock_inputs.media(plan, stock)
        if row.sha256 not in brought
    ]
    inputs = {
        "versions": {**plan.cluster.versions.model_dump(), **plan.components},
        "profile": plan.cluster.profile,
        "images": sorted({node.image for node in plan.nodes}),
    }
    name = f"kubernetes-{plan.cluster.versions.kubernetes}-{'-'.join(sorted({node.image for node in plan.nodes}))}.tar"
    return file.write(path or file.folder() / name, [*obtained, *media, *own], inputs, progress)


def restore_images(plan: Plan, origin: Origin, progress: Progress) -> None:
    """Copy the catalog images that the plan needs from the user's bundle into the cache, where create looks for them.

    :param origin: names the bundle, if there is one.
    :raises NotFoundError: the bundle lacks one.
    :raises TransferError: one is damaged.
    """
    if origin.bundle is None:
        return
    opened = file.open_bundle(origin.bundle, origin.bundle_digest)
    for recipe in recipes(plan):
        key = cache.key(recipe)
        if opened.image(key) is None and cache.lookup(recipe) is not None:
            continue  # an older bundle, or an image that was made on this host
        restore_image(opened, recipe, progress)


def restore_lacking(plan: Plan, path: Path, progress: Progress) -> None:
    """As :func:`restore_images`, for a bundle that the user did not name.

    Cached images are kept, and images that the bundle does not have are skipped.

    :raises TransferError: one is damaged.
    """
    opened = file.open_bundle(path)
    for recipe in recipes(plan):
        if cache.lookup(recipe) is None and opened.image(cache.key(recipe)) is not None:
            restore_image(opened, recipe, progress)


def recipes(plan: Plan) -> list[catalog.Recipe]:
    """The catalog's images that the plan needs, and the published drivers; the user's own media are not among them."""
    names = {node.image for node in plan.nodes if not node.own_medium}
    if any(windows_media.takes_published(node.windows) for node in plan.windows_nodes()):
        names.add(windows_media.DRIVERS)
    recipes = [catalog.get(name) for name in sorted(names)]
    return [recipe for recipe in recipes if recipe.download is not None or recipe.build is not None]


def _size(plan: Plan, stock: Stock, row: LockedMedium) -> int:
    """The size in bytes of a file that the user must supply again; 0 if it is not known."""
    for node in plan.nodes:
        for evaluation in catalog.get(node.image).evaluations:
            if evaluation.sha256 == row.sha256:
                return evaluation.size or 0
    return stock.paths[row.sha256].stat().st_size if row.sha256 in stock.paths else 0
