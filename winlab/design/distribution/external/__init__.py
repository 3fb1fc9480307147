"""Nodes of an external cluster, whatever made it: the kubelet starts with a certificate that winlab asked for. Pure."""

from __future__ import annotations

from typing import Any

from winlab.design.contract.call import Call
from winlab.design.distribution.external import calls, files
from winlab.design.distribution.model import ClusterSettings, Member, Membership
from winlab.design.system import System


class External(Membership):
    """See :class:`winlab.design.distribution.model.Membership`."""

    own_programs = ()
    own_files = (files.PROXY_CONFIG,)
    services = ("containerd", "kubelet")
    bootstraps = False

    def __init__(self, own: Membership) -> None:
        """Its nodes get the programs and images of *own*: so labs of both kinds share payload CDs and golden images."""
        self._own = own
        self.control_plane, self.one_for_all = own.control_plane, own.one_for_all

    def programs(self, system: System) -> tuple[tuple[str, str], ...]:
        """See the interface."""
        return self._own.programs(system)

    def images(self, system: System) -> tuple[tuple[str, str], ...]:
        """See the interface."""
        return self._own.images(system)

    def linux_files(self, cluster: ClusterSettings, node: Member) -> dict[str, str]:
        """See the interface."""
        return files.linux(cluster, node)

    def linux_call(self, cluster: ClusterSettings, node: Member, *, first: bool) -> Call[Any]:  # noqa: ARG002
        """See the interface."""
        return calls.become_member(cluster, node, calls.PLACEHOLDERS)

    def windows_call(self, cluster: ClusterSettings, node: Member) -> Call[Any]:
        """See the interface."""
        return calls.become_member(cluster, node, calls.PLACEHOLDERS)
