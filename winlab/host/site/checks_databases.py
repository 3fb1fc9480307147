"""Doctor's check of OVN's databases on a site of three hosts and more."""

from __future__ import annotations

import datetime

from winlab.host.check import SETUP, Host, Requirement, Status, named
from winlab.host.databases_program import CERTIFICATE, DATABASES, Database
from winlab.host.site import admission, certificates, databases, raft, relay

NAME = "OVN databases"
WHY = "While most of the hosts with OVN's databases run, the network of all labs can be changed."
RECOVER = "If they are lost forever, run 'sudo winlab hypervisor recover' (docs/hypervisors-reference.md)."


@named(NAME, WHY)
def check_databases(host: Host) -> list[Requirement]:
    """What a host with the databases knows of the others; and on a first host, whether two more could have them."""
    if not raft.are_here():
        others = [] if host.facts.joined else admission.others(host.facts.chassis)
        return [judge_one(others, host.facts.databases)] if len(others) >= databases.MOST - 1 else []
    if raft.are_recovered():
        detail = "they were recovered here, while the first host was lost"
        cure = f"On the first host, run 'sudo winlab hypervisor recover --from {databases.address_of(host.facts)}'."
        return [Requirement(NAME, Status.WARN, detail, WHY, cure)]
    seen = {one: raft.status(one) for one in DATABASES}
    members = {address for found in seen.values() if found for address in found.members}
    lost = {address for address in members if not raft.listens(address)}
    ends = certificates.is_due(relay.text(CERTIFICATE), datetime.datetime.now(datetime.UTC))
    return [judge(one, found, lost, host.facts.joined, ends=ends) for one, found in seen.items()]


def judge_one(others: list[str], chosen: dict[str, str]) -> Requirement:
    """The result for a first host that has the databases alone, although there are enough hosts.

    :param others: the chassis of the other hosts.
    :param chosen: the hosts that wait for a cluster, and the first one.
    """
    missing = [chassis for chassis in others if chassis not in chosen]
    detail = "they are on this host alone: if it is lost, the network of no lab can be changed"
    cure = f"Run 'sudo winlab host setup --join SITE' again on {' or '.join(missing) or 'the other hosts'}."
    return Requirement(NAME, Status.WARN, detail, WHY, cure)


def judge(one: Database, found: raft.Status | None, lost: set[str], joined: str, *, ends: bool) -> Requirement:
    """The result for one database of a host in a cluster.

    :param found: what its server knows; None: it does not run, or was removed from the cluster.
    :param lost: the addresses of members that can't be reached.
    :param joined: the first host; empty: this is it.
    :param ends: this host's certificate for the others ends soon.
    """
    again = f"Run 'sudo winlab host setup{f' --join {joined}' if joined else ''}'."
    if found is None:
        state, detail, cure = Status.FAIL, "its server does not run, or was removed from the cluster", again
    elif not found.members:
        state, detail = Status.WARN, "this host waits until a third one can have them"
        cure = "Run 'sudo winlab host setup --join SITE' again on another host of the site."
    elif not found.leader:
        state, detail = Status.FAIL, f"no leader; can't be reached: {', '.join(sorted(lost)) or 'none'}"
        cure = f"Turn these hosts on, and run 'sudo winlab host setup' there. {RECOVER}"
    elif lost & {*found.members}:
        state, detail = Status.WARN, f"can't be reached: {', '.join(sorted(lost & {*found.members}))}"
        cure = f"Turn that host on; let port {one.raft} pass. Nothing can be changed if one more is lost."
    elif len(found.members) == 1:
        state, detail, cure = Status.WARN, "the other hosts have left the cluster", f"{SETUP} It ends the cluster."
    elif len(found.members) < databases.MOST:
        state, detail = Status.WARN, f"on {len(found.members)} hosts: {', '.join(found.members)}"
        cure = "Run 'sudo winlab host setup --join SITE' again on a host of the site that does not have them."
    elif found.behind:
        state, detail = Status.WARN, f"behind: {', '.join(found.behind)}"
        cure = f"Wait. If that does not help: {SETUP.removesuffix('.')} there."
    elif ends:
        state, detail, cure = Status.WARN, "this host's certificate for the others ends soon", again
    else:
        state, detail, cure = Status.OK, f"on {', '.join(found.members)}; the leader is {found.leader}", ""
    return Requirement(f"{NAME}, {one.short}", state, detail, WHY, cure)
