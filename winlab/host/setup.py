"""``winlab host setup``: make this host ready for labs. May be run again at any time, to repair what is missing."""

from __future__ import annotations

import os
from pathlib import Path

from winlab import files, settings
from winlab.design.plan.facts import HostFacts
from winlab.errors import AccessError, HostError, UsageError
from winlab.events import Progress
from winlab.host import boot, daemons, fabric, facts, firewall, kvmprobe, memory_hook, packages, storage, subnet, units
from winlab.host.changes import Record, alone
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


def setup(
    progress: Progress, *, external_cidr: str | None = None, install: bool = False, trust_python: bool = False
) -> HostFacts:
    """Make this host ready for labs, and record the facts about it in /etc/winlab/host.yaml.

    :param external_cidr: the subnet of the external bridge; None: the recorded one, or the first free one.
    :param install: install missing packages first.
    :param trust_python: have systemd run setup at boot though others than root can change this winlab.
    :raises AccessError: not run by root.
    :raises ConflictError: the subnet is in use, or another OVN, switch or pool is in the way.
    :raises HostError: something is not installed or does not start.
    """
    require_root("winlab host setup")
    with alone(progress):
        return _setup(progress, external_cidr, install=install, trust_python=trust_python)


def _setup(progress: Progress, external_cidr: str | None, *, install: bool, trust_python: bool) -> HostFacts:
    known = _known(progress)
    if install:
        packages.install((*packages.RUN, *packages.MEDIA, *packages.BUILD), progress)
    absent = packages.missing(packages.RUN)
    if absent:
        raise HostError(f"Missing: {', '.join(package.needs for package in absent)}.", cure=packages.cure(absent))
    progress.say("checking the host's networks", 0.05)
    cidr = subnet.choose(
        external_cidr, known.external_cidr if known.recorded else None, subnet.used_here(settings.BRIDGE)
    )
    record = Record()
    for folder in [path for path in (record.path.parent, settings.HOST_FILE.parent) if not path.exists()]:
        record.add("folders", str(folder))
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)

    progress.say("virtualisation", 0.1)
    storage.ensure_kvm_mode(record, progress)
    daemons.ensure("libvirt", record, progress)
    storage.ensure_pool(record, progress)
    memory_hook.ensure(record, progress)

    progress.say("network", 0.4)
    if daemons.has_systemd():
        _write(units.DROP_IN, units.drop_in_text(daemons.GROUP_UMASK), record)
        _write(units.TMPFILES, units.tmpfiles_text(), record)
        run(["systemctl", "daemon-reload"], timeout=60)
    daemons.ensure("ovs", record, progress)
    ids = fabric.ovs_ids()
    fabric.check_foreign_ovn(ids)
    datapath = fabric.find_datapath()
    chassis = ids.get("system-id", "")
    closed = ("fail-mode=secure", "other-config:disable-in-band=true")
    fabric.ensure_bridge(settings.INTEGRATION_BRIDGE, datapath, closed, record, progress)
    fabric.drop_dead_ports(progress)
    address = f'other-config:hwaddr="{fabric.mac_for(chassis)}"'
    fabric.ensure_bridge(settings.BRIDGE, datapath, (address,), record, progress)
    daemons.ensure("ovn-central", record, progress)
    fabric.ensure_ids(datapath, record, progress)
    daemons.ensure("ovn-host", record, progress)
    network = HostFacts(external_cidr=cidr)
    fabric.ensure_address(network.external_gateway, network.external_network.prefixlen, progress)
    fabric.ensure_socket(record, progress)
    fabric.ensure_switch(record, progress)
    firewall.ensure_forwarding(cidr, datapath, record, progress)

    progress.say("trying KVM", 0.8)
    kvm = kvmprobe.probe_kvm()
    if not kvm.works:
        progress.say(f"KVM does not work here, guests will be emulated (slow): {kvm.why}")
    host_facts = HostFacts(
        external_cidr=cidr,
        # at boot the network may be late; then the previous name servers are the better choice
        resolvers=facts.find_resolvers(otherwise=known.resolvers),
        accelerator="kvm" if kvm.works else "tcg",
        datapath=datapath,
        chassis=chassis,
        nested=facts.find_nested(),
        emulator_version=facts.find_emulator_version(),
    )
    record.add("files", str(settings.HOST_FILE))
    facts.write_facts(host_facts)
    if daemons.has_systemd():
        boot.ensure(record, progress, trust=trust_python)
    progress.say("the host is ready", 1.0)
    return host_facts.model_copy(update={"recorded": True})


def _known(progress: Progress) -> HostFacts:
    """The facts of an earlier setup. An unusable file is ignored: setup writes it again."""
    try:
        return facts.read_facts()
    except UsageError as error:
        progress.say(str(error))
        return HostFacts()


def _write(path: Path, text: str, record: Record) -> None:
    """Write a file that teardown removes."""
    record.add("files", str(path))
    files.replace_text(path, text)
