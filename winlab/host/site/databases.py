"""OVN's databases on three hosts of a site (RAFT): which ones, how they become a cluster, and how a host leaves it.

One host has them until the second and the third of three are ready: a cluster of two would stop with either of them.
The servers of a ready host wait for the first host's to become a cluster, and then join it.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from winlab import files
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError
from winlab.events import Progress
from winlab.host import daemons, fabric, ovn_sockets, relay_program, units
from winlab.host import databases_program as program
from winlab.host.changes import Record
from winlab.host.databases_program import DATABASES, Database
from winlab.host.site import certificates, raft, relay
from winlab.host.site.certificates import Pair
from winlab.host.site.messages import Candidate, Databases
from winlab.run import run

MOST = 3  # hosts with databases
REPLACED = "cluster"  # the end of the name of a file that is kept when a cluster ends
KEY = "winlab-databases"  # of SB_Global's external_ids
CHASSIS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
AUTHORITY_KEY = program.AUTHORITY.with_name("databases-ca-key.pem")


def address_of(known: HostFacts) -> str:
    """Where the other hosts with databases reach this one's; the first host's facts may have been lost."""
    return known.databases.get(known.chassis) or relay.address_of(known.southbound)


def choose(
    known: HostFacts, others: Collection[str], listed: Collection[str], chassis: str, asked: Candidate | None
) -> dict[str, str]:
    """The hosts that shall have the databases, by chassis: their addresses. Empty: the first host alone.

    :param known: the first host's facts.
    :param others: the chassis of the other hosts that OVN knows; one that was shut down in order is not among them.
    :param listed: the chassis of the recorded hypervisors. Such a host keeps its place in a cluster while it is off.
    :param chassis: of the host that asks for admission.
    """
    own = {known.chassis: relay.address_of(known.southbound)}
    seen = raft.status(DATABASES[0]) if raft.are_here() else None
    members = seen.members if seen else ()
    hosts = own | {
        name: address
        for name, address in known.databases.items()
        if name in {*others, chassis} or (name in listed and address in members)
    }
    if len({*others, chassis} - {known.chassis}) < MOST - 1 and not raft.are_here():
        return {}
    if asked and (chassis in hosts or len(hosts) < MOST):
        hosts[chassis] = str(asked.address)
    return hosts if len(hosts) > 1 else {}


def ensure_authority(chassis: str, record: Record) -> Pair:
    """The authority of the hosts with databases, which is made once, on the first host."""
    if not (program.AUTHORITY.exists() and AUTHORITY_KEY.exists()):
        made = certificates.make_authority(chassis, "databases")
        relay.write(AUTHORITY_KEY, made.key, record)
        relay.write(program.AUTHORITY, made.certificate, record)
    return Pair(relay.text(program.AUTHORITY), relay.text(AUTHORITY_KEY))


def grant(known: HostFacts, chassis: str, asked: Candidate, record: Record) -> Databases:
    """What the first host gives to another one that shall have the databases.

    :raises UsageError: the request for a certificate can't be used.
    """
    authority = ensure_authority(known.chassis, record)
    try:
        certificate = certificates.sign(asked.request, chassis, str(asked.address), certificates.BOTH, authority)
    except ValueError as error:
        raise UsageError("The request for a certificate can't be used.", why=str(error)) from error
    return Databases.model_validate(
        {
            "authority": authority.certificate,
            "certificate": certificate,
            "hosts": known.databases,
            "clusters": raft.clusters(),
        }
    )


def ensure(known: HostFacts, record: Record, progress: Progress) -> bool:
    """Have OVN's databases and northd run on this host; returns whether they can be used now.

    They can't while a cluster has no leader, as after a power cut of all hosts, or while this host waits for one.
    """
    if not raft.are_here():
        daemons.ensure("ovn-central", record, progress)
        return True
    renew(known, record, progress)
    write_programs(known, record)
    ovn_sockets.ensure_folder(record, os.geteuid())
    daemons.ensure("ovn-central", record, progress)
    if known.joined and len(known.databases) < MOST and all(raft.is_clustered(one) for one in DATABASES):
        # it could become the active one, and then not reach a leader on a host that it does not know
        run(["ovn-appctl", "--timeout=10", "-t", "ovn-northd", "pause"], check=False, timeout=20)
    if raft.is_waiting():
        progress.say("OVN's databases wait here until three hosts can have them")
        return False
    if raft.is_usable(5 if known.joined else raft.PATIENCE):
        return True
    progress.say("OVN's databases have no leader yet: most of the hosts that have them must be on")
    return False


def renew(known: HostFacts, record: Record, progress: Progress) -> None:
    """Make the first host's certificate for the databases, if it has none or it ends soon."""
    if known.joined:
        return  # --join renews it
    held, key = relay.text(program.CERTIFICATE), relay.text(program.KEY)
    authority = ensure_authority(known.chassis, record)
    due = certificates.is_due(held, datetime.datetime.now(datetime.UTC))
    if not due and key and not certificates.fault(held, key, authority.certificate, known.chassis):
        return
    progress.say("making the certificate of OVN's databases")
    key = key or certificates.make_key()
    request, address = certificates.make_request(known.chassis, key), relay.address_of(known.southbound)
    relay.write(program.KEY, key, record)
    made = certificates.sign(request, known.chassis, address, certificates.BOTH, authority)
    relay.write(program.CERTIFICATE, made, record)


def write_programs(known: HostFacts, record: Record) -> None:
    """Write what starts this host's servers and northd as parts of a cluster."""
    own = address_of(known)
    wanted = {program.PROGRAM: (program.text(own), 0o700)}
    wanted[program.NORTHD] = (program.northd_text([one for one in known.databases.values() if one != own]), 0o644)
    if daemons.has_systemd():
        wanted[units.TMPFILES] = (units.tmpfiles_text(), 0o644)
        wanted |= {one.drop_in: (program.drop_in_text(one.short), 0o644) for one in DATABASES}
    changed = set()
    for path, (text, mode) in wanted.items():
        record.add("files", str(path))
        if files.replace_text(path, text, mode):
            changed.add(path)
    if daemons.has_systemd() and changed:
        run(["systemctl", "daemon-reload"], timeout=60)
    if changed == {program.NORTHD}:  # it reads them when it starts
        daemons.restart_northd()


def form(known: HostFacts, record: Record, progress: Progress) -> HostFacts:
    """On the first host: make a cluster of its databases, if the other two hosts wait for it; end one without others.

    A copy of each database as it was is kept beside it.

    :returns: the facts, with the hosts that have the databases, if they were lost.
    """
    if raft.are_here() and not known.databases:
        text = fabric.sbctl("--if-exists", "get", "SB_Global", ".", f"external_ids:{KEY}").stdout
        known = known.model_copy(update={"databases": parse_hosts(text.strip().strip('"'))})
        write_programs(known, record)
    own = address_of(known)
    waiting = [address for address in known.databases.values() if address != own and raft.listens(address)]
    if raft.are_here() and len(waiting) < MOST - 1 and all(raft.count_members(one) == 1 for one in DATABASES):
        bring_back(record, progress)  # the others have left
    if raft.are_here():
        _drop_lost(known)
        publish(known)
    if raft.are_here() or len(waiting) < MOST - 1:
        return known
    progress.say(f"OVN's databases will be on three hosts: here, and at {' and '.join(waiting)}")
    ovn_sockets.ensure_folder(record, os.geteuid())
    renew(known, record, progress)
    with daemons.halted("ovn-central", record, progress):
        for one in DATABASES:
            if raft.is_clustered(one):
                continue  # an earlier attempt did it
            fresh = Path(f"{one.file}.together")  # bring_back() keeps copies as '.cluster'
            fresh.unlink(missing_ok=True)
            words = ["ovsdb-tool", f"--election-timer={program.ELECTION_MS}", "create-cluster", str(fresh)]
            run([*words, str(one.file), one.member(own)], timeout=60)
            _replace(one.file, fresh, "before-cluster")
        write_programs(known, record)
    if not daemons.wait_until(lambda: all(raft.count_members(one) == MOST for one in DATABASES), raft.PATIENCE):
        raise HostError(
            "OVN's databases are not on three hosts.",
            why=f"One of those at {' and '.join(waiting)} did not join the cluster in time. It may still do so.",
            cure="See their logs on all three hosts, and 'sudo winlab doctor'.",
            evidence="/var/log/ovn",
        )
    publish(known)
    return known


def _drop_lost(known: HostFacts) -> None:
    """Remove the members from the cluster whose place another host has taken."""
    for one in DATABASES:
        seen = raft.status(one)
        for address in seen.members if seen and len(known.databases) == MOST else ():
            if address not in known.databases.values() and not raft.listens(address):
                _appctl(one, "cluster/kick", one.member(address))


def publish(known: HostFacts) -> None:
    """Write which hosts have the databases into the southbound one, where every host of the site can read it."""
    text = ",".join(f"{chassis}={address}" for chassis, address in known.databases.items())
    fabric.sbctl("set", "SB_Global", ".", f'external_ids:{KEY}="{text}"')


def refresh(known: HostFacts) -> HostFacts:
    """The facts of another host, with the hosts that have the databases now; unchanged if no relay can be reached."""
    tls = ("-p", str(relay_program.KEY), "-c", str(relay_program.CERTIFICATE), "-C", str(relay_program.AUTHORITY))
    words = ["ovn-sbctl", f"--db={known.southbound}", "--no-leader-only", "--timeout=5", *tls, "--if-exists"]
    if raft.are_recovered():
        return known  # the first host may still run, with what this host's databases replaced
    said = run([*words, "get", "SB_Global", ".", f"external_ids:{KEY}"], check=False, timeout=20)
    try:
        hosts = parse_hosts(said.stdout.strip().strip('"'))
    except ValueError:
        return known
    if said.returncode != 0 or not hosts or raft.are_here() != (known.chassis in hosts):
        return known
    first = relay.address_of(known.southbound)
    relays = relay.southbound(*dict.fromkeys([first, *hosts.values()]))
    return known.model_copy(update={"databases": hosts if raft.are_here() else {}, "southbound": relays})


def parse_hosts(text: str) -> dict[str, str]:
    """Read what :func:`publish` writes.

    :raises ValueError: it is something else.
    """
    pairs = dict(item.split("=") for item in text.split(",") if item)
    if len(pairs) > MOST or not all(CHASSIS.fullmatch(chassis) for chassis in pairs):
        raise ValueError(text)
    return {chassis: str(IPv4Address(address)) for chassis, address in pairs.items()}


def refuse_recovered(known: HostFacts, found: Mapping[str, str]) -> None:
    """Check that databases which were recovered on this host are not set aside for older ones.

    :param found: the ids of the clusters that the site has.
    :raises ConflictError: the first host has not taken them yet.
    """
    if any(found.values()) and raft.are_recovered():
        raise ConflictError(
            "OVN's databases were recovered on this host, and the first host has not taken them.",
            why="It has its old ones. If this host joined now, changes since the recovery would be lost.",
            cure=f"Run 'sudo winlab hypervisor recover --from {address_of(known)}' on the first host, then join again.",
        )


def wait_for_cluster(known: HostFacts, found: Mapping[str, str], record: Record, progress: Progress) -> bool:
    """On another host: run servers of the databases that join the first host's cluster when that is there.

    A copy of an earlier cluster is set aside.

    :param found: the ids of the clusters that the site has.
    :returns: whether the databases can be used here now.
    """
    own, first = address_of(known), relay.address_of(known.southbound)
    stale = [one for one in DATABASES if _is_stale(one, found.get(one.short, ""))]
    if stale:
        progress.say("this host will have OVN's databases, too")
        with daemons.halted("ovn-central", record, progress):
            for one in stale:
                if one.file.exists():
                    _replace(one.file, None, "before-cluster")
                one.file.parent.mkdir(parents=True, exist_ok=True)
                words = ["ovsdb-tool", "join-cluster", str(one.file), one.name, one.member(own), one.member(first)]
                run(words, timeout=60)
            write_programs(known, record)
            ovn_sockets.ensure_folder(record, os.geteuid())
    return ensure(known, record, progress)


def _is_stale(one: Database, cluster: str) -> bool:
    """Whether this host's copy of a database is not part of the site's cluster, and does not wait for one either.

    :param cluster: the id of the site's; empty: there is none yet.
    """
    if not raft.are_here() or not one.file.exists() or not raft.is_clustered(one):
        return True
    if daemons.is_up("ovn-central") and raft.status(one) is None:
        return True  # it was removed from the cluster
    held = raft.cluster_of(one)
    return bool(held) and held != cluster


def leave(known: HostFacts, progress: Progress) -> None:
    """Leave the cluster. Of the two hosts that would be left, only the first one stays in it.

    It changes nothing if there is no leader.
    """
    if not raft.are_here() or not known.southbound:
        return
    own, first = address_of(known), relay.address_of(known.southbound)
    for one in DATABASES:
        seen = raft.status(one)
        if seen is None or not seen.leader:
            continue
        progress.say(f"leaving the cluster of {one.name}")
        for address in [address for address in seen.members if address not in {own, first}]:
            _appctl(one, "cluster/kick", one.member(address))
            daemons.wait_until(partial(_is_gone, one, address), 20)
        _appctl(one, "cluster/leave")
        words = ["ovsdb-client", "-t", "20", "wait", one.socket, one.name, "removed"]
        run(words, check=False, timeout=40)


def _is_gone(one: Database, address: str) -> bool:
    seen = raft.status(one)
    return seen is None or address not in seen.members


def _appctl(one: Database, command: str, *words: str) -> None:
    run(["ovn-appctl", "--timeout=10", "-t", one.runtime("ctl"), command, one.name, *words], check=False, timeout=20)


def drop(record: Record, progress: Progress) -> None:
    """Take this host's databases away, as on a host that is no longer to have them."""
    if not raft.are_here():
        return
    progress.say("removing OVN's databases from this host")
    daemons.stop("relay", record, progress)
    daemons.halt("ovn-central", progress)
    for one in DATABASES:
        if one.file.exists() and not raft.is_clustered(one):
            _replace(one.file, None, "recovered")  # here, while the first host was lost, which may not have it
        one.file.unlink(missing_ok=True)
    relay_program.DATABASE.unlink(missing_ok=True)
    _remove_programs()
    if daemons.is_ours("ovn-central", record):
        daemons.stop("ovn-central", record, progress)
    else:  # of the distribution, which starts it at boot
        daemons.ensure("ovn-central", record, progress)


def bring_back(
    record: Record, progress: Progress, *, keep: bool = False, texts: Mapping[Database, str] | None = None
) -> None:
    """Have one server again, here, from this host's copies, whatever the others do. The copies are kept beside.

    :param keep: this is not the first host: it keeps listening, so that the first host can take the databases back.
    :param texts: databases to take instead of the copies.
    """
    if not raft.are_here():
        return
    progress.say("OVN's databases will be on this host alone")
    with daemons.halted("ovn-central", record, progress):
        for one in DATABASES:
            fresh = Path(f"{one.file}.alone")
            fresh.unlink(missing_ok=True)
            if texts:
                files.write_atomic(fresh, texts[one], mode=0o640)
            elif raft.is_clustered(one):
                run(["ovsdb-tool", "cluster-to-standalone", str(fresh), str(one.file)], timeout=60)
            else:
                continue  # an earlier attempt did it
            _replace(one.file, fresh, REPLACED)
        if not keep:
            _remove_programs()


def kept(file: Path, why: str) -> Path:
    """Where a database is kept that was replaced; *why* is the end of its name."""
    return file.with_name(f"{file.name}.{why}")


def _replace(file: Path, fresh: Path | None, why: str) -> None:
    """Put a new database in the place of one, which is kept beside."""
    old = kept(file, why)
    old.unlink(missing_ok=True)
    if fresh is None:
        file.rename(old)
        return
    os.link(file, old)
    files.sync(fresh)
    fresh.replace(file)
    files.sync(file.parent)


def _remove_programs() -> None:
    for path in (program.PROGRAM, program.NORTHD, *(one.drop_in for one in DATABASES)):
        path.unlink(missing_ok=True)
    for folder in (one.drop_in.parent for one in DATABASES):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if daemons.has_systemd():
        run(["systemctl", "daemon-reload"], timeout=60)
