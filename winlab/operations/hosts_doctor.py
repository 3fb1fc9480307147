"""Compares the hosts of a site for ``winlab doctor``: each is asked by one call, all at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from winlab.adapters.registered import Registered
from winlab.adapters.remote import LIMIT, Remote
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import WinlabError
from winlab.host import side_by_side
from winlab.host.side_by_side import Report, SideBySide
from winlab.run import run
from winlab.site import Site
from winlab.threads import Threads

Shell = Callable[[str], str]


def compare(site: Site) -> SideBySide:
    """What was found on the hosts of a site; nothing for a site with one host.

    :raises WinlabError: the first host's facts or the list of hypervisors can't be read.
    """
    facts = site.host_facts
    if not facts.southbound:
        return SideBySide((), ())
    there = Remote.of(site.places.libvirt)
    shells: dict[str, Callable[[], tuple[Shell, str]]] = {
        HYPERVISOR: lambda: (_here if there is None else there.call, facts.accelerator)
    }
    shells |= {name: partial(_shell, read) for name, read in site.registered().items()}
    with Threads(len(shells)) as threads:
        reports = list(threads.map(_report, shells, shells.values()))
        mtu = facts.tunnel_mtu or 0
        reports = list(threads.map(lambda one: _pinged(one, reports, shells, mtu), reports))
    return SideBySide.of(reports)


def _here(script: str) -> str:
    return run(["sh", "-c", script], timeout=LIMIT).stdout


def _shell(read: Callable[[], Registered]) -> tuple[Shell, str]:
    record = read()
    return record.remote.call, record.facts.accelerator


def _report(name: str, open_shell: Callable[[], tuple[Shell, str]]) -> Report:
    try:
        shell, accelerator = open_shell()
        begun = time.time()
        return Report.parse(name, shell(side_by_side.SCRIPT), begun, time.time(), accelerator)
    except WinlabError as error:
        return Report(name, {}, problem=f"{error.what} {error.cure}".strip())


def _pinged(
    one: Report, reports: list[Report], shells: Mapping[str, Callable[[], tuple[Shell, str]]], mtu: int
) -> Report:
    """The report of a host with the addresses that its full packets do not reach."""
    others = [other.tunnel for other in reports if other is not one and other.tunnel]
    if one.problem or not others or not mtu:
        return one
    try:
        said = shells[one.name]()[0](side_by_side.pings(others, mtu))
    except WinlabError as error:
        return replace(one, problem=f"{error.what} {error.cure}".strip())
    return replace(one, unreached=tuple(other for other in others if other in said.split()))
