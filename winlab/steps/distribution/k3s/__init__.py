"""k3s's part of the steps. Workers join as those of an external cluster do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract import on_linux
from winlab.design.contract.call import Call
from winlab.design.distribution.k3s import calls, dns
from winlab.design.plan.node_plan import LinuxNode, WindowsNode
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import GuestError, UsageError
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps import again
from winlab.steps.apply import apply
from winlab.steps.distribution import access
from winlab.steps.interface import MembershipSteps
from winlab.steps.states import INITIALISED, MEMBER, PREPARED

TOKEN_FILE = "/var/lib/rancher/k3s/server/token"  # noqa: S105 - the name of a file
TOKEN = re.compile(r"K10[0-9a-f]{64}::server:[0-9a-f]{32}")  # pkg/clientaccess: the digest of the CA, and a password


class K3sSteps:
    """See :class:`winlab.steps.interface.ControlPlaneSteps`."""

    def __init__(self, run: Run, workers: MembershipSteps) -> None:
        """Make the steps.

        :param workers: how workers become nodes.
        """
        self._run = run
        self._workers = workers

    def init(self, node: LinuxNode) -> Step:
        """The step that starts k3s on the first controller."""
        reaches = INITIALISED(self._run.lab, node.name)
        return self._controller(node, reaches, [], calls.make)

    def access(self, node: LinuxNode) -> Step:
        """The step that takes the credentials from the controller's k3s.yaml, and adds CoreDNS."""

        def complete(progress: Progress) -> None:
            kubectl = Kubectl.of(self._run.folder)
            if not _has_dns(kubectl):
                progress.say("CoreDNS")
                apply(kubectl, dns.objects(nodes.cluster(self._run.plan)), self._run, progress)

        return access.step(self._run, node, complete, _has_dns)

    def renew_administrator(self, fresh: LabFolder, after: Iterable[State]) -> Step:  # noqa: ARG002
        """See the interface.

        :raises UsageError: always; :attr:`~winlab.design.distribution.model.Distribution.copies` says so before.
        """
        raise UsageError("The administrator of a cluster that k3s made can't lose its rights.")

    def join(self, node: LinuxNode, before: State) -> Step:
        """k3s with the first controller's token on a further controller; a worker joins without it."""
        if node.role != "controller":
            return self._workers.join(node, before)
        first = next(other for other in self._run.plan.linux_nodes() if other.role == "controller")

        def call() -> calls.RunK3s:
            return calls.join(nodes.cluster(self._run.plan), self._token(first))

        return self._controller(node, MEMBER(self._run.lab, node.name), [before], call)

    def join_windows(self, node: WindowsNode, do: Callable[[Call[Any]], object], progress: Progress) -> None:
        """See the interface."""
        self._workers.join_windows(node, do, progress)

    def _controller(
        self, node: LinuxNode, reaches: State, after: list[State], call: Callable[[], calls.RunK3s]
    ) -> Step:
        run = self._run

        def work(progress: Progress) -> None:
            settings = call()
            with run.node(node) as there:
                again.run(there, settings, progress, again.is_on(run, node))

        done = run.asks(node, lambda there: there.run(on_linux.LinuxStatus()).joined)
        return Step(reaches, work, done, [*after, PREPARED(run.lab, node.name)], usual=run.pace.usual(45))

    def _token(self, first: LinuxNode) -> str:
        """What lets a server join. It names the cluster's CA, by which the server recognizes the cluster.

        :raises GuestError: the controller has something else.
        """
        with self._run.node(first) as there:
            text = there.execute(["sudo", "cat", TOKEN_FILE]).strip()
        if TOKEN.fullmatch(text) is None:
            raise GuestError(
                f"'{first.name}' has no token as k3s writes it; nothing of it was used.",
                cure="Someone changed it, or took over the node. Find out who, or destroy the lab and create it again.",
                evidence=f"winlab exec {first.name} -- sudo cat {TOKEN_FILE}",
            )
        return text


def _has_dns(kubectl: Kubectl) -> bool:
    """Whether the cluster has CoreDNS. It is made once: what is changed later stays, as in other clusters."""
    return kubectl.find("deployment", "coredns", "--namespace=kube-system") is not None
