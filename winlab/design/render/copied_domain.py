"""The domain of a copied machine, made from the XML of the machine that was saved. Pure.

A guest that resumes must find the devices that it had, at the same addresses. So everything that it sees stays: only
what identifies the machine on the host, and the files behind its drives, are the copy's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lxml import etree
from lxml.builder import E as X

from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import serial_log

MEMORY = f"{tags.NAMESPACE}memory:1"  # of the element by which libvirt's hook knows the file of the guest's memory
FAULTS = f"{tags.NAMESPACE}faults:1"
PROTECTED = f"{tags.NAMESPACE}protected:1"
DROPPED = tuple(f"{{{one}}}" for one in (tags.FIRST_BOOT, FAULTS, MEMORY, PROTECTED))


def drives(saved: str) -> dict[str, str]:
    """The files of a machine's disks and CDs, by target; a drive without a CD is left out."""
    root = etree.fromstring(saved.encode())
    found = {}
    for disk in root.findall("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None and source.get("file"):
            found[str(target.get("dev"))] = str(source.get("file"))
    return found


def has_balloon(saved: str) -> bool:
    """Whether a machine has a memory balloon: through it, a guest could change the file of memory that copies share."""
    balloon = etree.fromstring(saved.encode()).find("devices/memballoon")
    return balloon is None or balloon.get("model") != "none"  # libvirt adds one where there is none


def redirected(definition: str, files: Mapping[str, Path]) -> str:
    """A definition whose drives have other files, by target."""
    root = etree.fromstring(definition.encode())
    _redirect(root, files)
    return str(etree.tostring(root, encoding="unicode"))


def _redirect(root: etree._Element, files: Mapping[str, Path]) -> None:
    for disk in root.findall("devices/disk"):
        for backing in disk.findall("backingStore"):
            disk.remove(backing)
        source, target = disk.find("source"), str(disk.find("target").get("dev"))
        if source is not None and target in files:
            source.set("file", str(files[target]))


def domain_xml(
    saved: str, plan: Plan, node: NodePlan, *, files: Mapping[str, Path], pool: Path, vnc_password: str, uid: int
) -> str:
    """The definition of a copy.

    :param saved: the XML of the machine that was saved.
    :param plan: the copy's.
    :param files: the copy's files, by the drives' targets.
    :param pool: where the hypervisor has the storage pool.
    :param uid: the user who makes it.
    """
    root = etree.fromstring(saved.encode())
    root.attrib.pop("id", None)
    root.find("name").text = node.domain
    root.find("uuid").text = node.uuid
    if (title := root.find("title")) is not None:
        title.text = f"winlab {plan.lab}: {node.name}"
    _put_metadata(root, plan, node, uid)
    if (backing := root.find("memoryBacking")) is not None:  # of a copy that is copied
        root.remove(backing)
    nvram = root.find("os/nvram")
    if nvram is not None:
        nvram.text = None  # libvirt chooses the file by the domain's name, and makes it from the template
    _redirect(root, files)
    for interface in root.findall("devices/interface"):
        for parameters in interface.findall("virtualport/parameters"):
            parameters.set("interfaceid", node.port)
        if (target := interface.find("target")) is not None:
            interface.remove(target)
    for log in (*root.findall("devices/serial/log"), *root.findall("devices/console/log")):
        log.set("file", str(pool / serial_log(plan.lab, node.name)))
    for screen in root.findall("devices/graphics"):
        screen.set("passwd", vnc_password)
        screen.set("port", "-1")
        screen.set("autoport", "yes")
    for label in root.findall("seclabel"):
        root.remove(label)
    return str(etree.tostring(root, encoding="unicode"))


def with_memory(defined: str, lab: str, volume: str) -> str:
    """A definition whose guest gets its memory from a file, copy on write: for a restore, not for later starts.

    :param defined: what libvirt made of the definition.
    :param volume: the volume with the memory.
    """
    root = etree.fromstring(defined.encode())
    backing = X.memoryBacking(X.source(type="file"), X.access(mode="private"))
    root.find("vcpu").addprevious(backing)
    root.find("metadata").append(
        etree.Element(f"{{{MEMORY}}}memory", attrib={"lab": lab, "volume": volume}, nsmap={"winlab-memory": MEMORY})
    )
    return str(etree.tostring(root, encoding="unicode"))


def _put_metadata(root: etree._Element, plan: Plan, node: NodePlan, uid: int) -> None:
    """Replace the tag. Records of the machine stay, such as of pushed programs, under the copy's name.

    Only a machine that completed its first boot is saved. If an earlier winlab made it, it still has the mark.
    """
    metadata = root.find("metadata")
    for one in list(metadata):
        if not isinstance(one.tag, str) or not one.tag.startswith(f"{{{tags.NAMESPACE}"):
            continue
        if one.tag == f"{{{tags.XMLNS}}}{tags.ELEMENT}" or one.tag.startswith(DROPPED):
            metadata.remove(one)
        else:
            one.set("lab", plan.lab)
    tag = tags.element(plan, node)
    tag.set("uid", str(uid))
    metadata.insert(0, tag)
