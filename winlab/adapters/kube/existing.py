"""An external cluster: what winlab must know about it before its workers can join.

It is read with kubectl and the user's kubeconfig, from the ConfigMaps that its distribution leaves in every cluster
that it makes (:class:`~winlab.design.distribution.model.Published`). The only change is a bootstrap token, which is
made for the join and deleted afterwards.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import yaml

from winlab import documents
from winlab.adapters.kube.kubectl import UNDERSTAND, Kubectl, understood
from winlab.design import cni
from winlab.design.clusters import networks
from winlab.design.cni.model import AllObjects, Answer, ConfigMapEntry, Question, Unreadable
from winlab.design.distribution import known
from winlab.design.distribution.model import Distribution
from winlab.design.plan.existing import HTTPS, ForeignCluster
from winlab.errors import ClusterError, NotFoundError, UsageError

VERSION = re.compile(r"v1\.[0-9]+\.[0-9]+")
OLDEST_KUBELET = 3  # minors that a kubelet may be behind the API server: kubernetes.io/releases/version-skew-policy


def read(
    kubectl: Kubectl, server: str = "", distribution: Distribution = known.DEFAULT, *, attached: bool = False
) -> ForeignCluster:
    """Read a cluster's facts. Changes nothing.

    :param server: host:port of the advertised API server, if the lab's nodes can't resolve its name.
    :param distribution: what the cluster is expected to be made with.
    :param attached: the lab's nodes will be in the network of the cluster's.
    :raises NotFoundError: it was not.
    :raises ClusterError: it does not answer, or these credentials may not make tokens.
    :raises UsageError: *server* is not the URL of an API server, the cluster has no IPv4 network, or a worker would
        break its network.
    """
    number = VERSION.match(version(kubectl))
    assert number is not None
    _require_rights(kubectl)
    with understood(
        "The configuration of the cluster", f"Is this a cluster that {distribution.name} made? {UNDERSTAND}"
    ):
        return _read(kubectl, server, number[0], distribution, attached=attached)


def _read(kubectl: Kubectl, server: str, version: str, distribution: Distribution, *, attached: bool) -> ForeignCluster:
    advertised, ca = _info(kubectl, distribution)
    networking = _document(kubectl, distribution.published.cluster, distribution).get("networking") or {}
    kubelet = _document(kubectl, distribution.published.kubelet, distribution)
    services = _ipv4(networking.get("serviceSubnet"), "service", distribution)
    rows = kubectl.get("daemonsets", "--all-namespaces")["items"]
    kindnet = networks.is_kindnet(str(row["metadata"]["name"]) for row in rows)
    if kindnet and not attached:
        raise UsageError(
            "A worker would break the cluster's own network.", why=networks.KINDNET.says, cure=networks.KINDNET.cure
        )
    profile, note = network(kubectl, rows)
    nodes = kubectl.get("nodes")["items"]
    return ForeignCluster(
        server=_url(server) if server else advertised,
        advertised=advertised,
        ca=ca,
        version=version,
        pod_cidr=_ipv4(networking.get("podSubnet"), "pod", distribution),
        service_cidr=services,
        dns=_dns(kubectl, kubelet.get("clusterDNS"), ipaddress.IPv4Network(services)),
        domain=str(kubelet.get("clusterDomain") or networking.get("dnsDomain") or "cluster.local").lower().rstrip("."),
        cni=profile,
        cni_note=note,
        nodes=tuple(str(row["metadata"]["name"]) for row in nodes),
        distribution=distribution,
        addresses=tuple(filter(None, map(internal, nodes))),
        on_link=kindnet or networks.is_host_gw((row["metadata"].get("annotations") or {}) for row in nodes),
    )


def internal(node: dict[str, Any]) -> str:
    """The IPv4 address of a Node object by which the cluster's others reach it; empty if it has none."""
    rows = (node.get("status") or {}).get("addresses") or []
    addresses = [str(row["address"]) for row in rows if row["type"] == "InternalIP"]
    return next((one for one in addresses if isinstance(_address(one), ipaddress.IPv4Address)), "")


def authority(kubectl: Kubectl, distribution: Distribution) -> str:
    """The CA, as PEM, with which the cluster's nodes verify its API server.

    A user's kubeconfig may have another CA, such as that of a load balancer or proxy in front.

    :raises NotFoundError: the cluster was made with another distribution.
    :raises ClusterError: it does not answer.
    """
    return _info(kubectl, distribution)[1]


def _info(kubectl: Kubectl, distribution: Distribution) -> tuple[str, str]:
    """The API server's URL and its CA, as published for nodes that join."""
    place = distribution.published.access
    info = _document(kubectl, place, distribution)
    try:
        cluster = info["clusters"][0]["cluster"]
        server = str(cluster["server"])
        if not urlsplit(server).hostname or urlsplit(server).port == 0:  # ValueError: it is not a number
            raise ValueError(f"'{server}' is not a URL")
        return server, base64.b64decode(cluster["certificate-authority-data"]).decode()
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error) as error:
        raise ClusterError(f"The cluster's {place.name} has no server or no CA.", why=repr(error)) from error


def problems(cluster: ForeignCluster, network_cidr: str, names: Iterable[str], kubelet_minor: int) -> list[str]:
    """Why winlab's workers can't join, one sentence per reason; empty if they can. Pure.

    :param network_cidr: the lab's inner network.
    :param names: the names of the nodes that are to join.
    :param kubelet_minor: the minor version of their kubelet, the number after ``1.``.
    """
    reasons = []
    place = cluster.distribution.published.access
    lab = ipaddress.IPv4Network(network_cidr)
    host = urlsplit(cluster.server).hostname or ""
    address = _address(host)
    if cluster.server != cluster.advertised and not _leads(cluster.advertised, cluster.server):
        reasons.append(
            f"It advertises {cluster.advertised} (ConfigMap {place.name} in {place.namespace}), and "
            f"{cluster.distribution.name} uses that address whatever else it is given; so {cluster.server} can't "
            "replace it. --server can only give the IPv4 address of a name in it, with the same port."
        )
    if host == "localhost" or (address is not None and (address.is_loopback or address.is_unspecified)):
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
    place = cluster.distribution.published.access
    if reasons := problems(cluster, network_cidr, names, kubelet_minor):
        raise UsageError(
            f"Workers of this lab can't join the cluster at {cluster.server}.",
            why="\n".join(reasons),
            cure="Choose fitting values with --set network.cidr=, --set kubernetes.version=, --prefix or --server; "
            f"or change what it advertises: 'kubectl -n {place.namespace} edit configmap {place.name}'.",
        )


def version(kubectl: Kubectl) -> str:
    """The API server's version, with the suffix of its distribution: ``v1.36.1+k3s1``.

    :raises ClusterError: it does not answer, or reports none.
    """
    try:
        answer = kubectl.run("version", "--output=json")
    except ClusterError as error:
        raise ClusterError(
            "The cluster does not answer.",
            why=error.why,
            cure="Check that this host reaches the server in the kubeconfig, and that its credentials are still valid.",
        ) from error
    try:
        full = str(documents.from_json(answer)["serverVersion"]["gitVersion"])
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError("The API server does not report its version.", why=repr(error)) from error
    if VERSION.match(full) is None:
        raise ClusterError(
            "The API server reports a version that winlab can't parse.", why=f"It is '{full[:100]}', not like v1.36.3."
        )
    return full[:100]


def _require_rights(kubectl: Kubectl) -> None:
    try:
        kubectl.run("auth", "can-i", "create", "secrets", "--namespace=kube-system")
    except ClusterError as error:
        raise ClusterError(
            "These credentials may not create a bootstrap token in the cluster.",
            why=error.why,
            cure="Give a kubeconfig of an administrator with --kubeconfig.",
        ) from error


def _document(kubectl: Kubectl, place: ConfigMapEntry, distribution: Distribution) -> dict[str, Any]:
    """A YAML document that the distribution leaves in its clusters.

    :raises NotFoundError: there is none.
    """
    found = document(kubectl, place)
    if found is None:
        raise NotFoundError(
            f"The cluster has no '{place.name}' in {place.namespace}: it was not made by {distribution.name}.",
            why=f"A Windows worker joins with '{distribution.name} join', which reads it.",
            cure=f"Give the kubeconfig of a cluster that was made by {distribution.name}.",
        )
    return found


def document(kubectl: Kubectl, place: ConfigMapEntry) -> dict[str, Any] | None:
    """A YAML document in a ConfigMap; None if there is none.

    :raises ClusterError: it can't be parsed.
    """
    words = ("get", "configmap", place.name, f"--namespace={place.namespace}", "--ignore-not-found", "--output=json")
    config_map = kubectl.run(*words).strip()
    try:
        found = documents.from_yaml(documents.from_json(config_map)["data"][place.key]) if config_map else None
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        where = f"'{place.name}' in {place.namespace}"
        raise ClusterError(f"The ConfigMap {where} can't be parsed.", why=repr(error)) from error
    return found if isinstance(found, dict) else None


def _ipv4(subnets: object, what: str, distribution: Distribution) -> str:
    """The IPv4 network among ``10.244.0.0/16,fd00::/64``."""
    for part in str(subnets or "").split(","):
        with suppress(ValueError):
            return str(ipaddress.IPv4Network(part.strip(), strict=False))
    raise UsageError(
        f"The cluster has no IPv4 {what} network.",
        why=f"Its {distribution.published.cluster.name} has: {subnets or 'nothing'}.",
        cure=f"Add one (networking in {distribution.name}'s {distribution.published.cluster.key}): winlab's Windows "
        "workers use IPv4.",
    )


def _dns(kubectl: Kubectl, listed: object, services: ipaddress.IPv4Network) -> str:
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
        address = _address(str(one))
        if isinstance(address, ipaddress.IPv4Address) and address in services:
            return str(address)
    return ""


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


def network(kubectl: Kubectl, rows: Iterable[dict[str, Any]]) -> tuple[str | None, str]:
    """Which of winlab's profiles matches the cluster's pod network, if any; and what was seen.

    :param rows: the cluster's DaemonSets.
    :raises ClusterError: it does not answer.
    """
    daemon_sets = {str(row["metadata"]["name"]): str(row["metadata"]["namespace"]) for row in rows}
    profiles = cni.profiles().values()
    questions = dict.fromkeys(question for profile in profiles for question in profile.questions(daemon_sets))
    answers = {question: _answer(kubectl, question) for question in questions}
    for profile in profiles:
        if (recognized := profile.recognize(daemon_sets, answers)) is not None:
            return recognized.profile, recognized.note
    others = sorted(set(daemon_sets) - {"kube-proxy"})
    return None, f"its DaemonSets are {', '.join(others)}" if others else "it has no DaemonSet of a CNI"


def _answer(kubectl: Kubectl, question: Question) -> Answer:
    try:
        if isinstance(question, AllObjects):
            return list(kubectl.get(question.resource)["items"])
        found = document(kubectl, question)
    except ClusterError as error:
        return Unreadable(error.why or error.what)
    return Unreadable(f"there is no '{question.name}' in {question.namespace}") if found is None else found
