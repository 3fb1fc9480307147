"""Commands for images: list, show, verify, build, add, pull, rm, export, import, prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab.cli import consent
from winlab.cli.app import App
from winlab.cli.common import AcceptEula, ImageName, Mirror, Yes, print_table, report_silent, say
from winlab.cli.flags import AllowPath, BundleFlags, ChangeFlags, Changes, Iso, spread
from winlab.cli.session import current
from winlab.cli.work import plan_of

if TYPE_CHECKING:
    from winlab import Origin, Spec
    from winlab.cli.kinds import supplies as kinds
    from winlab.supplies import CachedImage, Item

SOURCES = BundleFlags()
app = App(help="The images that nodes are made from.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="image")


@app.command("list")
def list_images() -> None:
    """List all image recipes, and the images in the cache.

    Examples:
      winlab image list
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    supplies = Supplies()
    recipes, there = supplies.recipes(), supplies.images()
    sources = ["build" if one.build else "download" if one.download else "pull, or your own ISO" for one in recipes]
    known: dict[str, dict[str, Any]] = {
        one.name: {"name": one.name, "os": one.os, "source": source, "summary": one.summary}
        for one, source in zip(recipes, sources, strict=True)
    }
    cached = [_item(one, **known.get(one.name, {})) for one in there]
    absent = [row for name, row in known.items() if name not in {one.name for one in there}]
    if current().answer(kinds.Image, [*cached, *(kinds.Image(**row) for row in absent)]):
        return
    print_table(
        ["NAME", "OS", "SOURCE", "SUMMARY"],
        [[one.name, one.os, source, one.summary] for one, source in zip(recipes, sources, strict=True)],
    )
    print_table(
        ["IN CACHE", "KEY", "KIND", "SIZE", "MADE", "STATE"],
        [
            [one.name, one.key, one.kind, f"{one.image.size >> 20} MiB", str(one.manifest.get("made", "")), one.state]
            for one in there
        ],
    )


def _item(item: Item, **more: Any) -> kinds.Image:
    """A cached image as a result."""
    from winlab.cli.kinds import supplies as kinds

    row = {
        "name": item.name,
        "key": item.image.key,
        "kind": item.kind,
        "size": item.image.size,
        "sha256": item.image.sha256,
        "made": item.manifest.get("made"),
        "state": item.state,
        "imported": item.imported or None,
        "path": str(item.image.path),
        "golden": item.manifest.get("golden"),
    }
    return kinds.Image(**{**row, **more})


def _answer(image: CachedImage) -> bool:
    from winlab.cli.kinds import supplies as kinds

    row = kinds.Image(name=image.recipe.name, key=image.key, size=image.size, sha256=image.sha256, path=str(image.path))
    return current().answer(kinds.Image, [row])


WHICH = typer.Argument(metavar="IMAGE", help="A name, or a key from 'winlab image list'.", show_default=False)


@app.command()
def show(which: Annotated[str, WHICH]) -> None:
    """Show everything that winlab knows about a cached image.

    Examples:
      winlab image show windows-2022
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    item = Supplies().image(which)
    if current().answer(kinds.Image, [_item(item, manifest=item.manifest)]):
        return
    facts = {name: value for name, value in item.manifest.items() if name not in ("recipe", "golden")}
    rows = [["name", item.name], ["kind", item.kind], ["path", str(item.image.path)], ["state", item.state or "good"]]
    rows += [row for name, value in facts.items() for row in _facts(name, value)]
    rows += [row for name, value in item.manifest.get("golden", {}).items() for row in _facts(f"golden: {name}", value)]
    print_table(["WHAT", "VALUE"], rows)


def _rows(name: str, value: object) -> list[list[str]]:
    """The rows of a fact: a mapping has one for each of its keys."""
    if isinstance(value, dict):
        return [row for key, inner in value.items() for row in _rows(f"{name} {key}", inner)]
    return [[name, _mib(value) if name == "size" and isinstance(value, int) else str(value)]]


@app.command()
def verify(
    which: Annotated[str | None, typer.Argument(metavar="[IMAGE]", help=WHICH.help, show_default=False)] = None,
) -> None:
    """Read one cached image, or all, and compare them with their SHA-256.

    Examples:
      winlab image verify
      winlab image verify debian-13
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    with current().shown() as tell:
        images = Supplies().verify_images(which, listener=tell)
    if not current().answer(kinds.Image, map(_item, images)):
        print_table(["WHOLE", "KEY", "SHA-256"], [[one.name, one.key, one.image.sha256] for one in images])


@app.command()
def rm(which: Annotated[str, WHICH], yes: Yes = False) -> None:
    """Delete an image from the cache and, if it is golden, from the pool. Images that labs use are kept.

    Examples:
      winlab image rm windows-2022
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    consent.require(yes, f"The image '{which}' will be deleted; it may have to be built or downloaded again.")
    freed, left = Supplies().remove_image(which)
    if current().answer(kinds.Removal, [kinds.Removal(name=which, bytes=freed, problem=left)]):
        return
    say(f"{freed >> 20} MiB are free again.")
    if left:
        say(f"The pool was not looked at: {left} What create may find there is cloned as before.")


@app.command()
def export(
    which: Annotated[str, WHICH],
    to: Annotated[Path, typer.Option("--to", help="Where to write it.", metavar="FILE", show_default=False)],
) -> None:
    """Write an image to a file, for another host.

    Examples:
      winlab image export windows-2022 --to windows-2022.image
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    with current().shown() as tell:
        Supplies().export_image(which, to, listener=tell)
    if not current().answer(kinds.File, map(kinds.File.of, [to])):
        say(to)


@app.command("import")
def bring(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that 'image export' wrote.", show_default=False)],
) -> None:
    """Import an exported image into the cache.

    Examples:
      winlab image import windows-2022.image
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    with current().shown() as tell:
        item = Supplies().import_image(path, listener=tell)
    if not current().answer(kinds.Image, [_item(item)]):
        say(f"{item.name}: {item.key}")


@app.command()
@spread
def build(
    name: ImageName,
    sources: BundleFlags = SOURCES,
    local: Annotated[
        Path | None, typer.Option("--from", help="A local file to use instead of downloading.", metavar="FILE")
    ] = None,
    medium: Annotated[
        bool, typer.Option("--medium", help="For Windows: only the installation medium, not a golden image.")
    ] = False,
    changes: Changes = None,
    iso: Iso = None,
    allow_path: AllowPath = None,
    accept_eula: AcceptEula = False,
) -> None:
    """Build or download what an image's nodes are made from; quick if it already exists.

    For Windows that is a golden image, which labs clone: installed, with containerd and Kubernetes, and generalized.

    Examples:
      winlab image build debian-13
      winlab image build windows-2022 --iso server.iso
    """
    from winlab import Supplies

    supplies = Supplies()
    if supplies.is_sealed(name) and not medium:
        _build_golden(ChangeFlags(changes, name, iso, allow_path=allow_path).of("1-1-1"), sources.origin, accept_eula)
        return
    with current().shown() as tell:
        image = supplies.build_image(name, mirror=sources.mirror, source=local, listener=tell)
    if not _answer(image):
        say(image.path)


def _build_golden(spec: Spec, origin: Origin, accept_eula: bool) -> None:
    from winlab import Lab
    from winlab.cli.kinds import supplies as kinds

    lab = Lab()
    plan = plan_of(lab, spec, machines=False)
    accepted = consent.accepted(accept_eula, lab.terms(plan))
    with current().shown() as tell:
        made = lab.build_golden(plan, origin=origin, accept_eula=accepted, listener=tell)
    row = kinds.Image(name=made.image.recipe.name, key=made.key, path=str(made.path), golden=made.facts)
    if not current().answer(kinds.Image, [row]):
        say(made.path)


@app.command()
def add(
    name: ImageName,
    iso: Annotated[Path, typer.Option("--iso", help="The ISO; it is copied.", metavar="PATH", show_default=False)],
    sha256: Annotated[str | None, typer.Option("--sha256", help="The expected SHA-256.", metavar="DIGEST")] = None,
) -> None:
    """Copy your own ISO, of Windows or of the virtio drivers, into the cache; create uses it from then on.

    Examples:
      winlab image add windows-2022 --iso server.iso
    """
    from winlab import Supplies

    with current().shown() as tell:
        image = Supplies().add_image(name, iso, sha256=sha256, listener=tell)
    _say(image)


@app.command()
def pull(
    name: ImageName,
    accept_eula: AcceptEula = False,
    mirror: Mirror = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A local file to use instead of downloading.", metavar="FILE")
    ] = None,
) -> None:
    """Download Microsoft's evaluation ISO, or the virtio drivers, into the cache; create uses it from then on.

    Interrupted downloads are resumed.

    Examples:
      winlab image pull windows-2022
      winlab image pull virtio-win
    """
    from winlab import Supplies

    supplies = Supplies()
    accepted = consent.accepted(accept_eula, supplies.terms(name))
    with current().shown() as tell:
        image = supplies.pull_image(name, accept_eula=accepted, mirror=mirror, source=source, listener=tell)
    _say(image)


def _say(image: CachedImage) -> None:
    if not _answer(image):
        say(f"{image.path}: SHA-256 {image.sha256}")


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Yes = False,
) -> None:
    """Remove cached images that no recipe needs any more, and base volumes that no lab and no snapshot uses.

    Examples:
      winlab image prune --dry-run
      winlab image prune --yes
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    supplies = Supplies()
    if not dry_run and consent.asks(yes) and (found := supplies.prune(dry_run=True)):
        names = ", ".join(f"{one.name} ({_mib(one.size)})" for one in found)
        consent.require(yes, f"These will be removed: {names}.")
    removed = supplies.prune(dry_run=dry_run)
    kept = supplies.kept_for_snapshots()
    report_silent(supplies.site)
    freed = sum(one.size for one in removed)
    rows = [kinds.Removal(name=one.name, place=one.place, bytes=one.size, removed=not dry_run) for one in removed]
    rows += [kinds.Removal(name=one.name, bytes=one.size, removed=False, kept_for=list(one.snapshots)) for one in kept]
    if current().answer(kinds.Removal, rows):
        return
    if not removed:
        say("There is nothing to remove.")
    else:
        print_table(["WHERE", "NAME", "SIZE"], [[one.place, one.name, _mib(one.size)] for one in removed])
        say(f"{_mib(freed)} {'would be' if dry_run else 'are'} free again.")
    for one in kept:
        say(f"Kept for snapshots: {one.name}, {_mib(one.size)}, for {', '.join(one.snapshots)}.")


def _facts(name: str, value: object) -> list[list[str]]:
    """A row for a fact, or one for each of its own."""
    if isinstance(value, dict):
        return [row for one, more in value.items() for row in _facts(f"{name}: {one}", more)]
    return [[name, _mib(value) if name == "size" and isinstance(value, int) else str(value)]]


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"
