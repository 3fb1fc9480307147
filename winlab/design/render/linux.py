"""What only Linux nodes are given. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from winlab.design import cni, contract
from winlab.design.cni.model import NodeNetwork
from winlab.design.cni.routed import Routed
from winlab.design.plan import node_files, required
from winlab.design.plan.cluster import network
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import LinuxNode, Plan
from winlab.design.render import cloud_init, containerd, kubeadm, kubelet, proxy
from winlab.design.render.nodes import Marks, NodeFiles, cluster, member, routes
from winlab.design.render.templates import Expand
from winlab.design.system import LINUX


class LinuxFiles(NodeFiles):
    """What a Linux node is given."""

    folder = "seed"

    def __init__(self, plan: Plan, node: LinuxNode) -> None:
        self._plan = plan
        self._node = node

    def first_boot(self, credentials: Credentials, _expand: Expand) -> dict[str, bytes]:
        """The seed for cloud-init."""
        return cloud_init.seed_files(self._plan, self._node, credentials)

    def prepare(self) -> contract.Prepare:
        """Install everything that the node needs before kubeadm."""
        plan, controller = self._plan, self._node.role == "controller"
        texts = {
            "/etc/systemd/system/containerd.service": containerd.unit(),
            "/etc/systemd/system/kubelet.service": kubelet.unit(),
            "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": kubelet.drop_in(),
            "/etc/containerd/config.toml": containerd.config(plan.cluster.versions, LINUX),
            "/etc/crictl.yaml": containerd.crictl(LINUX),
        }
        if controller:
            texts |= kubeadm.patches(cluster(plan))
        own = {path: contract.NodeFile(text) for path, text in texts.items()}
        own |= proxy.containerd_files(plan) | proxy.login_files(plan, self._node)
        more = node_files.given(plan.addons, plan, self._node).files
        return contract.Prepare(
            files=own | {file.path: contract.NodeFile(file.text, file.mode, file.owner) for file in more},
            services=["containerd", "kubelet"],
            images=required.node_images(plan, controller=controller),
        )

    def init(self, token: str, certificate_key: str | None = None) -> contract.RunKubeadm:
        """Make the cluster, on the first controller.

        :param certificate_key: the key that encrypts the certificates kept for further controllers.
        """
        text = kubeadm.init(cluster(self._plan), member(self._plan, self._node), token, certificate_key)
        return contract.RunKubeadm(arguments=["init"], configuration=text)

    def join(self, credentials: kubeadm.JoinCredentials) -> contract.RunKubeadm:
        """Join a cluster that exists."""
        make = kubeadm.join_controller if self._node.role == "controller" else kubeadm.join_worker
        text = make(cluster(self._plan), member(self._plan, self._node), credentials)
        return contract.RunKubeadm(arguments=["join"], configuration=text)

    def cni(self, share: NodeNetwork) -> contract.Cni:
        """The node's CNI configuration."""
        profile = cni.get(self._plan.cluster.profile)
        # the DaemonSets of an external cluster write their own files; profiles of plug-ins alone have none
        theirs = self._plan.joins and not isinstance(profile, Routed)
        return contract.Cni(files={} if theirs else profile.linux_files(network(self._plan), share))

    def calls(self, share: NodeNetwork, shares: Sequence[NodeNetwork], marks: Marks) -> Iterator[contract.Call[Any]]:
        """The scripts that are run in the node, in order."""
        plan, node = self._plan, self._node
        yield self.prepare()
        if node == next((other for other in plan.nodes if other.role == "controller"), None):
            yield self.init(marks.join.token)
        else:
            yield self.join(marks.join)
        yield self.cni(share)
        if (own := routes(plan, node, shares)) is not None:
            yield own
