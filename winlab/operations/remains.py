"""What labs left on hypervisors that did not answer: remembered for all users, and removed when one answers again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from winlab import stopping
from winlab.adapters.left import Left
from winlab.adapters.vm import disks, domains
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan import volume_names
from winlab.errors import WinlabError
from winlab.events import Listener, Note, StepDone
from winlab.operations import forget
from winlab.site import Site


def remember(site: Site, found: Left) -> None:
    """Record what a lab leaves on a hypervisor that does not answer.

    :raises HostError: OVN's northbound database does not answer, or refuses.
    """
    before = next((one for one in site.left() if one.key == found.key), None)
    whole = found if before is None else found.with_nodes(before)
    with suppress(WinlabError, KeyError):
        whole = whole.model_copy(update={"chassis": forget.known(site)[found.hypervisor]().facts.chassis})
    with site.overlay() as northbound:
        northbound.record({whole.key: whole.model_dump_json()})


def clean(site: Site, hosts: Hypervisors, tell: Listener, lab: str = "") -> tuple[Hypervisors, list[str]]:
    """Remove what labs left on the hypervisors that answer again. Safe to repeat.

    :param lab: the lab that the command is for. What others left is only noted if it can't be removed.
    :returns: the hypervisors, and what was removed of the lab, as text.
    :raises WinlabError: what that lab left can't be removed.
    """
    if not any(host.left for host in hosts):
        return hosts, []
    removed: list[str] = []
    each = []
    for host in hosts:
        stays = []
        for one in host.left:
            # just before: another winlab may have removed it, and made the lab again
            if one.key not in [still.key for still in site.left()]:
                continue
            try:
                is_another = bool(one.chassis) and one.chassis != host.facts.chassis  # under the same name
                gone = [] if is_another else _clean(host, one, tell)
                with site.overlay() as northbound:
                    northbound.record({one.key: None})
                removed += gone if one.lab == lab else []
            except WinlabError as error:
                if one.lab == lab:
                    raise
                tell(Note(text=f"What '{one.lab}' left on '{host.name}' can't be removed now: {error.what}"))
                stays.append(one)
        each.append(replace(host, left=tuple(stays)) if host.left else host)
    return replace(hosts, each=tuple(each)), removed


def clear(host: Hypervisor, tell: Listener) -> None:
    """Remove the machines and volumes of all labs from a hypervisor that was forgotten. Snapshots stay.

    :raises WinlabError: libvirt refuses, or does not answer.
    """
    host.pool.refresh()
    volumes = {volume_names.lab_of(name) for name in disks.unused(host, host.pool.names())}
    labs = {machine.tag.lab for machine in host.machines()} | {lab for lab in volumes if lab is not None}
    for lab in sorted(labs):
        _clean(host, Left(hypervisor=host.name, lab=lab, whole=True), tell)


def _clean(host: Hypervisor, one: Left, tell: Listener) -> list[str]:
    gone: list[str] = []

    def report(kind: str, names: Iterable[str]) -> None:
        for name in names:
            gone.append(f"{kind} {name}")
            tell(StepDone(lab=one.lab, step=f"remove {kind} {name} from {host.name}"))
            stopping.check()

    for machine in domains.machines(host.conn, one.lab):
        if one.has(machine.tag) and domains.remove(host.conn, machine):
            report("domain", [machine.domain])
    host.pool.refresh()
    report("volume", disks.collect(host, [name for prefix in one.prefixes for name in host.pool.names(prefix)]))
    return gone
