"""Logs in to a guest, by ssh or WinRM."""

from __future__ import annotations

from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.ssh import SshGuest
from winlab.design.plan.tags import Tag
from winlab.lab_folder import LabFolder


def connect(tag: Tag, folder: LabFolder, via: str | None = None, timeout: float = 30) -> Guest:
    """Log in to a node.

    :param via: ssh or winrm; by default that of its system.
    :param timeout: seconds for the connection to be made.
    :raises GuestError: it can't be reached, is not the one it should be, or refuses the login.
    """
    via = via or tag.system.login
    if via == "ssh":
        return SshGuest(tag, folder, timeout)
    from winlab.adapters.guests.winrm import WinRmGuest  # its libraries take half a second to import

    return WinRmGuest(tag, folder, timeout)
