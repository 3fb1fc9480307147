"""Commands for whole labs: create, plan, status, list, destroy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.common import Anyone, Until, Yes, print_table, report_silent, say
from winlab.cli.complete import complete_snapshots
from winlab.cli.fault import active
from winlab.cli.flags import MakingFlags, SpecFlags, spread
from winlab.cli.nodes import answer_nodes, items
from winlab.cli.session import LabName, current
from winlab.cli.snapshot import FreshCredentials, show_copied
from winlab.cli.words import LabWord
from winlab.cli.work import plan_of
from winlab.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from winlab import Lab, Overview
    from winlab.cli.kinds import base
    from winlab.hosts import Left

SPEC, MAKING = SpecFlags(), MakingFlags()


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(spread(create))
    app.command()(spread(plan))
    app.command()(status)
    app.command("list")(list_labs)
    app.command()(protect)
    app.command()(destroy)


def create(
    wanted: SpecFlags = SPEC,
    lab: LabName = settings.DEFAULT_LAB,
    making: MakingFlags = MAKING,
    locked: Annotated[
        bool, typer.Option("--locked", help="Refuse anything that differs from winlab.lock beside the spec.")
    ] = False,
    copy_of: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Make it from a snapshot, LAB@NAME, in place of a spec, as 'winlab clone' does. A spec that is given "
            "must be the snapshot's.",
            autocompletion=complete_snapshots,
            metavar="SNAPSHOT",
            show_default=False,
        ),
    ] = None,
    fresh_credentials: FreshCredentials = False,
) -> None:
    """Create a lab, or resume an interrupted one.

    Examples:
      winlab create 1-1-1 --rehearse   # without Windows media
      winlab create lab.yaml --lab ci
      winlab create 1-2-1 --set workers.memory=4GiB
    """
    from winlab import Lab
    from winlab.cli.progress import clock

    own = Lab(lab, anyone=making.anyone)
    if copy_of is not None:
        unused = {
            "--locked": locked,
            "--until guests": making.until is not Until.CLUSTER,
            "programs of your own": making.origin.own,
        }
        if given := [flag for flag, is_given in unused.items() if is_given]:
            raise UsageError(
                f"These can't be used with --from: {', '.join(given)}.",
                why="A copy is as the lab was when it was saved.",
                cure="Leave them out.",
            )
        with current().shown() as tell:
            done = own.snapshots.create_from(
                copy_of,
                None if wanted == SPEC else wanted.load(),
                fresh_credentials=fresh_credentials,
                origin=making.origin,
                listener=tell,
            )
        show_copied([done])
        return
    if fresh_credentials:
        raise UsageError(
            "'--fresh-credentials' can't be used without --from.",
            why="A lab that is made from a spec has its own credentials anyway.",
            cure="Leave it out.",
        )
    made = plan_of(own, wanted.load())
    accepted = consent.accepted(making.accept_eula, own.terms(made))
    held = own.lock_file(wanted.spec) if locked else None
    begun = time.monotonic()
    with current().shown() as tell:
        own.create(
            made, until=making.until.value, origin=making.origin, locked=held, accept_eula=accepted, listener=tell
        )
    if answer_nodes(own):
        return
    whole = making.until is Until.CLUSTER and made.plan.kubernetes is not None
    what = "the cluster is Ready" if whole else "all nodes answer"
    say(f"The lab '{lab}' is up after {clock(time.monotonic() - begun)}: {what}.")
    _show_status(own)


def plan(
    wanted: SpecFlags = SPEC,
    lab: LabName = settings.DEFAULT_LAB,
    render: Annotated[
        Path | None,
        typer.Option("--render", help="Write every file that guests and libvirt would get.", metavar="DIR"),
    ] = None,
) -> None:
    """Check a spec, and show everything that create would make. Nothing is touched.

    Examples:
      winlab plan 1-2-1 --os windows-2025
      winlab plan lab.yaml --render out   # also write every file of it
      winlab plan 1-1-1 -o json
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    own = Lab(lab)
    made = plan_of(own, wanted.load())
    own.check(made)
    for note in own.notes(made):
        say(note, error=True)
    if render is not None:
        for path in own.render(made, render):
            say(path, error=True)
    files = [one.model_dump(mode="json") for one in made.stock.host_files]
    whole = made.plan.without_secrets().model_dump(mode="json")
    if current().answer(kinds.Plan, [{"name": lab, "digest": made.plan.digest, **whole, "host_files": files}]):
        return
    from winlab.cli.plan_view import show

    show(made.plan, own.judge(made), made.stock.host_files)


def status(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow what changes the lab, and what each node is doing, until Ctrl-C.")
    ] = False,
) -> None:
    """Show a lab's nodes. Exit code 0: all answer; 20: some don't; 21: none do.

    Examples:
      winlab status
      winlab status ci --watch
      winlab status ci -o json
    """
    from winlab import Lab

    if watch:
        from winlab.cli.watch import follow

        follow(Lab(lab))
        return
    own = Lab(lab)
    code = _show_status(own)
    report_silent(own.site)
    raise typer.Exit(code)


def _show_status(lab: Lab) -> ExitCode:
    from winlab.cli.kinds import labs as kinds

    statuses = lab.status()
    faults = active(lab)
    if not current().answer(kinds.Node, items(lab, statuses, faults)):
        from winlab.cli.status_view import show

        show(lab, statuses, faults)
    answering = sum(1 for node in statuses if node.answers)
    if answering == len(statuses):
        return ExitCode.OK
    return ExitCode.PARTLY if answering else ExitCode.STOPPED


def list_labs(
    everything: Annotated[bool, typer.Option("--all", help="Also those in which winlab makes golden images.")] = False,
) -> None:
    """List all labs of this host and its site. Exit code 20: a hypervisor does not answer.

    Examples:
      winlab list
      winlab list -o json
    """
    from winlab import Lab

    found = Lab.overview()
    _show_labs(found, everything=everything)
    for one in found.unknown:
        say(one, error=True)
    raise typer.Exit(ExitCode.PARTLY if found.unknown else ExitCode.OK)


def _show_labs(found: Overview, *, everything: bool) -> None:
    from winlab.cli.kinds import labs as kinds
    from winlab.design.plan.lab_name import GOLDEN

    labs = {name: machines for name, machines in found.labs.items() if everything or not name.startswith(GOLDEN)}
    shown = (
        kinds.Lab(
            name=name,
            nodes=[kinds.LabNode(m.tag.node, m.state, m.autostart) for m in labs.get(name, ())],
            left=_left_items(one for one in found.left if one.lab == name),
        )
        for name in sorted({*labs, *(one.lab for one in found.left)})
    )
    if current().answer(kinds.Lab, shown):
        return
    if not labs:
        say("There are no labs.")
        _show_left(found.left)
        return
    rows = [
        [
            name,
            str(len(machines)),
            str(sum(m.state == "running" for m in machines)),
            "yes" if any(m.autostart for m in machines) else "no",
        ]
        for name, machines in labs.items()
    ]
    print_table(["LAB", "NODES", "RUNNING", "AUTOSTART"], rows)
    _show_left(found.left)


def _left_items(left: Iterable[Left]) -> list[base.Left]:
    from winlab.cli.kinds import base

    return [base.Left(one.hypervisor, list(one.nodes)) for one in left]


def _show_left(left: Sequence[Left]) -> None:
    for one in left:
        say(one)


def protect(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    off: Annotated[bool, typer.Option("--off", help="End the protection.")] = False,
    anyone: Anyone = False,
) -> None:
    """Guard a lab: destroy, reset and the removal of nodes are refused until 'protect --off'.

    All users see it: it is recorded in the lab's machines. Stopping and changing the lab is still possible.

    Examples:
      winlab protect ci
      winlab protect ci --off
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    Lab(lab, anyone=anyone).protect(wanted=not off)
    if not current().answer(kinds.Protection, [kinds.Protection(name=lab, protected=not off)]):
        say(f"The lab '{lab}' is {'not ' if off else ''}protected now.")


def destroy(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    yes: Yes = False,
    anyone: Anyone = False,
) -> None:
    """Remove a lab and every trace of it. Images are kept for the next one.

    Exit code 20: a hypervisor does not answer; what the lab has there is removed when it does.

    Examples:
      winlab destroy ci
      winlab destroy ci --yes
    """
    from winlab import Lab
    from winlab.cli.kinds import supplies as kinds

    own = Lab(lab)
    if consent.asks(yes) and (machines := own.machines()):
        nodes = ", ".join(machine.tag.node for machine in machines)
        consent.require(yes, f"The lab '{lab}' and everything on its nodes ({nodes}) will be removed.")
    with current().shown() as tell:
        removed = own.destroy(anyone=anyone, listener=tell)
    left = own.left()
    row = kinds.Removal(name=lab, removed=bool(removed or left), left=_left_items(left))
    if not current().answer(kinds.Removal, [row]):
        rest = " as far as it could be reached" if left else ""
        say(f"The lab '{lab}' is gone{rest}." if removed or left else f"There is no lab '{lab}'; nothing was removed.")
        _show_left(left)
    raise typer.Exit(ExitCode.PARTLY if left else ExitCode.OK)
