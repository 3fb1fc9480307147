"""The Administrator's account: its password, kept only as hashes, for ssh and for WinRM."""

from __future__ import annotations

import json
from pathlib import Path

from winlab_standin.guest.base import run

SHADOW = Path("/etc/shadow")
NTLM = Path("/run/standin/ntlm")
USERS = ("Administrator", "administrator")


def complex_enough(password: str) -> bool:
    """Windows Server's default rule: 6 characters or more, of three kinds out of four, without the account's name."""
    kinds = (str.islower, str.isupper, str.isdigit, lambda character: not character.isalnum())
    enough = sum(any(kind(character) for character in password) for kind in kinds) >= 3
    return len(password) >= 6 and enough and "administrator" not in password.lower()


def hashes(password: str) -> dict[str, str]:
    """What is kept of a password: the crypt(3) hash for sshd, the NT hash for NTLM."""
    from spnego._ntlm_raw.crypto import ntowfv1

    crypt = run(["openssl", "passwd", "-6", "-stdin"], stdin=password).stdout.strip()
    return {"crypt": crypt, "nt": ntowfv1(password).hex().upper()}


def store(path: Path, password: str) -> None:
    """Keep a new password's hashes in *path*."""
    path.write_text(json.dumps(hashes(password)), encoding="ascii")


def ntlm_lines(nt: str, computer: str) -> str:
    """The credential file that pyspnego reads, in smbpasswd's format; the account under all its spellings."""
    zeros = "0" * 32
    names = ["Administrator", f"{computer}\\Administrator", ".\\Administrator", "WORKGROUP\\Administrator"]
    return "".join(f"{name}:500:{zeros}:{nt}:[U]:LCT-00000000\n" for name in names)


def activate(path: Path, computer: str) -> None:
    """Make the kept password count on the running system."""
    kept = json.loads(path.read_text(encoding="ascii"))
    lines = [line for line in SHADOW.read_text().splitlines() if line.split(":")[0] not in USERS]
    SHADOW.write_text("\n".join([*lines, *[f"{user}:{kept['crypt']}:20000:0:99999:7:::" for user in USERS]]) + "\n")
    NTLM.write_text(ntlm_lines(kept["nt"], computer))
    NTLM.chmod(0o600)
