"""A lab's cluster: kubectl, kubeconfig, your own programs and images, tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from winlab import operations
from winlab.events import Listener, ignore
from winlab.lab.base import Base
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.checks.report import Report
    from winlab.checks.suites import Check
    from winlab.operations.push import PushedProgram


class Cluster(Base):
    """Kubernetes."""

    @property
    def context(self) -> str:
        """The name of the lab's context in kubeconfigs."""
        from winlab.adapters.kube import kubeconfig

        return kubeconfig.name(self.name)

    @at_site
    def kubectl(self, *words: str) -> str:
        """What the lab's own kubectl prints: ``lab.kubectl("get", "nodes")``.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        :raises GuestError: none of its controllers runs.
        :raises ClusterError: kubectl failed.
        """
        from winlab.adapters.kube.kubectl import Kubectl

        operations.recorded.require_cluster(self.site.folder(self.name))
        operations.look.require_reachable(self.name, self.site)
        return Kubectl.of(self.site.folder(self.name)).run(*words)

    @at_site
    def become_kubectl(self, words: Sequence[str]) -> NoReturn:
        """Replace this process with the lab's own kubectl, for a user at a terminal.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        :raises GuestError: none of its controllers runs.
        """
        from winlab.adapters.kube.kubectl import Kubectl

        operations.recorded.require_cluster(self.site.folder(self.name))
        operations.look.require_reachable(self.name, self.site)
        Kubectl.of(self.site.folder(self.name)).replace_process(words)

    @at_site
    def kubeconfig(self) -> str:
        """The lab's kubeconfig.

        :raises NotFoundError: the lab has no cluster, or was made from another account.
        """
        from winlab.adapters.kube import kubeconfig

        operations.look.require_lab(self.name, self.site)
        operations.recorded.require_cluster(self.site.folder(self.name))
        return kubeconfig.read(self.site.folder(self.name))

    @at_site
    def merge_kubeconfig(self, *, use: bool = False) -> Path:
        """Merge the lab's kubeconfig into the user's own, as the context ``winlab-NAME``; returns that file.

        :param use: make it the current context.
        :raises WinlabError: the lab has no kubeconfig, or the user's can't be changed.
        """
        from winlab.adapters.kube import kubeconfig

        operations.look.require_lab(self.name, self.site)
        operations.recorded.require_cluster(self.site.folder(self.name))
        return kubeconfig.publish(self.name, use=use)

    @at_site
    def push(
        self, node: str, binary: str, *, restore: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> PushedProgram:
        """Replace a program on a running node with your own build, or restore the original.

        :param binary: the file, whose name says what it replaces; with *restore*, only the name.
        :raises UsageError: the file is not a program of this node; nothing was touched.
        :raises WinlabError: the node or the cluster refused.
        """
        operations.recorded.require_cluster(self.site.folder(self.name))
        self._require_owner()
        return operations.push.to_node(self.name, self.site, node, binary, listener, restore=restore)

    @at_site
    def load(
        self, image: str, *, name: str = "", listener: Listener = ignore, stop: Stop = None
    ) -> dict[str, list[str]]:
        """Load a container image onto every node of its operating system; returns the nodes, by the image's full name.

        :param image: an archive, or the name of an image in Docker or Podman.
        :param name: its name in the lab; by default its own.
        :raises WinlabError: there is no such image, no node can run it, or a node refused.
        """
        operations.recorded.require_cluster(self.site.folder(self.name))
        self._require_owner()
        return operations.load.to_lab(self.name, self.site, image, listener, name=name)

    @staticmethod
    def checks() -> list[Check]:
        """What the two tests check, on any lab. The identifiers are those of *only*."""
        from winlab.checks import suites

        return suites.checks()

    @at_site
    def test_readiness(
        self, *, only: str | None = None, timeout: float | None = None, listener: Listener = ignore, stop: Stop = None
    ) -> Report:
        """Wait until every part of the cluster is ready; the report says why one is not.

        :param only: identifiers of checks, with commas between; None: all.
        :param timeout: seconds after which checks have failed that do not pass, even if the cluster makes progress.
        :raises UsageError: *only* names a check that does not exist; nothing was touched.
        :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
        :raises GuestError: none of its controllers runs.
        """
        from winlab.checks import suites

        operations.recorded.require_cluster(self.site.folder(self.name))
        return suites.readiness(self.name, self.site, listener, only=only, timeout=timeout)

    @at_site
    def test_smoke(
        self, *, only: str | None = None, keep: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> Report:
        """Run pods on the lab's nodes and have them talk: to each other, to services, to the outside.

        :param only: identifiers of checks, with commas between; None: all.
        :param keep: leave the pods for inspection.
        :raises UsageError: *only* names a check that does not exist; nothing was touched.
        :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
        :raises GuestError: none of its controllers runs.
        :raises ClusterError: the API server does not answer, or refuses the pods.
        """
        from winlab.checks import suites

        operations.recorded.require_cluster(self.site.folder(self.name))
        return suites.smoke(self.name, self.site, listener, only=only, keep=keep)
