"""The front door to what labs are made of: images in the cache, Windows installation media, bundles.

As in :mod:`winlab.lab`, methods raise a :class:`winlab.errors.WinlabError`, a *listener* receives events, and *stop*
stops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from winlab.design.catalog import recipes as catalog
from winlab.design.catalog.recipes import Recipe
from winlab.design.spec.model import Spec
from winlab.events import Listener, Told, ignore
from winlab.operations import carry_out, consent, export_iso, images, prune
from winlab.operations.export_iso import Alone, Export
from winlab.operations.prune import Kept, Pruned
from winlab.site import Site, at_site
from winlab.stopping import Stop
from winlab.supply.artifacts.bundle import file as bundles
from winlab.supply.artifacts.bundle.file import Bundle
from winlab.supply.images import library
from winlab.supply.images.cache import CachedImage
from winlab.supply.images.library import Item
from winlab.supply.media import inspection, wim_drivers
from winlab.supply.media.inspection import Inspection
from winlab.supply.media.wim import WimImage

__all__ = ["Alone", "Bundle", "CachedImage", "Export", "Inspection", "Item", "Pruned", "Supplies", "WimImage"]


class Supplies:
    """What a site's labs are made of.

    :param site: by default as the environment says.
    """

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()

    # -- images

    @staticmethod
    def recipes() -> Sequence[Recipe]:
        """All recipes of images, by name."""
        return [catalog.get(name) for name in catalog.names()]

    @at_site
    def images(self) -> list[Item]:
        """All images in the cache, by name and age (oldest first)."""
        return library.items()

    @at_site
    def image(self, which: str) -> Item:
        """One image in the cache, by its recipe's name or the beginning of its key.

        :raises NotFoundError: there is none.
        :raises UsageError: there are several.
        """
        return library.find(which)

    @staticmethod
    def is_sealed(name: str) -> bool:
        """Whether nodes of an image are clones of a golden image, which ``Lab.build_golden`` makes.

        :raises NotFoundError: there is no such image.
        """
        return images.is_sealed(name)

    @at_site
    def build_image(
        self,
        name: str,
        *,
        mirror: str | None = None,
        source: Path | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> CachedImage:
        """Build or download an image unless it is cached; for Windows, the installation medium.

        :param mirror: where a download comes from, instead of its own site.
        :param source: a local file to use instead.
        :raises NotFoundError: there is no such image, or no source for it.
        """
        return images.build(name, listener, mirror=mirror, source=source)

    @at_site
    def add_image(
        self, name: str, iso: Path, *, sha256: str | None = None, listener: Listener = ignore, stop: Stop = None
    ) -> CachedImage:
        """Copy your own ISO, of Windows or of the virtio drivers, into the cache.

        :param sha256: the expected digest.
        :raises UsageError: it is not what the image needs, or has a different digest.
        """
        return images.add(name, iso, listener, sha256=sha256)

    @at_site
    def terms(self, name: str) -> str | None:
        """The terms of Microsoft's evaluations, if the user must accept them before :meth:`pull_image`, or None.

        :raises WinlabError: nothing can be pulled for this image.
        """
        return images.terms(name, self.site)

    @at_site
    def pull_image(
        self,
        name: str,
        *,
        accept_eula: bool = False,
        mirror: str | None = None,
        source: Path | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> CachedImage:
        """Download Microsoft's evaluation medium or the virtio drivers into the cache, or resume that.

        :param accept_eula: a person has accepted the terms; this is remembered.
        :param mirror: a URL or folder that has the file, used instead of its own site.
        :param source: a local copy to use instead.
        :raises UsageError: the terms were not accepted, or the image needs no medium.
        :raises NotFoundError: no evaluation is known.
        :raises TransferError: it can't be obtained, or does not have the known digest.
        """
        return images.pull(name, self.site, listener, accept_eula=accept_eula, mirror=mirror, source=source)

    @at_site
    def verify_images(self, which: str | None = None, *, listener: Listener = ignore, stop: Stop = None) -> list[Item]:
        """Read images in the cache whole, and compare them with the digests that they had when they came there.

        :param which: as for :meth:`image`; None: all.
        :returns: those that were read.
        :raises TransferError: one has changed; with several, all of them are named.
        """
        return images.verify([library.find(which)] if which is not None else library.items(), listener)

    @at_site
    def remove_image(self, which: str) -> tuple[int, str]:
        """Remove an image from the cache; a golden image also from the pool.

        :param which: as for :meth:`image`.
        :returns: how many bytes of the cache were freed; and why the pool was not checked, if it was not.
        :raises ConflictError: labs or snapshots are based on it, or another winlab is using it; it is not removed.
        """
        return prune.remove(library.find(which), self.site)

    @at_site
    def export_image(self, which: str, to: Path, *, listener: Listener = ignore, stop: Stop = None) -> None:
        """Write an image with its manifest to one file, for another machine's cache.

        :param which: as for :meth:`image`.
        :raises UsageError: the file exists or can't be written.
        """
        item = library.find(which)
        carry_out.one_step(f"export {item.name}", partial(library.export, item, to), listener, usual=60)

    @at_site
    def import_image(self, path: Path, *, listener: Listener = ignore, stop: Stop = None) -> Item:
        """Take an exported image into the cache; its digest is checked.

        :raises UsageError: the file is not such an image.
        :raises TransferError: it is damaged.
        """
        return carry_out.one_step(f"import {path.name}", partial(library.bring, path), listener, usual=60)

    @at_site
    def prune(self, *, dry_run: bool = False) -> list[Pruned]:
        """Remove cached images that no recipe needs any more, and base volumes that no lab and no snapshot uses.

        :param dry_run: remove nothing.
        :returns: what was removed, or would be.
        """
        return prune.prune_all(self.recipes(), self.site, dry_run=dry_run)

    @at_site
    def kept_for_snapshots(self) -> list[Kept]:
        """The base volumes that :meth:`prune` leaves only because snapshots use them."""
        return prune.kept_for_snapshots(self.site)

    # -- Windows installation media

    @at_site
    def inspect_iso(
        self, path: Path, *, sha256: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> Inspection:
        """Identify an ISO, and say whether winlab can install from it. It is neither mounted nor changed.

        :param sha256: also compute the SHA-256, which takes as long as reading the file.
        :raises UsageError: it can't be read at all, or is not an ISO image.
        """
        report = inspection.inspect(path, Told(listener, "SHA-256") if sha256 else None)
        report.virtio = sorted(wim_drivers.of(path))
        return report

    @at_site
    def plan_iso(self, spec: Spec, name: str = "winlab", *, listener: Listener = ignore, stop: Stop = None) -> Alone:
        """Decide everything about one Windows machine for use outside winlab.

        :param name: the computer's name.
        :raises UsageError: the name is not valid, or the spec's workers don't run Windows.
        """
        return export_iso.make(spec, name, listener)

    @at_site
    def iso_terms(self, machine: Alone) -> str | None:
        """The terms of Microsoft's evaluations, if the user must accept them before :meth:`build_iso`, or None."""
        return consent.terms(machine.plan, self.site)

    @at_site
    def build_iso(
        self,
        machine: Alone,
        to: Path,
        *,
        mirror: str | None = None,
        accept_eula: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Export:
        """Write a self-contained ISO that installs Windows unattended, and the credentials into a folder beside it.

        :param machine: what :meth:`plan_iso` returned.
        :param mirror: where drivers and media come from, instead of their own sites.
        :param accept_eula: a person has accepted the terms; this is remembered, and a missing medium is downloaded.
        :raises UsageError: the medium can't be used, or something is in the way; nothing is overwritten.
        :raises NotFoundError: there is no medium.
        """
        return export_iso.export(machine, to, self.site, listener, mirror=mirror, accept_eula=accept_eula)

    # -- bundles, which Lab.bundle makes

    @staticmethod
    def open_bundle(path: Path) -> Bundle:
        """Open a bundle and check its structure. Quick: the files themselves are not read.

        :raises NotFoundError: there is no such file.
        :raises UsageError: it is not a bundle, or this winlab does not know the version of its format.
        :raises TransferError: it is truncated, or files are missing or superfluous.
        """
        return bundles.open_bundle(path)

    @at_site
    def verify_bundle(self, path: Path, *, listener: Listener = ignore, stop: Stop = None) -> Bundle:
        """Read a whole bundle and check everything in it.

        :raises TransferError: it is damaged.
        :raises WinlabError: as :meth:`open_bundle`.
        """
        return carry_out.one_step("verify", partial(bundles.verify, path), listener, usual=30)
