"""What of a stranger's saved machine may reach libvirt: what winlab renders and libvirt adds, and nothing else."""

from __future__ import annotations

from pathlib import Path

import plans
import pytest

from winlab.design import spec
from winlab.design.plan import copied, make
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import copied_domain, domain, saved_domain
from winlab.errors import UsageError

POOL = Path("/pool")
# What libvirt adds to a definition, as its documentation shows it for machines of the type q35
ADDED = [
    ("<vcpu>", '<currentMemory unit="MiB">{memory}</currentMemory><vcpu placement="static">'),
    ("<os ", "<resource><partition>/machine</partition></resource><os "),
    (
        "<firmware>",
        '<loader readonly="yes" type="pflash">/usr/share/OVMF/OVMF_CODE_4M.fd</loader>'
        '<nvram template="/usr/share/OVMF/OVMF_VARS_4M.fd">/var/lib/libvirt/qemu/nvram/x_VARS.fd</nvram>'
        '<boot dev="hd"/><firmware>',
    ),
    (
        "<devices>",
        "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>"
        '<controller type="pci" index="1" model="pcie-root-port"><model name="pcie-root-port"/>'
        '<target chassis="1" port="0x10"/>'
        '<address type="pci" domain="0x0000" bus="0x00" slot="0x02" function="0x0" multifunction="on"/></controller>'
        '<input type="mouse" bus="ps2"/><input type="keyboard" bus="ps2"/><audio id="1" type="none"/>'
        '<watchdog model="itco" action="reset"/>',
    ),
    (
        "<target dev=",
        '<backingStore type="file"><format type="qcow2"/><source file="/pool/base.qcow2"/></backingStore><target dev=',
    ),
    (
        '<target port="0"/>\n    </serial>',
        '<target type="isa-serial" port="0"><model name="isa-serial"/></target></serial>'
        '<console type="pty"><log file="/pool/lab.node-1.serial.log" append="on"/><target type="serial" port="0"/>'
        "</console>",
    ),
    ("<video>\n      <model", '<video>\n      <model vram="16384" heads="1" primary="yes"'),
    ("<mac address", '<alias name="ua-net"/><mac address'),
]


def plan_of(source: str = "1-1-1", facts: str = "KVM") -> Plan:
    name, *changes = source.split()
    wanted = spec.load(name, changes)
    return make.make(wanted, "lab", getattr(plans, facts), plans.stock(wanted))


def saved(plan: Plan, node: NodePlan) -> str:
    """A machine's definition as libvirt has completed it."""
    xml = domain.domain_xml(plan, node, "it's /secret", POOL)
    for old, new in ADDED:
        xml = xml.replace(old, new.replace("{memory}", str(node.memory_mib)))
    return xml


def formats(xml: str) -> dict[str, str]:
    files = copied_domain.drives(xml)
    return {target: "qcow2" if file.endswith(".qcow2") else "raw" for target, file in files.items()}


@pytest.mark.parametrize("facts", ["KVM", "TCG"])
@pytest.mark.parametrize("source", ["1-1-1", "mixed", "beside", "1-1-1 workers.os=windows-rehearsal"])
def test_winlab_s_own_machines_are_taken_with_what_libvirt_adds(source: str, facts: str) -> None:
    plan = plan_of(source, facts)
    for node in plan.nodes:
        for xml in (domain.domain_xml(plan, node, "secret", POOL), saved(plan, node)):
            saved_domain.check(xml, node, formats(xml))


def test_a_copy_s_machine_is_taken_too() -> None:
    first = plan_of()
    copy = copied.plan_of(first, "two", 7)
    for old, node in zip(first.nodes, copy.nodes, strict=True):
        xml = saved(first, old)
        made = copied_domain.domain_xml(xml, copy, node, files={}, pool=POOL, vnc_password="x", uid=1000)
        saved_domain.check(copied_domain.with_memory(made, "two", "lab@x.node-1.memory"), node, formats(xml))


# What someone could change in it: the text that is there, and what it becomes
CHANGES = {
    "a device of the host": ("<devices>", '<devices><hostdev mode="subsystem" type="pci"/>'),
    "a folder of the host": ("<devices>", '<devices><filesystem type="mount"/>'),
    "a TPM": ("<devices>", '<devices><tpm model="tpm-crb"/>'),
    "shared memory": ("<devices>", '<devices><shmem name="x"/>'),
    "a smart card": ("<devices>", '<devices><smartcard mode="host"/>'),
    "a parallel port": ("<devices>", '<devices><parallel type="file"><source path="/etc/passwd"/></parallel>'),
    "options of QEMU": (
        "<devices>",
        '<commandline xmlns="http://libvirt.org/schemas/domain/qemu/1.0"><arg value="-x"/></commandline><devices>',
    ),
    "a label": ("<devices>", '<seclabel type="none"/><devices>'),
    "a kernel": ("<firmware>", "<kernel>/boot/vmlinuz</kernel><firmware>"),
    "a table of ACPI": ("<firmware>", '<acpi><table type="slic">/etc/shadow</table></acpi><firmware>'),
    "a program": ("/usr/bin/qemu-system-x86_64", "/tmp/qemu-system-x86_64"),
    "firmware elsewhere": ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/home/x/code.fd"),
    "firmware by another way": ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/../../etc/shadow"),
    "firmware that is written": ('<loader readonly="yes"', '<loader readonly="no"'),
    "firmware that may be written": ('<loader readonly="yes" ', "<loader "),
    "a template elsewhere": ("/usr/share/OVMF/OVMF_VARS_4M.fd", "/etc/shadow"),
    "variables in a source": ("</nvram>", '<source file="/etc/shadow"/></nvram>'),
    "variables twice": ("<nvram", "<nvram>/etc/shadow</nvram><nvram"),
    "a block device": ('<source file="/pool/lab.node-1.disk.qcow2"/>', '<source dev="/dev/sda"/>'),
    "a disk on the network": ('type="file" device="disk"', 'type="network" device="disk"'),
    "a lun": ('type="file" device="disk"', 'type="file" device="lun"'),
    "a disk with raw access": ('type="file" device="disk"', 'type="file" rawio="yes" device="disk"'),
    "a disk in another format": ('type="qcow2"', 'type="raw"'),
    "a CD in another format": ('type="raw"', 'type="qcow2"'),
    "one more disk": (
        "<devices>",
        '<devices><disk type="file" device="disk"><source file="/etc/shadow"/><target dev="sdz"/></disk>',
    ),
    "a disk with another one in it": ("<target dev=", '<mirror file="/etc/shadow"/><target dev='),
    "a disk with two files": ("<target dev=", '<source file="/etc/shadow"/><target dev='),
    "a disk with a label": (
        '<source file="/pool/lab.node-1.disk.qcow2"/>',
        '<source file="/pool/lab.node-1.disk.qcow2"><seclabel relabel="no"/></source>',
    ),
    "another network": ('<source bridge="br-int"/>', '<source bridge="br-ex"/>'),
    "a network of the host": ('<interface type="bridge">', '<interface type="direct">'),
    "no switch": ('type="openvswitch"', 'type="802.1Qbh"'),
    "a script": ("<mac address", '<script path="/tmp/x"/><mac address'),
    "another MAC": ('<mac address="', '<mac address="00:'),
    "two interfaces": (
        "<devices>",
        '<devices><interface type="bridge"><source bridge="br-int"/></interface>',
    ),
    "a serial port in a file": ('<serial type="pty">', '<serial type="file"><source path="/etc/passwd"/>'),
    "a serial port at a terminal": ('<serial type="pty">', '<serial type="pty"><source path="/dev/tty"/>'),
    "a socket": ('<channel type="unix">', '<channel type="unix"><source mode="connect" path="/run/x"/>'),
    "a channel over TCP": ('<channel type="unix">', '<channel type="tcp">'),
    "a screen for everyone": ('listen="127.0.0.1"', 'listen="0.0.0.0"'),
    "a screen that listens elsewhere": ('address="127.0.0.1"', 'address="0.0.0.0"'),
    "a screen on a socket": ('<graphics type="vnc"', '<graphics socket="/run/x" type="vnc"'),
    "another screen": ('<graphics type="vnc"', '<graphics type="spice"'),
    "a renderer": ("<video>", '<video><driver vgaconf="io"/>'),
    "sound of the host": ('<audio id="1" type="none"/>', '<audio id="1" type="oss"/>'),
    "other random numbers": (">/dev/urandom<", ">/dev/sda<"),
    "random numbers over TCP": ('<backend model="random">', '<backend model="egd" type="tcp">'),
    "a watchdog that writes memory": ('action="reset"', 'action="dump"'),
    "a crash that writes memory": ("<on_crash>", "<on_crash>coredump-"),
    "a group of the host": (">/machine<", ">/system.slice<"),
    "more memory": ('<memory unit="MiB">', '<memory unit="GiB">'),
    "memory that grows": ("<vcpu", '<maxMemory slots="1" unit="GiB">9</maxMemory><vcpu'),
    "more processors": ("</vcpu>", "0</vcpu>"),
    "a path where none is expected": ('<model name="pcie-root-port"/>', '<model name="/dev/vfio/1"/>'),
    "an option where none is expected": ('<clock offset="utc"', '<clock offset="utc,x=/y"'),
    "a foreign element where all are free": ("<features>", '<features><x xmlns="urn:other"/>'),
    "foreign metadata": ("<metadata>", '<metadata><x xmlns="urn:other"/>'),
    "two lists of devices": ("<devices>", "<devices/><devices>"),
    "no name": ("<name>winlab-lab.node-1</name>", ""),
    "a document type": ("<domain ", "<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/shadow'>]><domain "),
    "another encoding": ("<domain ", "<?xml version='1.0' encoding='utf-7'?><domain "),
    "no XML": ("</domain>", ""),
    "no domain": ("domain", "network"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_everything_else_is_refused(what: str) -> None:
    plan = plan_of()
    node = plan.node("node-1")
    xml = saved(plan, node)
    before = formats(xml)
    old, new = CHANGES[what]
    assert old in xml
    with pytest.raises(UsageError) as error:
        saved_domain.check(xml.replace(old, new), node, before)
    assert error.value.why
    assert error.value.cure


def test_drives_are_those_of_the_snapshot() -> None:
    plan = plan_of()
    node = plan.node("node-1")
    xml = saved(plan, node)
    for other in ({}, {**formats(xml), "sdz": "raw"}):
        with pytest.raises(UsageError, match="'node-1' is refused"):
            saved_domain.check(xml, node, other)


def test_libvirt_s_cookie_has_a_processor() -> None:
    for cookie in ("", "<cookie/>", '<cookie><cpu mode="custom"><model fallback="forbid">EPYC</model></cpu></cookie>'):
        saved_domain.check_cookie(cookie, "node-1")
    for cookie in (
        "<x/>",
        "<cookie><x/></cookie>",
        "<cookie",
        '<cookie><cpu x="/etc"/></cookie>',
        "<!DOCTYPE x><cookie/>",
    ):
        with pytest.raises(UsageError, match="'node-1' is refused"):
            saved_domain.check_cookie(cookie, "node-1")
