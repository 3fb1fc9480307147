"""Simulates logins.ps1 (see scripts.py): password, certificate and ssh keys really change."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

from winlab_standin.guest import accounts, bootstrap
from winlab_standin.guest.machine import Machine, Player, ScriptError, Settings
from winlab_standin.guest.workerfiles import write

SSH = Path("ProgramData/ssh")
WANTED = ("ssh_key", "host_key", "host_key_public", "password", "pfx", "pfx_password")


def logins(machine: Machine, given: Settings) -> dict[str, Any]:
    """logins.ps1: replace the key for ssh, the host key, the certificate of WinRM and, last, the password."""
    for name in WANTED:
        if not given.get(name):
            raise ScriptError(f"settings.{name} is missing.")
    if (machine.root / SSH / bootstrap.SSH_FILES[0]).is_file():
        _set_ssh_keys(machine, given, str(given["ssh_key"]), str(given.get("former") or ""))
    try:
        chain, key = bootstrap.pem(base64.b64decode(given["pfx"], validate=True), str(given["pfx_password"]))
        bootstrap.keep_certificate(machine.config, chain, key)
        bootstrap.restart("WinRM")
    except (binascii.Error, bootstrap.RefusedError) as error:
        raise ScriptError(str(error)) from error
    set_password(machine, str(given["password"]))
    return {"changed": True}


def set_password(machine: Machine, password: str) -> None:
    """Set-LocalUser -Password.

    :raises ScriptError: Windows refuses the password.
    """
    if not accounts.complex_enough(password):
        raise ScriptError(
            "Set-LocalUser : Unable to update the password. The value provided for the new password does not meet the "
            "length, complexity, or history requirements of the domain."
        )
    accounts.store(machine.config / accounts.SAM, password)
    accounts.activate(machine.config, machine.world.windows, machine.world.name())


def _set_ssh_keys(machine: Machine, given: Settings, key: str, former: str) -> None:
    gone = {one.split()[1] for one in (key, former) if one}
    for path in (SSH / bootstrap.SSH_FILES[-1], bootstrap.OWN_KEYS):
        file = machine.root / path
        lines = re.split(r"\r?\n", file.read_text(encoding="utf-8")) if file.is_file() else []
        kept = [line for line in lines if line and not gone & set(line.split())]
        write(file, "\n".join([*kept, key]) + "\n")
    write(machine.root / SSH / bootstrap.SSH_FILES[0], str(given["host_key"]))
    write(machine.root / SSH / bootstrap.SSH_FILES[1], f"{given['host_key_public']}\n")
    bootstrap.restart("sshd")


PLAYERS: dict[str, Player] = {"logins.ps1": logins}
