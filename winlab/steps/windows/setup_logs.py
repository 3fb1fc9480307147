"""The logs of Windows Setup, the first start and sysprep, read from a machine's disk from outside."""

from __future__ import annotations

from pathlib import Path

from winlab.adapters.vm import disks, power
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import golden
from winlab.design.plan.node_plan import WindowsNode
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.steps.evidence import DiskLog
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


def read(run: Run, node: WindowsNode, folder: Path, progress: Progress) -> list[DiskLog]:
    """The logs that exist.

    :param folder: for temporary files, which may be as large as the disk.
    :raises WinlabError: there are none, or the disk can't be read.
    """
    return [
        DiskLog(name.removeprefix("Windows/").lstrip("$").replace("/", "-"), content)
        for name, content in _files(run, node, folder, progress).items()
    ]


def _files(run: Run, node: WindowsNode, folder: Path, progress: Progress) -> dict[str, bytes]:
    offline.check_tools()
    host, disk = run.on(node), folder / "disk.qcow2"
    volume = disks.live(host, node)
    progress.say("reading Windows Setup's logs off the disk")
    with power.paused(host.conn, node):
        _fetch(host.pool, volume.name, disk)
    # not the plan's backing: that is what a new disk would be based on
    above = disk
    for name in list(disks.chain(host.pool, volume.name))[1:]:
        base = _base(host.pool, name, folder, progress)
        offline.put_on(above, base, "qcow2" if name.endswith(".qcow2") else "raw")
        above = base
    logs = offline.read(disk, LOGS, folder)
    if not logs:
        raise WinlabError(
            "The disk has none of Setup's logs.", why="Setup writes them once it has made Windows' partition."
        )
    return logs


def _base(pool: StoragePool, volume: str, folder: Path, progress: Progress) -> Path:
    """A local file with the content of a volume under the disk: the cache's golden image, or otherwise a copy."""
    key = golden.key_of(volume)
    kept = None if key is None else golden_cache.find(key)
    # an image that was removed and rebuilt has the same key, but not the same content
    if kept is not None:
        progress.say("comparing the golden image in the cache with the one in the pool")
        if pool.holds(volume, kept.path):
            return kept.path
    progress.say(f"fetching '{volume}', which the disk is based on")
    _fetch(pool, volume, folder / volume)
    return folder / volume


def _fetch(pool: StoragePool, volume: str, target: Path) -> None:
    check_space(target.parent, pool.allocation(volume))
    pool.download_to(volume, target, lambda _: None)
