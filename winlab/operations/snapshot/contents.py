"""What a snapshot keeps of a lab's machines: which of their drives, and in which volumes."""

from __future__ import annotations

from pathlib import PurePath

from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import volume_names
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import copied_domain
from winlab.errors import ConflictError, HostError
from winlab.snapshots import Drive, Id

WRITTEN = ("disk.qcow2", "store.qcow2")  # the ends of the names of volumes that a guest writes to


def drives(which: Id, host: Hypervisor, node: NodePlan, definition: str) -> dict[str, Drive]:
    """What is in the drives of a machine, by target.

    :param definition: the domain's XML.
    :raises ConflictError: a drive has something that winlab did not put there.
    """
    pool, found = host.pool.folder, {}
    for target, file in copied_domain.drives(definition).items():
        name = PurePath(file).name
        if PurePath(file).parent == pool and volume_names.lab_of(name) == which.lab:
            what = volume_names.first(name).removeprefix(f"{which.lab}.")
            kind = "disk" if what.removeprefix(f"{node.name}.") in WRITTEN else "own"
            found[target] = Drive(kind=kind, what=what, volume=f"{which}.{what}")
        elif PurePath(file).parent == pool and name.startswith("base-"):
            volume = which.volume(node.name, f"cd-{target}.qcow2")
            found[target] = Drive(kind="shared", what=name, volume=volume)
        else:
            raise ConflictError(
                f"'{node.name}' can't be saved: its drive '{target}' has '{file}'.",
                why="winlab did not put it there, so it can't give it to copies.",
                cure=f"Take it out: 'virsh change-media {node.domain} {target} --eject' for a CD, 'virsh detach-disk "
                f"{node.domain} {target} --persistent' for a disk.",
            )
    return found


def keep_shared(host: Hypervisor, drives: dict[str, Drive]) -> None:
    """Make the snapshot's volumes for CDs: copies of the lab's own, and overlays that keep shared ones in use."""
    for drive in drives.values():
        if drive.kind == "own":
            lab = drive.volume.partition("@")[0]
            host.pool.copy(drive.volume, f"{lab}.{drive.what}")
        elif drive.kind == "shared":
            host.pool.create_overlay(drive.volume, drive.what)


def require_space(pool: StoragePool, need: int, what: str) -> None:
    """Check a pool's space.

    :param need: bytes.
    :raises HostError: it is not enough.
    """
    if need > (free := pool.free()):
        raise HostError(
            f"There is not enough space for {what}.",
            why=f"The pool has {free >> 20} MiB free, and {need >> 20} MiB are needed.",
            cure="Free some space: 'winlab image prune' and 'winlab snapshot delete' help.",
        )
