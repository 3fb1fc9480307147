"""Commands for bundles: everything that a spec needs in one verified file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab.cli.app import App
from winlab.cli.common import print_table, say
from winlab.cli.flags import FromFlags, SpecFlags, spread
from winlab.cli.session import current
from winlab.cli.work import plan_of

if TYPE_CHECKING:
    from winlab.supplies import Bundle

SPEC, SOURCES = SpecFlags(), FromFlags()
app = App(help="Everything that a lab needs in one verified file.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The bundle.", metavar="FILE")]


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="bundle")


@app.command()
@spread
def create(
    wanted: SpecFlags = SPEC,
    sources: FromFlags = SOURCES,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Where to write it; default: the cache, where create finds it.", metavar="FILE"),
    ] = None,
) -> None:
    """Gather everything that a spec needs in one file. Your own media are recorded only by their hash.

    Examples:
      winlab bundle create 1-1-1
      winlab bundle create lab.yaml --to lab.bundle
    """
    from winlab import Lab

    lab = Lab()
    made = plan_of(lab, wanted.load(), machines=False)
    with current().shown() as tell:
        bundle = lab.bundle(made, to, origin=sources.origin, listener=tell)
    if not _answer(bundle):
        say(f"{bundle.path}: {bundle.path.stat().st_size >> 20} MiB, digest sha256:{bundle.digest}")


@app.command()
def show(file: File) -> None:
    """Show what a bundle contains.

    Examples:
      winlab bundle show lab.bundle
    """
    from winlab import Supplies

    bundle = Supplies.open_bundle(file)
    if _answer(bundle):
        return
    rows = [[str(row.artifact), f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.artifacts]
    rows += [[f"image {row.recipe.name}", f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.media]
    rows += [[f"{row.name} (not in it)", f"{row.size >> 10} KiB", row.sha256] for row in bundle.contents.own_media]
    say(f"{file}: digest sha256:{bundle.digest}")
    print_table(["WHAT", "SIZE", "SHA-256"], rows)


@app.command()
def verify(file: File) -> None:
    """Read a whole bundle and verify its digests.

    Examples:
      winlab bundle verify lab.bundle
    """
    from winlab import Supplies

    with current().shown() as tell:
        opened = Supplies().verify_bundle(file, listener=tell)
    if not _answer(opened):
        say(f"{file} is whole; digest sha256:{opened.digest}")


def _answer(bundle: Bundle) -> bool:
    from winlab.cli.kinds import supplies as kinds

    contents = bundle.contents.model_dump(mode="json")
    size = bundle.path.stat().st_size
    made = kinds.Bundle(name=str(bundle.path), digest=bundle.digest, bytes=size, contents=contents)
    return current().answer(kinds.Bundle, [made])
