"""``winlab doctor``: what this host can do for labs, what it can't, and the cure for each."""

from __future__ import annotations

from winlab.design.plan.facts import HostFacts
from winlab.errors import UsageError
from winlab.host import checks_machine, checks_services
from winlab.host.check import Host, Needs, Requirement, Status
from winlab.host.facts import read_facts

__all__ = ["Needs", "Requirement", "Status", "diagnose"]


def diagnose(needs: Needs | None = None) -> list[Requirement]:
    """Check everything that labs need on this host. Raises nothing; changes nothing. Takes a few seconds.

    :param needs: what a plan needs; None: only report how much there is.
    """
    requirements = []
    try:
        facts = read_facts()
    except UsageError as error:
        requirements.append(Requirement("host facts", Status.FAIL, error.what, error.why, error.cure))
        facts = HostFacts()
    host = Host(facts, needs)
    for check in (*checks_machine.CHECKS, *checks_services.CHECKS):
        requirements += check(host)
    return requirements
