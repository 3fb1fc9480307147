"""Commands for the host: doctor, host setup, host teardown."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from winlab import settings
from winlab.cli.common import Changes, Format, Iso, Output, Rehearse, Spec, System, print_json, print_table
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab.events import Progress

T = TypeVar("T")

_host = typer.Typer(help="Prepare this machine for labs, or undo that.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(doctor)
    app.add_typer(_host, name="host")


def _watched(name: str, work: Callable[[Progress], T], output: Output, usual: float) -> T:
    """Do the work as a step, so that it is shown as all steps are; its result."""
    from winlab import engine
    from winlab.cli.progress import shown
    from winlab.engine import Step

    results: list[T] = []
    with shown(output) as tell:
        engine.run([Step(name, lambda voice: results.append(work(voice)), lambda: False, usual=usual)], tell)
    return results[0]


def doctor(
    spec: Spec = "",
    changes: Changes = None,
    os: System = None,
    iso: Iso = None,
    rehearse: Rehearse = False,
    output: Format = Output.TABLE,
) -> None:
    """Check what labs need of this host. Exit code 4 if something is missing.

    With --spec (and create's other options), memory, disk and cores are compared with that spec.
    """
    from winlab.host.doctor import Needs, diagnose

    needs = None
    if spec:
        from winlab.cli.common import make_plan
        from winlab.host.facts import HostFacts

        # of the host's facts none changes what a lab needs; and doctor is to report bad ones, not to fail on them
        made = make_plan(settings.DEFAULT_LAB, spec, changes, os, iso, rehearse, HostFacts())
        needs = Needs(
            memory_mib=sum(node.memory_mib for node in made.nodes),
            disk_gib=sum(node.disk_mib for node in made.nodes) // 1024,
            vcpus=sum(node.cpus for node in made.nodes),
        )
    checks = diagnose(needs)
    if output is Output.JSON:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        mark = {"ok": "✓", "warn": "!", "fail": "✗"}
        rows = [[mark[check.state], check.name, check.detail, check.why] for check in checks]
        print_table(["", "CHECK", "STATE", "WHY IT MATTERS"], rows)
        for check in checks:
            if check.state != "ok":
                print(f"{mark[check.state]} {check.name}: {check.detail}\n  cure: {check.cure}")
    raise typer.Exit(ExitCode.HOST if any(check.state == "fail" for check in checks) else ExitCode.OK)


@_host.command()
def setup(
    external_cidr: Annotated[
        str | None, typer.Option(help="The network by which the host reaches labs.", metavar="CIDR")
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Install missing distribution packages.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Prepare libvirt, Open vSwitch, OVN, the external bridge and NAT. Needs root; can be run at any time."""
    from winlab.host.setup import setup as run_setup

    facts = _watched(
        "host setup", lambda voice: run_setup(voice, external_cidr=external_cidr, install=install), output, 5
    )
    if output is Output.JSON:
        print_json(facts.model_dump(mode="json"))
    else:
        kvm = "guests run by KVM" if facts.accelerator == "kvm" else "KVM can't be used, guests are emulated"
        print(f"The host is set up: {kvm}; OVS datapath {facts.datapath}; labs are reached by {facts.external_cidr}.")


@_host.command()
def teardown(
    force: Annotated[bool, typer.Option("--force", help="Even while there are labs.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Undo 'winlab host setup', all of it. Needs root."""
    from winlab.host.setup import teardown as run_teardown

    _watched("host teardown", lambda voice: run_teardown(voice, force=force), output, 4)
    if output is Output.TABLE:
        print("The host is as it was before 'winlab host setup'.")
