"""Commands for a site's hypervisors: add, list, show, drain, remove, forget."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab.cli import consent
from winlab.cli.app import App
from winlab.cli.common import Yes, print_table, say
from winlab.cli.complete import complete_hypervisors
from winlab.cli.host import recover
from winlab.cli.session import current
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab.hosts import Listed

app = App(help="The hosts that carry a site's labs.", no_args_is_help=True)
app.command()(recover)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="hypervisor")


Name = Annotated[str, typer.Argument(help="The hypervisor's name.", autocompletion=complete_hypervisors)]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What it is called, such as hypervisor-2.")],
    uri: Annotated[str, typer.Argument(help="Its libvirt: qemu+ssh://USER@HOST/system.", metavar="URI")],
) -> None:
    """Add a host that has joined this site with 'winlab host setup --join', or read its facts again.

    Examples:
      winlab hypervisor add hypervisor-2 qemu+ssh://ann@host2/system
    """
    from winlab.hosts import Hosts

    with current().shown() as tell:
        added = Hosts().add(name, uri, listener=tell)
    if not _answer(added):
        say(f"The hypervisor '{name}' can carry labs: {added.cpus} CPUs, {_memory(added)} of memory.")


@app.command("list")
def list_hypervisors() -> None:
    """List all hypervisors of this site. Exit code 20: some do not answer.

    Examples:
      winlab hypervisor list
    """
    from winlab.hosts import Hosts

    hosts = Hosts()
    found = hosts.list()
    if not _answer(*found):
        columns = ["NAME", "URI", "STATE", "CPUS", "MEMORY", "MACHINES", "LABS"]
        print_table(columns, [_row(one) for one in found])
        for one in found:
            if one.problem:
                say(f"{one.name}: {one.problem}")
    for silent in hosts.site.silent:
        if not silent.name:
            say(silent, error=True)
    raise typer.Exit(ExitCode.PARTLY if hosts.site.silent or any(one.problem for one in found) else ExitCode.OK)


@app.command()
def show(name: Name) -> None:
    """Show everything that is known of a hypervisor. Exit code 20: it does not answer.

    Examples:
      winlab hypervisor show hypervisor-2
    """
    from winlab.hosts import Hosts

    found = Hosts().show(name)
    facts = {} if found.facts is None else found.facts.model_dump(mode="json")
    checked = f"{found.checked:%Y-%m-%dT%H:%M:%SZ}" if found.checked else None
    if not _answer(found.listed, facts=facts or None, checked=checked, versions=dict(found.versions)):
        rows = [[key, str(value)] for key, value in _plain(found.listed).items() if value not in (None, "", [])]
        rows += [[key, str(value)] for key, value in facts.items()]
        rows += [["checked", f"{found.checked:%Y-%m-%d %H:%M} UTC"]] if found.checked else []
        print_table(["WHAT", "VALUE"], rows + [[f"version: {key}", value] for key, value in found.versions.items()])
    raise typer.Exit(ExitCode.OK if found.listed.answers else ExitCode.PARTLY)


@app.command()
def drain(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Only let it take new nodes again.")] = False,
) -> None:
    """Move all nodes of your labs away from a hypervisor. It gets no new ones until --undo or 'add'.

    Examples:
      winlab hypervisor drain hypervisor-2
      winlab hypervisor drain hypervisor-2 --undo
    """
    from winlab.cli.kinds import labs as kinds
    from winlab.hosts import Hosts

    with current().shown() as tell:
        done = Hosts().drain(name, undo=undo, listener=tell)
    moved = [kinds.Move.made_of(one, "node") for one in done.moved]
    if current().answer(kinds.Drain, [kinds.Drain(name=done.name, drained=done.drained, moved=moved)]):
        return
    for one in done.moved:
        say(f"{one.node} of '{one.lab}': on '{one.target}', {one.state}")
    say(f"The hypervisor '{name}' takes {'no ' if done.drained else ''}new nodes.")


@app.command()
def remove(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also if it does not answer, or volumes of labs or snapshots are there.")
    ] = False,
) -> None:
    """Remove a hypervisor that no lab or snapshot is on from this site. The host itself is not changed.

    Examples:
      winlab hypervisor remove hypervisor-2
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.hosts import Hosts

    Hosts().remove(name, force=force)
    if not current().answer(kinds.Removal, [kinds.Removal(name=name)]):
        say(f"The hypervisor '{name}' is removed. 'sudo winlab host teardown' there undoes its set-up.")


@app.command()
def forget(name: Name, yes: Yes = False) -> None:
    """Forget a hypervisor that is lost forever: the machines and volumes that labs have there count as gone.

    Examples:
      sudo winlab hypervisor forget hypervisor-2
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.hosts import Hosts

    consent.require(yes, f"All machines and volumes of labs on '{name}' will count as gone.")
    with current().shown() as tell:
        Hosts().forget(name, listener=tell)
    if not current().answer(kinds.Removal, [kinds.Removal(name=name)]):
        say(
            f"The hypervisor '{name}' is forgotten. 'winlab repair' makes the nodes of a lab that were there elsewhere."
        )


def _plain(one: Listed) -> dict[str, Any]:
    labs = None if one.labs is None else list(one.labs)
    return {**asdict(one), "labs": labs, "answers": one.answers}


def _answer(*found: Listed, **more: Any) -> bool:
    from winlab.cli.kinds import supplies as kinds

    return current().answer(kinds.Hypervisor, (kinds.Hypervisor(**_plain(one), **more) for one in found))


def _row(one: Listed) -> list[str]:
    if not one.answers:
        return [one.name, one.uri, "does not answer", "-", "-", "-", "-"]
    numbers = [str(one.cpus), _memory(one), str(one.machines)]
    return [one.name, one.uri, "answers, drained" if one.drained else "answers", *numbers, ", ".join(one.labs or ())]


def _memory(one: Listed) -> str:
    return f"{(one.memory_mib or 0) / 1024:.1f} GiB"
