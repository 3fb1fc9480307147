"""What inspections report of machines."""

from __future__ import annotations

import pytest
from standing import Standing, only, reported

from winlab.events import Quiet
from winlab.steps import paused
from winlab.steps.states import (
    STARTED,
)

DISK = "lab.controller-1.disk.qcow2"
THIRD = "lab.controller-1.disk-3.qcow2"
NODE_DOMAIN = "winlab-lab.controller-1"


@pytest.mark.parametrize(("state", "action"), [("paused", "resumed"), ("off", "started"), ("crashed", "started")])
def test_a_machine_that_does_not_run(lab: Standing, state: str, action: str) -> None:
    lab.states["winlab-lab.node-1"] = state
    finding = only(lab.findings())
    assert reported([finding.drift]) == [("node-1", "state", "running", state, True)]
    assert finding.drift.action == action
    assert finding.steps == (STARTED,)


def test_an_interrupted_first_boot_is_reported_and_left_alone(lab: Standing) -> None:
    """Only create gives a machine a new disk."""
    domain = "winlab-lab.node-1"
    lab.states[domain] = "off"
    lab.booting.add(domain)
    lab.pool.add("lab.node-1.serial.log", content=b"winlab: phase=windowsPE\r\n")
    drift = only(lab.findings()).drift
    assert not drift.repairable
    assert "Run the lab's create command again" in drift.action


def test_a_machine_whose_disk_failed_is_left_paused(lab: Standing) -> None:
    lab.states["winlab-lab.node-1"], lab.disk_trouble = "paused", "failed"
    lab.pool.free = lambda: paused.ROOM  # type: ignore[attr-defined]
    drift = only(lab.findings()).drift
    assert not drift.repairable
    assert "virsh resume winlab-lab.node-1" in drift.action


def test_a_machine_that_was_undefined_gets_its_disk_back(lab: Standing) -> None:
    """create would make a new disk for it."""
    before = lab.xml.pop("winlab-lab.controller-1")
    lab.states["winlab-lab.controller-1"] = "gone"
    finding = only(lab.findings())
    assert finding.drift.actual == "gone"
    assert finding.repair is not None
    finding.repair(Quiet())
    lab.states["winlab-lab.controller-1"] = "running"
    assert DISK in before
    assert DISK in lab.xml["winlab-lab.controller-1"]
    assert lab.drifts() == []


NODE = "controller-1"
BY_HAND = [
    ("<vcpu>2</vcpu>", "<vcpu>8</vcpu>", "CPUs"),
    ('<memory unit="MiB">3072</memory>', '<memory unit="KiB">1048576</memory>', "memory"),
    (' firmware="efi"', "", "firmware"),
    ('listen="127.0.0.1"', 'listen="0.0.0.0"', "screen"),
    ("<mac address=\"", "<mac address=\"52:54:00:00:00:01\" was=\"", "network interface"),
    ("interfaceid=\"", "interfaceid=\"another\" was=\"", "network interface"),
    ('<source bridge="br-int"/>', '<source bridge="virbr0"/>', "network interface"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "what"), BY_HAND)
def test_hardware_changed_manually_is_defined_again(lab: Standing, old: str, new: str, what: str) -> None:
    planned = lab.xml[f"winlab-lab.{NODE}"]
    lab.change(NODE, old, new)
    finding = only(lab.findings())
    assert (finding.drift.node, finding.drift.what, finding.drift.repairable) == (NODE, what, True)
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.drifts() == []
    lab.xml[f"winlab-lab.{NODE}"], lab.live[f"winlab-lab.{NODE}"] = planned, planned.replace(old, new)
    drift = only(lab.findings()).drift  # it only runs so: it is as planned when it is started again
    assert (drift.what, drift.repairable) == (f"{what} while it runs", False)
    assert f"winlab restart {NODE}" in drift.action


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        (
            '<disk type="file" device="disk"><source file="/pool/other.img"/><target dev="vdz" bus="virtio"/></disk>',
            "disk vdz",
        ),
        (
            '<disk type="block" device="disk"><source dev="/dev/sdb"/><target dev="vdz" bus="virtio"/></disk>',
            "disk vdz",
        ),
        (
            '<interface type="network"><mac address="52:54:00:00:00:09"/><source network="default"/></interface>',
            "network interface 52:54:00:00:00:09",
        ),
        ('<hostdev mode="subsystem" type="usb"/>', "hostdev usb"),
        ('<filesystem type="mount"/>', "filesystem mount"),
    ],
)
def test_unknown_devices_are_reported_and_kept(lab: Standing, xml: str, what: str) -> None:
    lab.change(NODE, "</devices>", f"{xml}</devices>", live=True)
    finding = only(lab.findings())
    assert reported([finding.drift]) == [(NODE, what, "none", finding.drift.actual, False)]
    assert finding.repair is None
    lab.change(NODE, "<vcpu>2</vcpu>", "<vcpu>8</vcpu>")
    cpus = next(one for one in lab.findings() if one.drift.what == "CPUs")
    assert cpus.repair is not None
    cpus.repair(Quiet())
    assert [one.what for one in lab.drifts()] == [what]


def test_another_file_in_the_place_of_a_disk_is_left_alone(lab: Standing) -> None:
    """A snapshot: later writes are in the other file."""
    lab.pool.add("lab.controller-1.disk.snapshot", backing=lab.plan.node(NODE).volume("base").name)
    lab.change(NODE, DISK, "lab.controller-1.disk.snapshot", live=True)
    drift = only(lab.findings()).drift
    assert (drift.what, drift.repairable) == ("disk vda", False)
    assert "snapshot" in drift.actual


def test_a_detached_disk_is_attached_again(lab: Standing) -> None:
    """Also the one with containerd's store, which the machine got after its first start."""
    store = f"lab.{NODE}.store.qcow2"
    lab.pool.add(store, backing=lab.plan.node(NODE).volume("base").name)
    assert reported(lab.drifts())[0][1:4] == ("disk sdc", f"{store} (disk on scsi)", "none")
    finding = lab.findings()[0]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert [one.what for one in lab.drifts()] == ["disk sdc while it runs"]


def on_later_generations(lab: Standing) -> None:
    """The node's disk is the third one, over two frozen ones; its store is the second, made beside a frozen one."""
    base = lab.plan.node(NODE).volume("base").name
    size = lab.plan.node(NODE).disk_mib
    lab.pool.add("lab.controller-1.disk-2.qcow2", backing=DISK, size=size)
    lab.pool.add(THIRD, backing="lab.controller-1.disk-2.qcow2", size=size)
    lab.pool.add("lab.controller-1.store.qcow2", backing=base)
    lab.pool.add("lab@ready.controller-1.store.qcow2", backing="lab.controller-1.store.qcow2")
    lab.pool.add("lab.controller-1.store-2.qcow2", backing=base)
    lab.change(NODE, DISK, THIRD, live=True)


def test_disks_of_later_generations_are_as_planned(lab: Standing) -> None:
    on_later_generations(lab)
    assert reported(lab.drifts())[0][1:4] == ("disk sdc", "lab.controller-1.store-2.qcow2 (disk on scsi)", "none")
    finding = lab.findings()[0]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert [one.what for one in lab.drifts()] == ["disk sdc while it runs"]
    lab.live[NODE_DOMAIN] = lab.xml[NODE_DOMAIN]
    assert lab.drifts() == []
    lab.xml.pop(NODE_DOMAIN)
    lab.states[NODE_DOMAIN] = "gone"
    finding = only(lab.findings())
    assert finding.repair is not None
    finding.repair(Quiet())
    assert f'{THIRD}"' in lab.xml[NODE_DOMAIN]


def test_a_frozen_store_of_an_earlier_lab_is_not_attached(lab: Standing) -> None:
    lab.pool.add("lab.node-1.store.qcow2", backing=lab.plan.node(NODE).volume("base").name)
    lab.pool.add("lab@ready.node-1.store.qcow2", backing="lab.node-1.store.qcow2")
    assert lab.drifts() == []


@pytest.mark.parametrize("lost", [DISK, THIRD])
def test_a_lost_generation_is_reported(lab: Standing, lost: str) -> None:
    on_later_generations(lab)
    lab.pool.volumes.pop(lost)
    drifts = [one for one in lab.drifts() if one.area == "volume"]
    assert reported(drifts) == [(NODE, lost, "there", "gone", False)]
    assert "destroy the lab" in drifts[0].action
