"""The verdict on a cluster: what workers will have, what they lack, and what the user changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from winlab.design.catalog import versions
from winlab.design.clusters import known, networks, ways
from winlab.design.clusters.model import Ends, Finding, Kind, Reach, Seen

OLDEST_KUBELET = 3  # minors that a kubelet may be behind the API server: kubernetes.io/releases/version-skew-policy
MINOR = re.compile(r"v1\.([0-9]{1,4})\.")


def findings(seen: Seen, ends: Ends, reach: Sequence[Reach], *, windows: bool = False) -> list[Finding]:
    """All rows of the verdict, in the order in which they matter.

    :param reach: the addresses of the API server that nodes could use.
    :param windows: some of the workers run Windows.
    """
    kind = known.of(seen)
    rows = [
        _distribution(seen, kind),
        _version(seen),
        _credentials(seen),
        _roles(seen, kind),
        *_reach(reach),
        *ways.findings(ends),
        networks.finding(seen, kind, ends.attachment),
        *(Finding("pods on Windows", "refused", one.says, one.cure) for one in kind.lacks(seen) if windows),
        _kubelets(kind),
        *kind.findings(seen),
    ]
    if seen.eager:
        listed = ", ".join(seen.eager[:10])
        cure = "Give them 'nodeSelector: {kubernetes.io/os: linux}'."
        rows.append(Finding("DaemonSets", "warning", f"Their pods also run on Windows nodes: {listed}.", cure))
    return rows


def refusals(rows: Sequence[Finding]) -> list[Finding]:
    """The rows because of which no worker can join."""
    return [row for row in rows if row.level == "refused"]


def _distribution(seen: Seen, kind: Kind) -> Finding:
    return Finding("distribution", "ok", f"{kind.name}, {seen.version}, {len(seen.nodes)} nodes.")


def _version(seen: Seen) -> Finding:
    about, match = "version", MINOR.match(seen.version)
    minor = int(match[1]) if match else 0
    fit = [row for row in versions.load().combinations if minor - OLDEST_KUBELET <= row.minor <= minor]
    if fit:
        best = max(fit, key=lambda row: row.minor)
        return Finding(about, "ok", f"kubelet {best.kubernetes} for the API server's {seen.version}.")
    return Finding(
        about,
        "refused",
        f"winlab knows no kubelet for {seen.version}: it may be at most {OLDEST_KUBELET} minor versions older, and "
        f"never newer. Known are {', '.join(versions.names())}.",
        f"Update the cluster; or try --set kubernetes.version={seen.version.partition('+')[0]} "
        "--set kubernetes.untested=true.",
    )


def _credentials(seen: Seen) -> Finding:
    about = "credentials"
    if not seen.lacking:
        return Finding(about, "ok", "They may approve a node's certificate and make kube-proxy's account.")
    says = f"They may not {'; '.join(seen.lacking)}."
    return Finding(about, "refused", says, "Give an administrator's kubeconfig with --kubeconfig.")


def _roles(seen: Seen, kind: Kind) -> Finding:
    about = "roles (RBAC)"
    if seen.rbac:
        return Finding(about, "ok", "A worker's certificate has a node's rights.")
    return Finding(
        about, "warning", "The API server checks no rights: each worker's certificate may do anything.", kind.rbac_cure
    )


def _reach(tried: Sequence[Reach]) -> list[Finding]:
    about = "workers reach the API"
    if not tried:
        says = "The cluster publishes no IPv4 address of its API server, and the kubeconfig's is this host's loopback."
        return [Finding(about, "refused", says, "Give its address with --server ADDRESS:PORT.")]
    reached = any(not one.why for one in tried)
    return [_reached(about, one) if not one.why else _unreached(about, one, reached) for one in tried]


def _reached(about: str, one: Reach) -> Finding:
    if one.here:
        says = f"{one.address} is this host, which a lab's nodes reach only if its spec allows it."
        return Finding(about, "change", says, "Add --set network.reach=all.")
    return Finding(about, "ok", f"{one.address} answers this host, and guests reach what this host reaches.")


def _unreached(about: str, one: Reach, reached: bool) -> Finding:
    says = f"{one.address}: {one.why}."
    if reached:
        return Finding(about, "change", f"{says} Pods on Windows are sent there, too.", "Allow the connection.")
    return Finding(about, "refused", says, "Allow the connection, or give another address with --server.")


def _kubelets(kind: Kind) -> Finding:
    about = "kubelets' certificates"
    if kind.facts.verifies:
        return Finding(about, "ok", "The API server verifies them: winlab approves each request that is as planned.")
    return Finding(about, "ok", "The API server does not verify them; winlab approves them all the same.")
