"""What is kept of a machine that came to a stop: its screen, its serial port, and Windows Setup's logs off its disk."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from winlab.adapters.vm import domains
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import golden
from winlab.design.plan.model import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine.engine import Stopped
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.supply.download import check_space
from winlab.supply.images import golden as golden_cache
from winlab.supply.media import offline

LOGS = (
    "$WINDOWS.~BT/Sources/Panther/setuperr.log",  # of Windows PE, once it has made Windows' partition
    "$WINDOWS.~BT/Sources/Panther/setupact.log",
    "Windows/Panther/setuperr.log",
    "Windows/Panther/setupact.log",
    "Windows/Panther/UnattendGC/setuperr.log",
    "Windows/Panther/UnattendGC/setupact.log",
    "Windows/System32/Sysprep/Panther/setuperr.log",
    "Windows/System32/Sysprep/Panther/setupact.log",
    "winlab/bootstrap.log",
)
ENTRY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, *(\w+)")  # in Panther's logs: a time and a level
MISSING = "missing.txt"  # what could not be read, and why


def collect(run: Run, node: NodePlan, progress: Progress) -> tuple[Path, str]:
    """Write the evidence into the lab's folder; returns that folder, and the log text to search for known causes.

    What can't be read is left out, and a file says so.
    """
    folder = run.folder.path / "evidence" / node.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    texts: list[str] = []
    missing: list[str] = []

    @contextmanager
    def part(what: str) -> Iterator[None]:
        try:
            yield
        except (WinlabError, OSError) as error:
            missing.append(f"{what}: {error}\n")
            progress.say(f"{what} can't be had: {str(error).splitlines()[0]}")

    progress.say(f"keeping the evidence in {folder}")
    with part("the screen"):
        (folder / "screen.png").write_bytes(domains.screenshot(run.conn, node.domain))
    with part("the serial port's log"):
        serial = run.pool.download(serial_log(run.plan.lab, node.name))
        (folder / "serial.log").write_bytes(serial)
        texts.append(serial.decode(errors="replace"))
    if node.os == "windows":
        with part("Windows' logs"), tempfile.TemporaryDirectory(prefix="winlab-", dir=folder) as work:
            for name, content in _logs(run, node, Path(work), progress).items():
                (folder / name.removeprefix("Windows/").lstrip("$").replace("/", "-")).write_bytes(content)
                texts.append(telling(name, content))
    (folder / MISSING).unlink(missing_ok=True)
    if missing:
        (folder / MISSING).write_text("".join(missing), encoding="utf-8")
    return folder, "\n".join(texts)


def _logs(run: Run, node: NodePlan, work: Path, progress: Progress) -> dict[str, bytes]:
    offline.check_tools()
    volume, disk = node.volume("disk"), work / "disk.qcow2"
    progress.say("reading Windows Setup's logs off the disk")
    with domains.paused(run.conn, node.domain):
        _fetch(run.pool, volume.name, disk)
    # not the plan's backing: that is what a new disk would be based on
    if (backing := run.pool.backing(volume.name)) is not None:
        base = _base(run.pool, backing.name, work, progress)
        offline.put_on(disk, base, "qcow2" if backing.suffix == ".qcow2" else "raw")
    found = offline.read(disk, LOGS, work)
    if not found:
        raise WinlabError("The disk has none of them.", why="Setup writes them once Windows' partition is made.")
    return found


def _base(pool: StoragePool, volume: str, work: Path, progress: Progress) -> Path:
    """A local file with the content of the base volume: the cache's golden image, or else a copy."""
    key = golden.key_of(volume)
    kept = None if key is None else golden_cache.find(key)
    # an image that was removed and rebuilt has the same key, but not the same content
    if kept is not None:
        progress.say("comparing the golden image in the cache with the one in the pool")
        if pool.holds(volume, kept.path):
            return kept.path
    progress.say("fetching the golden image that the disk stands on")
    _fetch(pool, volume, work / "base")
    return work / "base"


def _fetch(pool: StoragePool, volume: str, target: Path) -> None:
    check_space(target.parent, pool.allocation(volume))
    pool.download_to(volume, target, lambda _: None)


def keep(run: Run, node: NodePlan, error: WinlabError, progress: Progress) -> None:
    """Write the evidence of *error*, which then names the folder, too. Whatever goes wrong, the error stays."""
    with suppress(WinlabError, OSError, Stopped):
        folder, _ = collect(run, node, progress)
        error.evidence = "; ".join(filter(None, (str(folder), error.evidence)))


def telling(name: str, content: bytes) -> str:
    """The part of a log that may show a cause: all of it; for an activity log only the errors, since harmless lines use
    the same words ("selected image", "password policy")."""
    whole = text(content)
    if not name.endswith("setupact.log"):
        return whole
    kept: list[str] = []
    is_error = False
    for line in whole.splitlines():
        if entry := ENTRY.match(line):
            is_error = entry[1] in ("Error", "Fatal")
        if is_error:  # a line without a time continues the previous entry
            kept.append(line)
    return "\n".join(kept)


def text(content: bytes) -> str:
    """A log's text: UTF-16 with a mark, or UTF-8."""
    how = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return content.decode(how, "replace")
