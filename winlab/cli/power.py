"""Commands that switch labs and nodes: stop, start, restart, suspend, resume, autostart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from winlab import settings
from winlab.cli.common import Anyone, say
from winlab.cli.complete import complete_nodes
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord, bare_nodes

NodeNames = Annotated[
    list[str] | None,
    typer.Argument(
        help="Nodes: NODE, or LAB/NODE; without any, the whole lab.",
        autocompletion=complete_nodes,
        callback=bare_nodes,
        metavar="[NODE...]",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(stop)
    app.command()(start)
    app.command()(restart)
    app.command()(suspend)
    app.command()(resume)
    app.command()(autostart)


def stop(
    nodes: NodeNames = None,
    force: Annotated[bool, typer.Option("--force", help="Cut the power, without a shutdown.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Shut down a lab or nodes of it, workers before controllers.

    Examples:
      winlab stop   # the whole lab
      winlab stop node-1 node-2
      winlab stop ci/node-1 --force
    """
    from winlab import Lab

    with current().shown() as tell:
        switched = Lab(lab, anyone=anyone).stop(nodes or (), force=force, listener=tell)
    _show(lab, switched)


def start(
    nodes: NodeNames = None,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Start a lab or nodes of it, controllers first, and wait until they are Ready.

    Examples:
      winlab start --lab ci
      winlab start node-1
    """
    from winlab import Lab

    with current().shown() as tell:
        switched = Lab(lab, anyone=anyone).start(nodes or (), listener=tell)
    _show(lab, switched)


def restart(
    nodes: NodeNames = None,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Shut down and start a lab or nodes of it, and wait until they are Ready.

    Examples:
      winlab restart node-1
      winlab restart --lab ci
    """
    from winlab import Lab

    with current().shown() as tell:
        switched = Lab(lab, anyone=anyone).restart(nodes or (), listener=tell)
    _show(lab, switched)


def suspend(
    nodes: NodeNames = None,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Suspend a lab or nodes of it in memory, until 'resume'.

    Examples:
      winlab suspend
      winlab suspend node-1
    """
    from winlab import Lab

    with current().shown() as tell:
        switched = Lab(lab, anyone=anyone).suspend(nodes or (), listener=tell)
    _show(lab, switched)


def resume(
    nodes: NodeNames = None,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Resume what is suspended or paused, set the clocks, and wait until the nodes are Ready.

    Examples:
      winlab resume
      winlab resume ci/node-1
    """
    from winlab import Lab

    with current().shown() as tell:
        switched = Lab(lab, anyone=anyone).resume(nodes or (), listener=tell)
    _show(lab, switched)


def _show(lab: str, switched: Sequence[Any]) -> None:
    from winlab.cli.kinds import labs as kinds

    rows = [kinds.Power.made_of(one, "node", lab=lab) for one in switched]
    if current().answer(kinds.Power, rows):
        return
    for one in switched:
        before = "" if one.before == one.state else f", was {one.before}"
        clock = f"; its clock was set by {one.clock:+.1f} s" if one.clock else ""
        say(f"{one.node}: {one.state}{before}{clock}")


def autostart(
    when: Annotated[
        Literal["on", "off"], typer.Argument(help="Whether the lab starts when the host boots.", metavar="on|off")
    ],
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Turn start at boot on or off for a lab.

    Examples:
      winlab autostart on
      winlab autostart off ci
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    done = Lab(lab, anyone=anyone).autostart(wanted=when == "on")
    row = kinds.Autostart(name=lab, autostart=done.wanted, nodes=list(done.nodes), hint=done.hint)
    if current().answer(kinds.Autostart, [row]):
        return
    say(f"The lab '{lab}' {'starts' if done.wanted else 'does not start'} with the host.")
    if done.hint:
        say(done.hint, error=True)
