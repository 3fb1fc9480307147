"""Sets whether a lab's machines start with the host: libvirt's own flag, which is removed with the machine."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.adapters.vm import power
from winlab.events import Note, ignore
from winlab.host import daemons, units
from winlab.operations import look
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.site import Site


@dataclass(frozen=True)
class Autostart:
    """Whether a lab's nodes start with the host now.

    ``hint`` says what the host is missing for that; it is empty if nothing is missing.
    """

    wanted: bool
    nodes: tuple[str, ...]
    hint: str = ""


def change(lab: str, site: Site, *, wanted: bool) -> Autostart:
    """Set whether all of the lab's machines start with the host. Safe to repeat.

    :raises NotFoundError: there is no such lab.
    :raises ConflictError: another winlab is changing the lab.
    """

    def work(under: Underway) -> tuple[str, ...]:
        machines = look.find(lab, under.hypervisors)
        for machine in machines:
            power.set_autostart(under.hypervisors.on(machine).conn, machine, wanted=wanted)
        under.tell(Note(lab=lab, text=f"The lab {'starts' if wanted else 'does not start'} with the host now."))
        return tuple(machine.tag.node for machine in machines)

    nodes = carry_out(Job(lab, work, must_exist=True), site, ignore)
    hint = ""
    if wanted and not daemons.has_systemd():
        hint = (
            "This host has no systemd, so nothing starts with it. After a boot run 'sudo winlab host setup', "
            f"then 'winlab start --lab {lab}'."
        )
    elif wanted and not units.UNIT.exists():
        hint = (
            "This host has no service that makes the labs' network ready after a boot (docs/host.md): run 'sudo winlab "
            "host setup' then."
        )
    return Autostart(wanted, nodes, hint)
