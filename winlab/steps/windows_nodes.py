"""Steps that make Windows guests nodes of the cluster, state by state, each from the truth in the guest.

booted → features → restarted (a changed boot time) → containerd → binaries → kubelet service → joined by a token with
TLS bootstrap → CNI → kube-proxy. No administrator's credential ever reaches a worker: it brings a token that ends by
itself, and later its own certificate. The scripts are unattend/windows/worker/*.ps1.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

from winlab.adapters.guests import contract
from winlab.adapters.guests.contract import WindowsFacts
from winlab.adapters.guests.scripts import Node
from winlab.adapters.kube import authority
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.design import cni
from winlab.design.plan.cluster import network as network_of
from winlab.design.plan.model import NodePlan
from winlab.design.render import containerd, kubeadm, kubelet
from winlab.design.render import kube_proxy as proxy
from winlab.engine.engine import Step
from winlab.engine.stall import Life
from winlab.errors import GuestError, StalledError, UnreachableError
from winlab.events import Progress
from winlab.steps import Context, evidence, linux_nodes, pods

POLL = 3.0
SILENT_SECONDS = 900.0  # without an answer or anything written to the disk
# kubeadm's preflight check gives containerd two seconds for each answer, and has changed nothing when it fails
TOO_LATE = re.compile(r"\[ERROR CRI\].*DeadlineExceeded")
TRIES = 4
PROXY_TOKEN_LIFE = "8760h"  # noqa: S105 - a year: longer than labs live


def steps(context: Context, node: NodePlan) -> list[Step]:
    """From a Windows guest that answers and has the payload CD to a joined node."""
    worker = _Worker(context, node)
    name = node.name
    return [
        worker.step("features", worker.features, worker.has_features, (f"boot {name}", f"insert {name}"), 60),
        worker.step("containerd", worker.containerd, worker.has_containerd, (f"features {name}",), 40),
        worker.step("binaries", worker.binaries, worker.has_binaries, (f"containerd {name}",), 20),
        worker.step("kubelet", worker.kubelet, worker.has_kubelet, (f"binaries {name}",), 5),
        worker.step("join", worker.join, worker.has_joined, (f"kubelet {name}", linux_nodes.CONFIG), 60),
        worker.step("cni", worker.cni, worker.has_cni, (f"join {name}",), 20),
        worker.step("proxy", worker.proxy, worker.has_proxy, (f"cni {name}",), 10),
    ]


def updates_step(context: Context, node: NodePlan, before: str) -> Step:
    """The step that installs Windows' own updates, with the restarts that they want."""
    worker = _Worker(context, node)
    return worker.step("updates", worker.updates, lambda _found: False, (before,), 3600)


def restart(context: Context, node: NodePlan, there: Node, progress: Progress) -> None:
    """Restart Windows, and wait until it answers again."""
    _Worker(context, node).restart(there, progress)


class _Worker:
    def __init__(self, context: Context, node: NodePlan) -> None:
        self.context = context
        self.node = node
        self.profile = cni.get(context.plan.cluster.profile)
        self.member = linux_nodes.member(context, node)

    def step(
        self,
        name: str,
        run: Callable[[Node, Progress], None],
        done: Callable[[WindowsFacts], bool],
        needs: tuple[str, ...],
        usual: float,
    ) -> Step:
        def perform(progress: Progress) -> None:
            with linux_nodes.connected(self.context, self.node) as there:
                run(there, progress)

        ask = linux_nodes.asks(self.context, self.node, lambda there: done(there.run(contract.WindowsStatus())))
        return Step(f"{name} {self.node.name}", perform, ask, needs, usual)

    def features(self, there: Node, progress: Progress) -> None:
        assert self.node.windows is not None
        features = list(self.profile.windows_features())
        call = contract.Features(features=features, release=self.node.windows.release)
        while there.run(call, progress.say).restart:  # it has more to do after some
            self.restart(there, progress)

    def updates(self, there: Node, progress: Progress) -> None:
        while True:
            found = there.run(contract.Updates(), progress.say)
            for title in found.failed:
                progress.say(f"not installed: {title}")
            if not found.restart:
                return
            self.restart(there, progress)

    def restart(self, there: Node, progress: Progress) -> None:
        before = there.run(contract.WindowsStatus())
        progress.say("restarting Windows")
        there.execute(["shutdown.exe /r /t 0"])
        there.disconnect()
        # a clock that is set right changes the boot time, too; the number only counts starts
        self._await(there, progress, "to restart", partial(_started_anew, before))

    def has_features(self, found: WindowsFacts) -> bool:
        # what waits for a restart was not seen to its end, nor were the features of another profile's golden image
        whole = set(found.features_set.split(",")).issuperset(self.profile.windows_features())
        return found.containers_feature == "installed" and whole and not found.restart_pending

    def containerd(self, there: Node, progress: Progress) -> None:
        there.run(contract.Containerd(config=self._containerd_config()), progress.say)

    def has_containerd(self, found: WindowsFacts) -> bool:
        service = found.containerd
        same = pods.same_files({"config": service.config_sha256}, {"config": self._containerd_config()})
        return service.service == "running" and bool(service.sha256) and same and not _outdated(found)

    def _containerd_config(self) -> str:
        return containerd.config(self.context.plan.cluster.versions, "windows")

    def binaries(self, there: Node, progress: Progress) -> None:
        there.run(contract.Binaries(), progress.say)

    def has_binaries(self, found: WindowsFacts) -> bool:
        all_there = found.binaries.keys() >= {f"{name}.exe" for name in ("kubeadm", "kubelet", "kube-proxy")}
        return all_there and found.installed_from == found.cd

    def kubelet(self, there: Node, progress: Progress) -> None:
        there.run(contract.Kubelet(command=kubelet.windows_command(self.member)), progress.say)

    def has_kubelet(self, found: WindowsFacts) -> bool:
        return found.kubelet.command == kubelet.windows_command(self.member)

    def join(self, there: Node, progress: Progress) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                self._join(there, progress)
                return
            except GuestError as error:
                if attempt == TRIES or not TOO_LATE.search(error.why):
                    raise
                progress.say("containerd answered kubeadm too late; trying again")

    def _join(self, there: Node, progress: Progress) -> None:
        with linux_nodes.credentials(self.context) as joining:
            text = kubeadm.join_worker(linux_nodes.cluster(self.context), self.member, joining)
            there.run(contract.Join(configuration=text, name=self.node.name), progress.say)

    def has_joined(self, found: WindowsFacts) -> bool:
        return found.kubelet.joined

    def cni(self, there: Node, progress: Progress) -> None:
        own = pods.await_share(self.context, self.node, progress)
        network = network_of(self.context.plan)
        call = contract.Cni(
            files=self.profile.windows_files(network, own), network=self.profile.hns_network(network, own)
        )
        try:
            there.run(call, progress.say)
        except UnreachableError:
            # Windows takes the network away from itself for some seconds while it makes a virtual switch of it
            self._await(there, progress, "to come back with its virtual switch", lambda _found: True)
            there.run(call, progress.say)

    def has_cni(self, found: WindowsFacts) -> bool:
        own = pods.share(self.context, self.node)
        return pods.same_files(found.cni, self.profile.windows_files(network_of(self.context.plan), own))

    def proxy(self, there: Node, progress: Progress) -> None:
        own = pods.await_share(self.context, self.node, progress)
        network = self.profile.proxy_network(network_of(self.context.plan), own)
        plan = self.context.plan.cluster
        call = contract.Proxy(
            command=proxy.command(),
            config=proxy.config(
                plan.versions,
                node=self.node.name,
                address=self.node.address,
                pod_cidr=plan.pod_cidr,
                network=network.hns_network,
                source_vip=network.source_vip,
            ),
            kubeconfig=self._proxy_kubeconfig(),
            source_endpoint=network.source_endpoint,
        )
        there.run(call, progress.say)

    def has_proxy(self, found: WindowsFacts) -> bool:
        return found.proxy.service == "running" and found.proxy.command == proxy.command()

    def _proxy_kubeconfig(self) -> str:
        """A kubeconfig with the token of kube-proxy's service account, and no other right."""
        state, endpoint = self.context.state, self.context.plan.cluster.endpoint
        token = Kubectl.of(state).run(
            "create", "token", "kube-proxy", "--namespace=kube-system", f"--duration={PROXY_TOKEN_LIFE}"
        )
        return authority.with_token(linux_nodes.authority(self.context), endpoint, "kube-proxy", token.strip())

    def _await(self, there: Node, progress: Progress, what: str, met: Callable[[WindowsFacts], bool]) -> None:
        """Wait until the guest answers and *met* holds; give up when nothing moves in it any more."""
        life = Life(SILENT_SECONDS * max(1.0, self.context.scale / 2))
        while True:
            progress.say(f"waiting for {self.node.name} {what}")
            try:
                if met(there.run(contract.WindowsStatus())):
                    return
            except UnreachableError:
                pass
            except GuestError as error:  # services come up one by one: WinRM may answer before all else does
                progress.say(f"waiting for {self.node.name} {what}; it says: {error.why.splitlines()[0]}")
            there.disconnect()
            if life.has_stopped(domains.written_bytes(self.context.conn, self.node.domain)):
                minutes = f"{life.limit / 60:.0f} min"
                stalled = StalledError(
                    f"'{self.node.name}' shows no sign of life since {minutes}; winlab waits for it {what}.",
                    cure=f"Look at its screen with 'winlab vnc {self.node.name}', then run the same command again.",
                    evidence=f"winlab serial {self.node.name} --log",
                )
                evidence.keep(self.context, self.node, stalled, progress)
                raise stalled
            time.sleep(POLL)


def _outdated(found: WindowsFacts) -> bool:
    """Whether the programs came from another CD than the one in the drive: a golden image may be older."""
    return bool(found.installed_from) and found.installed_from != found.cd


def _started_anew(before: WindowsFacts, found: WindowsFacts) -> bool:
    return found.boot_time != before.boot_time and found.boot_id != before.boot_id
