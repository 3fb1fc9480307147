"""What is left of snapshots in storage pools: its removal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from winlab import snapshots
from winlab.adapters.vm import disks
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan import volume_names
from winlab.errors import ConflictError, WinlabError
from winlab.snapshots import Held, Id


def discard(which: Id, hosts: Hypervisors) -> list[str]:
    """Delete the volumes of a snapshot, and the frozen disks that nothing else needs; returns what was deleted.

    Nothing else is based on the volumes of a snapshot. Safe to repeat: what is left of them leads to the disks.
    """
    gone: list[str] = []
    for host in hosts:
        host.pool.refresh()
        named = host.pool.names(f"{which}.")
        below = [path.name for name in named if (path := host.pool.backing(name)) is not None]
        imported = host.pool.names(f"{volume_names.imported(*which)}.")
        rest = disks.unused(host, {*below, *imported}, without=named)
        gone += [name for name in (*rest, *named) if host.pool.delete(name)]
    return gone


def require_free(which: Id, hosts: Hypervisors, mark: Held, choose: str = "Choose another name") -> None:
    """Check that a snapshot can be made. What a killed command of this account left of it does not count.

    :param choose: how the user gives it another name.
    :raises ConflictError: there is one.
    """
    why = "You have it already." if which in snapshots.ids() else ""
    for host in hosts:
        host.pool.refresh()
        if not mark.was_killed and host.pool.names(f"{which}."):
            why = why or "Its volumes are in the pool, and no command of this account left them: another one has it."
    if why:
        raise ConflictError(
            f"There is already a snapshot '{which}'.",
            why=why,
            cure=f"{choose}; or 'winlab snapshot delete {which}' deletes that one.",
        )


@contextmanager
def making(which: Id, hosts: Hypervisors, mark: Held) -> Iterator[None]:
    """Make a snapshot in a with-block, after what a killed command left is deleted.

    If the block fails, nothing is left of the snapshot. Should libvirt not answer, the next command deletes it.
    """
    mark.stays = True
    try:
        discard(which, hosts)
        yield
    except BaseException:
        with suppress(WinlabError):
            discard(which, hosts)
            mark.stays = False
        raise
    mark.stays = False
