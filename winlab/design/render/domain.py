"""The libvirt domain of a node.

Sources: libvirt's domain format (validated against the schema of 9.0), and the settings that virt-manager gives to
Windows guests. The differences between systems, KVM and TCG, kernel and userspace datapath are decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from lxml import etree
from lxml.builder import E as X

from winlab import settings
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan, VolumePlan

# QEMU before 10 under TCG faults in cmpxchg16b when a guest has two CPUs. Windows refuses to boot without the
# instruction, so only guests that can do without it lose it.
FIXED_CX16 = 10
# QEMU's cache of translated code, at its maximum. In a smaller one a control plane's programs evict each other and are
# translated over and over; it takes memory only as it fills
TB_CACHE_MIB = {"controller": 2048, "worker": 1024, "machine": 1024}

# Device, target, bus and place in the boot order, by a volume's role. Windows' CDs are on SATA, which Windows Setup
# has a driver for. Linux's seed is a disk: Debian's cloud kernel has no AHCI, and cloud-init goes by the label
DRIVES = {
    "media": ("cdrom", "sdc", "sata", 2),
    "answer": ("cdrom", "sdd", "sata", None),
    "seed": ("disk", "vdb", "virtio", None),
}
STORE_DRIVE = "sdc"  # on virtio-scsi: the disk with containerd's store, on Linux nodes

HYPERV = ("relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "stimer", "frequencies", "tlbflush", "ipi")


def serial_log(lab: str, node: str) -> str:
    """The name of the volume that a node's serial port is logged to. In the pool, so that reading needs no root."""
    return f"{lab}.{node}.serial.log"


def domain_xml(
    plan: Plan,
    node: NodePlan,
    vnc_password: str,
    pool: Path = settings.POOL_PATH,
    names: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The domain of *node*, as libvirt's XML.

    :param pool: where the hypervisor has the storage pool.
    :param names: the names of volumes that are not named as planned, by their planned names.
    """
    kvm = plan.hypervisors[node.hypervisor].accelerator == "kvm"
    root = X.domain(
        X.name(node.domain),
        X.uuid(node.uuid),
        X.title(f"winlab {plan.lab}: {node.name}"),
        X.metadata(tags.element(plan, node)),
        X.memory(str(node.memory_mib), unit="MiB"),
        X.vcpu(str(node.cpus)),
        _os(node),
        _features(node, kvm=kvm),
        _cpu(plan, node, kvm=kvm),
        _clock(node, kvm=kvm),
        X.on_poweroff("destroy"),
        X.on_reboot("restart"),
        # of a machine with a panic device nothing is lost then, and Windows does not restart again and again
        X.on_crash("preserve" if node.system.tells_crash else "destroy"),
        X.pm(X("suspend-to-mem", enabled="no"), X("suspend-to-disk", enabled="no")),
        _devices(plan, node, vnc_password, pool, names, kvm=kvm),
        type="kvm" if kvm else "qemu",
    )
    text: str = etree.tostring(root, pretty_print=True, encoding="unicode")
    return text


def _os(node: NodePlan) -> etree._Element:
    os_element = X.os(X.type("hvm", arch="x86_64", machine="q35"))
    if node.firmware == "uefi":
        os_element.set("firmware", "efi")
        # virtio-win is signed by attestation only, which Secure Boot on a server may refuse
        features = (X.feature(enabled="no", name=name) for name in ("enrolled-keys", "secure-boot"))
        os_element.append(X.firmware(*features))
    return os_element


def _features(node: NodePlan, *, kvm: bool) -> etree._Element:
    features = X.features(X.acpi(), X.apic())
    if node.system.hyperv and kvm:  # QEMU has the enlightenments only with KVM
        hyperv = X.hyperv(mode="custom")
        for name in HYPERV:
            row = X(name, state="on")
            if name == "spinlocks":
                row.set("retries", "8191")
            hyperv.append(row)
        features.append(hyperv)
    features.append(X.vmport(state="off"))
    if not kvm:
        features.append(X.tcg(X("tb-cache", str(TB_CACHE_MIB[node.role]), unit="MiB")))
    return features


def _cpu(plan: Plan, node: NodePlan, *, kvm: bool) -> etree._Element:
    if kvm:
        return X.cpu(mode="host-passthrough", check="none")
    cpu = X.cpu(mode="maximum", check="none")
    for name in node.system.needless_cpu:
        cpu.append(X.feature(policy="disable", name=name))
    major = plan.hypervisors[node.hypervisor].emulator_version.split(".")[0]
    if not node.system.needs_cx16 and major.isdigit() and int(major) < FIXED_CX16:
        cpu.append(X.feature(policy="disable", name="cx16"))
    return cpu


def _clock(node: NodePlan, *, kvm: bool) -> etree._Element:
    clock = X.clock(
        X.timer(name="rtc", tickpolicy="catchup"),
        X.timer(name="pit", tickpolicy="delay"),
        X.timer(name="hpet", present="no"),
        # the answer file (specialize) makes Windows read the clock as UTC, whatever the host's time zone
        offset="utc",
    )
    if node.system.hyperv and kvm:
        clock.append(X.timer(name="hypervclock", present="yes"))
    return clock


def _devices(
    plan: Plan, node: NodePlan, vnc_password: str, pool: Path, names: Mapping[str, str], *, kvm: bool
) -> etree._Element:
    devices = X.devices()
    target, bus = {"virtio-blk": ("vda", "virtio"), "virtio-scsi": ("sda", "scsi"), "sata": ("sda", "sata")}[node.bus]
    drive, drive_bus = node.system.payload_drive
    if "scsi" in (drive_bus, bus):
        devices.append(X.controller(type="scsi", index="0", model="virtio-scsi"))
    devices.append(X.controller(type="usb", index="0", model="qemu-xhci"))

    def add(volume: VolumePlan, device: str, target: str, bus: str, boot: int | None = None) -> None:
        devices.append(_disk(volume, pool / names.get(volume.name, volume.name), device, target, bus, boot))

    add(node.volume("disk"), "disk", target, bus, boot=1)
    drives = [(volume, *DRIVES[volume.role]) for volume in node.volumes if volume.role in DRIVES]
    for row in drives:
        add(*row)
    if drive not in (at for _, _, at, _, _ in drives):  # empty until a CD is inserted
        devices.append(X.disk(X.target(dev=drive, bus=drive_bus), X.readonly(), type="file", device="cdrom"))
    log = pool / serial_log(plan.lab, node.name)
    devices.extend(
        [
            _interface(plan, node),
            X.serial(X.log(file=str(log), append="on"), X.target(port="0"), type="pty"),
            X.channel(X.target(type="virtio", name="org.qemu.guest_agent.0"), type="unix"),
            X.input(type="tablet", bus="usb"),
            X.graphics(
                X.listen(type="address", address="127.0.0.1"),
                type="vnc",
                port="-1",
                autoport="yes",
                listen="127.0.0.1",
                passwd=vnc_password,
            ),
            X.video(X.model(type="vga")),
            # with one, a guest could change the snapshot whose memory it shares. Without this line libvirt adds one
            X.memballoon(model="none"),
            X.rng(X.backend("/dev/urandom", model="random"), model="virtio"),
        ]
    )
    if node.system.tells_crash:
        # KVM alone has Hyper-V's crash registers, which Windows fills by itself, with the bugcheck's code. The other
        # device shows only that there was one, and only once virtio-win's driver for it is installed
        devices.append(X.panic(model="hyperv" if kvm else "isa"))
    return devices


def _disk(volume: VolumePlan, file: Path, device: str, target: str, bus: str, boot: int | None) -> etree._Element:
    driver = X.driver(name="qemu", type=volume.format)
    if volume.role == "disk":
        driver.set("discard", "unmap")
    disk = X.disk(
        driver,
        # by path: libvirt's AppArmor helper makes no rules for disks by pool and volume
        X.source(file=str(file)),
        X.target(dev=target, bus=bus),
        type="file",
        device=device,
    )
    if volume.role != "disk":
        disk.append(X.readonly())
    if boot is not None:
        disk.append(X.boot(order=str(boot)))
    return disk


def _interface(plan: Plan, node: NodePlan) -> etree._Element:
    interface = X.interface(
        X.mac(address=node.mac),
        X.source(bridge=settings.INTEGRATION_BRIDGE),
        X.virtualport(X.parameters(interfaceid=node.port), type="openvswitch"),
        X.model(type=node.nic),
        type="bridge",
    )
    if node.nic == "virtio" and plan.hypervisors[node.hypervisor].datapath == "netdev":
        # With these on, the userspace datapath loses every TCP connection that goes through NAT
        off = {"csum": "off", "tso4": "off", "tso6": "off", "ecn": "off", "ufo": "off"}
        interface.append(X.driver(X.host(gso="off", **off), X.guest(**off)))
    interface.append(X.mtu(size=str(plan.network.mtu)))
    return interface
