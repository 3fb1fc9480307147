"""Takes stock: reads all that a plan needs to know about caches, media and the spec's own files, once.

Afterwards plan making and rendering read nothing (:mod:`winlab.design.plan.stock`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from winlab import data
from winlab.design import addon, cni
from winlab.design.catalog import recipes, versions
from winlab.design.plan.model import sha256_of
from winlab.design.plan.stock import GoldenImage, Material, Stock, Template
from winlab.design.render import templates
from winlab.design.spec import time_zones
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import Pool
from winlab.errors import UsageError
from winlab.events import Progress, Quiet
from winlab.supply.images import cache, digests, golden, windows_media


def take(spec: Spec, progress: Progress | None = None) -> Stock:
    """What is available for this spec. Changes nothing but the cache of large files' digests.

    :raises UsageError: a file that the spec names is missing or can't be read.
    """
    voice = progress or Quiet()
    _read_catalog()
    addon.read(spec.addons)
    files: dict[Path, tuple[Material, ...]] = {path: (_material(path, voice),) for path in _files(spec.pools)}
    files |= {path: tuple(_tree(path, voice)) for path in _folders(spec.pools)}
    every = [recipes.get(name) for name in sorted({spec.controllers.os, *(pool.os for pool in spec.pools)})]
    media = {recipe.name: image for recipe in every if (image := windows_media.find(recipe)) is not None}
    return Stock(
        images={recipe.name: cache.key(recipe) for recipe in every if recipe.build or recipe.download},
        media={name: image.sha256 for name, image in media.items()},
        drivers=windows_media.drivers(),
        golden=tuple(
            GoldenImage(image=one.image.recipe.name, key=one.key, medium=one.facts.get("medium"))
            for one in golden.entries()
        ),
        files=files,
        templates={pool.template: own_template(pool.template) for pool in spec.pools if pool.template is not None},
        paths={
            material.sha256: place
            for path, found in files.items()
            for material in found
            if (place := path / material.name if path.is_dir() else path).exists()
        },
        scripts=scripts(),
    )


def scripts() -> str:
    """A digest of winlab's own templates and scripts for Windows, which come into golden images."""
    return sha256_of(
        {name: sha256_of(text) for name, text in data.texts("unattend").items() if name.startswith("windows/")}
    )


def _read_catalog() -> None:
    """Load the data that ships with winlab into memory, where the design looks it up."""
    for name in recipes.names():
        recipes.get(name)
    versions.load()
    cni.read()
    time_zones.problem("UTC")
    data.texts("unattend")


def _files(pools: Sequence[Pool]) -> Iterator[Path]:
    """The files that a spec names; a template is identified by its text."""
    for pool in pools:
        yield from filter(None, (pool.media, pool.drivers, pool.openssh, *pool.scripts))


def _folders(pools: Sequence[Pool]) -> Iterator[Path]:
    for pool in pools:
        yield from filter(None, (pool.files, *pool.extra_drivers))


def own_template(path: Path) -> Template:
    """A template of the user's own, with those in its folder that it refers to.

    :raises UsageError: one can't be read.
    """
    texts: dict[str, str] = {}
    left = [path.name]
    while left:
        name = left.pop()
        place = (path.parent / name).resolve()
        try:
            if not place.is_relative_to(path.parent.resolve()):
                raise OSError("it is outside the template's folder")
            if not place.is_file() or place.stat().st_size > templates.LONGEST:
                raise OSError(f"it is no file of at most {templates.LONGEST} bytes")
            texts[name] = place.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: not UTF-8
            raise UsageError(
                f"The template '{place}' can't be used.",
                why=str(error),
                cure="docs/windows.md shows how a template of one's own extends winlab's.",
            ) from error
        left += [one for one in templates.references(texts[name]) if one not in texts]
    return Template(name=path.name, texts=texts)


def _material(path: Path, progress: Progress) -> Material:
    # an existing lab can be continued without its installation medium
    if not path.exists() and (known := digests.remembered(path)) is not None:
        return Material(name=path.name, sha256=known)
    return Material(name=path.name, sha256=digests.sha256(path, progress))


def _tree(folder: Path, progress: Progress) -> Iterator[Material]:
    if not folder.is_dir():
        raise UsageError(f"There is no folder '{folder}', which the spec names.")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield Material(name=path.relative_to(folder).as_posix(), sha256=digests.sha256(path, progress))
