"""A Linux node's first boot: cloud-init's own result decides whether it succeeded."""

from __future__ import annotations

import json

import plans
import pytest
import runs

from winlab.errors import GuestError
from winlab.steps import systems
from winlab.steps.interface import SystemSteps


@pytest.fixture
def controller() -> SystemSteps:
    plan = plans.make(plans.TCG, "1-0-1")
    return systems.of(runs.run(plan), plan.node("controller-1"))


def test_errors_of_cloud_init_are_reported(controller: SystemSteps) -> None:
    with pytest.raises(GuestError, match="cloud-init on 'controller-1' reports errors") as caught:
        controller.check_first_boot(json.dumps({"v1": {"datasource": "DataSourceNoCloud", "errors": ["a", "b"]}}))
    assert caught.value.why == "a; b"
    assert caught.value.evidence == "winlab exec controller-1 -- sudo cat /var/log/cloud-init.log"


@pytest.mark.parametrize("result", ["", "{}", '{"v1": {"errors": []}}'])
def test_a_result_without_errors_is_accepted(controller: SystemSteps, result: str) -> None:
    controller.check_first_boot(result)


@pytest.mark.parametrize(
    ("phases", "cut_off"),
    [
        (["cloud-init", "ready"], False),
        (["cloud-init", "cloud-init", "ready"], True),
        (["cloud-init", "cloud-init"], False),  # it may still end well
        (["cloud-init", "ready", "cloud-init"], False),  # a restart
        ([], False),
    ],
)
def test_its_phases_show_a_first_boot_that_was_cut_off(
    controller: SystemSteps, phases: list[str], cut_off: bool
) -> None:
    assert controller.was_cut_off(phases) is cut_off


def test_its_payload_drive_is_free_from_the_start(controller: SystemSteps) -> None:
    assert controller.detach() == []
    assert [step.title for step in controller.first_boot()] == ["seed controller-1"]
