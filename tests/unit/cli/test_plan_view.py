"""What ``winlab plan`` shows."""

from __future__ import annotations

import re
from functools import partial

import plans
import pytest
from distributions import Distribution, install_motd

from winlab.cli import plan_view


def test_add_ons_are_shown_with_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    plan_view.show(plans.make(plans.KVM, "1-1-1", "addons.metrics-server.resolution=20"))
    assert "metrics-server resolution=20" in capsys.readouterr().out
    plan_view.show(plans.make(plans.KVM, "1-1-1"))
    assert "add-on" not in capsys.readouterr().out


@pytest.mark.usefixtures("fresh_registry")
def test_machines_of_an_add_on_are_shown_with_its_name(
    capsys: pytest.CaptureFixture[str], distribution: partial[Distribution]
) -> None:
    install_motd(distribution)
    plan_view.show(plans.make(plans.KVM, "1-0-1", "addons.motd={text: hello, machines: 2}"))
    shown = capsys.readouterr().out
    assert "motd text=hello, loud=False, machines=2, system=debian-13, on_nodes=False; pool motd" in shown
    assert re.search(r"motd-2 +debian-13 +1 +1 GiB", shown)
    assert "In all: 4 CPUs, 5 GiB of memory" in shown


def test_where_nodes_are_and_why_is_shown_if_there_was_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    plan_view.show(plan)
    assert "BECAUSE" not in capsys.readouterr().out
    placed = {"controller-1": "as recorded", "node-1": "pinned by workers.node.hypervisor"}
    hosts = {"hypervisor-1": plans.KVM.machine, "big": plans.TCG.machine}
    plan_view.show(plan.model_copy(update={"placed": placed, "hosts": hosts}))
    shown = capsys.readouterr().out
    assert re.search(r"controller-1 +hypervisor-1 +as recorded", shown)
    assert re.search(r"big +tcg, OVS datapath netdev", shown)
