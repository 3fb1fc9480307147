"""What every distribution says about itself: in accord with systems, with what is rendered, and with its steps."""

from __future__ import annotations

import plans
import pytest

from winlab.design.catalog import distributions
from winlab.design.distribution.known import DEFAULT, DISTRIBUTIONS
from winlab.design.distribution.model import Distribution
from winlab.design.plan import required
from winlab.design.render.linux import LinuxFiles
from winlab.design.system import SYSTEMS, System
from winlab.steps.distribution import known as steps

each = pytest.mark.parametrize("one", DISTRIBUTIONS, ids=lambda one: one.name)


def test_labs_have_the_default() -> None:
    assert DEFAULT.name == distributions.DEFAULT
    assert plans.make(plans.KVM, "1-1-1").cluster.distribution is DEFAULT


def test_each_has_steps_and_no_two_have_one_name() -> None:
    assert [one.name for one in DISTRIBUTIONS] == list(steps.STEPS)


@each
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_nodes_have_the_essentials(one: Distribution, system: System) -> None:
    programs, images = dict(one.programs(system)), dict(one.images(system))
    assert {*one.own_programs, "kubelet", "containerd", "crictl"} <= set(programs)
    assert "pause" in images
    assert len(programs) == len(one.programs(system))
    assert len(images) == len(one.images(system))
    assert system.control_plane is ({*one.control_plane, *one.one_for_all} <= set(images))


def test_a_controller_has_the_files_of_its_distribution() -> None:
    plan = plans.make(plans.KVM, "1-0-1")
    files = LinuxFiles(plan, plan.linux_nodes()[0]).prepare().files
    assert set(DEFAULT.own_files) <= files.keys()


def test_workers_do_not_get_the_images_of_the_control_plane() -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    controller, worker = (set(required.node_images(plan, controller=one)) for one in (True, False))
    named = {name.split(":")[0].rpartition("/")[2] for name in controller - worker}
    assert worker < controller
    assert named == set(DEFAULT.control_plane)
