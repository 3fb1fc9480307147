"""What is available, as a value: everything that a plan depends on in caches, media and the spec's own files.

:func:`winlab.supply.images.stock.take` reads it, once; nothing in winlab.design reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from winlab.design.plan.hosts import HostStock
from winlab.errors import NotFoundError


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Material(_Model):
    """A file for nodes, identified by its content and its name; in a folder, by its path below that folder."""

    name: str
    sha256: str


class HostFile(_Model):
    """A file of this host that the spec names, or a folder that is built: it, or what is made from it, goes to nodes.

    ``field`` is the one that names it, and ``pool`` whose nodes get it; empty: all nodes.
    """

    path: Path
    field: str
    pool: str = ""


class Template(_Model):
    """A user's own Jinja template: the text of the file ``name``, and of those in its folder that it refers to."""

    name: str
    texts: Mapping[str, str]


class GoldenImage(_Model):
    """A golden image in the cache: the recipe it belongs to, its key, and the base volume of its medium."""

    image: str
    key: str
    medium: str | None


class Stock(_Model):
    """What is available.

    ``images`` are the cache's keys (64 hex digits) of images that are built or published, by recipe. ``media`` has the
    SHA-256 of the newest medium in the cache, by recipe. ``drivers`` is that of the virtio drivers: the cache's newest,
    otherwise the published ones. ``golden`` is ordered by age, the oldest first. ``files`` has the materials at the
    spec's paths: one for a file, one for each file below a folder. ``paths`` says where the content with a SHA-256 is
    on this host. ``host_files`` are all files that will leave the host because the spec names them. ``scripts`` is a
    digest of winlab's own templates and scripts for Windows, which go into golden images. ``hypervisors`` are those of
    the site, the first one first; empty: it has one, which is not asked. ``blocks`` are the numbers of the blocks of
    external addresses that other labs use.
    """

    images: Mapping[str, str] = {}
    media: Mapping[str, str] = {}
    drivers: str | None = None
    golden: tuple[GoldenImage, ...] = ()
    files: Mapping[Path, tuple[Material, ...]] = {}
    templates: Mapping[Path, Template] = {}
    paths: Mapping[str, Path] = {}
    host_files: tuple[HostFile, ...] = ()
    scripts: str = ""
    hypervisors: tuple[HostStock, ...] = ()
    blocks: frozenset[int] = frozenset()

    def content(self, path: Path | None) -> str | None:
        """The SHA-256 of a file that the spec names; None for None."""
        return None if path is None else self.files[path][0].sha256

    def folder(self, path: Path | None) -> tuple[Material, ...]:
        """The materials below a folder that the spec names; none for None."""
        return () if path is None else self.files[path]

    def require(self, sha256: str) -> Path:
        """Where the file with this content is on this host.

        :raises NotFoundError: it no longer exists.
        """
        if sha256 not in self.paths:
            raise NotFoundError(
                f"A file that the spec names, with the SHA-256 {sha256[:12]}..., is not here any more.",
                cure="Restore it, or change the spec.",
            )
        return self.paths[sha256]
