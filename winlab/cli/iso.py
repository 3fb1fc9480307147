"""Commands for Windows installation media: inspect, build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab.cli import consent
from winlab.cli.app import App
from winlab.cli.common import AcceptEula, Mirror, Output, print_table, say
from winlab.cli.flags import ChangeFlags, spread
from winlab.cli.session import Format, current

if TYPE_CHECKING:
    from winlab.supplies import Inspection

CHANGES = ChangeFlags()
app = App(help="Windows installation media.", no_args_is_help=True)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="An ISO image of Windows Server.", show_default=False)],
    sha256: Annotated[
        bool, typer.Option("--sha256", help="Also compute the SHA-256, and say whether it is a known medium.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="List all files.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Identify an ISO and say whether winlab can install from it. It is neither mounted nor changed.

    Examples:
      winlab iso inspect server.iso
      winlab iso inspect server.iso --sha256
    """
    from winlab import Supplies

    with current().shown(Output.TABLE) as tell:  # on the standard error, whatever the report's format
        report = Supplies().inspect_iso(path, sha256=sha256, listener=tell)
    if output is Output.JSON:
        current().result = report.facts(tree=tree)
    else:
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
    output: Format = Output.TABLE,
) -> None:
    """Export one self-contained ISO that installs Windows unattended, for use outside winlab.

    Its passwords and keys are new, and are written to a folder beside it: NAME.credentials.

    Examples:
      winlab iso build --to unattended.iso --iso server.iso
    """
    from winlab import Supplies

    supplies = Supplies()
    with current().shown(Output.TABLE) as tell:
        machine = supplies.plan_iso(changes.of("1-1-1"), name, listener=tell)
    accepted = consent.accepted(accept_eula, supplies.iso_terms(machine))
    with current().shown(output) as tell:
        made = supplies.build_iso(machine, to, mirror=mirror, accept_eula=accepted, listener=tell)
    if output is Output.JSON:
        current().result = {
            "iso": str(made.iso),
            "credentials": str(made.credentials),
            "computer": machine.node.name.upper(),
        }
    else:
        say(f"{made.iso} installs {machine.image}.")
        say(f"The Administrator's password, the ssh key and the certificate to trust are in {made.credentials}.")


def _print(report: Inspection, *, tree: bool) -> None:
    kind = {True: "evaluation: no product key", False: "volume or retail: takes a product key", None: "unknown"}
    key = {True: "asks for a key", False: "asks for no key", None: "can't boot it"}
    if report.prompts:
        key[True] += ", which winlab's overlay prevents" if report.starts_silently else ", which winlab presses"
    platforms = {0: "BIOS", 0xEF: "UEFI"}
    rows = [
        ["file", f"{report.path}, {report.size} bytes"],
        ["label", report.label],
        ["release", f"Windows Server {report.release}" if report.release else "unknown"],
        ["licence", kind[report.evaluation] + (f" (ei.cfg: {report.channel})" if report.channel else "")],
        ["UDF tree", f"{len(report.files)} files, {sum(one.size for one in report.files)} bytes"],
    ]
    for entry in report.boot:
        name = platforms.get(entry.platform, f"platform {entry.platform:#x}")
        text = f"sector {entry.load_sector}, {entry.sector_count} x 512 bytes"
        rows.append([f"boots by {name}", text + (f"; {key[report.prompts]}" if entry.platform == 0xEF else "")])
    for path, there in report.boot_programs.items():
        rows.append([path.lstrip("/"), "there" if there else "missing"])
    if report.virtio:
        rows.append(["boot.wim", f"has drivers of its own for virtio: {', '.join(report.virtio)}"])
    if report.sha256:
        rows.append(["SHA-256", report.sha256])
        rows.append(
            ["known as", f"evaluation medium of {report.known}" if report.known else "not a known evaluation medium"]
        )
    print_table(["WHAT", "SEEN"], rows)
    images = [("install.wim", image) for image in report.images] + [("boot.wim", image) for image in report.setup]
    if images:
        print_table(
            ["IN", "INDEX", "NAME", "SHOWN AS", "EDITION", "BUILD", "LANGUAGE", "FOR"],
            [
                [
                    where,
                    str(image.index),
                    image.name,
                    image.display_name,
                    image.edition,
                    ".".join(str(part) for part in (image.build, image.revision) if part is not None),
                    ", ".join(image.languages) or image.language,
                    image.architecture,
                ]
                for where, image in images
            ],
        )
    if tree:
        print_table(["FILE", "BYTES"], [[one.path, str(one.size)] for one in report.files])
