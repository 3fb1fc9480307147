"""What it takes to change an existing lab to match a new plan: compares two plans. Pure.

The comparison covers what identifies a lab while it exists (``lasting`` of the plan's parts). Nodes and add-ons are
compared by name, everything else by field. What can't be changed in an existing lab is a change, too: a refused one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from winlab.design.catalog import distributions
from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.plan.cluster_plan import ClusterPlan
from winlab.design.plan.model import Plan
from winlab.design.plan.network_plan import NetworkPlan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.proxy import Proxy
from winlab.design.spec.sizes import human

Kind = Literal["added", "changed", "removed", "refused"]
When = Literal["now", "next start", "never"]

ANEW = "make another lab for it"
AGAIN = "take the nodes away first (a count of 0), then add them again with the new value"
# Fields of a worker that can't be changed, as text, with the reason
OF_A_NODE: Mapping[str, tuple[str, str]] = {
    "role": ("role", "a machine is made for the cluster, or to stand beside it"),
    "image": ("system", "a machine keeps the system that was installed on it"),
    "disk_mib": ("disk", "partitions and file systems in the guest would not grow with it"),
    "bus": ("bus", "the installed system has drivers for the one that it was made with"),
    "nic": ("network card", "the installed system knows its network by the one that it was made with"),
    "firmware": ("firmware", "the disk is partitioned for the one that it was made with"),
    "hypervisor": ("hypervisor", "hypervisor and apart count when a machine is made; 'winlab move' moves it"),
    "address": ("address", "the place of its pool among the others decides it: add pools after those that there are"),
}
# Properties of a node that follow from the lab's name, from the fields above or from its lab's network
DERIVED = frozenset(("name", "user", "uuid", "mac", "port", "floating", "volumes", "os", "windows"))
OF_THE_NETWORK: Mapping[str, tuple[str, str]] = {
    "cidr": ("network.cidr", "the nodes, their certificates and the cluster know each other by their addresses"),
    "mtu": ("network.mtu", "guests learn it when they boot, and the pods' network is made for it"),
    "router_external": ("external addresses", "the API server's certificate has its address"),
    "external_cidr": ("the host's external network", "the nodes' certificates have addresses of the old one"),
    "attachment": ("network.attachment", "nodes, certificates and the cluster know the addresses that follow from it"),
    "reach": ("network.reach", "the router has another MAC for it, by which the host's firewall knows what it may do"),
}
OF_THE_CLUSTER: Mapping[str, tuple[str, str]] = {
    "profile": ("network.cni", "the pods' network can't be replaced under running pods"),
    "pod_cidr": ("kubernetes.pod_cidr", "nodes and pods have addresses of the old one"),
    "service_cidr": ("kubernetes.service_cidr", "services and the API server's certificate have addresses of it"),
    "made_with": ("kubernetes.distribution", "it made the cluster"),
    "source": ("kubernetes.source", "programs of running nodes are swapped by 'winlab push'"),
}
SECRET = frozenset({"product_key"})


@dataclass(frozen=True)
class Change:
    """One difference. ``when`` it happens: now, at the machine's next start, or never, if it is refused."""

    kind: Kind
    what: str
    before: str = ""
    after: str = ""
    why: str = ""
    when: When = "now"


@dataclass(frozen=True)
class Changes:
    """All differences, and the parts of the plans that they are about.

    ``removed`` are nodes, ``resized`` nodes as they should be, ``registered`` those whose labels or taints change in
    the cluster. ``moved`` are made again on another hypervisor. ``dropped`` and ``altered`` are add-ons as they were.
    """

    every: tuple[Change, ...] = ()
    added: tuple[NodePlan, ...] = ()
    removed: tuple[NodePlan, ...] = ()
    resized: tuple[NodePlan, ...] = ()
    registered: tuple[NodePlan, ...] = ()
    moved: tuple[NodePlan, ...] = ()
    dropped: tuple[AddonPlan, ...] = ()
    altered: tuple[AddonPlan, ...] = ()

    @property
    def refused(self) -> tuple[Change, ...]:
        """Those that can't be made in an existing lab."""
        return tuple(change for change in self.every if change.kind == "refused")


@dataclass
class _Collected:
    """Changes on their way into :class:`Changes`: the same change of two existing plans counts once."""

    rows: dict[Change, None] = field(default_factory=dict)

    def add(self, kind: Kind, what: str, before: Any = "", after: Any = "", why: str = "", when: When = "now") -> None:
        self.rows[Change(kind, what, _text(before), _text(after), why, "never" if kind == "refused" else when)] = None


def changes(standing: Sequence[Plan], wanted: Plan, again: Collection[str] = ()) -> Changes:
    """The changes that make a lab match another plan of the same name.

    :param again: the nodes that are made again, so that they may be on another hypervisor.
    :param standing: the plans that the lab is made from, the oldest first: one, or several while a change is under way.
    """
    told = _Collected()
    for plan in standing:
        _network(told, plan.network, wanted.network)
        if plan.kubernetes is not None and wanted.kubernetes is not None:
            _cluster(told, plan.cluster, wanted.cluster)
        _controllers(told, plan, wanted)
    there = {node.name: node for plan in standing for node in plan.nodes if node.role != "controller"}
    workers = {node.name: node for node in wanted.nodes if node.role != "controller"}
    whole = {node.name for node in standing[0].nodes}
    added = tuple(node for name, node in workers.items() if name not in whole)
    removed = tuple(node for name, node in there.items() if name not in workers)
    for node in added:
        told.add("added", f"node {node.name}", after=_described(node))
    for node in removed:
        why = "it is drained and leaves the cluster first" if node.is_member else ""
        told.add("removed", f"node {node.name}", _described(node), why=why)
    names, resized, registered, elsewhere = {node.name for node in wanted.nodes}, {}, {}, {}
    for plan in standing:
        taint = _taint(told, plan, wanted)
        for old in plan.nodes:
            if old.name not in names:
                continue
            node = wanted.node(old.name)
            if taint and old.role == "controller":
                registered[node.name] = node
            if old.hypervisor != node.hypervisor and node.name in again:
                told.add(
                    "changed", f"node {node.name}: hypervisor", old.hypervisor, node.hypervisor, "it is made again"
                )
                elsewhere[node.name] = node
                old = old.model_copy(update={"hypervisor": node.hypervisor})
            kept = _kept(told, old, node, moved=plan.network.cidr != wanted.network.cidr)
            if kept and _sizes(told, old, node):
                resized[node.name] = node
            if old.is_member and plan.labels(old) != wanted.labels(node):
                told.add("changed", f"node {node.name}: labels", plan.labels(old), wanted.labels(node))
                registered[node.name] = node
    dropped, altered = _addons(told, standing, wanted)
    return Changes(
        tuple(told.rows),
        added,
        removed,
        tuple(resized.values()),
        tuple(registered.values()),
        tuple(elsewhere.values()),
        dropped,
        altered,
    )


def _network(told: _Collected, old: NetworkPlan, new: NetworkPlan) -> None:
    refused = _fields(told, old.lasting(), new.lasting(), OF_THE_NETWORK)
    others = {name for name in new.lasting() if getattr(old, name) != getattr(new, name)} - set(OF_THE_NETWORK)
    if others and not refused:
        _decided_otherwise(told, "network", others, old, new)
    if old.resolvers != new.resolvers:
        told.add("changed", "network.dns", old.resolvers, new.resolvers, "nodes learn it when they renew their leases")
    if old.proxy != new.proxy:
        before, after = _proxy(old.proxy), _proxy(new.proxy)
        after += " with another password" if before == after else ""
        told.add("changed", "network.proxy", before, after, "the cluster's nodes get it, and containerd is restarted")


def _cluster(told: _Collected, old: ClusterPlan, new: ClusterPlan) -> None:
    refused = _fields(told, old.lasting(), new.lasting(), OF_THE_CLUSTER)
    if old.versions.kubernetes != new.versions.kubernetes:
        before, after = old.versions.kubernetes, new.versions.kubernetes
        why = f"a cluster is not upgraded in place; {_keep('kubernetes.version', before)}"
        told.add("refused", "kubernetes.version", before, after, why)
    elif not refused:  # another profile has other components, another version other companions
        for name in sorted({**old.releases, **new.releases}):
            before, after = old.releases.get(name, "none"), new.releases.get(name, "none")
            if before != after:
                why = f"this winlab brings another version, and nodes keep theirs; {ANEW}"
                told.add("refused", f"version of {name}", before, after, why)


def _controllers(told: _Collected, old: Plan, new: Plan) -> None:
    before, after = (sum(node.role == "controller" for node in plan.nodes) for plan in (old, new))
    if before != after:
        why = f"the API server's address and etcd's members are decided when the cluster is made; {ANEW}"
        told.add("refused", "controllers.count", before, after, why)


def _fields(
    told: _Collected, old: Mapping[str, Any], new: Mapping[str, Any], names: Mapping[str, tuple[str, str]]
) -> bool:
    """Report which of these fields differ; returns whether one does."""
    differing = [name for name in names if old.get(name) != new.get(name)]
    for name in differing:
        what, why = names[name]
        before, after = _usual(name, old.get(name)), _usual(name, new.get(name))
        told.add("refused", what, before, after, f"{why}; {_keep(what, before)}")
    return bool(differing)


def _keep(what: str, value: Any) -> str:
    """How to keep a field of the spec, or the advice to create another lab."""
    return f"keep it with --set {what}={value}, or {ANEW}" if "." in what and value is not None else ANEW


def _decided_otherwise(told: _Collected, what: str, names: Iterable[str], old: Any, new: Any) -> None:
    why = f"this winlab decides it otherwise, and it can't be changed while the lab stands; {ANEW}"
    for name in sorted(names):
        told.add("refused", f"{what}: {name.replace('_', ' ')}", getattr(old, name), getattr(new, name), why)


def _kept(told: _Collected, old: NodePlan, new: NodePlan, *, moved: bool) -> bool:
    """Report what can't be changed on a node; returns whether it keeps its system, which the rest follows from.

    :param moved: its lab's network differs, which is reported once.
    """
    cure = ANEW if new.role == "controller" else AGAIN
    before, after = old.lasting(), new.lasting()
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if moved:
        differing.discard("address")
    if "image" in differing:
        differing = {"image"}
    for name, (words, why) in OF_A_NODE.items():
        if name in differing:
            show = human if name == "disk_mib" else str
            told.add("refused", f"node {new.name}: {words}", show(before[name]), show(after[name]), f"{why}; {cure}")
    if "image" in differing:
        return False
    said, says = old.installed_with(), new.installed_with()
    for name in sorted(name for name in {*said, *says} if said.get(name) != says.get(name)):
        was, shall = ("", "") if name in SECRET else (_usual(name, said.get(name)), _usual(name, says.get(name)))
        why = "the node was made with it" if name == "tainted" else f"{new.system.title} was installed with it"
        told.add("refused", f"node {new.name}: {name.replace('_', ' ')}", was, shall, f"{why}; {cure}")
    if others := differing - set(OF_A_NODE) - DERIVED - {"cpus", "memory_mib"}:
        _decided_otherwise(told, f"node {new.name}", others, old, new)
    return True


def _sizes(told: _Collected, old: NodePlan, new: NodePlan) -> bool:
    """Report which sizes of a node change; returns whether one does."""
    if old.memory_mib != new.memory_mib:
        told.add("changed", f"node {new.name}: memory", human(old.memory_mib), human(new.memory_mib), when="next start")
    if old.cpus != new.cpus:
        told.add("changed", f"node {new.name}: cpus", old.cpus, new.cpus, when="next start")
    return (old.memory_mib, old.cpus) != (new.memory_mib, new.cpus)


def _taint(told: _Collected, old: Plan, new: Plan) -> bool:
    """Report whether controllers leave pods to Linux workers, as they do if there is one; whether that changes."""
    before, after = (
        any(node.role == "worker" for node in plan.linux_nodes()) and not plan.joins for plan in (old, new)
    )
    if before != after:
        words = {True: "no pods but their own", False: "any pods"}
        why = "as long as the lab has Linux workers" if after else "the lab has no Linux worker any more"
        told.add("changed", "controllers run", words[before], words[after], why)
    return before != after


def _addons(
    told: _Collected, standing: Sequence[Plan], wanted: Plan
) -> tuple[tuple[AddonPlan, ...], tuple[AddonPlan, ...]]:
    """Report how add-ons change; returns the removed and the changed ones, as they were, once per existing plan."""
    rows = {row.name: row for row in wanted.addons}
    whole = {row.name for row in standing[0].addons}
    dropped, altered = [], []
    for row in wanted.addons:
        if row.name not in whole:
            told.add("added", f"add-on {row.name}", after=_settings(row))
    for old in [row for plan in standing for row in plan.addons]:
        new = rows.get(old.name)
        if new is None:
            told.add("removed", f"add-on {old.name}", _settings(old))
            dropped.append(old)
        elif (old.settings, old.versions) != (new.settings, new.versions):
            told.add("changed", f"add-on {old.name}", _settings(old), _settings(new))
            altered.append(old)
    return tuple(dropped), tuple(altered)


def _described(node: NodePlan) -> str:
    return f"{node.image}, {node.cpus} CPUs, {human(node.memory_mib)}, {node.address}"


def _settings(row: AddonPlan) -> str:
    versions = [f"{name} {version}" for name, version in row.versions.items()]
    return ", ".join([*versions, *(f"{name}={value}" for name, value in row.settings.items() if value is not None)])


def _proxy(proxy: Proxy | None) -> str:
    if proxy is None:
        return "none"
    shown = proxy.without_logins()
    addresses = ", ".join(dict.fromkeys(filter(None, (shown.http, shown.https))))
    return f"{addresses} except for {', '.join(shown.no_proxy)}" if shown.no_proxy else addresses


def _usual(name: str, value: Any) -> Any:
    usual = {  # lasting() leaves them out
        "reach": "internet",
        "attachment": "nat",
        "tainted": True,
        "made_with": distributions.DEFAULT,
    }
    return usual.get(name) if value is None else value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items()) or "none"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
