"""What labs left on this host, found by tags: virtual machines and northbound rows."""

from __future__ import annotations

from winlab.design.plan import tags
from winlab.events import Progress
from winlab.host import daemons, fabric, storage
from winlab.run import CommandError


def _domains() -> dict[str, str]:
    """The uuids of the virtual machines with winlab's tag, and their labs."""
    labs_by_uuid = {}
    for uuid in storage.virsh("list", "--all", "--uuid").stdout.split():
        xml = storage.virsh("dumpxml", uuid, check=False).stdout
        lab = tags.lab_of(xml) if xml else None
        if lab is not None:
            labs_by_uuid[uuid] = lab
    return labs_by_uuid


def _rows() -> dict[tuple[str, str], str]:
    """The northbound rows of labs: (table, uuid) and the lab's name."""
    labs_by_row = {}
    for table in tags.TABLES:
        try:
            said = fabric.nbctl("--format=json", "--columns=_uuid,external_ids", "list", table)
        except CommandError:
            continue  # an older OVN without this table
        for row in fabric.rows(said):
            lab = dict(row["external_ids"][1]).get(tags.KEY)
            if lab and lab != tags.HOST:
                labs_by_row[(table, row["_uuid"][1])] = lab
    return labs_by_row


def find(*, rows: bool = True) -> set[str]:
    """The names of the remaining labs. Empty if neither libvirt nor OVN runs.

    :param rows: also those of which OVN alone knows; False on a host that has joined a site: they are the site's.
    """
    names: set[str] = set()
    if daemons.libvirt_up():
        names |= set(_domains().values())
    if rows and daemons.northd_up():
        names |= set(_rows().values())
    return names


def remove(progress: Progress, *, rows: bool = True) -> None:
    """Remove every virtual machine and northbound row with winlab's tag. Volumes are removed with the pool.

    :param rows: as for :func:`find`.
    """
    if daemons.libvirt_up():
        for uuid, lab in _domains().items():
            progress.say(f"removing a virtual machine of {lab}")
            storage.virsh("destroy", uuid, check=False)
            flags = ("--managed-save", "--snapshots-metadata", "--checkpoints-metadata", "--nvram")
            storage.virsh("undefine", uuid, *flags, check=False)
    if rows and daemons.northd_up():
        for (table, uuid), lab in _rows().items():
            progress.say(f"removing a {table} of {lab}")
            fabric.nbctl("--if-exists", "destroy", table, uuid, check=False)


def foreign_rows() -> bool:
    """Whether the northbound database holds switches or routers that are not winlab's."""
    for table in ("Logical_Switch", "Logical_Router"):
        for row in fabric.rows(fabric.nbctl("--format=json", "--columns=external_ids", "list", table)):
            if tags.KEY not in dict(row["external_ids"][1]):
                return True
    return False
