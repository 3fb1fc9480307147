"""The plan of a copy is the one that the origin's spec gives for a lab that keeps the origin's identity."""

from __future__ import annotations

import plans
import pytest

from winlab.design import spec
from winlab.design.plan import copied, make
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.design.plan.placement import Placement
from winlab.errors import ConflictError, UsageError

FAR = {"far": MachineFacts(chassis="far")}


@pytest.mark.parametrize("source", ["1-1-1", "3-2-1", "mixed", "1-0-1"])
@pytest.mark.parametrize("given", [(), ("network.reach=all",), ("network.reach=labs", "addons.metrics-server={}")])
def test_it_equals_the_plan_of_a_lab_that_keeps_the_origin_s_identity(source: str, given: tuple[str, ...]) -> None:
    wanted = spec.load(source, given)
    origin = make.make(wanted, "one", plans.KVM, plans.stock(wanted))
    own = copied.spec_of(wanted, 7)
    assert own.network.floating_block == 7
    assert wanted.network.floating_block is None
    expected = make.make(own, "two", plans.KVM, plans.stock(own), kept=origin.as_kept())
    copy = copied.plan_of(origin, "two", 7)
    assert copy == expected.model_copy(update={"builders": ()})
    assert copy.digest == expected.digest


def test_a_copy_of_a_copy_keeps_what_the_first_one_kept() -> None:
    wanted = spec.load("1-1-1", ())
    origin = make.make(wanted, "one", plans.KVM, plans.stock(wanted))
    second = copied.plan_of(copied.plan_of(origin, "two", 7), "three", 8)
    assert second == copied.plan_of(origin, "three", 8)


def test_its_name_must_be_one_for_labs() -> None:
    wanted = spec.load("1-1-1", ())
    origin = make.make(wanted, "one", plans.KVM, plans.stock(wanted))
    with pytest.raises(UsageError, match="can't be the name of a lab"):
        copied.plan_of(origin, "Two", 7)


def test_a_copy_that_is_put_back_keeps_its_name_and_addresses() -> None:
    wanted = spec.load("1-1-1", ())
    origin = make.make(wanted, "one", plans.KVM, plans.stock(wanted))
    copy = copied.plan_of(origin, "two", 7)
    larger = spec.load("1-2-1", ())
    grown = make.make(larger, "one", plans.KVM, plans.stock(larger))
    assert copied.plan_again(grown, copy) == copied.plan_of(grown, "two", 7)


def test_a_lab_is_not_put_back_to_another_one() -> None:
    one, two = (plans.make(plans.KVM, lab=name) for name in ("one", "two"))
    with pytest.raises(ConflictError, match="'two' is not a copy of the lab 'one'"):
        copied.plan_again(one, two)
    with pytest.raises(ConflictError, match="'three' is not a copy"):
        copied.plan_again(one, copied.plan_of(two, "three", 7))


def test_a_copy_says_which_of_its_nodes_are_elsewhere_and_keeps_them_there() -> None:
    wanted = spec.load("1-2-1", ())
    origin = make.make(wanted, "one", plans.KVM, plans.stock(wanted))
    copy = copied.plan_of(origin, "two", 7, {"node-2": Placement("far", "why")}, FAR)
    assert {node.name: node.hypervisor for node in copy.nodes} == {
        "controller-1": HYPERVISOR, "node-1": HYPERVISOR, "node-2": "far",
    }  # fmt: skip
    assert copy.placed == dict.fromkeys(["controller-1", "node-1"], "beside the disks of 'one'") | {"node-2": "why"}
    assert copy.hypervisors == {HYPERVISOR: origin.host.machine, **FAR}
    assert copied.plan_again(origin, copy) == copy


def test_its_spec_says_nothing_about_hypervisors_that_it_does_not_keep() -> None:
    pins = ["controllers.hypervisor=near", "workers.apart=true", "hypervisors=2"]
    wanted = spec.load("1-2-2", pins)
    plan = plans.make(plans.KVM, "1-2-1")
    copy = copied.plan_of(plan, "two", 7, {node.name: Placement("far", "why") for node in plan.nodes}, FAR)
    got = copied.placed_spec(wanted, copy)
    assert (got.controllers.hypervisor, [pool.apart for pool in got.workers], got.hypervisors) == (None, [False], 2)
    split = copied.plan_of(plan, "two", 7, {"node-2": Placement("far", "why")}, FAR)
    pinned = wanted.model_copy(update={"controllers": wanted.controllers.model_copy(update={"hypervisor": HYPERVISOR})})
    assert copied.placed_spec(pinned, split) is pinned
    assert copied.placed_spec(spec.load("1-2-1", ()), split).hypervisors == 2
