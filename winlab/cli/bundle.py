"""Commands for bundles: everything that a spec needs in one verified file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli.common import (
    Changes,
    Format,
    From,
    Iso,
    Mirror,
    Output,
    Rehearse,
    Spec,
    System,
    make_plan,
    print_json,
    print_table,
    watched,
)

app = typer.Typer(help="Everything that a lab needs in one verified file.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The bundle.", metavar="FILE")]


@app.command()
def create(
    spec: Spec = "1-1-1",
    changes: Changes = None,
    os: System = None,
    iso: Iso = None,
    rehearse: Rehearse = False,
    mirror: Mirror = None,
    source: From = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Where to write it; default: the cache, where create finds it.", metavar="FILE"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Gather all that a spec needs: programs, container images, manifests, images; own media by their hash."""
    from winlab.operations import bundle as bundling

    made, at_hand = make_plan(settings.DEFAULT_LAB, spec, changes, os, iso, rehearse)
    chosen, artifacts, why = bundling.source(made, source.value if source else None, mirror)
    if output is Output.TABLE:
        print(f"Filled from {why}")
    bundle = watched(
        "bundle", lambda voice: bundling.create(made, at_hand, to, chosen, artifacts, mirror, voice), output, usual=1200
    )
    if output is Output.TABLE:
        print(f"{bundle.path}: {bundle.path.stat().st_size >> 20} MiB, digest {bundle.digest}")


@app.command()
def show(file: File, output: Format = Output.TABLE) -> None:
    """Show what a bundle holds."""
    from winlab.supply.artifacts.bundle.file import open_bundle

    bundle = open_bundle(file)
    if output is Output.JSON:
        print_json({"digest": bundle.digest, **bundle.contents.model_dump(mode="json")})
        return
    rows = [[str(row.artifact), f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.artifacts]
    rows += [[f"image {row.recipe.name}", f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.media]
    rows += [[f"{row.name} (not in it)", f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.own_media]
    print(f"{file}: digest {bundle.digest}")
    print_table(["WHAT", "SIZE", "SHA-256"], rows)


@app.command()
def verify(file: File, output: Format = Output.TABLE) -> None:
    """Read all of a bundle and compare it with its digests."""
    from winlab.supply.artifacts.bundle import file as bundle

    opened = watched("verify", lambda voice: bundle.verify(file, voice), output, usual=30)
    if output is Output.TABLE:
        print(f"{file} is whole; digest {opened.digest}")
