"""An external cluster: what winlab must know about it before its workers can join.

It is read with kubectl and the user's kubeconfig. Nothing is asked that only one distribution answers, except for what
its own ConfigMaps say better. Nothing is changed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from winlab.adapters.kube import identity, probe, ranges, reading
from winlab.adapters.kube.kubectl import Kubectl, understood
from winlab.design.clusters import known as kinds
from winlab.design.clusters import networks
from winlab.design.clusters.model import Seen
from winlab.design.distribution import known
from winlab.design.plan.existing import HTTPS, ForeignCluster
from winlab.errors import ClusterError, UsageError

OLDEST_KUBELET = 3  # minors that a kubelet may be behind the API server: kubernetes.io/releases/version-skew-policy
PUBLISHED = known.DEFAULT.published


def read(kubectl: Kubectl, server: str = "", own: str = "", *, attached: bool = False) -> ForeignCluster:
    """Read a cluster's facts. Changes nothing.

    :param server: host:port of the API server for the lab's nodes.
    :param own: that of the kubeconfig.
    :param attached: the lab's nodes will be in the network of the cluster's.
    :raises ClusterError: it does not answer, or these credentials may not do what a join needs.
    :raises UsageError: *server* is not the URL of an API server, no address of one is known, the cluster has no IPv4
        network, or a worker would break its network.
    """
    seen = probe.look(kubectl)
    if seen.lacking:
        raise ClusterError(
            "These credentials may not do what nodes need to join the cluster.",
            why=f"They may not {'; '.join(seen.lacking)}.",
            cure="Give a kubeconfig of an administrator with --kubeconfig.",
        )
    if networks.is_kindnet(seen.daemon_sets) and not attached:
        raise UsageError(
            "A worker would break the cluster's own network.", why=networks.KINDNET.says, cure=networks.KINDNET.cure
        )
    with understood("The configuration of the cluster"):
        return _read(kubectl, seen, server, own)


def _read(kubectl: Kubectl, seen: Seen, server: str, own: str) -> ForeignCluster:
    kind = kinds.of(seen)
    advertised, reached = _addresses(_published(kubectl), _url(server) if server else "", own, seen)
    networking = (reading.document(kubectl, PUBLISHED.cluster) or {}).get("networking") or {}
    kubelet = reading.document(kubectl, PUBLISHED.kubelet) or ranges.kubelet(kubectl, seen)
    services = ranges.services(kubectl, networking)
    number = reading.VERSION.match(seen.version)
    assert number is not None
    return ForeignCluster(
        server=reached,
        advertised=advertised,
        ca=identity.authorities(kubectl).server,
        version=number[0],
        pod_cidr=ranges.pods(kubectl, networking, seen, kind),
        service_cidr=services,
        dns=ranges.dns(kubectl, kubelet.get("clusterDNS"), ipaddress.IPv4Network(services)),
        domain=str(kubelet.get("clusterDomain") or networking.get("dnsDomain") or "cluster.local").lower().rstrip("."),
        cni=seen.profile,
        cni_note=seen.network,
        nodes=tuple(node.name for node in seen.nodes),
        kind=kind.name,
        proxies=kind.facts.proxies,
        allocates=kind.facts.allocates or any(node.pod_cidr for node in seen.nodes),
        in_agents=networks.is_in_agents(seen),
        own_half=networks.on_windows(seen),
        overlays=networks.overlays(seen),
        lacks=kind.lacks(seen),
        addresses=tuple(node.address for node in seen.nodes if node.address),
        on_link=networks.is_on_link(seen),
    )


def _published(kubectl: Kubectl) -> str:
    """The API server's URL, as some distributions publish it for nodes that join; empty if this one does not."""
    place = PUBLISHED.access
    info = reading.document(kubectl, place)
    if info is None:
        return ""
    try:
        server = str(info["clusters"][0]["cluster"]["server"])
        if not urlsplit(server).hostname or urlsplit(server).port == 0:  # ValueError: it is not a number
            raise ValueError(f"'{server}' is not a URL")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ClusterError(f"The cluster's {place.name} has no server.", why=repr(error)) from error
    return server


def _addresses(published: str, given: str, own: str, seen: Seen) -> tuple[str, str]:
    """The API server's URL as nodes use it, and the one that it resolves to.

    The name in its certificate is one that all have (:data:`winlab.design.cni.model.SERVER_NAME`), so any
    address that leads there will do. A name that the cluster's own pods use is kept, if the address may be its.

    :raises UsageError: there is none that nodes can use.
    """
    if given:
        return (published if published and _leads(published, given) else given), given
    for url in filter(None, (published, own and f"https://{own}", *(f"https://{one}" for one in seen.endpoints))):
        if not _is_local(urlsplit(url).hostname or ""):
            return url, url
    raise UsageError(
        "The cluster publishes no address of its API server that nodes could use.",
        why=f"Its kubeconfig says {own or 'nothing'}, which on each machine means the machine itself.",
        cure="Give its address with --server ADDRESS:PORT.",
    )


def _is_local(host: str) -> bool:
    address = _address(host)
    return host in ("", "localhost") or (address is not None and (address.is_loopback or address.is_unspecified))


def problems(cluster: ForeignCluster, network_cidr: str, names: Iterable[str], kubelet_minor: int) -> list[str]:
    """Why winlab's workers can't join, one sentence per reason; empty if they can. Pure.

    :param network_cidr: the lab's inner network.
    :param names: the names of the nodes that are to join.
    :param kubelet_minor: the minor version of their kubelet, the number after ``1.``.
    """
    reasons = []
    lab = ipaddress.IPv4Network(network_cidr)
    host = urlsplit(cluster.server).hostname or ""
    address = _address(host)
    if _is_local(host):
        reasons.append(
            f"Its API server says that it is at {cluster.server}, which on each machine means the machine itself."
        )
    elif isinstance(address, ipaddress.IPv6Address):
        reasons.append(f"Its API server {address} has an IPv6 address, and the lab's nodes have IPv4 alone.")
    elif isinstance(address, ipaddress.IPv4Address) and address in lab and cluster.bridge is None:
        reasons.append(f"Its API server {address} is in the lab's own network {lab}.")
    for what, cidr in (("pod", cluster.pod_cidr), ("service", cluster.service_cidr)):
        if ipaddress.IPv4Network(cidr).overlaps(lab):
            reasons.append(f"Its {what} network {cidr} and the lab's network {lab} overlap.")
    if duplicates := sorted(set(names) & set(cluster.nodes)):
        reasons.append(f"It already has nodes of the same names: {', '.join(duplicates)}.")
    if not cluster.minor - OLDEST_KUBELET <= kubelet_minor <= cluster.minor:
        reasons.append(
            f"A kubelet 1.{kubelet_minor} is not supported by an API server {cluster.version}: "
            f"it may be at most {OLDEST_KUBELET} minor versions older, and never newer."
        )
    return reasons


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _leads(advertised: str, server: str) -> bool:
    """Whether the lab's own DNS can resolve the name in *advertised* to the address in *server*."""
    named, known = urlsplit(advertised), urlsplit(server)
    port = named.port or HTTPS
    is_name = _address(named.hostname or "") is None and named.hostname != "localhost"
    address = _address(known.hostname or "")
    return is_name and isinstance(address, ipaddress.IPv4Address) and port == known.port


def check(cluster: ForeignCluster, network_cidr: str, names: Iterable[str], kubelet_minor: int) -> None:
    """Check that winlab's workers can join.

    :raises UsageError: they can't; the error lists all reasons. Nothing was touched.
    """
    if reasons := problems(cluster, network_cidr, names, kubelet_minor):
        raise UsageError(
            f"Workers of this lab can't join the cluster at {cluster.server}.",
            why="\n".join(reasons),
            cure="Choose matching values with --set network.cidr=, --set kubernetes.version=, --prefix or --server.",
        )


def _url(server: str) -> str:
    parts = urlsplit(server if "://" in server else f"https://{server}")
    try:
        fine = parts.scheme == "https" and parts.hostname and parts.path in ("", "/") and parts.port is not None
    except ValueError:
        fine = False
    if not fine:
        raise UsageError(
            f"'{server}' is not the address of an API server.",
            cure="Write it as https://host:port: https://192.0.2.10:6443.",
        )
    return f"https://{parts.netloc}"
