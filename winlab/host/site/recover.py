"""``winlab hypervisor recover``: OVN's databases on one host again, after most of the hosts that had them are lost."""

from __future__ import annotations

import json

from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError
from winlab.events import Progress
from winlab.host import daemons, facts
from winlab.host import databases_program as program
from winlab.host.changes import Record, alone
from winlab.host.databases_program import DATABASES, Database
from winlab.host.site import databases, raft, relay, tunnels
from winlab.run import run


def check(progress: Progress) -> list[str]:
    """Check that the databases are lost without a recovery; returns the addresses of the hosts that do not answer.

    None of them counts after a recovery, which can be repeated: it may have been interrupted at its end.

    :raises UsageError: this host has no databases of a cluster.
    :raises ConflictError: the cluster works, or enough of its hosts can be reached.
    """
    if _was_done(facts.read_facts()):
        return []
    # an attempt that was interrupted may have recovered one of the two
    if not raft.are_here() or not any(raft.cluster_of(one) for one in DATABASES):
        raise UsageError(
            "This host has no databases to recover.",
            why="It is not one of the three hosts with OVN's databases.",
            cure="Run the command on one of those. On a host alone, 'sudo winlab host setup' repairs the databases.",
        )
    daemons.ensure("ovn-central", Record(), progress)
    seen = [raft.status(one) for one in DATABASES]
    members = {address for one in seen if one for address in one.members}
    lost = sorted(address for address in members if not raft.listens(address))
    if all(one is not None and one.leader for one in seen) and raft.is_usable(10):
        raise ConflictError(
            "OVN's databases need no recovery.", why="They have a leader.", cure="See 'sudo winlab doctor'."
        )
    if 2 * len(lost) < len(members):
        raise ConflictError(
            "Most of the hosts with OVN's databases can be reached.",
            why=f"Lost: {', '.join(lost) or 'none'}. The others can elect a leader.",
            cure="Wait a minute. Then run 'sudo winlab host setup' on each of them, and see its doctor.",
        )
    return lost


def _was_done(known: HostFacts) -> bool:
    """Whether a recovery replaced both databases, and no cluster was begun with them since then."""
    if raft.are_here() or known.databases:
        return raft.are_recovered()
    return all(databases.kept(one.file, databases.REPLACED).exists() for one in DATABASES)


def recover(progress: Progress) -> None:
    """Have one server of the databases again, here, with what this host has of them. Safe to repeat.

    :raises ConflictError: they are not lost.
    """
    with alone(progress):
        check(progress)
        record, known = Record(), facts.read_facts()
        own = {known.chassis: databases.address_of(known)} if known.joined else {}
        known = known.model_copy(update={"databases": own})
        facts.write_facts(known)  # first, so that an attempt that is killed later can be resumed
        databases.bring_back(record, progress, keep=bool(known.joined))
        daemons.ensure("ovn-central", record, progress)  # an earlier attempt may have been killed before that
        if known.joined:
            databases.write_programs(known, record)
        # it refuses a database that seems to be older than the one it knew
        run(["ovn-appctl", "-t", "ovn-controller", "sb-cluster-state-reset"], check=False, timeout=20)
        if not raft.is_usable():
            raise HostError("OVN's databases do not answer.", cure="See their logs.", evidence="/var/log/ovn")
        databases.publish(known)


def take(source: str, progress: Progress) -> None:
    """On the first host: take the databases from the host on which they were recovered while this one was lost.

    Safe to repeat.

    :param source: that host's address.
    :raises UsageError: this is not a first host, or the address is malformed.
    :raises ConflictError: they were not recovered there.
    :raises HostError: the databases there can't be read.
    """
    source = tunnels.parse(source)
    with alone(progress):
        record, known = Record(), facts.read_facts()
        # after an attempt that was killed, only the facts name the other hosts with the databases
        if known.joined or not (raft.are_here() or known.databases):
            raise UsageError(
                "Only a site's first host takes the databases back, if it had them in a cluster.",
                cure=f"On another host, run 'sudo winlab host setup --join {known.joined or 'SITE'}'.",
            )
        tls = ("-p", str(program.KEY), "-c", str(program.CERTIFICATE), "-C", str(program.AUTHORITY))
        cure = f"Check that {source} is on, and that 'sudo winlab hypervisor recover' was run there."
        texts = {}
        for one in DATABASES:
            progress.say(f"reading {one.name} from {source}")
            client, server = ["ovsdb-client", "-t", "60", *tls], f"ssl:{source}:{one.port}"
            model = json.loads(run([*client, "query", server, _model(one)], timeout=90, cure=cure).stdout)
            if model != [{"rows": [{"model": "standalone"}]}]:
                raise ConflictError(
                    f"The databases at {source} were not recovered.",
                    why="They are part of a cluster, which would continue without this host.",
                    cure=cure,
                )
            texts[one] = run([*client, "backup", server, one.name], timeout=90, cure=cure).stdout
        databases.bring_back(record, progress, texts=texts)
        daemons.ensure("ovn-central", record, progress)  # an earlier attempt may have been killed before that
        facts.write_facts(known.model_copy(update={"databases": {}}))
        relay.ensure(known.chassis, relay.address_of(known.southbound), record, progress)
        run(["ovn-appctl", "-t", "ovn-controller", "sb-cluster-state-reset"], check=False, timeout=20)


def _model(one: Database) -> str:
    """The query for whether a database is part of a cluster (the database _Server, man ovsdb-server 5)."""
    where = [["name", "==", one.name]]
    return json.dumps(["_Server", {"op": "select", "table": "Database", "where": where, "columns": ["model"]}])
