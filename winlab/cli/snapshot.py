"""Commands for snapshots: save, list, show, delete, export, import; reset and clone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.app import App
from winlab.cli.common import Anyone, Yes, print_table, report_silent, say
from winlab.cli.complete import complete_hypervisors, complete_labs, complete_origins, complete_snapshots
from winlab.cli.session import LabName, checked_lab, current

if TYPE_CHECKING:
    from winlab.cli.kinds import labs as kinds
    from winlab.lab_snapshots import Copied, Listed

app = App(
    help="Save labs at one instant, with the memory of their machines; make copies of them.", no_args_is_help=True
)

Name = Annotated[
    str,
    typer.Argument(help="The snapshot: NAME, or LAB@NAME.", autocompletion=complete_snapshots, metavar="SNAPSHOT"),
]
NameOrNewest = Annotated[
    str | None,
    typer.Argument(
        help="The snapshot: NAME, or LAB@NAME; by default the lab's newest.",
        autocompletion=complete_snapshots,
        metavar="[SNAPSHOT]",
        show_default=False,
    ),
]

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="The hypervisor to make it on; by default where the memory was saved, if there is room.",
        autocompletion=complete_hypervisors,
        metavar="HYPERVISOR",
        show_default=False,
    ),
]

FreshCredentials = Annotated[
    bool,
    typer.Option(
        "--fresh-credentials",
        help="Give each copy its own passwords, keys and administrator; it refuses the lab's.",
    ),
]


def register(main: typer.Typer) -> None:
    """Add the commands to *main*."""
    main.add_typer(app, name="snapshot")
    main.command()(reset)
    main.command()(clone)


@app.command()
def save(
    name: Annotated[
        str | None,
        typer.Argument(help="Its name; by default snapshot-1, snapshot-2 and so on.", show_default=False),
    ] = None,
    disks_only: Annotated[bool, typer.Option("--disks-only", help="Save a lab that is off.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Save a lab: its machines pause for some seconds, and continue.

    Examples:
      winlab snapshot save
      winlab snapshot save clean --lab ci
    """
    from winlab import Lab

    own = Lab(lab, anyone=anyone).snapshots
    with current().shown() as tell:
        made = own.save(name, disks_only=disks_only, listener=tell)
    if not current().for_people:
        _answer([own.show(made.name)])
        return
    paused = f" Its machines were paused for {made.paused:.1f} s." if made.memory else ""
    say(f"The lab '{lab}' is saved as '{made.id}'.{paused}")
    say(f"'winlab reset {made.name}{_flag(lab)}' puts it back; 'winlab clone {made.id} NEW' makes a copy.")


@app.command("list")
def list_snapshots(
    lab: Annotated[
        str | None,
        typer.Argument(
            help="Only those of one lab.", autocompletion=complete_labs, metavar="[LAB]", show_default=False
        ),
    ] = None,
) -> None:
    """List snapshots, and what each costs.

    Examples:
      winlab snapshot list
      winlab snapshot list ci
    """
    from winlab import Lab, Site, all_snapshots

    site = Site()
    rows = all_snapshots(site) if lab is None else Lab(checked_lab(lab), site).snapshots.list()
    report_silent(site)
    if _answer(rows):
        return
    if not rows:
        say("There are no snapshots.")
        return
    print_table(
        ["SNAPSHOT", "MADE", "NODES", "MEMORY", "DISK", "LABS ON IT"],
        [
            [
                str(row.id),
                f"{row.record.made:%Y-%m-%d %H:%M}" if row.record else "unusable",
                str(len(row.record.nodes)) if row.record else "-",
                _known(row, row.memory) if row.memory else "-",
                _known(row, row.disk),
                ", ".join(row.copies) or "-",
            ]
            for row in rows
        ],
    )
    for row in rows:
        if row.problem:
            say(f"{row.id} can't be used: {row.problem}. 'winlab snapshot delete {row.id}' removes it.")
        if row.unknown:
            say(f"{row.id}: what it takes on {', '.join(row.unknown)} is unknown.")


@app.command()
def show(name: Name, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Show a snapshot: its machines, what it was made with, what it costs.

    Examples:
      winlab snapshot show ci@clean
    """
    from winlab import Lab

    row = Lab(lab).snapshots.show(name)
    if _answer([row]):
        return
    say(f"{row.id}")
    if row.record is None:
        say(f"It can't be used: {row.problem}.")
    else:
        record = row.record
        what = f"memory and disks, paused for {record.paused:.1f} s" if record.memory else "disks of a lab that was off"
        say(f"  made        {record.made:%Y-%m-%d %H:%M:%S} UTC by winlab {record.made_by}: {what}")
        emulator = record.emulator
        say(f"  needs       QEMU {emulator.version}, {emulator.accelerator}{_processor(emulator.cpu)}")
        for node, saved in record.nodes.items():
            where = f", on {record.plan.node(node).hypervisor}" if len(row.parts) > 1 else ""
            say(f"  {node:<11} {saved.memory_mib} MiB of memory, {len(saved.drives)} drives{where}")
    say(f"  disk        {_size(row.disk)} are free again once it is deleted; {_size(row.memory)} of it are memory")
    for part in row.parts if len(row.parts) > 1 else ():
        taken = "unknown: it does not answer" if part.disk is None else f"{_size(part.disk)} of it"
        say(f"    {part.hypervisor}: {taken}")
    say(f"  labs on it  {', '.join(row.copies) or 'none'}")


@app.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(help="Snapshots: NAME, or LAB@NAME.", autocompletion=complete_snapshots, metavar="SNAPSHOT..."),
    ],
    lab: LabName = settings.DEFAULT_LAB,
    yes: Yes = False,
) -> None:
    """Delete snapshots. Labs that were made from them are not affected.

    Examples:
      winlab snapshot delete snapshot-1
      winlab snapshot delete ci@clean --yes
    """
    from winlab import Lab
    from winlab.cli.kinds import supplies as kinds

    consent.require(yes, f"These snapshots will be deleted: {', '.join(names)}.")
    own, gone = Lab(lab).snapshots, list[str]()
    with current().shown() as tell:
        for name in names:
            gone += own.delete(name, listener=tell)
    if current().answer(kinds.Removal, [kinds.Removal(name=name) for name in gone]):
        return
    say(f"Deleted: {', '.join(names)}.")


@app.command()
def export(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Where to write it.", metavar="FILE", show_default=False)],
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Write a snapshot to one file, for another account or host.

    Examples:
      winlab snapshot export ci@clean clean.snapshot
    """
    from winlab import Lab
    from winlab.cli.kinds import supplies as kinds

    with current().shown() as tell:
        Lab(lab).snapshots.export(name, path, listener=tell)
    if current().answer(kinds.File, map(kinds.File.of, [path])):
        return
    say(f"'{path}' has the snapshot. It also has the lab's passwords and keys, and the memory of its machines.")
    say("Only you can read it. 'winlab snapshot import' takes it on another host, or for another account.")


@app.command("import")
def bring(
    path: Annotated[
        Path, typer.Argument(help="A file that 'snapshot export' wrote.", metavar="FILE", show_default=False)
    ],
    renamed: Annotated[
        str | None,
        typer.Option("--as", help="What it is called here; by default as in the file.", metavar="LAB@NAME"),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="The hypervisor that gets it; by default the first.",
            autocompletion=complete_hypervisors,
            metavar="HYPERVISOR",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Take a snapshot from a file. Only import files from people whose programs you would run.

    Examples:
      winlab snapshot import clean.snapshot
      winlab snapshot import clean.snapshot --as ci@clean
    """
    from winlab import Lab, import_snapshot

    with current().shown() as tell:
        made = import_snapshot(path, renamed, on=on, listener=tell)
    if not current().for_people:
        _answer([Lab(made.lab).snapshots.show(made.name)])
        return
    say(f"'{made.id}' is imported; 'winlab clone {made.id} NEW' makes a copy.")
    if made.plan.network.reach != "internet":
        say(f"Its machines may reach more than the internet (network.reach is '{made.plan.network.reach}').")


def reset(
    name: NameOrNewest = None,
    lab: LabName = settings.DEFAULT_LAB,
    yes: Yes = False,
    anyone: Anyone = False,
) -> None:
    """Put a lab back to a snapshot. Its machines continue from there; what happened since is lost.

    Examples:
      winlab reset   # to its newest snapshot
      winlab reset clean --lab ci
    """
    from winlab import Lab

    since = f"'{name}'" if name else "its newest snapshot"
    consent.require(yes, f"What happened in the lab '{lab}' since {since} will be lost.")
    with current().shown() as tell:
        done = Lab(lab, anyone=anyone).snapshots.reset(name, listener=tell)
    show_copied([done])


def clone(
    origin: Annotated[
        str,
        typer.Argument(
            help="What is copied: LAB@SNAPSHOT; or LAB, which is saved for it.",
            autocompletion=complete_origins,
            metavar="LAB[@SNAPSHOT]",
        ),
    ],
    new: Annotated[str, typer.Argument(help="The name of the copy.", metavar="NEW")],
    count: Annotated[
        int | None,
        typer.Option("--count", help="Make so many copies: NEW-1, NEW-2 and so on.", min=1, max=64, show_default=False),
    ] = None,
    on: On = None,
    fresh_credentials: FreshCredentials = False,
) -> None:
    """Make running copies of a lab beside it.

    Examples:
      winlab clone lab copy
      winlab clone ci@clean test --count 3
    """
    from winlab import Lab

    lab, at, name = origin.partition("@")
    names = [new] if count is None else [f"{new}-{number}" for number in range(1, count + 1)]
    with current().shown() as tell:
        own = Lab(lab).snapshots
        from_snapshot = name if at else None
        made = own.clone(names, from_snapshot, fresh_credentials=fresh_credentials, on=on, listener=tell)
    show_copied(made)


def show_copied(made: Sequence[Copied]) -> None:
    """Print what became of labs that were made from a snapshot."""
    from winlab.cli.kinds import labs as kinds

    rows = [
        kinds.Copy(
            name=one.lab,
            snapshot=str(one.snapshot),
            resumed=one.resumed,
            ready=one.ready,
            shared=one.shared,
            fresh_credentials=one.fresh_credentials,
        )
        for one in made
    ]
    if current().answer(kinds.Copy, rows):
        return
    for one in made:
        if not one.resumed:
            say(f"The lab '{one.lab}' is as in '{one.snapshot}', and off: 'winlab start{_flag(one.lab)}' starts it.")
            continue
        say(
            f"The lab '{one.lab}' is as in '{one.snapshot}': it ran after {one.resumed:.1f} s, and is Ready after "
            f"{one.ready:.1f} s.{' It has its own credentials.' if one.fresh_credentials else ''}"
        )


def _answer(rows: Iterable[Listed]) -> bool:
    from winlab.cli.kinds import labs as kinds

    return current().answer(kinds.Snapshot, map(_item, rows))


def _item(row: Listed) -> kinds.Snapshot:
    from winlab.cli.kinds import labs as kinds

    made: dict[str, Any] = {}
    if (record := row.record) is not None:
        made = {
            "made": record.made.isoformat(),
            "made_by": record.made_by,
            "needs": record.emulator.model_dump(mode="json"),
            "memory": record.memory,
            "paused": record.paused,
            "automatic": record.automatic,
            "nodes": list(record.nodes),
        }
    return kinds.Snapshot(
        name=str(row.id),
        lab=row.id.lab,
        problem=row.problem,
        disk_bytes=row.disk,
        memory_bytes=row.memory,
        labs=list(row.copies),
        hypervisors=[kinds.Part(part.hypervisor, part.disk, part.memory) for part in row.parts],
        **made,
    )


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"


def _known(row: Listed, number: int) -> str:
    return f"{_size(number)} or more" if row.unknown else _size(number)


def _processor(cpu: str) -> str:
    return f", {cpu}" if cpu else ""


def _flag(lab: str) -> str:
    return "" if lab == settings.DEFAULT_LAB else f" --lab {lab}"
