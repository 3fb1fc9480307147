"""Volumes that winlab made for labs are known by their names, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Iterator

import plans
import pytest

from winlab.design.plan import lab_name, volume_names
from winlab.design.plan.model import Plan
from winlab.design.render.domain import serial_log
from winlab.errors import UsageError
from winlab.operations import load


def every(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        yield from (volume.name for volume in node.volumes if volume.role != "base")
        log = serial_log(plan.lab, node.name)
        yield from (log, f"{log}.0", f"{log}.12", f"{plan.lab}.{node.name}.push.iso", load._volume(plan.lab, node.os))
        for what in ("disk", "store"):
            yield from (f"{plan.lab}.{node.name}.{what}{number}.qcow2" for number in ("", "-2", "-10", "-123"))
    for builder in plan.builders:
        yield from every(builder)


@pytest.mark.parametrize("changes", [(), ("workers.golden=false",), ("workers.os=debian-13",)])
def test_all_volumes_of_a_lab_are_recognized(changes: tuple[str, ...]) -> None:
    plan = plans.make(plans.KVM, "1-1-1", *changes, lab="a-lab")
    labs = {plan.lab, *(builder.lab for builder in plan.builders)}
    assert {volume_names.lab_of(name) for name in every(plan)} == labs
    nodes = {volume_names.node_of(name, plan.lab) for name in every(plan)}
    assert nodes - {None} == {node.name for node in plan.nodes}
    assert {volume_names.node_of(name, "other") for name in every(plan)} == {None}


@pytest.mark.parametrize(
    "name",
    [
        *("lab.qcow2", "lab.my.backup.of.monday.raw", "lab.node-1.disk-clone.qcow2", "lab.node-1.disk.qcow2.bak"),
        *("lab.node-1.serial.log.old", "lab.node-1.serial.log.", "lab.node-1.disk.raw", "lab..disk.qcow2"),
        *("lab.a.b.disk.qcow2", ".node-1.disk.qcow2", "lab.node-1.disk.qcow2\n", "base-x.node-1.disk.qcow2"),
        *(f"lab.node-1.{what}.qcow2" for what in ("disk-1", "disk-0", "disk-02", "disk-", "store-2-3", "media-2")),
        *("base-debian-13-0123456789abcdef.qcow2", "LAB.node-1.disk.qcow2", "lab.load-windows.qcow2"),
    ],
)
def test_other_volumes_are_a_user_s(name: str) -> None:
    assert not volume_names.is_made(name)


@pytest.mark.parametrize("what", ["disk", "store"])
@pytest.mark.parametrize(("number", "suffix"), [(1, ""), (2, "-2"), (10, "-10"), (123, "-123")])
def test_generations_of_a_disk(what: str, number: int, suffix: str) -> None:
    planned, name = f"lab.node-1.{what}.qcow2", f"lab.node-1.{what}{suffix}.qcow2"
    assert volume_names.generation(name) == number
    assert volume_names.first(name) == planned
    for other in (planned, name, f"lab.node-1.{what}-7.qcow2"):
        assert volume_names.of_generation(other, number) == name


@pytest.mark.parametrize(
    "name",
    ["lab.node-1.disk-clone.qcow2", "lab.node-1.seed.iso", "base-x.node-1.disk.qcow2", "lab@a.node-1.disk.qcow2", ""],
)
def test_other_volumes_have_no_generations(name: str) -> None:
    assert (volume_names.generation(name), volume_names.first(name)) == (0, name)


WHAT = "disk.qcow2 store.qcow2 media.qcow2 export.qcow2 cd-sda.qcow2 seed.iso answer.iso push.iso memory state save xml"


@pytest.mark.parametrize("what", WHAT.split())
def test_volumes_of_a_snapshot_are_not_the_lab_s(what: str) -> None:
    name = f"a-lab@cni-2.node-1.{what}"
    assert volume_names.snapshot_of(name) == ("a-lab", "cni-2")
    assert not volume_names.is_made(name)


@pytest.mark.parametrize(
    "name",
    [
        *("lab.node-1.disk.qcow2", "lab@ready.node-1.disk-2.qcow2", "lab@ready.disk.qcow2", "lab@.node-1.memory"),
        *("@ready.node-1.memory", "lab@a@b.node-1.memory", "lab@ready.node-1.memory.bak", "base-x@ready.node-1.xml"),
    ],
)
def test_other_volumes_belong_to_no_snapshot(name: str) -> None:
    assert volume_names.snapshot_of(name) is None


def test_the_disks_of_an_imported_snapshot_belong_to_no_lab() -> None:
    lab = volume_names.imported("a-lab", "cni-2")
    assert volume_names.generation(f"{lab}.node-1.disk-2.qcow2") == 2
    with pytest.raises(UsageError):
        lab_name.check_lab_name(lab)
