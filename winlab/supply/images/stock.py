"""Takes stock: reads all that a plan needs to know about caches, media and the spec's own files, once.

Afterwards plan making and rendering read nothing (:mod:`winlab.design.plan.stock`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from winlab import data
from winlab.design import addon, cni
from winlab.design.catalog import recipes, versions
from winlab.design.plan.model import sha256_of
from winlab.design.plan.stock import GoldenImage, HostFile, Material, Stock, Template
from winlab.design.render import templates
from winlab.design.spec import paths, time_zones
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import Pool
from winlab.errors import UsageError
from winlab.events import Progress, Quiet
from winlab.supply import download
from winlab.supply.images import cache, digests, golden, windows_media
from winlab.supply.media import windows_names

# Of a folder that a spec names. It goes onto a CD, and every file is read to make a plan.
MOST_FILES = 10_000
MOST_BYTES = 8 << 30
LARGEST = (1 << 32) - 1  # bytes of a file: more does not fit into ISO 9660 with one extent
MOST_READ = download.LARGEST  # bytes of a medium: a sparse file has any size, and would be read forever


def take(spec: Spec, progress: Progress | None = None) -> Stock:
    """What is available for this spec. Changes nothing but the cache of large files' digests.

    :raises UsageError: a file that the spec names is missing or can't be read.
    """
    voice = progress or Quiet()
    _read_catalog()
    addon.read(spec.addons)
    for path in (one for pool in spec.pools for one in (*pool.scripts, pool.openssh) if one is not None):
        _require_fitting(path)
    files: dict[Path, tuple[Material, ...]] = {path: (_material(path, voice),) for path in _files(spec.pools)}
    files |= {path: tuple(_tree(path, spec.roots, voice)) for path in _folders(spec.pools)}
    _check_names(spec.pools, files)
    templates_ = {pool.template: own_template(pool.template) for pool in spec.pools if pool.template is not None}
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
        templates=templates_,
        paths=_places(files),
        host_files=tuple(_host_files(spec, files, templates_)),
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


def _check_names(pools: Sequence[Pool], files: Mapping[Path, Sequence[Material]]) -> None:
    """
    :raises UsageError: Windows can't have a file that the spec names, by its name.
    """
    folders: list[tuple[str, list[str]]] = []
    for pool in pools:
        for field, places in {"files": [pool.files], "extra_drivers": pool.extra_drivers}.items():
            for place in filter(None, places):
                folders.append((f"workers.{field} of {pool.name}", [one.name for one in files[place]]))
        scripts = [f"{number:02}-{path.name}" for number, path in enumerate(pool.scripts, 1)]
        folders.append((f"workers.scripts of {pool.name}", scripts))
    windows_names.check(folders)


def _host_files(
    spec: Spec, files: Mapping[Path, Sequence[Material]], own: Mapping[Path, Template]
) -> Iterator[HostFile]:
    """Every file that leaves the host because the spec names it."""
    if spec.kubernetes.source is not None:
        yield HostFile(path=spec.kubernetes.source, field="kubernetes.source")
    for pool in spec.pools:
        single = {"media": [pool.media], "drivers": [pool.drivers], "openssh": [pool.openssh], "scripts": pool.scripts}
        for name, places in single.items():
            for path in filter(None, places):
                yield HostFile(path=path, field=f"workers.{name}", pool=pool.name)
        for name, folders in {"files": [pool.files], "extra_drivers": pool.extra_drivers}.items():
            for folder in filter(None, folders):
                for material in files[folder]:
                    yield HostFile(path=folder / material.name, field=f"workers.{name}", pool=pool.name)
        if pool.template is not None:
            for text in own[pool.template].texts:
                yield HostFile(path=pool.template.parent / text, field="workers.template", pool=pool.name)


def own_template(path: Path) -> Template:
    """A template of the user's own, with those in its folder that it refers to.

    :raises UsageError: one can't be read.
    """
    texts: dict[str, str] = {}
    left, room = [path.name], templates.SOURCE
    while left:
        name = left.pop()
        place = path.parent / name
        try:
            place = place.resolve()
            if not place.is_relative_to(path.parent.resolve()):
                raise OSError("it is outside the template's folder")
            if not place.is_file():
                raise OSError("it is not a file")
            room -= place.stat().st_size
            if room < 0:
                raise OSError(f"a template and those that it refers to have at most {templates.SOURCE} bytes")
            texts[name] = place.read_text(encoding="utf-8")
        # RuntimeError: links in a circle; ValueError: not UTF-8, or a null byte in the name
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"The template '{place}' can't be used.",
                why=str(error),
                cure="docs/windows.md shows how a template of one's own extends winlab's.",
            ) from error
        left += [one for one in templates.references(texts[name]) if one not in texts]
    return Template(name=path.name, texts=texts)


def _places(files: Mapping[Path, Sequence[Material]]) -> dict[str, Path]:
    """Where the files are, by their digests.

    :raises UsageError: one can't be looked at.
    """
    found = {}
    for path, materials in files.items():
        with _looking_at(path):
            within = path.is_dir()
            for material in materials:
                place = path / material.name if within else path
                if place.exists():
                    found[material.sha256] = place
    return found


def _material(path: Path, progress: Progress) -> Material:
    with _looking_at(path):
        there = path.exists()
        size = path.stat().st_size if there else 0
    if size > MOST_READ:
        raise UsageError(
            f"'{path}' is too large for its purpose in the spec.",
            why=f"It has {size:,} bytes, and {MOST_READ:,} are the most that is read.",
            cure="Correct its path.",
        )
    # an existing lab can be continued without its installation medium
    if not there and (known := digests.remembered(path)) is not None:
        return Material(name=path.name, sha256=known)
    return Material(name=path.name, sha256=digests.sha256(path, progress))


@contextmanager
def _looking_at(path: Path) -> Iterator[None]:
    """Explain an :class:`OSError` at inspecting *path*: an overlong name, a folder without access.

    :raises UsageError: there was one.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(f"'{path}', which the spec names, can't be read.", why=str(error)) from error


def _tree(folder: Path, roots: Sequence[Path], progress: Progress) -> Iterator[Material]:
    """The files below a folder.

    :param roots: where links may lead besides the folder itself.
    :raises UsageError: there is no such folder, it holds too much, or a link leads elsewhere.
    """
    with _looking_at(folder):
        there = folder.is_dir()
    if not there:
        raise UsageError(
            f"There is no folder '{folder}', which the spec names.",
            cure="Make it, or correct its path; paths in a spec's file begin at the file's own folder.",
        )
    for path in sorted(_below(folder)):
        if not paths.is_inside(path, (folder.resolve(), *roots)):
            raise UsageError(
                f"'{path}' is a link out of the folder that the spec names.",
                why=f"It leads to '{path.resolve()}', which would be copied to nodes.",
                cure=f"Remove it; or, if that is intended, add --allow-path {path.resolve().parent}.",
            )
        yield Material(name=path.relative_to(folder).as_posix(), sha256=digests.sha256(path, progress))


def _below(folder: Path) -> list[Path]:
    """The files below a folder; no file is opened.

    :raises UsageError: there are too many, they are too large, or one can't be looked at.
    """
    every: list[Path] = []
    closed: list[OSError] = []
    with _looking_at(folder):
        for number, path in enumerate(_entries(folder, closed)):
            if number == MOST_FILES:
                raise _too_much(folder, f"It has more than {MOST_FILES} files and folders.")
            every.append(path)
        if closed:
            raise closed[0]
        plain_files = [path for path in every if path.is_file()]
        size = sum(path.stat().st_size for path in plain_files)
    if size > MOST_BYTES:
        raise _too_much(folder, f"Its files have more than {MOST_BYTES >> 30} GiB.")
    for path in plain_files:
        _require_fitting(path)
    return plain_files


def _require_fitting(path: Path) -> None:
    """Refuse a file that no CD can have, before it is read.

    :raises UsageError: it is too large.
    """
    with _looking_at(path):
        fits = not path.exists() or path.stat().st_size <= LARGEST
    if not fits:
        raise UsageError(
            f"'{path}' is too large for the CD that brings files to nodes.",
            why="A file on it must be smaller than 4 GiB.",
            cure="Let a script in workers.scripts download it.",
        )


def _entries(folder: Path, closed: list[OSError]) -> Iterator[Path]:
    """What is below a folder; errors at folders that can't be read are added to *closed*."""
    for parent, folders, names in os.walk(folder, onerror=closed.append):
        yield from (Path(parent, name) for name in (*folders, *names))


def _too_much(folder: Path, why: str) -> UsageError:
    return UsageError(
        f"The folder '{folder}', which the spec names, holds too much for nodes.",
        why=why,
        cure="Name a smaller folder; or let a script in workers.scripts download what is large.",
    )
