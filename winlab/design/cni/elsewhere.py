"""``elsewhere``: an external cluster connects the pods of its Linux nodes with its own DaemonSets. Pure."""

from __future__ import annotations

from winlab.design.catalog.artifact import Program
from winlab.design.cni import plugins
from winlab.design.cni.model import NodeNetwork, PodNetwork, ProxyNetwork, Support, Versions
from winlab.design.cni.profile import Profile
from winlab.errors import WinlabError


class Elsewhere(Profile):
    """winlab installs the reference plug-ins, which such DaemonSets expect on a node, but no configuration."""

    name = "elsewhere"

    def programs(self, versions: Versions) -> list[Program]:
        """The reference plug-ins for Linux."""
        return plugins.linux_programs(versions)

    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:
        """There is none.

        :raises WinlabError: always; :meth:`windows_support` has already refused such a node.
        """
        raise WinlabError(
            f"'{node.name}' can't have the CNI profile '{network.profile}'.",
            why="winlab does not know what Windows would need there.",
        )

    def windows_support(self, release: str) -> Support:
        """Windows needs files that winlab writes."""
        return Support("refused", f"winlab does not know what Windows Server {release} would need there.")
