"""What the steps of a run share, even with a second run."""

from __future__ import annotations

import plans
import pytest
import runs
import sites
from clones import REHEARSAL

from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.plan.facts import TCG_SCALE
from winlab.design.plan.stock import Stock
from winlab.engine.durations import Durations
from winlab.engine.run import Outputs, Pace, Run
from winlab.lab_folder import LabFolder
from winlab.steps.states import PAYLOAD


def test_a_second_run_has_its_own_folder_and_shares_outputs() -> None:
    plan = plans.make(plans.TCG, "1-1-1", REHEARSAL)
    assert plan.builders
    run = runs.run(plan)
    own = run.beside(plan.builders[0])
    assert (own.lab, own.folder.path) == (plan.builders[0].lab, LabFolder(plan.builders[0].lab).path)
    run.outputs.put(PAYLOAD(of="windows"), "a CD")
    assert own.outputs.get(PAYLOAD(of="windows"), str) == "a CD"
    assert own.outputs.get(PAYLOAD(of="linux"), str) is None


def test_an_output_of_another_type_is_an_error() -> None:
    outputs = Outputs()
    outputs.put(PAYLOAD(of="linux"), "a CD")
    with pytest.raises(AssertionError):
        outputs.get(PAYLOAD(of="linux"), int)


def test_a_node_is_logged_in_to_by_the_lab_s_own_credentials() -> None:
    plan = plans.make(plans.TCG, "1-1-1", REHEARSAL)
    site = sites.FakeSite()
    run = Run.start(plan, Stock(), site, site.each)
    assert run.pace.scale == TCG_SCALE  # the plan's, whatever the site knows now
    node = run.node(plan.node("node-1"))
    assert isinstance(node, NodeScripts)
    assert node.scale == TCG_SCALE
    assert (node.tag.lab, node.tag.node, node.tag.address) == ("lab", "node-1", plan.node("node-1").address)


@pytest.mark.parametrize(("scale", "usual", "silence"), [(1.0, 10, 10), (3.0, 30, 15), (0.5, 5, 10)])
def test_silences_grow_more_slowly_than_times(scale: float, usual: float, silence: float) -> None:
    pace = Pace(scale, Durations("tcg"))
    assert (pace.usual(10), pace.silence(10)) == (usual, silence)
