"""``winlab host setup``: make this host ready for labs. May be run again at any time, to repair what is missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from winlab import files, settings
from winlab.adapters.remote import Remote
from winlab.design.plan.facts import HostFacts
from winlab.errors import AccessError, HostError, UsageError
from winlab.events import Progress
from winlab.host import (
    attachment,
    boot,
    daemons,
    fabric,
    facts,
    firewall,
    kvmprobe,
    memory_hook,
    ovn_sockets,
    packages,
    routes,
    storage,
    subnet,
    units,
)
from winlab.host.changes import Record, alone
from winlab.host.site import admission, databases, external, moves, own_facts, raft, relay, tunnels
from winlab.host.site import join as joining
from winlab.host.teardown import teardown
from winlab.run import run

__all__ = ["setup", "teardown"]


def require_root(command: str) -> None:
    """Check that root runs this.

    :raises AccessError: another user does.
    """
    if os.geteuid() != 0:
        raise AccessError(
            f"'{command}' must be run by root.",
            why="It starts daemons and changes the host's network. Once it has run, other commands need no root.",
            cure=f"Run 'sudo {command}'.",
        )


@dataclass(frozen=True)
class Wanted:
    """What the user asks setup for.

    :param external_cidr: the subnet of the external bridge; None: the recorded one, or the first free one.
    :param install: install missing packages first.
    :param trust_python: let root run this winlab at boot, and when others join, though others than root can change it.
    :param join: the ssh address of the first host of a site that this host joins; empty: none, or the recorded one.
    :param tunnel_address: this host's address for tunnels to other hosts; empty: the recorded one, or by the route.
    """

    external_cidr: str | None = None
    install: bool = False
    trust_python: bool = False
    join: str = ""
    tunnel_address: str = ""


def setup(progress: Progress, wanted: Wanted = Wanted()) -> HostFacts:
    """Make this host ready for labs, and record the facts about it in /etc/winlab/host.yaml.

    :raises AccessError: not run by root.
    :raises UsageError: an address is malformed.
    :raises ConflictError: the subnet is in use, or another OVN, switch or pool is in the way; this host can't join.
    :raises HostError: something is not installed or does not start, or the site's first host can't be reached.
    """
    require_root("winlab host setup")
    with alone(progress):
        return _setup(progress, wanted)


def _setup(progress: Progress, wanted: Wanted) -> HostFacts:
    record = Record()
    known = own_facts.read(record, progress)
    if wanted.tunnel_address:
        tunnels.parse(wanted.tunnel_address)
    member = bool(wanted.join or known.joined)
    if wanted.join:
        Remote.parse(wanted.join)
        joining.check(known)
    if member and wanted.external_cidr:
        raise UsageError("The external subnet is the site's.", cure="Leave out --external-cidr on a host that joins.")
    if wanted.install:
        packages.install((*packages.RUN, *packages.MEDIA, *packages.BUILD), progress)
    absent = packages.missing(packages.RUN)
    if absent:
        raise HostError(f"Missing: {', '.join(package.needs for package in absent)}.", cure=packages.cure(absent))
    progress.say("checking the host's networks", 0.05)
    cidr = known.external_cidr
    if not member:
        recorded = known.external_cidr if known.recorded else None
        cidr = subnet.choose(wanted.external_cidr, recorded, subnet.used_here(settings.BRIDGE))
    for folder in [path for path in (record.path.parent, settings.HOST_FILE.parent) if not path.exists()]:
        record.add("folders", str(folder))
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)

    progress.say("virtualisation", 0.1)
    storage.ensure_kvm_mode(record, progress)
    daemons.ensure("libvirt", record, progress)
    storage.ensure_pool(record, progress)
    memory_hook.ensure(record, progress)

    progress.say("network", 0.4)
    if daemons.has_systemd() and not member:
        _write(units.DROP_IN, units.drop_in_text(daemons.GROUP_UMASK), record)
        _write(units.TMPFILES, units.tmpfiles_text(), record)
        run(["systemctl", "daemon-reload"], timeout=60)
    daemons.ensure("ovs", record, progress)
    ids = fabric.ovs_ids()
    fabric.check_foreign_ovn(ids, known.southbound if known.joined else fabric.SB)
    if not daemons.is_up("ovn-host"):
        tunnels.be_silent()
    datapath = fabric.find_datapath()
    chassis = ids.get("system-id", "")
    closed = ("fail-mode=secure", "other-config:disable-in-band=true")
    fabric.ensure_bridge(settings.INTEGRATION_BRIDGE, datapath, closed, record, progress)
    fabric.drop_dead_ports(progress)
    address = f'other-config:hwaddr="{fabric.mac_for(chassis)}"'
    fabric.ensure_bridge(settings.BRIDGE, datapath, (address,), record, progress)
    known = known.model_copy(update={"external_cidr": cidr, "datapath": datapath, "chassis": chassis})
    known = (_ensure_member if member else _ensure_first)(known, wanted, record, progress)

    progress.say("trying KVM", 0.8)
    kvm = kvmprobe.probe_kvm()
    if not kvm.works:
        progress.say(f"KVM does not work here, guests will be emulated (slow): {kvm.why}")
    # at boot the network may be late; then the previous name servers are the better choice
    resolvers = known.resolvers if member else facts.find_resolvers(otherwise=known.resolvers)
    host_facts = known.model_copy(
        update={
            "resolvers": resolvers,
            "accelerator": "kvm" if kvm.works else "tcg",
            "nested": facts.find_nested(),
            "emulator_version": facts.find_emulator_version(),
            "moves": moves.fact(known),
        }
    )
    record.add("files", str(settings.HOST_FILE))
    facts.write_facts(host_facts)
    if daemons.has_systemd():
        boot.ensure(record, progress, trust=wanted.trust_python)
    progress.say("the host is ready", 1.0)
    return host_facts.model_copy(update={"recorded": True})


def _ensure_first(known: HostFacts, wanted: Wanted, record: Record, progress: Progress) -> HostFacts:
    """What a host has on which labs are made: OVN's databases, and the way from and to its external bridge."""
    usable = databases.ensure(known, record, progress)
    fabric.ensure_ids(known.datapath, record, progress)
    daemons.ensure("ovn-host", record, progress)
    fabric.ensure_address(known.external_gateway, known.external_network.prefixlen, progress)
    attachment.ensure(known, record, progress)
    routes.ensure(known, progress)
    if usable:
        ovn_sockets.ensure(ovn_sockets.NORTHBOUND, record, progress)
        fabric.ensure_switch(record, progress)
    firewall.ensure_forwarding(known, record, progress)
    admission.ensure_program(record, progress, trust=wanted.trust_python)
    if wanted.tunnel_address:
        tunnels.ensure(wanted.tunnel_address, known.datapath, record, progress)
    if known.southbound and usable:
        known = databases.form(known, record, progress)
        if mtu := tunnels.largest(tunnels.recorded(), known.datapath):
            known = known.with_tunnels({known.chassis: mtu}, {known.chassis, *admission.others(known.chassis)})
        ovn_sockets.ensure(ovn_sockets.SOUTHBOUND, record, progress)
        external.ensure_bfd(record)
    if known.southbound:
        relay.ensure(known.chassis, relay.address_of(known.southbound), record, progress)
        if own := tunnels.recorded():
            moves.ensure_first(known.chassis, own, record, progress)
        external.ensure(known, record, progress)
    return known


def _ensure_member(known: HostFacts, wanted: Wanted, record: Record, progress: Progress) -> HostFacts:
    """What a host has that joined a site: a controller that OVN's databases on the first host control."""
    if wanted.join:
        known = _join(known, wanted, record, progress)
    elif wanted.tunnel_address:
        tunnels.ensure(wanted.tunnel_address, known.datapath, record, progress)
    else:
        known = databases.refresh(known)
    if raft.are_here():
        databases.ensure(known, record, progress)
        relay.run_at(databases.address_of(known), record, progress)
    joining.ensure_controller(known, record, progress)
    daemons.ensure("ovn-host", record, progress)
    joining.wait_until_connected(known, progress, needed=bool(wanted.join))
    if known.external_address:
        external.ensure(known, record, progress)
    joining.warn_of_end(known, progress)
    return known


def _join(known: HostFacts, wanted: Wanted, record: Record, progress: Progress) -> HostFacts:
    """Join the site; if this host shall have its databases, too, wait for the cluster and ask for that."""
    for _attempt in range(2):
        known, clusters = joining.join(wanted.join, wanted.tunnel_address, known, record, progress)
        fabric.check_foreign_ovn(fabric.ovs_ids(), known.southbound)  # before databases of its own are set aside
        databases.refuse_recovered(known, clusters)
        record.add("files", str(settings.HOST_FILE))
        facts.write_facts(known)  # from here on, setup needs no --join
        if known.chassis not in known.databases:
            databases.drop(record, progress)
            break
        if databases.wait_for_cluster(known, clusters, record, progress):
            break
    return known


def _write(path: Path, text: str, record: Record) -> None:
    """Write a file that teardown removes."""
    record.add("files", str(path))
    files.replace_text(path, text)
