"""Commands that change an existing lab: diff, apply, node add, node remove, node rebuild."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.app import App
from winlab.cli.common import NodeName, Until, Yes, print_table, say
from winlab.cli.complete import complete_hypervisors, complete_pools, complete_specs
from winlab.cli.flags import ChangeFlags, MakingFlags, spread
from winlab.cli.session import LabName, current
from winlab.cli.words import note_spec
from winlab.cli.work import plan_of
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab import Difference, Lab, Spec

CHANGES, MAKING = ChangeFlags(), MakingFlags()
app = App(help="Add, remove or rebuild nodes of an existing lab.", no_args_is_help=True)
SpecName = Annotated[  # no variable: it must not change a lab
    str | None,
    typer.Option(
        "--spec", "-s", allow_from_autoenv=False, help="The spec.", autocompletion=complete_specs, metavar="SPEC"
    ),
]
AnotherSpec = Annotated[
    str | None,
    typer.Argument(
        metavar="[SPEC]",
        help="As for create, also as --spec SPEC; default: the spec that the lab was made from.",
        autocompletion=complete_specs,
        callback=note_spec,
        show_default=False,
    ),
]
PoolName = Annotated[
    str, typer.Argument(metavar="[POOL]", help="The pool; default: the first one.", autocompletion=complete_pools)
]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Restart machines whose memory or CPUs change: changes take effect at a start."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Remove nodes even if their pods can't be moved; these pods are deleted.")
]


def register(main: typer.Typer) -> None:
    """Add the commands to the main one."""
    main.command()(spread(diff))
    main.command()(spread(apply))
    main.add_typer(app, name="node")
    app.command("add")(spread(add))
    app.command("remove")(spread(remove))
    app.command("rebuild")(spread(rebuild))


def diff(
    _word: AnotherSpec = None,
    spec: SpecName = None,
    changes: ChangeFlags = CHANGES,
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Show what 'apply' would change in an existing lab. Exit code 22: something; 0: nothing.

    Examples:
      winlab diff --set workers.count=3
      winlab diff lab.yaml --lab ci
    """
    from winlab import Lab

    own = Lab(lab)
    difference = own.diff(plan_of(own, _spec(own, spec, changes)))
    if not _answer(lab, difference, difference.pending):
        _show(lab, difference)
    raise typer.Exit(ExitCode.DIFFERS if difference else ExitCode.OK)


def apply(
    _word: AnotherSpec = None,
    spec: SpecName = None,
    changes: ChangeFlags = CHANGES,
    lab: LabName = settings.DEFAULT_LAB,
    restart: Restart = False,
    force: Force = False,
    making: MakingFlags = MAKING,
    yes: Yes = False,
) -> None:
    """Change an existing lab: nodes, memory, CPUs, add-ons. 'diff' shows what would happen.

    Examples:
      winlab apply --set workers.count=3
      winlab apply --set workers.memory=4GiB --restart
      winlab apply lab.yaml --lab ci
    """
    from winlab import Lab

    own = Lab(lab, anyone=making.anyone)
    _carry_out(own, _spec(own, spec, changes), making, restart=restart, force=force, yes=yes)


def add(
    pool: PoolName = "",
    count: Annotated[int, typer.Option("--count", help="How many.", min=1)] = 1,
    lab: LabName = settings.DEFAULT_LAB,
    making: MakingFlags = MAKING,
) -> None:
    """Add nodes to a pool of an existing lab.

    Examples:
      winlab node add
      winlab node add linux --count 2
    """
    from winlab import Lab

    own = Lab(lab, anyone=making.anyone)
    _carry_out(own, own.grown(pool, count), making)


def remove(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    force: Force = False,
    making: MakingFlags = MAKING,
    yes: Yes = False,
) -> None:
    """Drain the last node of a pool, delete it from the cluster, and remove it.

    Examples:
      winlab node remove node-2
      winlab node remove ci/node-2 --force
    """
    from winlab import Lab

    own = Lab(lab, anyone=making.anyone)
    _carry_out(own, own.shrunk(node), making, force=force, yes=yes)


def rebuild(
    node: NodeName,
    lab: LabName = settings.DEFAULT_LAB,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="Make it on this hypervisor, also if the one that it is on does not answer.",
            autocompletion=complete_hypervisors,
            metavar="HYPERVISOR",
            show_default=False,
        ),
    ] = "",
    force: Force = False,
    making: MakingFlags = MAKING,
    yes: Yes = False,
) -> None:
    """Drain a worker, remove it, and make it again with the same name and addresses.

    Examples:
      winlab node rebuild node-1
      winlab node rebuild node-1 --on hypervisor-2
    """
    from winlab import Lab

    own = Lab(lab, anyone=making.anyone)
    if current().for_people:
        say(f"Rebuilding '{node}'. Everything on its disk is lost, including local pod volumes.", error=True)
    spec = own.elsewhere(node, on) if on else own.unchanged()
    _carry_out(own, spec, making, force=force, rebuild=node, on=on, yes=yes)


def _spec(lab: Lab, name: str | None, changes: ChangeFlags) -> Spec:
    """The named spec, or the lab's own, with the changes."""
    if name is not None:
        return changes.of(name)
    return lab.spec(
        changes.changes or (),
        os=changes.os,
        iso=changes.iso,
        rehearse=changes.rehearse,
        allow=changes.allow_path or (),
    )


def _carry_out(
    lab: Lab,
    spec: Spec,
    making: MakingFlags,
    *,
    restart: bool = False,
    force: bool = False,
    rebuild: str = "",
    on: str = "",
    yes: bool = True,
) -> None:
    from winlab.cli.progress import clock

    made = plan_of(lab, spec, again={rebuild: on} if on else None)
    difference = lab.diff(made, rebuild=rebuild)
    if current().for_people and difference:
        _show(lab.name, difference)
    removed = [row.what.removeprefix("node ") for row in difference.changes if row.kind == "removed"]
    if lost := [rebuild] if rebuild else removed:
        consent.require(yes, f"These will be removed with everything on them: {', '.join(lost)}.")
    accepted = consent.accepted(making.accept_eula, lab.terms(made))
    begun = time.monotonic()
    with current().shown() as tell:
        lab.apply(
            made, until=making.until.value, origin=making.origin, accept_eula=accepted,
            restart=restart, force=force, rebuild=rebuild, listener=tell,
        )  # fmt: skip
    now = lab.diff(made)
    if _answer(lab.name, difference, now.pending):
        return
    whole = making.until is Until.CLUSTER and made.plan.kubernetes is not None
    what = "the cluster is Ready" if whole else "all nodes answer"
    say(f"The lab '{lab.name}' is as planned after {clock(time.monotonic() - begun)}: {what}.")
    _show_pending(lab, now)


def _answer(lab: str, difference: Difference, pending: Iterable[Any]) -> bool:
    """Set what differs, or did before it was changed, as the result; *pending* is what is pending now."""
    from winlab.cli.kinds import labs as kinds

    pushed: dict[str, list[kinds.Pushed]] = {}
    for node, one in difference.pushed:
        pushed.setdefault(node, []).append(kinds.Pushed(**asdict(one)))
    made = kinds.Difference(
        name=lab,
        changes=[kinds.Change(**asdict(change)) for change in difference.changes],
        pending=[kinds.Pending(**asdict(row)) for row in pending],
        unfinished=difference.unfinished,
        pushed=pushed,
    )
    return current().answer(kinds.Difference, [made])


def _show(lab: str, difference: Difference) -> None:
    """Print what would change, as a table."""
    if difference.unfinished:
        say(f"A change of the lab '{lab}' was interrupted: 'winlab apply' finishes it, or takes it back.")
    if difference.changes:
        rows = [
            [row.kind, row.what, row.before, row.after, "" if row.when == "now" else row.when, row.why]
            for row in difference.changes
        ]
        print_table(["", "WHAT", "FROM", "TO", "WHEN", "WHY"], rows)
    elif not difference:
        say(f"The lab '{lab}' is as planned.")
    for row in difference.pending:
        say(f"{row.node} has {row.before}, and {row.after} from its next start on.")
    for node, one in difference.pushed:
        say(f"{node}: {one}.")


def _show_pending(lab: Lab, difference: Difference) -> None:
    flag = "" if lab.name == settings.DEFAULT_LAB else f" --lab {lab.name}"
    for row in difference.pending:
        say(f"{row.node} has {row.before}, and {row.after} from its next start on; now: winlab apply --restart{flag}")
