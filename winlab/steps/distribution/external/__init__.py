"""Nodes of an external cluster: winlab asks for their first certificate, with the administrator's kubeconfig.

No token is made, and nothing is asked that only one distribution answers. The kubelet replaces that certificate at once
by one whose key stays in the node, and renews it by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from winlab.adapters.kube import identity, signing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract import on_linux
from winlab.design.contract.call import Call
from winlab.design.distribution.external.calls import Credentials, become_member
from winlab.design.plan.node_plan import LinuxNode, NodePlan, WindowsNode
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, logs
from winlab.events import Progress
from winlab.steps import again, controllers, joining
from winlab.steps.states import MEMBER, PREPARED

SIGNING_SILENCE = 120.0  # seconds for the cluster's controller manager, which is not a guest of the lab
SERVING_SILENCE = 300.0  # seconds on hardware for a kubelet to register its node


class ExternalSteps:
    """See :class:`winlab.steps.interface.MembershipSteps`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def join(self, node: LinuxNode, before: State) -> Step:
        """The step of a Linux worker."""

        def work(progress: Progress) -> None:
            with self._run.node(node) as there:
                joining.name_server(self._run, there)

                def do(call: Call[Any]) -> object:
                    return again.run(there, call, progress, again.is_on(self._run, node))

                self._join(node, do, progress)

        done = self._run.asks(node, lambda there: there.run(on_linux.LinuxStatus()).joined)
        after = [before, PREPARED(self._run.lab, node.name)]
        return Step(MEMBER(self._run.lab, node.name), work, done, after, usual=self._run.pace.usual(20))

    def join_windows(self, node: WindowsNode, do: Callable[[Call[Any]], object], progress: Progress) -> None:
        """See the interface."""
        self._join(node, do, progress)

    def _join(self, node: NodePlan, do: Callable[[Call[Any]], object], progress: Progress) -> None:
        kubectl = Kubectl.of(self._run.folder)
        progress.say("asking the cluster for the node's certificate")
        asked = identity.request(kubectl, node.name)
        identity.allow_renewal(kubectl, node.name)
        certificate = self._signed(kubectl, asked, progress)
        authorities = identity.authorities(kubectl)
        cluster, member = nodes.cluster(self._run.plan), nodes.member(self._run.plan, node)
        own = Credentials(
            identity.kubelet_kubeconfig(authorities.server, cluster.endpoint, node.name, certificate, asked.key_pem),
            authorities.clients,
            "" if node.system.hns or node.os in cluster.proxies else joining.proxy_kubeconfig(self._run, node),
        )
        do(become_member(cluster, member, own))
        signing.delete(kubectl, asked.name)
        self._serve(kubectl, node, progress)

    def _signed(self, kubectl: Kubectl, asked: signing.Requested, progress: Progress) -> str:
        """The certificate that was asked for.

        :raises ClusterError: the cluster refuses it, or does not sign it.
        """
        says = ""

        def look() -> Met[str] | Waiting:
            nonlocal says
            certificate, says = signing.issued(kubectl, asked)
            return Met(certificate) if certificate else Waiting("waiting for the cluster to sign it", says)

        def give_up(_: Waiting) -> ClusterError:
            return ClusterError(
                f"The cluster does not sign the certificate '{asked.name}'.",
                why=says or "It was approved, and nothing happens.",
                cure="See whether its controller manager runs with a CA to sign with (--cluster-signing-cert-file).",
                evidence=f"winlab kubectl --lab {self._run.lab} -- describe csr {asked.name}",
            )

        return controllers.until(self._run, look, progress, give_up, stall=SIGNING_SILENCE)

    def _serve(self, kubectl: Kubectl, node: NodePlan, progress: Progress) -> None:
        """Wait until the node's kubelet has asked for the certificate with which it serves logs and exec; approve it.

        :raises ClusterError: it does not ask.
        """
        others: list[str] = []

        def look() -> Met[None] | Waiting:
            nonlocal others
            try:
                approved, others = identity.approve_serving(kubectl, node.name, [node.address])
                if approved or others or identity.has_asked_to_serve(kubectl, node.name):
                    return Met(None)
            except ClusterError as error:  # the API server is busy or restarting: ask it again
                return Waiting(f"waiting for {node.name} to ask for its serving certificate: {error.what}")
            return Waiting(f"waiting for {node.name} to ask for its serving certificate")

        def give_up(seen: Waiting) -> ClusterError:
            return ClusterError(
                f"The kubelet of '{node.name}' does not ask for the certificate with which it serves logs and exec.",
                why=seen.says,
                cure="It asks once it has registered its node: look at its log, and run the same command again.",
                evidence=logs(node.name, self._run.lab),
            )

        controllers.until(self._run, look, progress, give_up, stall=self._run.pace.usual(SERVING_SILENCE))
        for reason in others:
            progress.say(f"a certificate of {node.name} is not approved: {reason}")
