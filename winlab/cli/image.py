"""Commands for images: list, build, prune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from winlab.cli.common import IMAGE_NAME, Format, Mirror, Output, print_json, print_table

app = typer.Typer(help="The images that nodes are made from.", no_args_is_help=True)


@app.command("list")
def list_images(output: Format = Output.TABLE) -> None:
    """Show all image recipes, and which of them are in the cache."""
    from winlab import catalog
    from winlab.media import cache

    rows = []
    for name in catalog.names():
        recipe = catalog.get(name)
        source = "build" if recipe.build else "download" if recipe.download else "your own ISO"
        found = cache.lookup(recipe) if recipe.build or recipe.download else None
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
def prune(output: Format = Output.TABLE) -> None:
    """Remove cached images that no recipe asks for any more, and base volumes that no lab stands on."""
    from winlab import catalog
    from winlab.images import prune_all

    freed = prune_all([catalog.get(name) for name in catalog.names()])
    if output is Output.JSON:
        print_json({"freed_bytes": freed})
    else:
        print(f"{freed >> 20} MiB are free again.")
