"""libvirt's hook that gives clones a snapshot's memory without copying it: hook_program.py, as it is installed.

libvirt runs it for every domain of the host. So a shell first checks whether one asks for memory, and otherwise ends.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from winlab import files, settings
from winlab.adapters.remote import Remote
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.host import daemons, hook_program
from winlab.host.changes import Record

HOOK = Path("/etc/libvirt/hooks/qemu.d/winlab")  # libvirt 6.5 and later run all in this folder
PYTHON = Path("/usr/bin/python3")
QEMU_CONF = Path("/etc/libvirt/qemu.conf")
RAM = Path("/var/lib/libvirt/qemu/ram")
OURS = "# Written by 'winlab host setup'; removed by 'winlab host teardown'."
INSTALL = "'sudo winlab host setup' installs it"
# Prints the pool's folder, whether the hook can be executed, whether its folders are apart, and the hook.
LOOK = f"""
near() {{ at=$1; until stat -Lc %d "$at" 2>/dev/null; do at=$(dirname "$at"); done; }}
is() {{ if "$@"; then echo yes; else echo no; fi; }}
pool=$(readlink -f {settings.POOL_PATH})
echo "$pool"
is test -x {HOOK} -a -e {PYTHON}
is test "$(near "$pool")" != "$(near "$(sed -n 's/^printf .* //p' {HOOK})")"
cat {HOOK}
"""


def text(pool: Path, ram: Path) -> str:
    """The hook as it is installed: for a shell a script, and for Python a program that begins with a long string.

    It acts at ``start begin`` alone: the folder of the domain's memory is there by then, and QEMU is not yet running
    (qemuProcessPrepareHost, then qemuProcessLaunch, in libvirt's src/qemu/qemu_process.c).

    :param pool: the folder of winlab's storage pool.
    :param ram: libvirt's folder of memory files.
    """
    return f"""\
#!/bin/sh
{OURS}
''':'
[ "$2 $3" = "start begin" ] || exit 0
xml=$(head -c {hook_program.MOST + 1})
case $xml in *{hook_program.MARK}*) ;; *) exit 0 ;; esac
printf %s "$xml" | {PYTHON} -IS "$0" "$1" {shlex.join([str(pool), str(ram)])}
exit
'''
{Path(hook_program.__file__).read_text(encoding="utf-8")}"""


def memory_folder() -> Path:
    """libvirt's folder of memory files, which root can set (virQEMUDriverConfigLoadMemoryEntry in qemu_conf.c)."""
    try:
        words = QEMU_CONF.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return RAM
    found = re.findall(r"""^[ \t]*memory_backing_dir[ \t]*=[ \t]*["']+([^"'\n]+)""", words, re.M)
    return Path(found[-1], "libvirt", "qemu") if found else RAM


def ensure(record: Record, progress: Progress) -> None:
    """Install the hook, or its current version. What is not winlab's under its name stays.

    libvirt remembers whether it had hooks when it started, until it is sent SIGHUP (virHookInitialize in virhook.c).
    """
    installed = HOOK.read_text(encoding="utf-8", errors="replace") if HOOK.exists() else OURS
    if OURS not in installed:
        progress.say(f"'{HOOK}' is left alone: winlab did not write it. Clones will restore their whole memory")
        return
    wanted = text(settings.POOL_PATH.resolve(), memory_folder().resolve())
    if record.changes.hook and installed == wanted and os.access(HOOK, os.X_OK):
        return
    progress.say("installing libvirt's hook for the memory of clones")
    for folder in (HOOK.parents[1], HOOK.parent):
        if not folder.exists():
            record.add("folders", str(folder))
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)
    record.add("files", str(HOOK))
    fresh = HOOK.parents[1] / "winlab.new"  # libvirt would run what is unfinished, too, in the folder of hooks
    files.write_atomic(fresh, wanted, mode=0o755)
    fresh.replace(HOOK)
    daemons.reload_libvirt()
    record.mark("hook")


def trouble() -> str:
    """Why a clone on this host can't share the memory of its snapshot; empty if it can. It needs no root.

    A user can't see a file system that is mounted below libvirt's own folder. Then the hook refuses the clone's start.
    """
    if not PYTHON.exists():
        return f"'{PYTHON}', which libvirt's hook needs, is missing"
    try:
        installed = HOOK.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"libvirt's hook '{HOOK}' can't be read: {error.strerror}; {INSTALL}"
    pool, ram = _folders(installed)
    apart = _device(pool) != _device(ram)
    return _wrong(installed, settings.POOL_PATH.resolve(), os.access(HOOK, os.X_OK), apart)


def trouble_on(there: Remote) -> str:
    """The same for another host, asked by ssh.

    It takes the last word of the hook's line for libvirt's folder: one whose path needs quotes counts as elsewhere.
    """
    try:
        pool, executable, apart, installed = there.call(LOOK).split("\n", 3)
    except WinlabError as error:
        return f"libvirt's hook '{HOOK}' can't be read: {error.why.strip()}; {INSTALL}"
    except ValueError:
        return f"libvirt's hook '{HOOK}' can't be read; {INSTALL}"
    return _wrong(installed, Path(pool), executable == "yes", apart == "yes")


def _wrong(installed: str, pool: Path, executable: bool, apart: bool) -> str:
    """What is wrong with a hook that is installed.

    :param pool: the folder of the host's storage pool.
    :param apart: the hook's folders are on different file systems.
    """
    if OURS not in installed:
        return f"winlab did not write libvirt's hook '{HOOK}'"
    _, ram = _folders(installed)
    if installed != text(pool, ram) or not executable:
        return f"libvirt's hook '{HOOK}' is not the one of this winlab; {INSTALL}"
    return f"'{pool}' and '{ram}' are on different file systems" if apart else ""


def _folders(installed: str) -> tuple[Path, Path]:
    """The folders that a hook was installed for: of the pool, and of libvirt's memory files."""
    line = next((line for line in installed.splitlines() if line.startswith("printf ")), "")
    pool, ram = ["", "", *shlex.split(line)][-2:]
    return Path(pool), Path(ram)


def _device(path: Path) -> int:
    """The file system of a folder, or of the nearest one above it that exists and may be seen."""
    for place in (path, *path.parents):
        try:
            return place.stat().st_dev
        except (FileNotFoundError, PermissionError):
            continue
    return 0
