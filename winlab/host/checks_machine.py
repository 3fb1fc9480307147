"""Checks of the machine: programs, virtualisation, firmware, memory, disk, processors."""

from __future__ import annotations

import grp
import json
import os
from pathlib import Path

from winlab import settings
from winlab.host import facts, kvmprobe, packages
from winlab.host.check import SETUP, Host, Requirement, Status, named
from winlab.host.storage import KVM

FIRMWARE = (Path("/etc/qemu/firmware"), Path("/usr/share/qemu/firmware"))
PURPOSES = (
    (
        "programs for labs",
        packages.RUN,
        Status.FAIL,
        "Labs are virtual machines of QEMU on libvirt, Open vSwitch and OVN.",
    ),
    ("programs for Windows media", packages.MEDIA, Status.WARN, "Windows nodes are installed from Microsoft's ISO."),
    (
        "programs for building images",
        packages.BUILD,
        Status.WARN,
        "Only builds of Linux and stand-in images need them.",
    ),
)


@named("programs", "winlab relies on the distribution's programs.")
def programs(_host: Host) -> list[Requirement]:
    """The programs of the distribution, by what they are for."""
    requirements = []
    for name, wanted, bad, why in PURPOSES:
        absent = packages.missing(wanted)
        if absent:
            detail = f"missing: {', '.join(package.needs for package in absent)}"
            requirements.append(Requirement(name, bad, detail, why, packages.cure(absent)))
        else:
            requirements.append(Requirement(name, Status.OK, "all there", why))
    return requirements


@named("QEMU", "It runs the nodes.")
def emulator(host: Host) -> list[Requirement]:
    """QEMU's version, and whether it changed since setup."""
    version = facts.find_emulator_version()
    why = "It runs the nodes."
    if not version:
        cure = packages.cure([package for package in packages.RUN if package.needs == "qemu-system-x86_64"])
        return [Requirement("QEMU", Status.FAIL, "not installed, or its version can't be read", why, cure)]
    if host.facts.recorded and host.facts.emulator_version != version:
        detail = f"{version}; setup found {host.facts.emulator_version or 'none'}"
        return [Requirement("QEMU", Status.WARN, detail, "Setup tried KVM with the other version.", SETUP)]
    return [Requirement("QEMU", Status.OK, version, why)]


def judge_kvm(works: bool | None, why_not: str, recorded: str | None) -> Requirement:
    """The result for KVM: *works* is None if it could not be tried, *recorded* is what setup found."""
    why = "Without it every instruction of a guest is emulated: ten to twenty times slower."
    if works:
        return Requirement("KVM", Status.OK, "a guest ran under it", why)
    if works is None:
        if recorded == "kvm":
            return Requirement("KVM", Status.OK, "worked when 'winlab host setup' tried it", why)
        if recorded == "tcg":
            detail = "did not work when 'winlab host setup' tried it; nodes are emulated"
            return Requirement("KVM", Status.WARN, detail, why, _KVM_CURE)
        return Requirement("KVM", Status.WARN, "not tried: you have no permission to open /dev/kvm", why, SETUP)
    if recorded == "kvm":
        return Requirement("KVM", Status.FAIL, f"worked at setup, but no longer does. {why_not}", why, SETUP)
    return Requirement("KVM", Status.WARN, f"does not work; nodes are emulated. {why_not}", why, _KVM_CURE)


_KVM_CURE = (
    "Switch virtualisation on in the firmware (VT-x, AMD-V); in a virtual machine, switch nested virtualisation on in "
    "its hypervisor. Then run 'sudo winlab host setup' again. Labs also work without it, slowly."
)


@named("KVM", "Without it nodes are emulated.")
def kvm(host: Host) -> list[Requirement]:
    """Whether KVM works, by running a guest under it."""
    recorded = host.facts.accelerator if host.facts.recorded else None
    if KVM.exists() and not os.access(KVM, os.R_OK | os.W_OK):
        return [judge_kvm(None, "", recorded)]
    probe = kvmprobe.probe_kvm()
    return [judge_kvm(probe.works, probe.why, recorded)]


def judge_kvm_mode(mode: int, group: str) -> Requirement:
    """The result for /dev/kvm's permission bits and group."""
    detail = f"group {group}, mode {mode & 0o777:04o}"
    why = "libvirt's QEMU runs in group kvm. Without access starting any guest takes a minute, even without KVM."
    if mode & 0o006 == 0o006 or (group == "kvm" and mode & 0o060 == 0o060):
        return Requirement("/dev/kvm", Status.OK, detail, why)
    return Requirement("/dev/kvm", Status.FAIL, f"the group kvm can't open it ({detail})", why, SETUP)


@named("/dev/kvm", "libvirt's QEMU must be able to open it.")
def kvm_device(_host: Host) -> list[Requirement]:
    """Whether libvirt's QEMU may open /dev/kvm."""
    path = KVM
    if not path.exists():
        return []  # the check of KVM reports this
    was = path.stat()
    try:
        group = grp.getgrgid(was.st_gid).gr_name
    except KeyError:
        group = str(was.st_gid)
    return [judge_kvm_mode(was.st_mode, group)]


@named("nested virtualisation", "Guests that run virtual machines need it.")
def nested(host: Host) -> list[Requirement]:
    """Whether guests may run virtual machines themselves. Labs don't need it."""
    why = "Only needed for virtual machines inside nodes: Hyper-V, isolated Windows containers."
    detail = "on" if facts.find_nested() else "off"
    if not KVM.exists() or (host.facts.recorded and host.facts.accelerator == "tcg"):
        detail = "needs KVM, which does not work here"
    return [Requirement("nested virtualisation", Status.OK, detail, why)]


def firmware_files(text: str) -> list[str]:
    """The files that a firmware descriptor maps, if it is UEFI for x86-64; otherwise none.

    The format is QEMU's docs/interop/firmware.json; libvirt itself chooses among these.
    """
    descriptor = json.loads(text)
    if "uefi" not in descriptor.get("interface-types", []):
        return []
    if not any(target.get("architecture") == "x86_64" for target in descriptor.get("targets", [])):
        return []
    mapping = descriptor.get("mapping", {})
    parts = [mapping.get("executable"), mapping.get("nvram-template")]
    return [part["filename"] for part in parts if part] or [mapping["filename"]]


@named("UEFI firmware", "Nodes boot with UEFI.")
def firmware(_host: Host) -> list[Requirement]:
    """Whether libvirt can choose a UEFI firmware."""
    usable = []
    for path in (path for folder in FIRMWARE if folder.is_dir() for path in sorted(folder.glob("*.json"))):
        files = firmware_files(path.read_text(encoding="utf-8"))
        if files and all(Path(name).exists() for name in files):
            usable.append(path.name)
    why = "Windows nodes boot with UEFI; libvirt chooses the firmware from descriptors."
    if usable:
        return [Requirement("UEFI firmware", Status.OK, ", ".join(usable), why)]
    cure = packages.cure([package for package in packages.RUN if package.debian == "ovmf"])
    return [Requirement("UEFI firmware", Status.FAIL, "no descriptor of a UEFI firmware for x86-64", why, cure)]


@named("/dev/net/tun", "Guests' network cards are tap devices.")
def tun(_host: Host) -> list[Requirement]:
    """Whether the kernel supports tap devices."""
    why = "Guests' network cards are tap devices."
    if Path("/dev/net/tun").exists():
        return [Requirement("/dev/net/tun", Status.OK, "there", why)]
    return [Requirement("/dev/net/tun", Status.FAIL, "missing", why, "Load the kernel module: 'sudo modprobe tun'.")]


def judge_memory(available_mib: int, needed_mib: int) -> Requirement:
    """The result for memory: *available_mib* is what the kernel could provide without swapping."""
    why = "When memory runs out, the kernel kills a guest without warning."
    if not needed_mib:
        return Requirement("memory", Status.OK, f"{available_mib} MiB available", why)
    detail = f"{needed_mib} MiB needed, {available_mib} MiB available"
    cure = "Stop other labs or programs, or choose a smaller spec."
    if needed_mib > available_mib:
        return Requirement("memory", Status.FAIL, detail, why, cure)
    if needed_mib > available_mib * 0.9:
        return Requirement("memory", Status.WARN, f"{detail}: tight", why, cure)
    return Requirement("memory", Status.OK, detail, why)


def judge_disk(free_gib: float, needed_gib: int) -> Requirement:
    """The result for disk space: disks grow as they are written, so overcommitment is allowed."""
    why = "Disks of nodes grow as they are written; a full file system pauses the guests."
    detail = f"{free_gib:.0f} GiB free" if not needed_gib else f"up to {needed_gib} GiB needed, {free_gib:.0f} GiB free"
    cure = f"Free space on the file system of '{settings.POOL_PATH}'."
    if free_gib < 5 or (needed_gib and free_gib < needed_gib * 0.25):
        return Requirement("disk", Status.FAIL, detail, why, cure)
    if free_gib < needed_gib:
        return Requirement("disk", Status.WARN, f"{detail}; enough only if the disks stay small", why, cure)
    return Requirement("disk", Status.OK, detail, why)


def judge_processors(cores: int, needed: int) -> Requirement:
    """The result for processors: they may be shared, at the cost of speed."""
    why = "With fewer cores than virtual processors, nodes wait for each other."
    if not needed:
        return Requirement("processors", Status.OK, f"{cores} cores", why)
    detail = f"{needed} virtual processors on {cores} cores"
    if needed > cores:
        return Requirement(
            "processors", Status.WARN, f"{detail}: slower", why, "Choose a smaller spec, or accept a slower lab."
        )
    return Requirement("processors", Status.OK, detail, why)


@named("memory, disk, processors", "A lab must fit.")
def capacity(host: Host) -> list[Requirement]:
    """Whether the machine is large enough for the plan, or, without one, how large it is."""
    needs = host.needs
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable"))
    place = settings.POOL_PATH
    while not place.exists():
        place = place.parent
    space = os.statvfs(place)
    free = space.f_bavail * space.f_frsize / 2**30
    return [
        judge_memory(available, needs.memory_mib if needs else 0),
        judge_disk(free, needs.disk_gib if needs else 0),
        judge_processors(len(os.sched_getaffinity(0)), needs.vcpus if needs else 0),
    ]


CHECKS = (programs, emulator, kvm, kvm_device, nested, firmware, tun, capacity)
