"""Commands for Windows installation media: inspect, build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab.cli import consent, table
from winlab.cli.app import App
from winlab.cli.common import AcceptEula, Mirror, print_table, say
from winlab.cli.flags import ChangeFlags, spread
from winlab.cli.session import current
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab.supplies import Inspection, WimImage

CHANGES = ChangeFlags()
app = App(help="Windows installation media.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="iso")


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An ISO image of Windows Server.", show_default=False)],
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Also compute the SHA-256, and say whether it is a known medium.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="List all files.")] = False,
) -> None:
    """Identify an ISO and say whether winlab can install from it. It is neither mounted nor changed.

    Examples:
      winlab iso inspect server.iso
      winlab iso inspect server.iso --sha256
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    with current().shown() as tell:
        report = Supplies().inspect_iso(path, sha256=sha256, listener=tell)
    if current().answer(kinds.Medium, [{"name": str(path), **report.facts(tree=tree)}]):
        for problem in report.problems:
            say(problem.what, error=True)
        raise typer.Exit(ExitCode.USAGE if report.problems else ExitCode.OK)
    _print(report, tree=tree)
    report.require_usable()


@app.command()
@spread
def build(
    to: Annotated[Path, typer.Option("--to", help="Where to write it.", metavar="FILE", show_default=False)],
    name: Annotated[str, typer.Option("--name", help="The computer's name.", metavar="NAME")] = "winlab",
    changes: ChangeFlags = CHANGES,
    mirror: Mirror = None,
    accept_eula: AcceptEula = False,
) -> None:
    """Export one self-contained ISO that installs Windows unattended, for use outside winlab.

    Its passwords and keys are new, and are written to a folder beside it: NAME.credentials.

    Examples:
      winlab iso build --to unattended.iso --iso server.iso
    """
    from winlab import Supplies
    from winlab.cli.kinds import supplies as kinds

    supplies = Supplies()
    with current().shown() as tell:
        machine = supplies.plan_iso(changes.of("1-1-1"), name, listener=tell)
    accepted = consent.accepted(accept_eula, supplies.iso_terms(machine))
    with current().shown() as tell:
        made = supplies.build_iso(machine, to, mirror=mirror, accept_eula=accepted, listener=tell)
    row = kinds.Installer(
        name=str(made.iso),
        image=machine.image,
        computer=machine.node.name.upper(),
        credentials=str(made.credentials),
    )
    if not current().answer(kinds.Installer, [row]):
        say(f"{made.iso} installs {machine.image}.")
        say(f"The Administrator's password, the ssh key and the certificate to trust are in {made.credentials}.")


def answer(report: Inspection) -> str:
    """Whether winlab can install from a medium, and what it is, in a sentence."""
    what = f"Windows Server {report.release}" if report.release else "no Windows Server that winlab knows"
    if report.problems:
        return f"No: {what}. {report.problems[0].what}"
    licence = {True: " evaluation", False: ", which takes a product key", None: ""}[report.evaluation]
    (first, *_) = report.images
    language = (*first.languages, first.language)[0]
    build = f", build {_build(first)}" if first.build is not None else ""
    return f"Yes: {what}{licence}{f', {language}' if language else ''}{build}."


def _print(report: Inspection, *, tree: bool) -> None:
    say(answer(report))
    if report.images:
        print_table(
            ["IMAGE", "EDITION", "SHOWN AS", "LANGUAGE", "FOR"],
            [
                [image.name, image.edition, image.display_name, ", ".join(image.languages) or image.language,
                 image.architecture]
                for image in report.images
            ],
            drop=("FOR", "SHOWN AS", "LANGUAGE", "EDITION"),
        )  # fmt: skip
    rows = [["file", f"{report.path}, {report.size >> 20} MiB"], ["label", report.label]]
    if report.sha256:
        rows.append(["SHA-256", report.sha256])
        rows.append(
            ["known as", f"evaluation medium of {report.known}" if report.known else "not a known evaluation medium"]
        )
    print_table(["", ""], [*rows, *(_details(report) if table.wide.get() else ())])
    if table.wide.get() and report.setup:
        print_table(
            ["IN BOOT.WIM", "NAME", "BUILD"], [[str(image.index), image.name, _build(image)] for image in report.setup]
        )
    if tree:
        print_table(["FILE", "BYTES"], [[one.path, str(one.size)] for one in report.files])


def _build(image: WimImage) -> str:
    return ".".join(str(part) for part in (image.build, image.revision) if part is not None)


def _details(report: Inspection) -> Iterator[list[str]]:
    """How it boots, and what is on it."""
    kind = {True: "evaluation: no product key", False: "volume or retail: takes a product key", None: "unknown"}
    key = {True: "asks for a key", False: "asks for no key", None: "can't boot it"}
    if report.prompts:
        key[True] += ", which winlab's overlay prevents" if report.starts_silently else ", which winlab presses"
    platforms = {0: "BIOS", 0xEF: "UEFI"}
    yield ["licence", kind[report.evaluation] + (f" (ei.cfg: {report.channel})" if report.channel else "")]
    yield ["UDF tree", f"{len(report.files)} files, {sum(one.size for one in report.files)} bytes"]
    for entry in report.boot:
        name = platforms.get(entry.platform, f"platform {entry.platform:#x}")
        text = f"sector {entry.load_sector}, {entry.sector_count} x 512 bytes"
        yield [f"boots by {name}", text + (f"; {key[report.prompts]}" if entry.platform == 0xEF else "")]
    for path, there in report.boot_programs.items():
        yield [path.lstrip("/"), "there" if there else "missing"]
    if report.virtio:
        yield ["boot.wim", f"has drivers of its own for virtio: {', '.join(report.virtio)}"]
