"""What only Windows nodes are given. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from winlab.design import cni
from winlab.design.cni.model import NodeNetwork
from winlab.design.contract import on_both, on_windows
from winlab.design.contract.call import Call
from winlab.design.distribution import containerd, kubelet
from winlab.design.plan import node_files
from winlab.design.plan.cluster import network
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.render import answer, kube_proxy
from winlab.design.render import proxy as proxies
from winlab.design.render.nodes import NodeFiles, cluster, member, routes
from winlab.design.render.templates import Expand
from winlab.design.system import WINDOWS

KUBECONFIG = "<kubeconfig with the token of kube-proxy's service account>"  # a placeholder


class WindowsFiles(NodeFiles):
    """What a Windows node is given."""

    folder = "answer"

    def __init__(self, plan: Plan, node: WindowsNode) -> None:
        self._plan = plan
        self._node = node

    def first_boot(self, credentials: Credentials, expand: Expand) -> dict[str, bytes]:
        """The answer file, and what it calls."""
        return answer.answer_files(self._plan, self._node, credentials, expand)

    def features(self) -> on_windows.Features:
        """The features that Windows must have."""
        wanted = cni.get(self._plan.cluster.profile).windows_features()
        return on_windows.Features(features=list(wanted), release=self._node.windows.release)

    def containerd(self) -> on_windows.Containerd:
        """containerd, as a service."""
        variables = [f"{name}={value}" for name, value in proxies.environment(self._plan).items()]
        config = containerd.config(self._plan.cluster.versions, WINDOWS)
        return on_windows.Containerd(config=config, environment=variables)

    def configure(self) -> on_windows.Configure:
        """The files and registry values of add-ons."""
        given = node_files.given(self._plan.addons, self._plan, self._node)
        return on_windows.Configure(
            files={file.path: file.text for file in given.files},
            registry=[
                on_windows.RegistrySetting(key=one.key, name=one.name, type=one.type, data=one.data)
                for one in given.registry
            ],
        )

    def kubelet(self) -> on_windows.Kubelet:
        """The kubelet, as a service."""
        own, cluster_ = member(self._plan, self._node), self._plan.cluster
        command = kubelet.windows_command(cluster_.versions, own, bootstraps=cluster_.membership.bootstraps)
        return on_windows.Kubelet(command=command)

    def cni(self, share: NodeNetwork) -> on_both.Cni:
        """The node's CNI configuration."""
        profile, pods = cni.get(self._plan.cluster.profile), network(self._plan)
        return on_both.Cni(files=profile.windows_files(pods, share), network=profile.hns_network(pods, share))

    def proxy(self, share: NodeNetwork, kubeconfig: str) -> on_windows.Proxy:
        """kube-proxy, as a service.

        :param share: the node with its pod network.
        """
        cluster_ = self._plan.cluster
        own = cni.get(cluster_.profile).proxy_network(network(self._plan), share)
        return on_windows.Proxy(
            command=kube_proxy.command(cluster_.versions),
            config=kube_proxy.config(
                cluster_.versions,
                node=self._node.name,
                address=self._node.address,
                pod_cidr=cluster_.pod_cidr,
                network=own.hns_network,
                source_vip=own.source_vip,
            ),
            kubeconfig=kubeconfig,
            source_endpoint=own.source_endpoint,
        )

    def calls(self, share: NodeNetwork, shares: Sequence[NodeNetwork]) -> Iterator[Call[Any]]:
        """The scripts that are run in the node, in order."""
        plan, node = self._plan, self._node
        yield self.features()
        yield self.containerd()
        yield on_windows.Binaries()
        given = self.configure()
        if given.files or given.registry:
            yield given
        yield self.kubelet()
        yield plan.cluster.membership.windows_call(cluster(plan), member(plan, node))
        yield self.cni(share)
        if node.os not in plan.cluster.proxies:
            yield self.proxy(share, KUBECONFIG)
        if (own := routes(plan, node, shares)) is not None:
            yield own
