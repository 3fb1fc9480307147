"""Commands for the host: doctor, host setup, host teardown, hypervisor recover."""

from __future__ import annotations

import dataclasses
import socket
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab.cli import consent
from winlab.cli.app import App, NoResult
from winlab.cli.common import Yes, print_table, say
from winlab.cli.flags import SpecFlags, spread
from winlab.cli.session import current
from winlab.cli.sudo import runnable
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab.operations.host import Cell, SideBySide

MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}
Undo = Annotated[bool, typer.Option("--undo", help="End it.")]
LARGEST = 64 << 10  # characters of a message
RECOVERY = (
    "These hosts with OVN's databases do not answer: {}. Changes that this host has not seen are lost. If two of the "
    "lost hosts come back, they must not start their databases together (docs/hypervisors-reference.md)."
)
_host = App(help="Prepare this host for labs, or undo that.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(spread(doctor))
    app.add_typer(_host, name="host")


def doctor(wanted: SpecFlags = SpecFlags(spec="")) -> None:  # noqa: B008 - frozen
    """Check that this host has what labs need. Exit code 4: something is missing.

    With a spec, memory, disk and cores are checked against it. Hosts that have joined its site are compared with it.

    Examples:
      winlab doctor
      winlab doctor 3-2-1
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.operations import host

    with current().shown() as tell:
        checks = host.diagnose(wanted.load() if wanted.spec else None, tell)
        compared, unknown = host.compare()
    checks += unknown
    found = [*map(dataclasses.asdict, checks), *compared.records()]
    if not current().answer(kinds.Check, (kinds.Check(**row) for row in found)):
        rows = [[MARKS[check.state], check.name, check.detail, check.why] for check in checks]
        print_table(["", "CHECK", "STATE", "WHY IT MATTERS"], rows)
        for check in checks:
            if check.state != "ok":
                say(f"{MARKS[check.state]} {check.name}: {check.detail}\n  cure: {runnable(check.cure)}")
        _show_hosts(compared)
    states = [check.state for check in checks] + [cell.state for row in compared.rows for cell in row.cells]
    raise typer.Exit(ExitCode.HOST if "fail" in states else ExitCode.OK)


def _show_hosts(compared: SideBySide) -> None:
    if not compared.hosts:
        return
    rows = [[row.check, *(_marked(cell) for cell in row.cells), row.why] for row in compared.rows]
    print_table(["CHECK", *(name.upper() for name in compared.hosts), "WHY IT MATTERS"], rows)
    for row in compared.rows:
        for name, cell in zip(compared.hosts, row.cells, strict=True):
            if cell.cure:
                say(f"{MARKS[cell.state]} {row.check} on {name}: {cell.text}\n  cure: {runnable(cell.cure)}")


def _marked(cell: Cell) -> str:
    return cell.text if cell.state == "ok" else f"{MARKS[cell.state]} {cell.text}"


@_host.command()
def setup(
    external_cidr: Annotated[
        str | None, typer.Option(help="The network through which the host reaches labs.", metavar="CIDR")
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Install missing distribution packages.")] = False,
    trust_python: Annotated[
        bool,
        typer.Option(
            "--trust-python",
            help="Have root run this winlab at each boot, and when a host joins, although other users can change it.",
        ),
    ] = False,
    join: Annotated[
        str,
        typer.Option(
            help="Join the site of another host, as a further hypervisor. SITE is that host's ssh address.",
            metavar="SITE",
        ),
    ] = "",
    tunnel_address: Annotated[
        str, typer.Option(help="This host's address for tunnels to other hosts of its site.", metavar="ADDRESS")
    ] = "",
) -> None:
    """Prepare libvirt, Open vSwitch, OVN, the external bridge and NAT. Needs root; safe to repeat.

    Examples:
      sudo winlab host setup
      sudo winlab host setup --install
      sudo winlab host setup --join ann@host-1
    """
    from winlab.operations import host

    with current().shown() as tell:
        facts = host.setup(
            tell,
            external_cidr=external_cidr,
            install=install,
            trust_python=trust_python,
            join=join,
            tunnel_address=tunnel_address,
        )
    if not _answer(facts.model_dump(mode="json")):
        kvm = "guests run by KVM" if facts.accelerator == "kvm" else "KVM can't be used, guests are emulated"
        labs = f"it has joined {facts.joined}" if facts.joined else f"labs are reached by {facts.external_cidr}"
        say(f"The host is set up: {kvm}; OVS datapath {facts.datapath}; {labs}.")


@_host.command()
def attach(
    bridge: Annotated[str, typer.Argument(help="A container network's or libvirt's bridge, such as br-0123456789ab.")],
    undo: Undo = False,
) -> None:
    """Let labs be attached to a bridge of this host, to join the cluster there. Needs root; safe to repeat.

    Examples:
      sudo winlab host attach br-0123456789ab
      sudo winlab host attach br-0123456789ab --undo
    """
    from winlab.operations import host

    with current().shown() as tell:
        host.attach(bridge, tell, undo=undo)
    if not _answer({"bridge": bridge, "attached": not undo}):
        say(f"Labs can {'no longer ' if undo else ''}be attached to '{bridge}'.")


@_host.command()
def route(
    lab: Annotated[str, typer.Argument(help="The lab's inner network.", metavar="CIDR")],
    router: Annotated[
        str, typer.Option("--via", help="The external address of the lab's router.", metavar="ADDRESS")
    ] = "",
    network: Annotated[
        list[str] | None,
        typer.Option("--for", help="A network of the external cluster. Can be repeated.", metavar="CIDR"),
    ] = None,
    undo: Undo = False,
) -> None:
    """Let an external cluster reach a routed lab through this host. Needs root; safe to repeat.

    Examples:
      sudo winlab host route 10.77.0.0/24 --via 172.31.240.16 --for 192.0.2.0/24
      sudo winlab host route 10.77.0.0/24 --undo
    """
    from winlab.operations import host

    with current().shown() as tell:
        host.route(lab, router, network or (), tell, undo=undo)
    if not _answer({"network": lab, "routed": not undo}):
        say(f"This host {'no longer routes' if undo else 'routes'} {lab}.")


@_host.command(cls=NoResult, hidden=True)
def admit(connection: Annotated[str, typer.Argument(help="ssh's SSH_CONNECTION.")] = "") -> None:
    """Admit another host to this one's site: 'winlab host setup --join' of that host runs it. Needs root."""
    from winlab.operations import host

    with current().shown() as tell:
        answer = host.admit(sys.stdin.read(LARGEST + 1), connection, tell)
    say(answer)


@_host.command()
def teardown(
    force: Annotated[bool, typer.Option("--force", help="Proceed even if this host has labs.")] = False,
    yes: Yes = False,
) -> None:
    """Undo everything that 'winlab host setup' did. Needs root.

    Examples:
      sudo winlab host teardown
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.operations import host

    consent.require(yes, "The services, network and packages' settings that 'winlab host setup' made will be removed.")
    with current().shown() as tell:
        host.teardown(tell, force=force)
    if not current().answer(kinds.Removal, [kinds.Removal(name=socket.gethostname())]):
        say("The host is as it was before 'winlab host setup'.")


def recover(
    source: Annotated[
        str,
        typer.Option(
            "--from", help="On the first host: take the databases from the host that recovered them.", metavar="ADDRESS"
        ),
    ] = "",
    yes: Yes = False,
) -> None:
    """Have OVN's databases on this host alone, after two of the three hosts that had them are lost. Needs root.

    Examples:
      sudo winlab hypervisor recover
    """
    from winlab.operations import host

    with current().shown() as tell:
        lost = [] if source else host.find_lost(tell)
    said = f"This host's databases are replaced by those of {source}." if source else RECOVERY.format(", ".join(lost))
    consent.require(yes, said)
    with current().shown() as tell:
        host.recover(tell, source)
    if not _answer({}):
        say("OVN's databases are on this host. Run 'sudo winlab host setup --join SITE' on the others that had them.")


def _answer(facts: dict[str, Any]) -> bool:
    from winlab.cli.kinds import supplies as kinds

    return current().answer(kinds.Host, [kinds.Host(name=socket.gethostname(), facts=facts)])
