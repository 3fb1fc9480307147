"""Domain XML as values that can be compared: what winlab renders, and what libvirt has made of it. Pure.

Only what a plan decides is compared. libvirt adds addresses, controllers and much else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from lxml import etree
from lxml.builder import E as X

# Devices that winlab never gives to a machine; libvirt adds none of them by itself
FOREIGN = ("hostdev", "filesystem", "redirdev", "tpm", "shmem", "lease")


@dataclass(frozen=True)
class Disk:
    """A disk or a CD drive. ``file`` is empty for a drive without a CD."""

    device: str
    bus: str
    file: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name or 'empty'} ({self.device} on {self.bus})"


@dataclass(frozen=True)
class Nic:
    """A network interface. ``port`` is its logical port in OVN."""

    mac: str
    bridge: str
    port: str
    model: str

    def __str__(self) -> str:
        return f"{self.mac} ({self.model}) at port {self.port or 'none'} of {self.bridge or 'another network'}"


@dataclass(frozen=True)
class Hardware:
    """What a machine has. ``plain`` are single values by their names; ``disks`` go by target."""

    plain: dict[str, str]
    disks: dict[str, Disk]
    nics: tuple[Nic, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Other:
    """Something of a machine that is not as planned.

    :param part: what :func:`changed` needs to repair it; empty: it is left alone.
    """

    what: str
    expected: str
    actual: str
    part: str = ""


def read(xml: str) -> Hardware:
    """What a domain's XML says."""
    root = etree.fromstring(xml.encode())
    uefi = root.find("os").get("firmware") == "efi" or root.find("os/loader") is not None
    plain = {
        "memory": f"{_mib(root.find('memory'))} MiB",
        "CPUs": str(root.findtext("vcpu")).strip(),
        "firmware": "uefi" if uefi else "bios",
        "screen": ", ".join(f"{one.get('type')} on {one.get('listen')}" for one in root.findall("devices/graphics")),
    }
    disks = {_get(one, "target", "dev"): _disk(one) for one in root.findall("devices/disk")}
    nics = tuple(_nic(one) for one in root.findall("devices/interface"))
    others = tuple(
        f"{one.tag} {one.get('type', '')}".strip() for tag in FOREIGN for one in root.iterfind(f"devices/{tag}")
    )
    return Hardware(plain, disks, nics, others)


def compare(wanted: Hardware, actual: Hardware, *, optional: frozenset[str], ours: tuple[str, ...]) -> Iterator[Other]:
    """What is not as planned.

    :param optional: names of the files that only the first boot reads: they may be gone.
    :param ours: how the names of winlab's own CDs and disks in this lab begin.
    """
    for name, value in wanted.plain.items():
        if (is_now := actual.plain.get(name, "")) != value:
            yield Other(name, value, is_now or "none", name)
    for target, disk in wanted.disks.items():
        there = actual.disks.get(target)
        if there is None:
            if _name(disk) not in optional:
                yield Other(f"disk {target}", str(disk), "none", f"disk {target}")
        elif not _fits(disk, there, optional, ours):
            yield Other(f"disk {target}", str(disk), str(there))
    for target, there in actual.disks.items():
        if target not in wanted.disks and not (there.file and _name(there).startswith(ours)):
            yield Other(f"disk {target}", "none", str(there))
    yield from _compare_nics(wanted.nics, actual.nics)
    for other in actual.others:
        yield Other(other, "none", "there")


def _fits(wanted: Disk, there: Disk, optional: frozenset[str], ours: tuple[str, ...]) -> bool:
    """Whether a drive has what it should have; a CD drive may be empty, or have another of winlab's CDs."""
    if (wanted.device, wanted.bus) != (there.device, there.bus):
        return False
    if wanted.file == there.file or (not there.file and _name(wanted) in {"", *optional}):
        return True
    return there.device == "cdrom" and _name(there).startswith(ours)


def _compare_nics(wanted: tuple[Nic, ...], actual: tuple[Nic, ...]) -> Iterator[Other]:
    left = list(actual)
    for nic in wanted:
        same = next((one for one in left if nic.mac == one.mac), None) or next(
            (one for one in left if nic.port == one.port), None
        )
        if same is None:
            yield Other("network interface", str(nic), "none", "network interface")
            continue
        left.remove(same)
        if same != nic:
            yield Other("network interface", str(nic), str(same), "network interface")
    for one in left:
        yield Other(f"network interface {one.mac}", "none", str(one))


def changed(xml: str, wanted: str, parts: frozenset[str]) -> str:
    """A domain's XML with these parts as in the wanted one. Everything else stays, even what winlab did not make.

    :param xml: including its secrets.
    """
    root, model = etree.fromstring(xml.encode()), etree.fromstring(wanted.encode())
    for part in parts:
        if part == "memory":
            for name in ("memory", "currentMemory"):
                if (one := root.find(name)) is not None:
                    one.text, unit = model.findtext("memory"), model.find("memory").get("unit")
                    one.set("unit", unit)
        elif part == "CPUs":
            root.replace(root.find("vcpu"), model.find("vcpu"))
        elif part == "firmware":
            root.replace(root.find("os"), model.find("os"))
        elif part == "screen":
            _put(root, "graphics", model.findall("devices/graphics"))
        elif part == "network interface":
            _put_nic(root, model.find("devices/interface"))
        elif part.startswith("disk "):
            target = part.removeprefix("disk ")
            (disk,) = (one for one in model.findall("devices/disk") if _get(one, "target", "dev") == target)
            root.find("devices").append(disk)
    return str(etree.tostring(root, encoding="unicode"))


def rehosted(xml: str, wanted: str) -> str:
    """A domain's XML for another host: its processor, firmware and network card as rendered for that host.

    Its disks, its tags, its screen and its memory stay. The firmware's variables are made from the template again.

    :param xml: including its secrets.
    """
    root, model = etree.fromstring(xml.encode()), etree.fromstring(wanted.encode())
    root.set("type", model.get("type"))
    for tag in ("os", "features", "cpu", "clock"):
        root.replace(root.find(tag), model.find(tag))
    _put(root, "emulator", [])
    _put(root, "panic", model.findall("devices/panic"))
    _put_nic(root, model.find("devices/interface"))
    return str(etree.tostring(root, encoding="unicode"))


def with_disks(xml: str, *, add: str, target: str, without: frozenset[str]) -> str:
    """A rendered domain as it is after its first start.

    :param add: the file of a qcow2 disk on virtio-scsi that was added later, at *target*; empty: none.
    :param without: names of files that are gone; drives for CDs stay, empty.
    """
    root = etree.fromstring(xml.encode())
    devices = root.find("devices")
    for disk in devices.findall("disk"):
        if _name(_disk(disk)) in without:
            if disk.get("device") == "cdrom":
                disk.remove(disk.find("source"))
            else:
                devices.remove(disk)
    if add:
        driver = X.driver(name="qemu", type="qcow2", discard="unmap")
        devices.append(X.disk(driver, X.source(file=add), X.target(dev=target, bus="scsi"), type="file", device="disk"))
    return str(etree.tostring(root, encoding="unicode"))


def interface(xml: str, port: str) -> str | None:
    """The host's name for a running machine's interface with this logical port."""
    for one in etree.fromstring(xml.encode()).findall("devices/interface"):
        if _get(one, "virtualport/parameters", "interfaceid") == port:
            return _get(one, "target", "dev") or None
    return None


def _put(root: etree._Element, tag: str, wanted: list[etree._Element]) -> None:
    devices = root.find("devices")
    for one in devices.findall(tag):
        devices.remove(one)
    devices.extend(wanted)


def _put_nic(root: etree._Element, wanted: etree._Element) -> None:
    """Replace the machine's interface with the planned one, in the same slot of the bus."""
    devices, nic = root.find("devices"), _nic(wanted)
    there = devices.findall("interface")
    same = [one for one in there if _nic(one).mac == nic.mac] or [one for one in there if _nic(one).port == nic.port]
    if not same:
        devices.append(wanted)
        return
    if (address := same[0].find("address")) is not None:
        wanted.append(address)
    devices.replace(same[0], wanted)


def _disk(disk: etree._Element) -> Disk:
    source = disk.find("source")
    # a disk that is not a file (a device, a network disk) is named by whatever it has
    file = "" if source is None else str(source.get("file") or next(iter(source.attrib.values()), "unknown"))
    return Disk(disk.get("device", "disk"), _get(disk, "target", "bus"), file)


def _nic(nic: etree._Element) -> Nic:
    return Nic(
        _get(nic, "mac", "address"),
        _get(nic, "source", "bridge"),
        _get(nic, "virtualport/parameters", "interfaceid"),
        _get(nic, "model", "type"),
    )


def _name(disk: Disk) -> str:
    return PurePath(disk.file).name


def _get(element: etree._Element, path: str, attribute: str) -> str:
    child = element.find(path)
    return "" if child is None else str(child.get(attribute, ""))


def _mib(memory: etree._Element) -> int:
    """libvirt writes KiB; winlab MiB. Source: libvirt's domain format, "Memory Allocation"."""
    units = {"b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
    return int(memory.text) * units[memory.get("unit", "KiB")] >> 20
