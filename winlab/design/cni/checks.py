"""What can be wrong with a pod network, reported before anything is touched. Pure."""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator, Sequence

from winlab.design.cni.model import (
    NODE_PREFIX,
    VXLAN_OVERHEAD,
    WINDOWS_PORT,
    WINDOWS_VNI,
    NodeNetwork,
    PodNetwork,
    has_hns,
)
from winlab.design.cni.profile import Profile
from winlab.design.problem import Problem
from winlab.design.system.windows import HNS_MTU
from winlab.errors import UsageError

LARGEST_VNI = (1 << 24) - 1
MTUS = range(1280, 9001)
DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
SETTINGS = {
    "pods": "kubernetes.pod_cidr",
    "services": "kubernetes.service_cidr",
    "lab": "network.cidr",
    "external": "the external network ('winlab host setup --external-cidr')",
}


def check(profile: Profile, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> None:
    """Check that the network can work with these nodes.

    :raises UsageError: it can't; the message names all problems, each with its cure.
    """
    all_problems = problems(profile, network, nodes)
    if all_problems:
        raise UsageError(
            f"The pods' network can't work with the CNI profile '{profile.name}'.",
            why=" ".join(problem.what for problem in all_problems),
            cure=" ".join(dict.fromkeys(problem.cure for problem in all_problems)),
        )


def problems(profile: Profile, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> list[Problem]:
    """All problems of the network; empty if there are none."""
    cidrs = {
        "pods": network.pod_cidr,
        "services": network.service_cidr,
        "lab": network.lab_cidr,
        "external": network.external_cidr,
    }
    parsed: dict[str, ipaddress.IPv4Network] = {}
    all_problems: list[Problem] = []
    for name, text in cidrs.items():
        try:
            parsed[name] = ipaddress.IPv4Network(text)
        except ValueError as error:
            all_problems.append(_unreadable(name, text, error))
    all_problems += _overlaps(parsed)
    if "pods" in parsed:
        all_problems += _pod_sizes(parsed["pods"], nodes)
    if "services" in parsed:
        all_problems += _services(parsed["services"], network.cluster_dns)
    if not DOMAIN.fullmatch(network.cluster_domain):
        all_problems.append(
            Problem(f"'{network.cluster_domain}' is not a domain name.", "Use a lower-case one, such as cluster.local.")
        )
    all_problems += _mtu(network, nodes)
    all_problems += _vxlan(profile, network)
    if "lab" in parsed and "pods" in parsed:
        all_problems += _nodes(parsed["lab"], parsed["pods"], nodes)
    return [*all_problems, *profile.own_problems(network, nodes)]


def _unreadable(name: str, text: str, error: ValueError) -> Problem:
    try:
        ipaddress.IPv6Network(text)
    except ValueError:
        cure = f"Give {SETTINGS[name]} an IPv4 network without host bits, such as 10.244.0.0/16."
        return Problem(f"The network of the {name}, '{text}', is not an IPv4 network: {error}.", cure)
    return Problem(
        f"The network of the {name}, {text}, is IPv6.",
        f"Give {SETTINGS[name]} an IPv4 network: no profile of winlab does IPv6, as Calico and HNS overlays can't "
        "on Windows.",
    )


def _overlaps(parsed: dict[str, ipaddress.IPv4Network]) -> Iterator[Problem]:
    for (one, first), (other, second) in itertools.combinations(parsed.items(), 2):
        if first.overlaps(second):
            yield Problem(
                f"The networks of the {one}, {first}, and of the {other}, {second}, overlap.",
                f"Change {SETTINGS[one]} or {SETTINGS[other]}.",
            )


def _pod_sizes(pods: ipaddress.IPv4Network, nodes: Sequence[NodeNetwork]) -> Iterator[Problem]:
    need = max(len(nodes), 1)
    room = 1 << (NODE_PREFIX - pods.prefixlen) if pods.prefixlen <= NODE_PREFIX else 0
    if room < need:
        prefix = NODE_PREFIX - (need - 1).bit_length()
        yield Problem(
            f"{pods} is too small for the pods of {need} {'node' if need == 1 else 'nodes'}: "
            f"each takes a /{NODE_PREFIX}.",
            f"Give kubernetes.pod_cidr a network of /{prefix} or larger.",
        )
    if pods.prefixlen < NODE_PREFIX - 16:  # kube-controller-manager: clusterSubnetMaxDiff
        yield Problem(
            f"{pods} is too large for the pods: Kubernetes counts at most 65536 nodes' shares.",
            f"Give kubernetes.pod_cidr a network of /{NODE_PREFIX - 16} or smaller.",
        )


def _services(services: ipaddress.IPv4Network, dns: str) -> Iterator[Problem]:
    if not 12 <= services.prefixlen <= 28:  # kube-apiserver: at most 20 bits; DNS has the tenth address
        yield Problem(
            f"{services} can't be the network of the services.", "Give kubernetes.service_cidr one of /12 to /28."
        )
        return
    try:
        address = ipaddress.IPv4Address(dns)
    except ValueError:
        yield Problem(f"The cluster's name server '{dns}' is not an IPv4 address.", f"Take {services[10]}.")
        return
    # the first address is the API server's own service
    if address not in services or address in (services[0], services[1], services[-1]):
        yield Problem(
            f"The cluster's name server {dns} is not a free address of the services' network {services}.",
            f"Take {services[10]}.",
        )


def _mtu(network: PodNetwork, nodes: Sequence[NodeNetwork]) -> Iterator[Problem]:
    if network.mtu not in MTUS:
        yield Problem(
            f"An MTU of {network.mtu} is out of range.", f"Give network.mtu a value of {MTUS[0]} to {MTUS[-1]}."
        )
    need = HNS_MTU + (VXLAN_OVERHEAD if network.encapsulation == "vxlan" else 0)
    if network.mtu < need and has_hns(nodes):
        yield Problem(
            f"Windows pods send packets of up to {HNS_MTU} bytes whatever the NIC's MTU, which needs {need} on the "
            f"wire; the lab has {network.mtu}.",
            f"Give network.mtu at least {need}. If tunnels between hypervisors take less, docs/placement.md shows what "
            "to do.",
        )


def _vxlan(profile: Profile, network: PodNetwork) -> Iterator[Problem]:
    if network.encapsulation != profile.encapsulation:
        yield Problem(
            f"The profile's encapsulation is '{profile.encapsulation}', not '{network.encapsulation}'.",
            f"Make the network for the profile '{profile.name}'.",
        )
        return
    if network.encapsulation == "none":
        return
    if network.vni is None or not WINDOWS_VNI <= network.vni <= LARGEST_VNI:
        yield Problem(
            f"Windows takes VNIs from {WINDOWS_VNI} to {LARGEST_VNI}, not {network.vni}.",
            f"Use the VNI {WINDOWS_VNI}.",
        )
    if network.port != WINDOWS_PORT:
        yield Problem(
            f"Windows speaks VXLAN on UDP port {WINDOWS_PORT} alone, not {network.port}.",
            f"Use the port {WINDOWS_PORT}.",
        )


def _nodes(lab: ipaddress.IPv4Network, pods: ipaddress.IPv4Network, nodes: Sequence[NodeNetwork]) -> Iterator[Problem]:
    seen: list[tuple[str, ipaddress.IPv4Network]] = []
    for node in nodes:
        if ipaddress.IPv4Address(node.address) not in lab:
            yield Problem(
                f"Node '{node.name}' has the address {node.address}, outside the lab's network {lab}.",
                "All nodes have to be on the lab's own switch.",
            )
        if node.pod_cidr is None:
            continue
        if not node.pods.subnet_of(pods):
            yield Problem(
                f"The pods of node '{node.name}', {node.pods}, are outside the pods' network {pods}.",
                "Let kube-controller-manager run with --cluster-cidr as in kubernetes.pod_cidr.",
            )
        for other, cidr in seen:
            if cidr.overlaps(node.pods):
                yield Problem(
                    f"The pods of the nodes '{other}' and '{node.name}' overlap: {cidr}, {node.pods}.",
                    "Delete one of the two Node objects; it gets another pod CIDR when its kubelet registers again.",
                )
        seen.append((node.name, node.pods))
