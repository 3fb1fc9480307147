"""What the steps of one run share, without a hypervisor."""

from __future__ import annotations

from typing import Any, cast

from winlab.design.plan.model import Plan
from winlab.engine.durations import Durations
from winlab.lab_folder import LabState
from winlab.steps import Context


def context(made: Plan) -> Context:
    return Context(made, LabState(made.lab), cast(Any, None), cast(Any, None), None, 1.0, Durations("tcg"))
