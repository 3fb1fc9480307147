"""Plan a lab: take stock of what is available, then decide everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from winlab.adapters.vm import resources
from winlab.design.plan import addresses
from winlab.design.plan import make as plans
from winlab.design.plan.existing import ForeignCluster
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, HostError
from winlab.events import Progress
from winlab.site import Site
from winlab.supply.images import stock


@dataclass(frozen=True)
class Proposal:
    """A plan, the spec that it was made from, and what was available then: everything that is needed to carry it out.

    Two proposals may have plans with the same digest and still differ, such as in the media that they install from.
    """

    spec: Spec
    plan: Plan
    stock: Stock

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """The plan's nodes."""
        return self.plan.nodes


def hypervisors(site: Site, lab: str) -> tuple[HostStock, ...]:
    """What the hypervisors of a site have, the first one first, also of a lab.

    :raises HostError: it is not known which exist.
    """
    with site.hypervisors() as hosts:
        found = resources.of_all(hosts, lab)
    drained = site.drained()
    return tuple(one.model_copy(update={"drained": True}) if one.name in drained else one for one in found)


def make(
    spec: Spec,
    lab: str,
    facts: HostFacts,
    progress: Progress,
    *,
    existing: ForeignCluster | None = None,
    standing: Sequence[Plan] = (),
    again: Mapping[str, str] = MappingProxyType({}),
    site: Site | None = None,
) -> Proposal:
    """The plan of a lab.

    :param existing: an external cluster that the workers are to join.
    :param standing: the plans that it was made from, if it exists (:func:`winlab.design.plan.make.make`).
    :param again: nodes that are placed again, as :func:`winlab.design.plan.placement.place` takes them.
    :param site: whose hypervisors are asked what they have, if there are several; None: the plan makes no machines, and
        what the spec says about hypervisors does not count.
    :raises UsageError: this host can't provide what the spec asks for, or a file that it names can't be read.
    :raises HostError: the site's hypervisors lack something, or do not answer.
    """
    at_hand = stock.take(spec, progress)
    if site is not None and not standing and spec.network.floating_block is None:
        at_hand = at_hand.model_copy(update={"blocks": taken_blocks(site, lab, facts)})
    if site is not None and (spec.hypervisors > 1 or facts.tunnel_mtu or any(plan.hosts for plan in standing)):
        at_hand = at_hand.model_copy(update={"hypervisors": hypervisors(site, lab)})
    counting = spec.on_one_host() if site is None else spec
    return Proposal(spec, plans.make(counting, lab, facts, at_hand, existing, standing, again=again), at_hand)


def taken_blocks(site: Site, lab: str, facts: HostFacts) -> frozenset[int]:
    """The blocks of external addresses that other labs use; none if the host has no network yet."""
    try:
        with site.overlay() as northbound:
            return frozenset(addresses.blocks(facts.external_cidr, northbound.taken(lab)))
    except (AccessError, HostError):  # a plan needs no host; create reports what is missing
        return frozenset()
