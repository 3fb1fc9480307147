"""The networks of an external cluster, its name server and its domain, from whichever of its parts says so.

Sources: kubernetes.io/docs/reference/networking/service-cidr (from 1.33 on), flannel's net-conf.json, Calico's IPPools,
k8s.io/kubernetes pkg/registry/core/service (what the API server says of an address that is outside).
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import yaml

from winlab import documents
from winlab.adapters.kube import reading
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.clusters.model import Kind, Seen
from winlab.design.cni.model import ConfigMapEntry
from winlab.errors import ClusterError, UsageError

PROXY = ConfigMapEntry("kube-system", "kube-proxy", "config.conf")
FLANNEL = tuple(ConfigMapEntry(place, "kube-flannel-cfg", "net-conf.json") for place in ("kube-flannel", "kube-system"))
POOLS = "ippools.crd.projectcalico.org"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # of a node
VALID = re.compile(r"range of valid IPs is ([0-9./]+)")
ASKED = 3  # nodes whose kubelet is asked for its configuration
SECONDS = 10.0  # for each
SHARED = 16  # the prefix of a network that nodes' shares of /24 are usually cut from
OUTSIDE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "winlab-asks", "namespace": "default"},
    "spec": {"clusterIP": "192.0.2.1", "ports": [{"port": 443}]},  # of no network: RFC 5737
}


def services(kubectl: Kubectl, networking: dict[str, Any]) -> str:
    """The IPv4 network of services.

    :param networking: of the cluster's own configuration, if it publishes that.
    :raises UsageError: it has none.
    """
    return _required("service", itertools.chain([networking.get("serviceSubnet")], _service_cidrs(kubectl)))


def pods(kubectl: Kubectl, networking: dict[str, Any], seen: Seen, kind: Kind) -> str:
    """The IPv4 network of all pods: the first that something says; otherwise its distribution's default.

    :raises UsageError: only networks of IPv6 are known.
    """
    first = [networking.get("podSubnet")] if networking.get("podSubnet") else _pod_networks(kubectl, seen, kind)
    return _required("pod", first)


def kubelet(kubectl: Kubectl, seen: Seen) -> dict[str, Any]:
    """The configuration of a kubelet that runs in the cluster; empty if none can be asked."""
    for node in [node.name for node in seen.nodes if NAME.fullmatch(node.name)][:ASKED]:
        with suppress(ClusterError, ValueError, LookupError, TypeError):
            text = kubectl.run("get", f"--raw=/api/v1/nodes/{node}/proxy/configz", limit=SECONDS)
            return dict(documents.from_json(text)["kubeletconfig"])
    return {}


def dns(kubectl: Kubectl, listed: object, services: ipaddress.IPv4Network) -> str:
    """The cluster's name server, as an IPv4 address of its services.

    The kubelets may have another one first: of IPv6, or of a cache that each Linux node has on a link-local address
    (NodeLocal DNSCache), which Windows nodes don't have. The Service of CoreDNS then answers them.
    """
    if found := _among(listed, services):
        return found
    words = ("services", "--namespace=kube-system", "--selector=k8s-app=kube-dns")
    with suppress(ClusterError):
        rows = sorted(kubectl.get(*words)["items"], key=lambda row: (row["metadata"]["name"] != "kube-dns", str(row)))
        for row in rows:
            specified = row.get("spec") or {}
            if found := _among(specified.get("clusterIPs") or [specified.get("clusterIP")], services):
                return found
    return str(services[10])  # as most distributions take it


def _among(addresses: object, services: ipaddress.IPv4Network) -> str:
    """The first of some addresses that a service can have; empty if there is none."""
    for one in addresses if isinstance(addresses, list) else ():
        address = _parsed(str(one))
        if isinstance(address, ipaddress.IPv4Address) and address in services:
            return str(address)
    return ""


def _service_cidrs(kubectl: Kubectl) -> Iterator[str]:
    with suppress(ClusterError):  # before 1.33 there are none
        found = kubectl.find("servicecidrs", "kubernetes")
        yield from ((found or {}).get("spec") or {}).get("cidrs") or ()
    try:
        kubectl.run("create", "--dry-run=server", "--filename=-", stdin=yaml.safe_dump(OUTSIDE))
    except ClusterError as error:
        yield from VALID.findall(error.why)


def _pod_networks(kubectl: Kubectl, seen: Seen, kind: Kind) -> Iterator[str]:
    """What the cluster's parts say of the pods' network, the most reliable first."""
    for place, field in ((PROXY, "clusterCIDR"), *((one, "Network") for one in FLANNEL)):
        yield str((reading.document(kubectl, place) or {}).get(field) or "")
    with suppress(ClusterError):  # it has no Calico
        specs = [row.get("spec") or {} for row in kubectl.get(POOLS)["items"]]
        yield from (str(spec.get("cidr") or "") for spec in specs if not spec.get("disabled"))
    yield kind.pods(seen)
    yield _around([node.pod_cidr for node in seen.nodes], kind.facts.pods)
    yield kind.facts.pods


def _around(shares: Iterable[str], usual: str) -> str:
    """The network around the nodes' own: the distribution's default if that has them all."""
    own = [share for share in map(_network, shares) if share is not None]
    if not own:
        return ""
    around = ipaddress.IPv4Network(usual)
    if not all(share.subnet_of(around) for share in own):
        around = own[0]
        while not all(share.subnet_of(around) for share in own):
            around = around.supernet()
        around = around if around.prefixlen <= SHARED else around.supernet(new_prefix=SHARED)
    return str(around)


def _required(what: str, texts: Iterable[object]) -> str:
    """The first IPv4 network among texts such as ``10.244.0.0/16,fd00::/64``.

    :raises UsageError: there is none.
    """
    seen = []
    for text in filter(None, texts):
        seen.append(str(text))
        for part in str(text).split(","):
            if (found := _network(part.strip())) is not None:
                return str(found)
    raise UsageError(
        f"The cluster has no IPv4 {what} network.",
        why=f"It says: {', '.join(seen)[:200] or 'nothing'}.",
        cure="Add one: the nodes of a lab use IPv4.",
    )


def _network(text: str) -> ipaddress.IPv4Network | None:
    with suppress(ValueError):
        return ipaddress.IPv4Network(text, strict=False)
    return None


def _parsed(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None
