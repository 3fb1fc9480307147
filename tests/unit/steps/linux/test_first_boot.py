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


def test_its_payload_drive_is_free_from_the_start(controller: SystemSteps) -> None:
    assert controller.detach() == []
    assert [step.title for step in controller.first_boot()] == ["seed controller-1"]
