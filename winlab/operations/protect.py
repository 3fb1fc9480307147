"""Guards a lab against commands that lose data: destroy, reset, and the removal or rebuilding of nodes."""

from __future__ import annotations

from winlab import account
from winlab.adapters.vm import protected
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.errors import ConflictError
from winlab.events import Note, ignore
from winlab.operations import look
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.site import Site


def change(lab: str, site: Site, *, wanted: bool) -> None:
    """Protect the lab, or end its protection. Safe to repeat.

    :raises NotFoundError: there is no such lab.
    :raises ConflictError: another winlab is changing the lab.
    """

    def work(under: Underway) -> None:
        for machine in look.find(lab, under.hypervisors):
            user = account.name(account.uid()) if wanted else None
            protected.write(under.hypervisors.on(machine).conn, machine, lab, user)
        under.tell(Note(lab=lab, text=f"The lab is {'' if wanted else 'not '}protected now."))

    carry_out(Job(lab, work, must_exist=True), site, ignore)


def by(lab: str, hosts: Hypervisors) -> str | None:
    """The user who protected the lab; None: it is not protected. A single protected machine is enough."""
    users = (protected.read(hosts.on(machine).conn, machine) for machine in hosts.machines(lab))
    return next((user for user in users if user is not None), None)


def refuse(lab: str, hosts: Hypervisors) -> None:
    """Check that the lab is not protected, before a command loses data of it.

    :raises ConflictError: it is.
    """
    if (user := by(lab, hosts)) is not None:
        raise ConflictError(
            f"The lab '{lab}' is protected{f' by {user}' if user else ''}; nothing was touched.",
            cure=f"'winlab protect {lab} --off' ends the protection.",
        )
