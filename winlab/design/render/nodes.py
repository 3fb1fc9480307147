"""What nodes get for Kubernetes: kubeadm's view of the lab, and the settings of scripts in nodes. Pure.

Steps run these calls; ``winlab plan --render`` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from winlab.design import cni, contract
from winlab.design.cni.model import Endpoint, NodeNetwork
from winlab.design.cni.routed import Routed
from winlab.design.plan import required
from winlab.design.plan.cluster import network
from winlab.design.plan.model import NodePlan, Plan, WindowsNode
from winlab.design.render import containerd as containerd_files
from winlab.design.render import kube_proxy, kubeadm, runtime_classes
from winlab.design.render import kubelet as kubelet_files

MACHINE = "winlab.internal/machine"  # a label, by which destroy finds the lab's nodes in a cluster made elsewhere


def cluster(plan: Plan) -> kubeadm.ClusterSettings:
    """The cluster as kubeadm's configuration needs it."""
    return kubeadm.ClusterSettings(
        versions=plan.cluster.versions,
        endpoint=plan.cluster.endpoint,
        names=plan.cluster.names,
        pod_cidr=plan.cluster.pod_cidr,
        service_cidr=plan.cluster.service_cidr,
        domain=plan.cluster.domain,
        proxy_mode=cni.get(plan.cluster.profile).proxy_mode,
        preloaded=True,
        emulated=plan.host.accelerator != "kvm",
    )


def member(plan: Plan, node: NodePlan) -> kubeadm.Member:
    """A node as kubeadm's configuration needs it."""
    linux_workers = sum(one.os == "linux" and one.role == "worker" for one in plan.nodes)
    taints = kubeadm.controller_taints(linux_workers) if node.role == "controller" else kubeadm.worker_taints(node.os)
    labels = plan.labels(node) | ({MACHINE: node.uuid} if plan.joins else {})
    return kubeadm.Member(node.name, node.address, node.os, labels, taints)


def objects(plan: Plan) -> list[dict[str, Any]]:
    """The cluster's objects: runtime classes, and those of the CNI profile, unless the cluster is made elsewhere."""
    found = runtime_classes.objects(sorted({node.windows.release for node in plan.windows_nodes()}))
    if plan.joins:  # it manages its own network
        return found
    host, _, port = plan.cluster.endpoint.rpartition(":")
    profile, endpoint = cni.get(plan.cluster.profile), Endpoint(host, int(port))
    return [*found, *profile.manifests(network(plan), parts(plan), endpoint, plan.cluster.releases)]


def parts(plan: Plan) -> list[NodeNetwork]:
    """All nodes for CNI profiles, before they have pod networks."""
    return [NodeNetwork(node.name, node.os, node.address) for node in plan.nodes]


def prepare(plan: Plan, node: NodePlan) -> contract.Prepare:
    """Install everything that a Linux node needs before kubeadm."""
    texts = {
        "/etc/systemd/system/containerd.service": containerd_files.unit(),
        "/etc/systemd/system/kubelet.service": kubelet_files.unit(),
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": kubelet_files.drop_in(),
        "/etc/containerd/config.toml": containerd_files.config(plan.cluster.versions, "linux"),
        "/etc/crictl.yaml": containerd_files.crictl("linux"),
    }
    if node.role == "controller":
        texts |= kubeadm.patches(cluster(plan))
    return contract.Prepare(
        files={path: contract.NodeFile(text) for path, text in texts.items()},
        services=["containerd", "kubelet"],
        images=required.node_images(plan, controller=node.role == "controller"),
    )


def init(plan: Plan, node: NodePlan, token: str, certificate_key: str | None = None) -> contract.RunKubeadm:
    """Make the cluster, on the first controller.

    :param certificate_key: the key that encrypts the certificates kept for further controllers.
    """
    text = kubeadm.init(cluster(plan), member(plan, node), token, certificate_key)
    return contract.RunKubeadm(arguments=["init"], configuration=text)


def join(plan: Plan, node: NodePlan, credentials: kubeadm.JoinCredentials) -> contract.RunKubeadm:
    """Join a further Linux node."""
    make = kubeadm.join_controller if node.role == "controller" else kubeadm.join_worker
    return contract.RunKubeadm(arguments=["join"], configuration=make(cluster(plan), member(plan, node), credentials))


def features(plan: Plan, node: WindowsNode) -> contract.Features:
    """The features that Windows must have."""
    wanted = cni.get(plan.cluster.profile).windows_features()
    return contract.Features(features=list(wanted), release=node.windows.release)


def containerd(plan: Plan) -> contract.Containerd:
    """containerd on Windows."""
    return contract.Containerd(config=containerd_files.config(plan.cluster.versions, "windows"))


def kubelet(plan: Plan, node: WindowsNode) -> contract.Kubelet:
    """The kubelet on Windows, as a service."""
    return contract.Kubelet(command=kubelet_files.windows_command(member(plan, node)))


def windows_join(plan: Plan, node: WindowsNode, credentials: kubeadm.JoinCredentials) -> contract.Join:
    """Join a Windows node."""
    text = kubeadm.join_worker(cluster(plan), member(plan, node), credentials)
    return contract.Join(configuration=text, name=node.name)


def cni_files(plan: Plan, node: NodePlan, share: NodeNetwork) -> contract.Cni:
    """The CNI configuration of a node.

    :param share: the node with its pod network.
    """
    profile, pods = cni.get(plan.cluster.profile), network(plan)
    if isinstance(node, WindowsNode):
        return contract.Cni(files=profile.windows_files(pods, share), network=profile.hns_network(pods, share))
    # the DaemonSets of a cluster made elsewhere write their own files; profiles of plug-ins alone have none
    theirs = plan.joins and not isinstance(profile, Routed)
    return contract.Cni(files={} if theirs else profile.linux_files(pods, share))


def routes(plan: Plan, node: NodePlan, shares: Sequence[NodeNetwork]) -> contract.Routes | None:
    """The routes to other nodes' pods on a node itself; None if the lab's router has them."""
    profile = cni.get(plan.cluster.profile)
    masquerade = profile.masquerade(network(plan))
    if masquerade is None:
        return None
    own = profile.routes(network(plan), list(shares))[node.name]
    return contract.Routes(
        routes=[contract.RouteSetting(to=route.cidr, via=route.via) for route in own], masquerade=masquerade
    )


def proxy(plan: Plan, node: WindowsNode, share: NodeNetwork, kubeconfig: str) -> contract.Proxy:
    """kube-proxy on Windows, as a service.

    :param share: the node with its pod network.
    """
    own = cni.get(plan.cluster.profile).proxy_network(network(plan), share)
    return contract.Proxy(
        command=kube_proxy.command(),
        config=kube_proxy.config(
            plan.cluster.versions,
            node=node.name,
            address=node.address,
            pod_cidr=plan.cluster.pod_cidr,
            network=own.hns_network,
            source_vip=own.source_vip,
        ),
        kubeconfig=kubeconfig,
        source_endpoint=own.source_endpoint,
    )
