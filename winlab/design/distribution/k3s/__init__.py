"""k3s: one program is the control plane, etcd and the kubelet of a controller. Pure.

Workers become nodes as those of an external cluster do, without its agent.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from winlab.design.catalog import releases
from winlab.design.catalog.releases import Releases
from winlab.design.catalog.versions import Versions
from winlab.design.contract.call import Call
from winlab.design.distribution.k3s import calls, files
from winlab.design.distribution.model import ClusterSettings, Distribution, Member, Membership
from winlab.design.system import System

PINS = Path(__file__).parent / releases.FILE
COREDNS = "coredns/coredns"


class K3s(Distribution):
    """See :class:`winlab.design.distribution.model.Distribution`."""

    name = "k3s"
    own_programs = ()  # its own is not one of Kubernetes' source
    own_files = files.OWN
    services = ("containerd", "kubelet")
    control_plane = ()
    one_for_all = (COREDNS,)
    bootstraps = False
    admin_file = "/etc/rancher/k3s/k3s.yaml"
    renewal = "systemctl restart k3s"  # it renews what expires within some months whenever it starts
    proxies = ()
    in_pods = False
    copies = False  # the group of its administrator, system:masters, can't lose its rights
    restarts = ("kubelet", "containerd", "k3s")
    least = (2, 2048)  # docs.k3s.io/installation/requirements: a server

    def __init__(self, workers: Membership) -> None:
        """Make the distribution.

        :param workers: how its workers become nodes.
        """
        self._workers = workers

    @property
    def known(self) -> Releases:
        """See the interface."""
        found: Releases = releases.read(PINS, Releases)
        return found

    def why_not(self, versions: Versions) -> str:
        """A release of k3s has one version of Kubernetes in it."""
        if self.known.of(versions.minor)[self.name].partition("+")[0] == versions.kubernetes:
            return ""
        return f"No release of k3s with Kubernetes {versions.kubernetes} is known."

    def programs(self, system: System) -> tuple[tuple[str, str], ...]:
        """Linux nodes share one CD, so workers have k3s, too, and controllers the kubelet."""
        theirs = self._workers.programs(system)
        return (*theirs, (self.name, self.name)) if system.control_plane else theirs

    def images(self, system: System) -> tuple[tuple[str, str], ...]:
        """Those of workers, without a control plane."""
        theirs = self._workers.images(system)
        return tuple(row for row in theirs if row[0] == COREDNS or row[0] not in self._workers.one_for_all)

    def linux_files(self, cluster: ClusterSettings, node: Member) -> dict[str, str]:
        """See the interface."""
        return files.controller(cluster, node) if node.controller else self._workers.linux_files(cluster, node)

    def linux_call(self, cluster: ClusterSettings, node: Member, *, first: bool) -> Call[Any]:
        """See the interface."""
        if not node.controller:
            return self._workers.linux_call(cluster, node, first=first)
        return calls.make() if first else calls.join(cluster, calls.PLACEHOLDER)

    def windows_call(self, cluster: ClusterSettings, node: Member) -> Call[Any]:
        """See the interface."""
        return self._workers.windows_call(cluster, node)
