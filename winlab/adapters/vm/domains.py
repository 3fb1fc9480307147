"""Domains: define, start, inspect, remove. winlab recognizes its own by their tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import quoteattr

import libvirt
from lxml import etree

from winlab import account
from winlab.adapters.vm import screen
from winlab.adapters.vm.connection import answering, explained
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.errors import ConflictError, NotFoundError, WinlabError

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

KEY_ENTER = 28  # linux/input-event-codes.h


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


def order(machine: Machine) -> tuple[str, bool, str, str]:
    """The sort key for lists of machines."""
    return machine.tag.lab, not machine.tag.is_member, machine.tag.role, machine.tag.node


@answering()
def machines(conn: libvirt.virConnect, lab: str | None = None) -> list[Machine]:
    """All domains that carry winlab's tag, of one lab or of all, sorted."""
    tagged = []
    for domain in conn.listAllDomains():
        try:
            tag = tags.read(domain.XMLDesc(0))
            if tag is not None and lab in (None, tag.lab):
                tagged.append(Machine(domain.name(), _state(domain), tag, bool(domain.autostart())))
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # removed meanwhile
                raise
    return sorted(tagged, key=order)


@answering()
def find(conn: libvirt.virConnect, name: str) -> libvirt.virDomain | None:
    """The domain *name*, or None."""
    try:
        return conn.lookupByName(name)
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise


def get(conn: libvirt.virConnect, name: str) -> libvirt.virDomain:
    """The domain *name*.

    :raises NotFoundError: there is none.
    """
    domain = find(conn, name)
    if domain is None:
        raise NotFoundError(f"There is no domain '{name}'.", cure="'winlab status' shows what there is.")
    return domain


@answering()
def tag_of(conn: libvirt.virConnect, name: str) -> Tag | None:
    """The tag of the domain *name*; None if there is no such domain.

    :raises ConflictError: there is one, and winlab did not make it.
    """
    domain = find(conn, name)
    if domain is None:
        return None
    tag = tags.read(domain.XMLDesc(0))
    if tag is None:
        raise ConflictError(
            f"There is a domain '{name}' that winlab did not make.",
            cure="Rename or remove it, or give the lab another name.",
        )
    return tag


@answering()
def described(conn: libvirt.virConnect, name: str) -> str:
    """The domain as it is now, as libvirt's XML without secrets.

    :raises NotFoundError: there is none.
    """
    return str(get(conn, name).XMLDesc(0))


def is_running(conn: libvirt.virConnect, name: str) -> bool:
    """Whether the domain exists and its guest runs: a paused one is active, but does not run."""
    return state(conn, name) == "running"


@answering()
def state(conn: libvirt.virConnect, name: str) -> str:
    """The domain's state in a word; ``gone`` if there is none."""
    domain = find(conn, name)
    return "gone" if domain is None else _state(domain)


def _state(domain: libvirt.virDomain) -> str:
    """The state in a word. It distinguishes a domain that a user suspended from one that QEMU paused itself."""
    code, reason = domain.state()
    if (code, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER):
        return "suspended"
    return STATES.get(code, "unknown")


@answering()
def disk_trouble(conn: libvirt.virConnect, name: str) -> Literal["full", "failed"] | None:
    """Why QEMU paused the domain, if a disk is the cause: there was no space left, or it can't be read or written."""
    domain = find(conn, name)
    if domain is None or domain.state() != [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR]:
        return None
    errors = domain.diskErrors()
    return "full" if libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE in errors.values() else "failed"


@answering()
def was_shut_down(conn: libvirt.virConnect, name: str) -> bool:
    """Whether the domain is off because its guest shut down, not because its power or process ended.

    libvirt remembers this until it restarts itself.
    """
    code, reason = get(conn, name).state()
    return bool(code == libvirt.VIR_DOMAIN_SHUTOFF and reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN)


@answering()
def ended_in_order(conn: libvirt.virConnect, name: str) -> bool:
    """Whether the domain is off without a cut of its power or process: it shut down, or was saved to a file.

    libvirt remembers a shutdown until it restarts itself.
    """
    return was_shut_down(conn, name) or bool(get(conn, name).hasManagedSaveImage())


@answering()
def inserted(conn: libvirt.virConnect, name: str) -> dict[str, Path]:
    """The files of the CDs in the domain's drives, by target name."""
    domain = find(conn, name)
    if domain is None:
        return {}
    root = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode())
    cds = [disk for disk in root.findall("devices/disk[@device='cdrom']") if disk.find("source") is not None]
    return {str(disk.find("target").get("dev")): Path(str(disk.find("source").get("file"))) for disk in cds}


@answering()
def medium(conn: libvirt.virConnect, name: str, target: str) -> Path | None:
    """The file of the CD that is in a drive now; None if the drive is empty or there is no such domain."""
    domain = find(conn, name)
    if domain is None:
        return None
    source = etree.fromstring(domain.XMLDesc(0).encode()).find(f"devices/disk/target[@dev='{target}']/../source")
    return None if source is None else Path(str(source.get("file")))


@answering()
def has_disk(conn: libvirt.virConnect, name: str, target: str) -> bool:
    """Whether the domain has a disk with this target name."""
    return (
        etree.fromstring(get(conn, name).XMLDesc(0).encode()).find(f"devices/disk/target[@dev='{target}']") is not None
    )


def attach(conn: libvirt.virConnect, name: str, target: str, path: Path) -> None:
    """Attach another qcow2 disk on virtio-scsi to the domain, now and for later starts."""
    disk = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/>"
        f"<source file={quoteattr(str(path))}/><target dev='{target}' bus='scsi'/></disk>"
    )
    domain = get(conn, name)
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0)
    with explained(f"The disk '{path}' can't be attached to '{name}'."):
        domain.attachDeviceFlags(disk, flags)


@answering()
def files(conn: libvirt.virConnect) -> set[str]:
    """The paths of all files that are disks or CDs of any domain."""
    paths = set()
    for domain in conn.listAllDomains():
        try:
            root = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode())
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # removed meanwhile
                raise
            continue
        paths |= {str(source.get("file")) for source in root.findall("devices/disk/source")}
    return paths


def insert(conn: libvirt.virConnect, name: str, target: str, bus: str, path: Path) -> None:
    """Insert a CD (a file) into a drive instead of its present one, now and for later starts."""
    _change(conn, name, target, bus, f"<source file={quoteattr(str(path))}/>")


def eject(conn: libvirt.virConnect, name: str, target: str, bus: str = "sata") -> None:
    """Take the CD out of a drive, now and for later starts."""
    _change(conn, name, target, bus, "")


def _change(conn: libvirt.virConnect, name: str, target: str, bus: str, source: str) -> None:
    domain = get(conn, name)
    drive = (
        f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>{source}"
        f"<target dev='{target}' bus='{bus}'/><readonly/></disk>"
    )
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE
    if domain.isActive():
        flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
    cure = "Run the same command again; if its machine has ended meanwhile, that starts it."
    with explained(f"The CD in '{target}' of '{name}' can't be changed.", cure):
        domain.updateDeviceFlags(drive, flags)


def define_and_start(conn: libvirt.virConnect, name: str, xml: str) -> None:
    """Define the domain as this user's, and start it; one that is paused is resumed. Safe to repeat."""
    with explained(f"The domain '{name}' can't be started.", evidence=f"/var/log/libvirt/qemu/{name}.log"):
        if find(conn, name) is None:
            conn.defineXML(tags.new(xml, account.uid()))
    start(conn, name)


def start(conn: libvirt.virConnect, name: str) -> None:
    """Start the domain; one that is paused is resumed, one that crashed is started again. Safe to repeat."""
    domain = get(conn, name)
    with explained(
        f"The domain '{name}' can't be started.",
        cure="'winlab doctor' says whether the host is ready for labs.",
        evidence=f"/var/log/libvirt/qemu/{name}.log",
    ):
        if domain.isActive() and domain.state()[0] == libvirt.VIR_DOMAIN_CRASHED:
            domain.destroy()
        if not domain.isActive():
            domain.create()
    resume(conn, name)


def suspend(conn: libvirt.virConnect, name: str) -> None:
    """Stop a running domain's processors; its memory stays as it is. Safe to repeat."""
    domain = get(conn, name)
    with explained(f"The domain '{name}' can't be suspended."):
        if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
            domain.suspend()


def press_power(conn: libvirt.virConnect, name: str) -> None:
    """Press the power button (ACPI). The guest decides what to do; nothing happens if it is already off."""
    domain = get(conn, name)
    with explained(f"The power button of '{name}' can't be pressed."):
        if domain.isActive():
            domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)


def cut_power(conn: libvirt.virConnect, name: str) -> None:
    """Switch the domain off at once, as by its plug. Safe to repeat."""
    domain = get(conn, name)
    with explained(f"The power of '{name}' can't be cut."):
        if domain.isActive():
            domain.destroy()


def set_autostart(conn: libvirt.virConnect, name: str, *, wanted: bool) -> bool:
    """Set whether libvirt starts the domain when it starts with the host; returns whether that changed."""
    domain = get(conn, name)
    with explained(f"Whether '{name}' starts with the host can't be changed."):
        if bool(domain.autostart()) == wanted:
            return False
        domain.setAutostart(int(wanted))
        return True


@answering()
def memory_mib(conn: libvirt.virConnect, name: str) -> int:
    """The domain's memory, in MiB."""
    return int(get(conn, name).maxMemory()) >> 10


def resume(conn: libvirt.virConnect, name: str) -> None:
    """Resume the domain if it is paused."""
    domain = get(conn, name)
    with explained(f"The domain '{name}' can't be resumed.", evidence=f"/var/log/libvirt/qemu/{name}.log"):
        if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            domain.resume()


@answering()
def sizes(conn: libvirt.virConnect, name: str, *, now: bool = False) -> tuple[int, int]:
    """The domain's CPUs and its memory in MiB: those that its next start gives it.

    :param now: those that it has now, if it runs.
    :raises NotFoundError: there is no such domain.
    """
    flags = 0 if now else libvirt.VIR_DOMAIN_XML_INACTIVE
    root = etree.fromstring(get(conn, name).XMLDesc(flags).encode())
    return int(root.findtext("vcpu", "0")), int(root.findtext("memory", "0")) >> 10  # libvirt always answers in KiB


def resize(conn: libvirt.virConnect, name: str, cpus: int, memory_mib: int) -> None:
    """Change the domain's sizes from its next start on.

    :raises NotFoundError: there is no such domain.
    """
    domain = get(conn, name)
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE  # with the password of its screen
    root = etree.fromstring(domain.XMLDesc(flags).encode())
    for memory in root.findall("memory") + root.findall("currentMemory"):
        memory.set("unit", "MiB")
        memory.text = str(memory_mib)
    for cpu in root.findall("vcpu"):
        cpu.text = str(cpus)
        cpu.attrib.pop("current", None)
    with explained(f"The sizes of '{name}' can't be changed."):
        conn.defineXML(etree.tostring(root, encoding="unicode"))


@answering()
def carries(conn: libvirt.virConnect, name: str, tag: Tag) -> bool:
    """Whether the domain carries this tag, now and at later starts."""
    domain = find(conn, name)
    if domain is None:
        return False
    carried = [tags.read(domain.XMLDesc(flags)) for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE)]
    return all(one is not None and one.says_as(tag) for one in carried)


def set_tag(conn: libvirt.virConnect, name: str, tag: Tag) -> None:
    """Replace the domain's tag, now and for later starts; who made it stays.

    :raises NotFoundError: there is no such domain.
    """
    domain = get(conn, name)
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | (libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else 0)
    made = tags.read(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    attributes = tag.model_copy(update={"uid": made.uid if made is not None else None}).attributes
    # libvirt itself gives the element its namespace, and refuses one that already has it
    element = etree.tostring(etree.Element(tags.ELEMENT, attrib=attributes), encoding="unicode")
    with explained(f"The tag of '{name}' can't be changed."):
        domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, element, tags.KEY, tags.XMLNS, flags)


def remove(conn: libvirt.virConnect, name: str) -> bool:
    """Stop the domain at once and undefine it with its NVRAM; returns whether it existed."""
    domain = find(conn, name)
    if domain is None:
        return False
    with explained(f"The domain '{name}' can't be removed."):
        if domain.isActive():
            domain.destroy()
        flags = (
            libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
            | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
            | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
        )
        domain.undefineFlags(flags)
    return True


@answering()
def free_memory_mib(conn: libvirt.virConnect) -> int:
    """How much memory the hypervisor could give to guests now, in MiB: free memory and caches."""
    stats = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    return sum(int(stats.get(key, 0)) for key in ("free", "buffers", "cached")) // 1024


@contextmanager
def paused(conn: libvirt.virConnect, name: str) -> Iterator[None]:
    """Pause a running domain for the length of a with-block: QEMU then writes all buffered data to its disks' files."""
    domain = get(conn, name)
    running = bool(domain.isActive()) and domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
    with explained(f"The domain '{name}' can't be paused."):
        if running:
            domain.suspend()
        try:
            yield
        finally:
            if running:
                domain.resume()


def press_enter(conn: libvirt.virConnect, name: str) -> None:
    """Press the Enter key for a tenth of a second."""
    with explained(f"A key can't be sent to '{name}'."):
        get(conn, name).sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 100, [KEY_ENTER], 1, 0)


def reset(conn: libvirt.virConnect, name: str) -> None:
    """Press the reset button."""
    with explained(f"'{name}' can't be reset."):
        get(conn, name).reset(0)


@answering()
def vnc(conn: libvirt.virConnect, name: str) -> tuple[str, int]:
    """Where the domain's VNC server listens: address and port.

    :raises NotFoundError: it does not run.
    """
    root = etree.fromstring(get(conn, name).XMLDesc(0).encode())
    graphics = root.find("devices/graphics[@type='vnc']")
    port = -1 if graphics is None else int(graphics.get("port", "-1"))
    if graphics is None or port < 0:
        raise NotFoundError(f"The domain '{name}' has no screen.", why="It is not running.")
    return graphics.get("listen", "127.0.0.1"), port


def written_bytes(conn: libvirt.virConnect, name: str) -> int:
    """How much the guest has written to its disks since it was started: a sign of life."""
    domain = find(conn, name)
    if domain is None or not domain.isActive():
        return 0
    root = etree.fromstring(domain.XMLDesc(0).encode())
    targets = [str(t.get("dev")) for t in root.findall("devices/disk[@device='disk']/target")]
    try:
        return sum(int(domain.blockStats(target)[3]) for target in targets)
    except libvirt.libvirtError:
        return 0  # it was just stopped


def screenshot(conn: libvirt.virConnect, name: str) -> bytes:
    """The domain's screen as PNG."""
    return screen.converted(_screen(conn, name), "PNG")


def look(conn: libvirt.virConnect, name: str) -> bytes:
    """The domain's screen as a binary PPM (:mod:`winlab.adapters.vm.screen`); empty if it can't be taken."""
    try:
        return screen.converted(_screen(conn, name), "PPM")
    except WinlabError:
        return b""


def _screen(conn: libvirt.virConnect, name: str) -> bytes:
    domain = get(conn, name)
    stream = conn.newStream(0)
    with explained(f"The screen of '{name}' can't be taken.", cure="The node must be running: see 'winlab status'."):
        domain.screenshot(stream, 0, 0)
        parts: list[bytes] = []
        while chunk := stream.recv(1 << 16):
            parts.append(chunk)
        stream.finish()
    return b"".join(parts)
