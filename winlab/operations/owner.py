"""Whose a lab is: everyone's first lab has the same name, and labs of all users are on the same hypervisor."""

from __future__ import annotations

from winlab import account
from winlab.errors import ConflictError, WinlabError
from winlab.site import Site


def require(lab: str, site: Site) -> None:
    """Check that no other user made the lab's machines, before a command changes them.

    If libvirt does not answer, nothing is known; the command itself reports that.

    :raises ConflictError: another user did.
    """
    try:
        with site.hypervisors() as hosts:
            owners = [machine.tag.uid for machine in hosts.machines(lab)]
    except WinlabError:
        return
    if others := account.others(owners):
        raise foreign(lab, others, "To change this one")


def foreign(lab: str, others: str, aim: str) -> ConflictError:
    """The error which says that a lab belongs to other users.

    :param aim: what the user wanted, as the beginning of a sentence.
    """
    return ConflictError(
        f"The lab '{lab}' belongs to {others}.",
        why=f"This is {account.name(account.uid())}; labs of all users are on the same hypervisor.",
        cure=f"Name your own lab with --lab ('winlab list' shows all). {aim}, ask {others}; or add --anyone.",
    )
