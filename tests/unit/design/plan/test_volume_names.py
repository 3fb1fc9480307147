"""Volumes that winlab made for labs are known by their names, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Iterator

import plans
import pytest

from winlab.design.plan import volume_names
from winlab.design.plan.model import Plan
from winlab.design.render.domain import serial_log
from winlab.operations import load


def every(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        yield from (volume.name for volume in node.volumes if volume.role != "base")
        log = serial_log(plan.lab, node.name)
        yield from (log, f"{log}.0", f"{log}.12", f"{plan.lab}.{node.name}.push.iso", load._volume(plan.lab, node.os))
        yield f"{plan.lab}.{node.name}.store.qcow2"
    for builder in plan.builders:
        yield from every(builder)


@pytest.mark.parametrize("changes", [(), ("workers.golden=false",), ("workers.os=debian-13",)])
def test_all_volumes_of_a_lab_are_recognized(changes: tuple[str, ...]) -> None:
    plan = plans.make(plans.KVM, "1-1-1", *changes, lab="a-lab")
    labs = {plan.lab, *(builder.lab for builder in plan.builders)}
    assert {volume_names.lab_of(name) for name in every(plan)} == labs


@pytest.mark.parametrize(
    "name",
    [
        *("lab.qcow2", "lab.my.backup.of.monday.raw", "lab.node-1.disk-clone.qcow2", "lab.node-1.disk.qcow2.bak"),
        *("lab.node-1.serial.log.old", "lab.node-1.serial.log.", "lab.node-1.disk.raw", "lab..disk.qcow2"),
        *("lab.a.b.disk.qcow2", ".node-1.disk.qcow2", "lab.node-1.disk.qcow2\n", "base-x.node-1.disk.qcow2"),
        *("base-debian-13-0123456789abcdef.qcow2", "LAB.node-1.disk.qcow2", "lab.load-windows.qcow2"),
    ],
)
def test_other_volumes_are_a_user_s(name: str) -> None:
    assert not volume_names.is_made(name)
