"""Whose hypervisors are asked what they have, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import plans
import pytest
import sites

from winlab import Lab
from winlab.adapters.vm import resources
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design import spec
from winlab.design.plan import addresses
from winlab.design.plan.facts import HYPERVISOR, HostFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.model import Plan
from winlab.errors import HostError
from winlab.events import Quiet
from winlab.operations import planning, recorded

HAS = {"memory_mib": 32768, "free_mib": 16384, "cores": 8, "pool_free": 200 << 30}
TWO = tuple(HostStock(name=name, **HAS) for name in (HYPERVISOR, "hypervisor-2"))  # type: ignore[arg-type]
LINUX = ["workers.os=debian-13"]
PLURAL = plans.KVM.model_copy(update={"tunnel_mtu": 1442})


class Site(sites.FakeSite):
    """A site that remembers whether it was connected."""

    asked = 0

    @contextmanager
    def hypervisors(self) -> Iterator[Hypervisors]:
        self.asked += 1
        yield self.each


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(resources, "of_all", lambda *_: TWO)
    return Site()


def make(source: str, site: Site, facts: HostFacts = plans.KVM, standing: tuple[Plan, ...] = ()) -> Plan:
    return planning.make(spec.load(source, LINUX), "lab", facts, Quiet(), standing=standing, site=site).plan


def test_a_site_with_one_hypervisor_is_not_asked(site: Site) -> None:
    assert make("1-1-1", site).placed == {}
    assert site.asked == 0


def test_a_site_with_several_is(site: Site) -> None:
    assert make("1-1-1", site, PLURAL).hosts.keys() == {HYPERVISOR}
    over_two = make("1-1-2", site)
    assert over_two.hosts.keys() == {HYPERVISOR, "hypervisor-2"}
    assert make("1-1-2", site, standing=(over_two,)).digest == over_two.digest
    assert site.asked == 3


def test_a_new_lab_takes_a_block_that_no_other_has_and_keeps_it() -> None:
    first = make("1-1-1", Site())
    taken = {first.network.router_external, "10.77.0.1"}
    site = Site(overlay=SimpleNamespace(taken=lambda lab: taken if lab == "lab" else set()))
    second = make("1-1-1", site)
    (was,), (block,) = (addresses.blocks(one.site.external_cidr, one.external_addresses) for one in (first, second))
    assert block == was + 1
    taken.clear()
    assert make("1-1-1", site, standing=(second,)).digest == second.digest


def test_a_plan_that_makes_no_machines_is_of_one_host(site: Site) -> None:
    wanted = spec.load("1-3-3", [*LINUX, "workers.apart=true", "controllers.hypervisor=big"])
    made = planning.make(wanted, "lab", PLURAL, Quiet())
    assert (made.spec, made.plan.placed) == (wanted, {})
    assert made.plan == planning.make(spec.load("1-3-1", LINUX), "lab", PLURAL, Quiet()).plan


def test_neither_hypervisors_nor_the_lab_s_record_count_for_such_a_plan(site: Site) -> None:
    lab, wanted = Lab("lab", site), spec.load("1-1-2", LINUX)
    recorded.write(site.folder("lab"), first := lab.plan(wanted, facts=PLURAL))
    assert (set(first.plan.placed), site.asked) == ({"controller-1", "node-1"}, 1)
    made = lab.plan(spec.load("1-1-1", LINUX), facts=PLURAL, machines=False)
    assert (made.plan.placed, site.asked) == ({}, 1)


def test_more_hypervisors_than_the_site_has(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "of_all", lambda *_: TWO[:1])
    with pytest.raises(HostError, match="the site has 1: hypervisor-1") as caught:
        make("1-1-2", site)
    assert "'winlab hypervisor add NAME URI'" in caught.value.cure
