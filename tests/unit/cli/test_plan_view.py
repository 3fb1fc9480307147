"""What ``winlab plan`` shows."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import plans
import pytest
from distributions import Distribution, install_motd

from winlab.cli import plan_view, table
from winlab.design.plan.network_plan import AttachmentPlan
from winlab.design.plan.verdict import Missing, Room, Verdict
from winlab.errors import NotFoundError

NOTHING = Verdict(())


def test_add_ons_are_shown_with_their_settings(capsys: pytest.CaptureFixture[str]) -> None:
    plan_view.show(plans.make(plans.KVM, "1-1-1", "addons.metrics-server.resolution=20"), NOTHING)
    assert "metrics-server resolution=20" in capsys.readouterr().out
    plan_view.show(plans.make(plans.KVM, "1-1-1"), NOTHING)
    assert "add-on" not in capsys.readouterr().out


@pytest.mark.usefixtures("fresh_registry")
def test_machines_of_an_add_on_are_shown_with_its_name(
    capsys: pytest.CaptureFixture[str], distribution: partial[Distribution]
) -> None:
    install_motd(distribution)
    plan_view.show(plans.make(plans.KVM, "1-0-1", "addons.motd={text: hello, machines: 2}"), NOTHING)
    shown = capsys.readouterr().out
    assert "motd text=hello, loud=False, machines=2, system=debian-13, on_nodes=False; pool motd" in shown
    assert re.search(r"motd-2 +debian-13 +1 +1 GiB", shown)


def test_where_nodes_are_and_why_is_shown_if_there_was_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    plan_view.show(plan, NOTHING)
    assert "BECAUSE" not in capsys.readouterr().out
    placed = {"controller-1": "as recorded", "node-1": "pinned by workers.node.hypervisor"}
    hosts = {"hypervisor-1": plans.KVM.machine, "big": plans.TCG.machine}
    plan_view.show(plan.model_copy(update={"placed": placed, "hosts": hosts}), NOTHING)
    shown = capsys.readouterr().out
    assert re.search(r"controller-1 +hypervisor-1 +as recorded", shown)


@pytest.mark.parametrize(
    ("bridge", "says"), [("", "routed to 192.0.2.5/32"), ("br-1", "attached to br-1, 10.77.0.0/24")]
)
def test_an_attachment_is_shown(capsys: pytest.CaptureFixture[str], bridge: str, says: str) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    attachment = AttachmentPlan(networks=("192.0.2.5/32",), bridge=bridge)
    network = plan.network.model_copy(update={"attachment": attachment})
    plan_view.show(plan.model_copy(update={"network": network}), NOTHING)
    assert says in capsys.readouterr().out


FITS = Verdict((), "the cache", seconds=250.0, rooms=(Room("hypervisor-1", 6144, 17612, 40960, 51200),))


def test_a_plan_ends_with_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    first = (
        Missing("image debian-13", "download", 900 << 20, 300),
        Missing("golden image of windows-2022", "build", None, 0),
    )
    plan_view.show(plans.make(plans.KVM, "1-1-1"), replace(FITS, missing=first, seconds=3240.0, estimated=True))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("download", "build", "memory", "disk", "time"))] == [
        "download    image debian-13 (0.9 GiB)",
        "build       golden image of windows-2022",
        "memory      6 GiB needed, 17.2 GiB free",
        "disk        up to 40 GiB, 50 GiB free",
        "time        about 54 min (estimated)",
    ]
    assert lines[-1] == "✓ The lab fits."
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (replace(FITS, rooms=(Room("hypervisor-1", 6144, 3000, 0, 1),)), "✗ create would be refused now: there is not"),
        (replace(FITS, rooms=(Room("hypervisor-1", 1, 2, 3, 2),)), "! The lab fits, until its disks have grown"),
        (replace(FITS, rooms=()), "✓ The lab fits."),
        (
            Verdict((), refused=NotFoundError("No source.", cure="Get one.")),
            "✗ create would be refused: No source. Get",
        ),
        (Verdict((), unknown="libvirt does not answer."), "! Memory, disk and time are not known."),
    ],
)
def test_the_verdict_is_one_sentence(verdict: Verdict, says: str) -> None:
    assert plan_view.answer(verdict).startswith(says)


def test_details_are_shown_with_output_wide(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plans.make(plans.KVM, "1-1-1", "workers.os=windows-2022")
    plan_view.show(plan, NOTHING)
    brief = capsys.readouterr().out
    token = table.wide.set(True)
    try:
        plan_view.show(plan, NOTHING)
    finally:
        table.wide.reset(token)
    whole = capsys.readouterr().out
    for text in ("MTU 1500", plan.nodes[0].uuid, plan.nodes[0].mac, "SERVERDATACENTERCORE", "etcd"):
        assert text in whole
        assert text not in brief
