"""Whether root may run this winlab without being asked, at boot or for another host: not if others can change it."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from winlab import account, files
from winlab.events import Progress
from winlab.host import daemons, units
from winlab.host.changes import Record
from winlab.run import run

NAMED = 3  # places in a message
FLAG = "--trust-python"


def places() -> list[Path]:
    """Where what runs comes from: the interpreter, its library, all folders of modules, and winlab itself."""
    library = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    # the unit runs python -I: no PYTHONPATH, and not the folder of the script or the current one, which is the first
    elsewhere = {*os.environ.get("PYTHONPATH", "").split(os.pathsep), *([] if sys.flags.safe_path else sys.path[:1])}
    modules = [entry for entry in sys.path if entry not in elsewhere]
    package = str(Path(__file__).parents[1])
    paths = dict.fromkeys(Path(entry) for entry in (sys.executable, package, *library, *modules) if entry)
    return [path for path in paths if path.exists()]


def doubts(paths: Iterable[Path]) -> list[str]:
    """By which of *paths*, or a folder above one, someone other than root can change what root would run."""
    found: dict[str, None] = {}
    for path in paths:
        for one, above in _ways(path):
            try:
                status = one.stat()
            except OSError as error:
                found[f"'{one}' can't be looked at: {error.strerror}"] = None
                continue
            if status.st_uid != 0:
                found[f"'{one}' belongs to {account.name(status.st_uid)}"] = None
                continue
            # in a folder such as /tmp no one can replace what is root's
            if above and status.st_mode & stat.S_ISVTX:
                continue
            if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid != 0):
                found[f"'{one}' can be written by others than root"] = None
    return list(found)


def ensure(record: Record, progress: Progress, *, trust: bool) -> None:
    """Have systemd run setup at boot, if root alone can change what runs then, or the user trusts the others.

    :param trust: write the unit whatever it runs. It then says so, for setup at boot.
    """
    doubtful = bool(doubts(places()))
    text = units.unit_text(sys.executable, trust=doubtful)
    if doubtful and not trust and text_of(units.UNIT) != text:  # otherwise a user trusted this same Python before
        progress.say("setup is not run at boot: others than root can change this winlab")
        if units.UNIT.exists():  # of an earlier version, or of another Python
            run(["systemctl", "disable", "--quiet", units.UNIT.name], check=False, timeout=60)
            units.UNIT.unlink(missing_ok=True)
            run(["systemctl", "daemon-reload"], timeout=60)
        return
    record.add("files", str(units.UNIT))
    files.replace_text(units.UNIT, text)
    run(["systemctl", "daemon-reload"], timeout=60)
    run(["systemctl", "enable", "--quiet", units.UNIT.name], timeout=60)


def warning() -> str:
    """What the user should know, and do, if systemd does not run setup at boot; empty if it does, or can't."""
    if not daemons.has_systemd() or units.UNIT.exists():
        return ""
    found = doubts(places())
    more = f" and {len(found) - NAMED} more places" if len(found) > NAMED else ""
    return (
        "Nothing sets this host up again after a reboot: root would run this winlab at boot, and others than root can "
        f"change it ({'; '.join(found[:NAMED])}{more}). Nor can other hosts join this one. "
        "After a reboot run 'sudo winlab host setup'. Or install winlab "
        f"where root alone can write, such as in /opt, or accept the risk with 'sudo winlab host setup {FLAG}'."
    )


def _ways(path: Path) -> Iterator[tuple[Path, bool]]:
    """A path and all folders above it, as it is written and as links lead to it; whether it is one above."""
    for start in dict.fromkeys((path, path.resolve())):
        yield start, False
        for folder in start.parents:
            yield folder, True


def text_of(path: Path) -> str:
    """A file's text; empty if it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
