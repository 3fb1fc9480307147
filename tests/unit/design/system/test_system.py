"""The facts about systems: found by name, and in accord with each other and with the nodes that have them."""

from __future__ import annotations

import plans
import pytest

from winlab.design import system
from winlab.design.system import LINUX, SYSTEMS, WINDOWS, System
from winlab.design.system.windows import HNS_MTU


@pytest.mark.parametrize("one", SYSTEMS, ids=lambda one: one.name)
def test_a_system_is_found_by_the_name_that_nodes_and_images_have(one: System) -> None:
    assert system.get(one.name) is one
    plan = plans.make(plans.KVM, "mixed")
    assert (
        {node.name for node in plan.nodes if node.os == one.name}
        == {node.name for node in plan.nodes if node.system is one}
        != set()
    )


def test_no_other_is_found() -> None:
    with pytest.raises(KeyError):
        system.get("none")


def test_programs_are_called_as_the_system_calls_them() -> None:
    assert (LINUX.program_file("kubelet"), WINDOWS.program_file("kubelet")) == ("kubelet", "kubelet.exe")


def test_a_taint_reads_as_kubectl_writes_it() -> None:
    assert str(WINDOWS.taint) == "os=windows:NoSchedule"
    assert str(system.Taint("dedicated", "NoExecute")) == "dedicated:NoExecute"


@pytest.mark.parametrize("one", SYSTEMS, ids=lambda one: one.name)
def test_networks_of_hns_have_the_mtu_of_hns(one: System) -> None:
    assert one.pod_mtu == (HNS_MTU if one.hns else None)


@pytest.mark.parametrize("one", SYSTEMS, ids=lambda one: one.name)
def test_every_system_has_one_usual_login_and_times(one: System) -> None:
    assert one.login not in one.spare_logins
    assert min(one.usual_boot, one.usual_payload, one.ready_silence) > 0


def test_one_system_can_be_the_control_plane() -> None:
    assert [one.name for one in SYSTEMS if one.control_plane] == ["linux"]
