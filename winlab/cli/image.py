"""Commands for images: list, build, prune."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab.cli.common import IMAGE_NAME, Format, Mirror, Output, print_json, print_table

if TYPE_CHECKING:
    from winlab.catalog import Recipe
    from winlab.media.cache import Image

TERMS = (
    "Evaluation media of Windows Server are free for 180 days, for evaluation alone; the terms stand at "
    "https://www.microsoft.com/evalcenter."
)

app = typer.Typer(help="The images that nodes are made from.", no_args_is_help=True)


@app.command("list")
def list_images(output: Format = Output.TABLE) -> None:
    """Show all image recipes, and which of them are in the cache."""
    from winlab import catalog
    from winlab.media import cache, own_media

    rows = []
    for name in catalog.names():
        recipe = catalog.get(name)
        source = "build" if recipe.build else "download" if recipe.download else "pull, or your own ISO"
        found = cache.lookup(recipe) if recipe.build or recipe.download else own_media.find(recipe)
        size = f"{found.size >> 20} MiB" if found else "-"
        rows.append([name, recipe.os, source, size, recipe.summary])
    if output is Output.JSON:
        print_json([dict(zip(("name", "os", "source", "cached", "summary"), row, strict=True)) for row in rows])
    else:
        print_table(["NAME", "OS", "SOURCE", "IN CACHE", "SUMMARY"], rows)


@app.command()
def build(
    name: Annotated[str, IMAGE_NAME],
    mirror: Mirror = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A local file to take instead of downloading.", metavar="FILE")
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Build or download an image into the cache; quick if it is there."""
    from winlab import catalog, engine
    from winlab.cli.progress import shown
    from winlab.engine import Step
    from winlab.events import Progress
    from winlab.media import cache
    from winlab.steps.images import require_source

    recipe = catalog.get(name)
    require_source(recipe)

    def obtain(progress: Progress) -> None:
        cache.obtain(recipe, progress, mirror=mirror if recipe.download else None, source=source)

    with shown(output) as tell:
        step = Step(f"image {name}", obtain, lambda: cache.lookup(recipe) is not None, usual=recipe.usual_seconds)
        engine.run([step], tell)
    found = cache.lookup(recipe)
    if output is Output.TABLE and found is not None:
        print(found.path)


@app.command()
def add(
    name: Annotated[str, IMAGE_NAME],
    iso: Annotated[Path, typer.Option("--iso", help="The ISO; it is copied.", metavar="PATH", show_default=False)],
    sha256: Annotated[
        str | None, typer.Option("--sha256", help="The SHA-256 that it must have.", metavar="DIGEST")
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Take a Windows ISO of your own into the cache; create uses it from then on."""
    from winlab.cli.common import watched
    from winlab.errors import UsageError
    from winlab.media import own_media

    recipe = _windows(name)
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"'{sha256}' is no SHA-256.", cure="It has 64 digits and letters a to f.")
    image = watched(f"image {name}", lambda voice: own_media.add(recipe, iso, sha256, voice), output, 60)
    _say(image, output)


@app.command()
def pull(
    name: Annotated[str, IMAGE_NAME],
    accept_eula: Annotated[
        bool, typer.Option("--accept-eula", help="You have read Microsoft's terms for evaluations, and accept them.")
    ] = False,
    mirror: Mirror = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A local file to take instead of downloading.", metavar="FILE")
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Fetch Microsoft's evaluation ISO into the cache; create uses it from then on. What broke off is carried on."""
    from winlab.cli.common import watched
    from winlab.errors import NotFoundError
    from winlab.media import own_media

    recipe = _windows(name)
    if not recipe.evaluations:
        raise NotFoundError(f"No evaluation of '{name}' is known.", cure="Give an ISO of your own with 'image add'.")
    _require_consent(accept_eula)
    evaluation = recipe.evaluations[0]
    image = watched(
        f"image {name}",
        lambda voice: own_media.pull(recipe, evaluation, voice, mirror=mirror, source=source),
        output,
        recipe.usual_seconds,
    )
    _say(image, output)


def _windows(name: str) -> Recipe:
    from winlab import catalog
    from winlab.errors import UsageError

    recipe = catalog.get(name)
    if recipe.windows is None or recipe.build is not None:
        raise UsageError(
            f"'{name}' needs no medium of yours.",
            cure=f"Run 'winlab image build {name}'. Media are for windows-2019, windows-2022 and windows-2025.",
        )
    return recipe


def _require_consent(given: bool) -> None:
    """See that the person has accepted Microsoft's terms; on a terminal they are asked for once.

    :raises UsageError: they have not, or there is nobody to ask.
    """
    from winlab import settings
    from winlab.errors import UsageError

    note = settings.state_dir() / "evaluation-terms-accepted"
    if not given and not note.exists():
        if sys.stdin.isatty() and sys.stderr.isatty():
            given = typer.confirm(f"{TERMS} Do you accept them?", err=True)
        if not given:
            raise UsageError(
                "Microsoft's evaluation media come with terms that only you can accept.",
                why=TERMS,
                cure="Say --accept-eula, or get the ISO yourself and give it with 'winlab image add NAME --iso PATH'.",
            )
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


def _say(image: Image, output: Output) -> None:
    if output is Output.TABLE:
        print(f"{image.path}: SHA-256 {image.sha256}")


@app.command()
def prune(output: Format = Output.TABLE) -> None:
    """Remove cached images that no recipe asks for any more, and base volumes that no lab stands on."""
    from winlab import catalog
    from winlab.images import prune_all

    freed = prune_all([catalog.get(name) for name in catalog.names()])
    if output is Output.JSON:
        print_json({"freed_bytes": freed})
    else:
        print(f"{freed >> 20} MiB are free again.")
