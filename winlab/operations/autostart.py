"""Sets whether a lab's machines start with the host: libvirt's own flag, which is removed with the machine."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.adapters.vm import domains
from winlab.events import Note, ignore
from winlab.host import daemons, units
from winlab.operations import look
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
    folder = site.folder(lab)
    with site.hypervisors() as hosts:
        look.find(lab, hosts)
        new = not folder.path.exists()  # another account made the lab
        with folder.locked():
            machines = look.find(lab, hosts)
            try:
                for machine in machines:
                    domains.set_autostart(hosts.on(machine).conn, machine, wanted=wanted)
                if not new:
                    text = f"The lab {'starts' if wanted else 'does not start'} with the host now."
                    folder.journaled(ignore)(Note(lab=lab, text=text))
            finally:
                if new:
                    folder.remove()
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
    return Autostart(wanted, tuple(machine.tag.node for machine in machines), hint)
