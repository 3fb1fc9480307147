"""What only Linux nodes are given. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from winlab.design import cni
from winlab.design.cni.model import NodeNetwork
from winlab.design.cni.routed import Routed
from winlab.design.contract import on_both, on_linux
from winlab.design.contract.call import Call
from winlab.design.plan import node_files, required
from winlab.design.plan.cluster import network
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render import cloud_init, proxy
from winlab.design.render.nodes import NodeFiles, cluster, member, routes
from winlab.design.render.templates import Expand


class LinuxFiles(NodeFiles):
    """What a Linux node is given."""

    folder = "seed"

    def __init__(self, plan: Plan, node: LinuxNode) -> None:
        self._plan = plan
        self._node = node

    def first_boot(self, credentials: Credentials, _expand: Expand) -> dict[str, bytes]:
        """The seed for cloud-init."""
        return cloud_init.seed_files(self._plan, self._node, credentials)

    def prepare(self) -> on_linux.Prepare:
        """Install everything that the node needs before it joins."""
        plan, membership = self._plan, self._plan.cluster.membership
        texts = membership.linux_files(cluster(plan), member(plan, self._node))
        own = {path: on_linux.NodeFile(text) for path, text in texts.items()}
        own |= proxy.containerd_files(plan) | proxy.login_files(plan, self._node)
        more = node_files.given(plan.addons, plan, self._node).files
        return on_linux.Prepare(
            files=own | {file.path: on_linux.NodeFile(file.text, file.mode, file.owner) for file in more},
            services=list(membership.services),
            images=required.node_images(plan, controller=self._node.role == "controller"),
        )

    def cni(self, share: NodeNetwork) -> on_both.Cni:
        """The node's CNI configuration."""
        profile = cni.get(self._plan.cluster.profile)
        # the DaemonSets of an external cluster write their own files; profiles of plug-ins alone have none
        theirs = self._plan.joins and not isinstance(profile, Routed)
        return on_both.Cni(files={} if theirs else profile.linux_files(network(self._plan), share))

    def calls(self, share: NodeNetwork, shares: Sequence[NodeNetwork]) -> Iterator[Call[Any]]:
        """The scripts that are run in the node, in order."""
        plan, node = self._plan, self._node
        yield self.prepare()
        first = node == next((other for other in plan.nodes if other.role == "controller"), None)
        yield plan.cluster.membership.linux_call(cluster(plan), member(plan, node), first=first)
        yield self.cni(share)
        if (own := routes(plan, node, shares)) is not None:
            yield own
