"""Domains: define, find, inspect, resize, remove.

winlab recognizes its own by their tags and identifies each by its UUID. A name can be changed, and can be another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import libvirt
from lxml import etree

from winlab import account
from winlab.adapters.vm.connection import answering, explained
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.errors import ConflictError, NotFoundError

STATES = {
    libvirt.VIR_DOMAIN_RUNNING: "running",
    libvirt.VIR_DOMAIN_BLOCKED: "running",
    libvirt.VIR_DOMAIN_PAUSED: "paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "shutting down",
    libvirt.VIR_DOMAIN_SHUTOFF: "off",
    libvirt.VIR_DOMAIN_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "asleep",
}
OFF = ("off",)
CRASHED = "crashed"  # its kernel crashed and reported that; its memory and its screen do not change
PAUSED = ("paused", "suspended")  # states that a resume ends


class Named(Protocol):
    """A machine: a node of a plan, or one that was found."""

    @property
    def domain(self) -> str:
        """The domain's name, for messages."""

    @property
    def uuid(self) -> str:
        """The domain's UUID, which identifies it."""


@dataclass(frozen=True)
class Machine:
    """A domain that winlab made: its name, state (a word) and tag, and whether libvirt starts it with the host.

    ``hypervisor`` is the name of the one that it is on; empty if only a connection was asked.
    """

    domain: str
    state: str
    tag: Tag
    autostart: bool = False
    hypervisor: str = ""

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.tag.uuid


def order(machine: Machine) -> tuple[str, bool, str, str]:
    """The sort key for lists of machines."""
    return machine.tag.lab, not machine.tag.is_member, machine.tag.role, machine.tag.node


@answering()
def machines(conn: libvirt.virConnect, lab: str | None = None) -> list[Machine]:
    """All machines of one lab or of all, sorted: domains with winlab's tag and the UUID that belongs to it."""
    found = []
    for domain in conn.listAllDomains():
        with _there():
            tag = tags.read(domain.XMLDesc(0))
            if tag is not None and lab in (None, tag.lab):
                found.append(Machine(domain.name(), _state(domain), tag, bool(domain.autostart())))
    return sorted(found, key=order)


@answering()
def copies(conn: libvirt.virConnect, lab: str) -> list[str]:
    """The names of a user's own copies of a lab's machines, sorted: no command touches them."""
    found = []
    for domain in conn.listAllDomains():
        with _there():
            if tags.copied_from(domain.XMLDesc(0)) == lab:
                found.append(str(domain.name()))
    return sorted(found)


@contextmanager
def _there() -> Iterator[None]:
    """Skip a domain that was removed meanwhile."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise


@answering()
def find(conn: libvirt.virConnect, machine: Named) -> libvirt.virDomain | None:
    """The machine's domain, whatever its name is now; None if there is none."""
    return _found(lambda: conn.lookupByUUIDString(machine.uuid))


def _found(look: Callable[[], libvirt.virDomain]) -> libvirt.virDomain | None:
    try:
        return look()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def get(conn: libvirt.virConnect, machine: Named) -> libvirt.virDomain:
    """The machine's domain.

    :raises NotFoundError: there is none.
    """
    domain = find(conn, machine)
    if domain is None:
        raise NotFoundError(f"There is no domain '{machine.domain}'.", cure="'winlab status' shows what there is.")
    return domain


@answering()
def name_of(conn: libvirt.virConnect, machine: Named) -> str:
    """The name that the machine's domain has now, or is to get: an earlier version or a user may have chosen it."""
    domain = find(conn, machine)
    return machine.domain if domain is None else str(domain.name())


@answering()
def tag_of(conn: libvirt.virConnect, machine: Named) -> Tag | None:
    """The tag of the machine's domain; None if there is no such domain, and its name is free.

    :raises ConflictError: the name or the UUID belongs to another domain.
    """
    domain = find(conn, machine)
    if domain is not None:
        if (tag := tags.read(domain.XMLDesc(0))) is not None:
            return tag
        named = str(domain.name())
    elif (domain := _found(lambda: conn.lookupByName(machine.domain))) is None:
        return None
    else:
        named = machine.domain
    other = tags.read(domain.XMLDesc(0))
    raise ConflictError(
        f"There is a domain '{named}' that winlab did not make."
        if other is None
        else f"The domain '{named}' is '{other.node}' of the lab '{other.lab}'.",
        cure="Rename or remove it, or give the lab another name.",
    )


@answering()
def described(conn: libvirt.virConnect, machine: Named) -> str:
    """The domain as it is now, as libvirt's XML without secrets.

    :raises NotFoundError: there is none.
    """
    return str(get(conn, machine).XMLDesc(0))


def is_running(conn: libvirt.virConnect, machine: Named) -> bool:
    """Whether the domain exists and its guest runs: a paused one is active, but does not run."""
    return state(conn, machine) == "running"


@answering()
def state(conn: libvirt.virConnect, machine: Named) -> str:
    """The domain's state in a word; ``gone`` if there is none."""
    domain = find(conn, machine)
    return "gone" if domain is None else _state(domain)


def _state(domain: libvirt.virDomain) -> str:
    """The state in a word. It distinguishes a domain that a user suspended from one that QEMU paused itself."""
    code, reason = domain.state()
    if (code, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER):
        return "suspended"
    return STATES.get(code, "unknown")


@answering()
def is_unexplained(conn: libvirt.virConnect, machine: Named) -> bool:
    """Whether the domain is off and libvirt has not seen it run since it was started itself, as after a host's reboot.

    Source: virDomainShutoffReason; libvirt keeps no reason when it ends.
    """
    domain = find(conn, machine)
    unknown = [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN]
    return domain is not None and domain.state() == unknown


@answering()
def disk_trouble(conn: libvirt.virConnect, machine: Named) -> Literal["full", "failed"] | None:
    """Why QEMU paused the domain, if a disk is the cause: there was no space left, or it can't be read or written."""
    domain = find(conn, machine)
    if domain is None or domain.state() != [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]:
        return None
    errors = domain.diskErrors()
    return "full" if libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE in errors.values() else "failed"


@answering()
def was_shut_down(conn: libvirt.virConnect, machine: Named) -> bool:
    """Whether the domain is off because its guest shut down, not because its power or process ended.

    libvirt remembers this until it restarts itself.
    """
    code, reason = get(conn, machine).state()
    return bool(code == libvirt.VIR_DOMAIN_SHUTOFF and reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN)


@answering()
def ended_in_order(conn: libvirt.virConnect, machine: Named) -> bool:
    """Whether the domain is off without a cut of its power or process: it shut down, or was saved to a file.

    libvirt remembers a shutdown until it restarts itself.
    """
    return was_shut_down(conn, machine) or bool(get(conn, machine).hasManagedSaveImage())


def now_and_later(domain: libvirt.virDomain) -> int:
    """The flags of a change that counts for the running domain, if it runs, and for later starts."""
    return int(libvirt.VIR_DOMAIN_AFFECT_CONFIG | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0))


@answering()
def files(conn: libvirt.virConnect) -> set[str]:
    """The paths of all files that are disks or CDs of any domain, now or at its next start.

    Included are the files under a disk that libvirt names: those of a running domain.
    """
    paths = set()
    for domain in conn.listAllDomains():
        with _there():
            for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
                root = etree.fromstring(domain.XMLDesc(flags).encode())
                paths |= {str(source.get("file")) for source in root.findall("devices/disk//source[@file]")}
    return paths


def define(conn: libvirt.virConnect, machine: Named, xml: str) -> None:
    """Define the domain as this user's. Safe to repeat."""
    with explained(f"The domain '{machine.domain}' can't be defined."):
        if find(conn, machine) is None:
            conn.defineXML(tags.new(xml, account.uid()))


@answering()
def memory_mib(conn: libvirt.virConnect, machine: Named) -> int:
    """The domain's memory, in MiB."""
    return int(get(conn, machine).maxMemory()) >> 10


@answering()
def sizes(conn: libvirt.virConnect, machine: Named, *, now: bool = False) -> tuple[int, int]:
    """The domain's CPUs and its memory in MiB: those that its next start gives it.

    :param now: those that it has now, if it runs.
    :raises NotFoundError: there is no such domain.
    """
    flags = 0 if now else libvirt.VIR_DOMAIN_XML_INACTIVE
    root = etree.fromstring(get(conn, machine).XMLDesc(flags).encode())
    return int(root.findtext("vcpu", "0")), int(root.findtext("memory", "0")) >> 10  # libvirt always answers in KiB


def resize(conn: libvirt.virConnect, machine: Named, cpus: int, memory_mib: int) -> None:
    """Change the domain's sizes from its next start on.

    :raises NotFoundError: there is no such domain.
    """
    domain = get(conn, machine)
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE  # with the password of its screen
    root = etree.fromstring(domain.XMLDesc(flags).encode())
    for memory in root.findall("memory") + root.findall("currentMemory"):
        memory.set("unit", "MiB")
        memory.text = str(memory_mib)
    for cpu in root.findall("vcpu"):
        cpu.text = str(cpus)
        cpu.attrib.pop("current", None)
    with explained(f"The sizes of '{machine.domain}' can't be changed."):
        conn.defineXML(etree.tostring(root, encoding="unicode"))


@answering()
def carries(conn: libvirt.virConnect, machine: Named, tag: Tag) -> bool:
    """Whether the domain carries this tag, now and at later starts."""
    domain = find(conn, machine)
    if domain is None:
        return False
    carried = [tags.read(domain.XMLDesc(flags)) for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)]
    return all(one is not None and one.says_as(tag) for one in carried)


def set_tag(conn: libvirt.virConnect, machine: Named, tag: Tag) -> None:
    """Replace the domain's tag, now and for later starts; who made it stays.

    :raises NotFoundError: there is no such domain.
    """
    domain = get(conn, machine)
    flags = now_and_later(domain)
    made = tags.read(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    attributes = tag.model_copy(update={"uid": made.uid if made is not None else None}).attributes
    # libvirt itself gives the element its namespace, and refuses one that already has it
    element = etree.tostring(etree.Element(tags.ELEMENT, attrib=attributes), encoding="unicode")
    with explained(f"The tag of '{machine.domain}' can't be changed."):
        domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, element, tags.KEY, tags.XMLNS, flags)


def remove(conn: libvirt.virConnect, machine: Named) -> bool:
    """Stop the domain at once and undefine it with its NVRAM; returns whether it existed."""
    domain = find(conn, machine)
    if domain is None:
        return False
    with explained(f"The domain '{machine.domain}' can't be removed."), _there():
        is_persistent = domain.isPersistent()
        if domain.isActive():
            domain.destroy()
        if not is_persistent:
            return True  # nothing defines it, so it is gone once it has stopped
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
            | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        )
        domain.undefineFlags(flags)
    return True


def written_bytes(conn: libvirt.virConnect, machine: Named) -> int:
    """How much the guest has written to its disks since it was started: a sign of life."""
    domain = find(conn, machine)
    if domain is None or not domain.isActive():
        return 0
    root = etree.fromstring(domain.XMLDesc(0).encode())
    targets = [str(t.get("dev")) for t in root.findall("devices/disk[@device='disk']/target")]
    try:
        return sum(int(domain.blockStats(target)[3]) for target in targets)
    except libvirt.libvirtError:
        return 0  # it was just stopped
