"""The Administrator's account: its password, kept only as hashes, for ssh and for WinRM."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from winlab_standin.guest.base import run
from winlab_standin.guest.place import STATE
from winlab_standin.guest.releases import ACCOUNTS, ENGLISH, Windows

SHADOW = Path("/etc/shadow")
NTLM = Path("/run/standin/ntlm")
USERS = ("Administrator", "administrator")
SAM = "standin-sam.json"  # in System32\\config: the hashes
LOCKED = STATE / "locked"  # until when the account is locked, in seconds since 1970
WRONG, LOCK_SECONDS = 10, 600.0  # wrong passwords that lock it, and for how long (Microsoft, KB5020282)
NAMED = "standin-account"  # in System32\\config: the built-in account's name, which sysprep keeps


def complex_enough(password: str) -> bool:
    """Check Windows Server's default rule: at least 6 characters, three of four kinds, without the account's name."""
    kinds = (str.islower, str.isupper, str.isdigit, lambda character: not character.isalnum())
    enough = sum(any(kind(character) for character in password) for kind in kinds) >= 3
    return len(password) >= 6 and enough and "administrator" not in password.lower()


def hashes(password: str) -> dict[str, str]:
    """What is stored of a password: the crypt(3) hash for sshd, the NT hash for NTLM."""
    from spnego._ntlm_raw.crypto import ntowfv1

    crypt = run(["openssl", "passwd", "-6", "-stdin"], stdin=password).stdout.strip()
    return {"crypt": crypt, "nt": ntowfv1(password).hex().upper()}


class Lockout:
    """The account's lock. A number of wrong passwords, each within ten minutes of the one before, lock the account.
    Then even the right password is refused for ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong, self._last = 0, 0.0

    def admits(self, *, right: bool) -> bool:
        """Count a login with a right or wrong password; returns whether it succeeds."""
        with self._lock:
            if is_locked(self._clock()):
                return False
            now = self._clock()
            self._wrong = 0 if right else 1 if now - self._last > LOCK_SECONDS else self._wrong + 1
            self._last = now
            if self._wrong >= WRONG:
                self._wrong = 0
                LOCKED.write_text(f"{now + LOCK_SECONDS}\n")
            return right


def is_locked(now: float) -> bool:
    """Whether the account is locked at that time, in seconds since 1970."""
    return LOCKED.is_file() and now < float(LOCKED.read_text())


def store(path: Path, password: str) -> None:
    """Store a new password's hashes in *path*."""
    path.write_text(json.dumps(hashes(password)), encoding="ascii")


def name(config: Path, windows: Windows) -> str:
    """The name of the built-in account: the one that *windows* gave it, until :func:`rename` changes it."""
    path = config / NAMED
    return path.read_text(encoding="utf-8") if path.is_file() else windows.account


def rename(config: Path, windows: Windows, computer: str) -> None:
    """Call the built-in account Administrator, whatever the language of Windows is."""
    if name(config, windows) != ACCOUNTS[ENGLISH]:
        (config / NAMED).write_text(ACCOUNTS[ENGLISH], encoding="utf-8")
        activate(config, windows, computer)


def ntlm_lines(nt: str, computer: str, account: str = ACCOUNTS[ENGLISH]) -> str:
    """The credential file that pyspnego reads, in smbpasswd's format; the account under all its spellings."""
    zeros = "0" * 32
    names = [account, f"{computer}\\{account}", f".\\{account}", f"WORKGROUP\\{account}"]
    return "".join(f"{one}:500:{zeros}:{nt}:[U]:LCT-00000000\n" for one in names)


def activate(config: Path, windows: Windows, computer: str) -> None:
    """Make the password that is stored in the folder *config* valid on the running system."""
    kept = json.loads((config / SAM).read_text(encoding="ascii"))
    account = name(config, windows)
    users = USERS if account in USERS else ()
    lines = [line for line in SHADOW.read_text().splitlines() if line.split(":")[0] not in USERS]
    SHADOW.write_text("\n".join([*lines, *[f"{user}:{kept['crypt']}:20000:0:99999:7:::" for user in users]]) + "\n")
    NTLM.write_text(ntlm_lines(kept["nt"], computer, account), encoding="utf-8")
    NTLM.chmod(0o600)
