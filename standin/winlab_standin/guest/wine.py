"""Wine in the installed system: its folders, its start, and calls of Windows programs.

Wine uses the stand-in's own C:. The Windows folder there is an overlay of the NTFS volume's files, of Wine's, and of
what is written into it, which is lost with a restart. Folders in :data:`KEPT` are the volume's own. At every start,
Wine's registry is made from the media's, with the services that are recorded on C: (winservices.py). So a reset of the
machine can't damage it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from winlab_standin.guest.base import StandinError, run, stream
from winlab_standin.guest.place import STATE, C
from winlab_standin.guest.releases import Windows
from winlab_standin.guest.report import write_port

MADE = Path("/usr/lib/standin/wine")  # by wineroot.py
PREFIX = STATE / "wine"
VOLUME = Path("/run/volume")  # C: without the overlay
KEPT = ("System32/config", "System32/drivers/etc", "System32/standin", "Panther", "Setup", "Temp")
FAILED = STATE / "wine.failed"
READY = STATE / "wine.ready"
ENVIRONMENT = {
    "WINEPREFIX": str(PREFIX),
    "WINEDEBUG": "-all",
    # neither .NET nor a web browser is installed
    "WINEDLLOVERRIDES": "mscoree=;mshtml=",
    "XDG_RUNTIME_DIR": "/run",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
QUIET = 'exec "$@" >/dev/null 2>&1 </dev/null'
VERSION_KEY = "Software\\\\Microsoft\\\\Windows NT\\\\CurrentVersion"  # of HKLM
LIMIT = 600.0  # seconds that a program may take; more than any needs, even on a slow machine


def arrange() -> None:
    """Join Wine's Windows folder with that of C:.

    :raises CommandError: a mount is refused.
    """
    VOLUME.mkdir(exist_ok=True)
    layer = STATE / "windows"
    layer.mkdir(exist_ok=True)
    run(
        ["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", layer]
    )  # the root is an overlay, which can't be below another one
    for name in ("upper", "work"):
        (layer / name).mkdir()
    run(["mount", "--bind", C, VOLUME])
    lower = f"lowerdir={VOLUME}/Windows:{MADE}/windows"
    options = f"{lower},upperdir={layer}/upper,workdir={layer}/work"
    run(["mount", "-t", "overlay", "-o", options, "overlay", C / "Windows"])
    for name in KEPT:
        (VOLUME / "Windows" / name).mkdir(parents=True, exist_ok=True)
        run(["mount", "--bind", VOLUME / "Windows" / name, C / "Windows" / name])


def registry(made: str, windows: Windows, boot: int, services: str) -> str:
    """Wine's registry (its text format) for this start. It has the release of *windows*, which Wine also reports to
    programs that ask for a version, and *services*. It has the number of the start, which shows kubelet.exe that
    Windows was restarted."""
    made = with_values(made, VERSION_KEY, windows.facts())
    memory = "System\\\\ControlSet001\\\\Control\\\\Session Manager\\\\Memory Management\\\\PrefetchParameters"
    return f'{made.rstrip()}\n\n[{memory}] 1\n"BootId"=dword:{boot:08x}\n\n{services}'


def with_values(made: str, key: str, values: dict[str, str | int]) -> str:
    """A registry with these values in *key*, in place of others of the same names."""
    section = re.search(rf"^\[{re.escape(key)}\][^\n]*\n(?:(?!\[).*\n?)*", made, re.MULTILINE)
    head, rows = (section[0].splitlines()[0], section[0].splitlines()[1:]) if section else (f"[{key}] 1", [])
    kept = [row for row in rows if not any(row.lower().startswith(f'"{name.lower()}"=') for name in values)]
    ours = [
        f'"{name}"=dword:{data:08x}' if isinstance(data, int) else f'"{name}"="{data}"' for name, data in values.items()
    ]
    text = "\n".join([head, *ours, *kept])
    if section is None:
        return f"{made.rstrip()}\n\n{text}\n"
    return f"{made[: section.start()]}{text}\n{made[section.end() :]}"


def prepare(windows: Windows, boot: int, services: str) -> None:
    """Fill the prefix before Wine starts."""
    (PREFIX / "dosdevices").mkdir(parents=True, exist_ok=True)
    # Wine's server makes these if they are missing, in lower case: they must not be on C:
    (PREFIX / "drive_c/windows/system32").mkdir(parents=True, exist_ok=True)
    for name in ("user.reg", "userdef.reg", ".update-timestamp"):
        shutil.copyfile(MADE / name, PREFIX / name)
    made = (MADE / "system.reg").read_text(encoding="utf-8")
    (PREFIX / "system.reg").write_text(registry(made, windows, boot, services), encoding="utf-8")
    drive("C", C)


def drive(letter: str, folder: Path | None) -> None:
    """Give a drive letter to a folder, or remove the letter."""
    link = PREFIX / "dosdevices" / f"{letter.lower()}:"
    link.unlink(missing_ok=True)
    if folder is not None and link.parent.is_dir():
        link.symlink_to(folder)


def start() -> None:
    """Start Wine's server and its service manager. Takes seconds to a minute; :data:`READY` appears at its end, or
    :data:`FAILED` with the reason."""
    begun = time.monotonic()
    try:
        # the server or services that a call starts would keep its pipes open
        run(["sh", "-c", QUIET, "sh", "wineserver", "--persistent"], env=ENVIRONMENT)
        run(["sh", "-c", QUIET, "sh", "wine", "cmd", "/c", "ver"], env=ENVIRONMENT, cwd=C, timeout=LIMIT)
    except StandinError as error:
        FAILED.write_text(" ".join(str(error).split()))
        write_port("setup: Windows' programs can't be started\r\n")
        return
    READY.write_text(f"{time.monotonic() - begun:.1f}\n")
    write_port(f"setup: Windows' programs can be started ({time.monotonic() - begun:.0f} s)\r\n")


def start_soon(windows: Windows, boot: int, services: str, then: Callable[[], None]) -> None:
    """Do all that in a thread, and call *then* if it succeeded."""

    def work() -> None:
        prepare(windows, boot, services)
        start()
        if READY.exists():
            then()

    threading.Thread(target=work, daemon=True).start()


def stop() -> None:
    """End everything that runs in Wine, as Windows does when it shuts down; after that, nothing can be started."""
    if READY.exists():
        READY.unlink()
        FAILED.write_text("Windows is shutting down")
        run(["wineserver", "--kill"], env=ENVIRONMENT, check=False, timeout=30)


def restart() -> None:
    """End everything that runs in Wine, and start Wine's server and its service manager again."""
    READY.unlink(missing_ok=True)
    run(["wineserver", "--kill"], env=ENVIRONMENT, check=False, timeout=30)
    run(["wineserver", "--wait"], env=ENVIRONMENT, check=False, timeout=30)
    start()


def wait(limit: float = LIMIT) -> None:
    """Wait until Windows programs can be started.

    :raises OSError: Wine did not start.
    """
    end = time.monotonic() + limit
    while not READY.exists():
        if FAILED.exists() or time.monotonic() > end:
            raise OSError(f"Wine did not start: {FAILED.read_text() if FAILED.exists() else f'{limit:.0f} s are over'}")
        time.sleep(0.2)


def call(words: list[str], limit: float = LIMIT) -> tuple[int, str]:
    """Run a Windows program to its end; returns its exit code and what it printed.

    :raises OSError: Wine did not start.
    :raises StandinError: the program took longer than *limit* seconds.
    """
    wait()
    done = run(["wine", *words], env=ENVIRONMENT, cwd=C, timeout=limit, check=False)
    return done.returncode, (done.stdout + done.stderr).replace("\r\n", "\n")


def pass_through(words: list[str], tell: Callable[[str], None], path: str = "") -> int:
    """Run a Windows program, pass each line to ``tell`` at once, return its exit code. *path*: an addition to PATH."""
    wait()
    environment = {**ENVIRONMENT, "WINEPATH": path} if path else ENVIRONMENT
    return stream(["wine", *words], lambda line: tell(line.rstrip("\r")), env=environment, cwd=C)


def query(key: str, name: str) -> str:
    """A value of Wine's registry; '' if there is none."""
    code, text = call(["reg", "query", key, "/v", name])
    rows = [line.split(None, 2) for line in text.splitlines() if line.strip().startswith(name)]
    return rows[0][2].strip() if not code and rows and len(rows[0]) == 3 else ""


def boot_number(path: Path) -> int:
    """How often this system has been started, this time included; counted in *path*."""
    number = int(path.read_text()) + 1 if path.is_file() else 1
    path.write_text(f"{number}\n")
    os.sync()
    return number
