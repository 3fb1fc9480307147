"""What labs have left on this host, by the tags on the things themselves: virtual machines and northbound rows."""

from __future__ import annotations

import re

from winlab.events import Progress
from winlab.host import daemons, fabric, storage
from winlab.run import CommandError

# Tables of OVN's northbound database in which labs own rows that stand by themselves.
TABLES = (
    *("Logical_Switch", "Logical_Router", "DHCP_Options", "DNS", "Address_Set", "Port_Group", "Load_Balancer"),
    *("Load_Balancer_Group", "HA_Chassis_Group", "Meter"),
)

_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def is_lab_domain(xml: str) -> bool:
    """Whether a domain's XML carries winlab's tag in its metadata."""
    found = _METADATA.search(xml)
    return found is not None and "winlab" in found.group(0)


def _domains() -> dict[str, str]:
    """The names and uuids of the virtual machines with winlab's tag."""
    found = {}
    for uuid in storage.virsh("list", "--all", "--uuid").stdout.split():
        xml = storage.virsh("dumpxml", uuid, check=False).stdout
        if is_lab_domain(xml):
            found[uuid] = xml.partition("<name>")[2].partition("</name>")[0]
    return found


def _rows() -> dict[tuple[str, str], str]:
    """The northbound rows of labs: (table, uuid) and the lab's name."""
    found = {}
    for table in TABLES:
        try:
            said = fabric.nbctl("--format=json", "--columns=_uuid,external_ids", "list", table)
        except CommandError:
            continue  # an older OVN that has no such table
        for row in fabric.rows(said):
            lab = dict(row["external_ids"][1]).get("winlab")
            if lab and lab != "host":
                found[(table, row["_uuid"][1])] = lab
    return found


def find() -> set[str]:
    """The names of the labs (for a machine: of the machine) that are left. Empty if neither libvirt nor OVN runs."""
    names: set[str] = set()
    if daemons.libvirt_up():
        names |= set(_domains().values())
    if daemons.northd_up():
        names |= set(_rows().values())
    return names


def remove(progress: Progress) -> None:
    """Remove every virtual machine and northbound row with winlab's tag. The volumes go with the pool."""
    if daemons.libvirt_up():
        for uuid, name in _domains().items():
            progress.say(f"removing the virtual machine {name}")
            storage.virsh("destroy", uuid, check=False)
            flags = ("--managed-save", "--snapshots-metadata", "--checkpoints-metadata", "--nvram")
            storage.virsh("undefine", uuid, *flags, check=False)
    if daemons.northd_up():
        for (table, uuid), lab in _rows().items():
            progress.say(f"removing a {table} of {lab}")
            fabric.nbctl("--if-exists", "destroy", table, uuid, check=False)


def foreign_rows() -> bool:
    """Whether the northbound database holds switches or routers that are not winlab's."""
    for table in ("Logical_Switch", "Logical_Router"):
        for row in fabric.rows(fabric.nbctl("--format=json", "--columns=external_ids", "list", table)):
            if "winlab" not in dict(row["external_ids"][1]):
                return True
    return False
