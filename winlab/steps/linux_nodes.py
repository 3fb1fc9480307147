"""Steps that make Linux guests nodes of the cluster: controllers and workers, driven by winlab_node over ssh."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from winlab.adapters.guests import contract
from winlab.adapters.guests.scripts import Node
from winlab.adapters.kube import authority as access
from winlab.adapters.kube import existing, kubeconfig, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan import required, tags
from winlab.design.plan.model import NodePlan
from winlab.design.render import containerd, kubeadm, kubelet
from winlab.engine.engine import Step
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import Context

KUBECTL = "kubectl"  # the step after which a lab that joins another's cluster has a kubectl
CONFIG = "kubeconfig"  # the step after which the host can talk to the API server
ADMIN = "/etc/kubernetes/admin.conf"
# Programs in Go ask with EDNS, and such questions OVN's DNS (23.03) leaves to the lab's name servers
HOSTS = 'read -r line && { grep -qxF "$line" /etc/hosts || echo "$line" >>/etc/hosts; }'
POLL = 3.0
API_LIMIT = 180.0  # seconds on hardware, from a controller that answers to its API server that does
MACHINE = "winlab.internal/machine"  # a label: by it destroy knows the lab's nodes in a cluster made elsewhere


def joined(node: str) -> str:
    """The name of the step after which a node is part of the cluster."""
    return f"join {node}"


def member_step(context: Context, node: NodePlan) -> str:
    """The name of the step after which a node is part of the cluster; the first controller makes it."""
    first = next((one.name for one in context.plan.nodes if one.role == "controller"), None)
    return CONFIG if node.name == first else joined(node.name)


def steps(context: Context, admin: str = "") -> list[Step]:
    """From a booted Linux guest with the payload CD to a joined node.

    :param admin: the kubeconfig of a cluster made elsewhere, if this lab joins one.
    """
    workers = [node for node in context.plan.nodes if node.role == "worker" and node.os == "linux"]
    if context.plan.joins:
        found = [_given_kubeconfig(context, admin), *(_prepare(context, node) for node in workers)]
        return found + [_join_worker(context, node, (CONFIG, f"prepare {node.name}")) for node in workers]
    first, *others = [node for node in context.plan.nodes if node.role == "controller"]
    found = [_prepare(context, node) for node in (first, *others, *workers)]
    found.append(_init(context, first))
    found.append(_kubeconfig(context, first))
    before = CONFIG
    for node in others:  # one after the other: etcd takes one new member at a time
        found.append(_join_controller(context, first, node, (before, f"prepare {node.name}")))
        before = joined(node.name)
    found += [_join_worker(context, node, (before, f"prepare {node.name}")) for node in workers]
    return found


def connected(context: Context, node: NodePlan) -> Node:
    """The node, to run scripts in."""
    return Node(tags.of(context.plan, node), context.state)


def cluster(context: Context) -> kubeadm.Cluster:
    """What kubeadm is told about the cluster."""
    plan = context.plan.cluster
    return kubeadm.Cluster(
        versions=plan.versions,
        endpoint=plan.endpoint,
        names=plan.names,
        pod_cidr=plan.pod_cidr,
        service_cidr=plan.service_cidr,
        domain=plan.domain,
        # Calico's rules are iptables' own, and kube-proxy's are to stand beside them
        proxy_mode="iptables" if plan.profile.startswith("calico") else "nftables",
        preloaded=True,
        emulated=context.plan.host.accelerator != "kvm",
    )


def member(context: Context, node: NodePlan) -> kubeadm.Node:
    """What kubeadm is told about a node."""
    linux_workers = sum(one.os == "linux" and one.role == "worker" for one in context.plan.nodes)
    taints = kubeadm.controller_taints(linux_workers) if node.role == "controller" else kubeadm.worker_taints(node.os)
    labels = {MACHINE: node.uuid} if context.plan.joins else {}
    return kubeadm.Node(node.name, node.address, node.os, labels, taints)


def authority(context: Context) -> str:
    """The cluster's CA as PEM, by which nodes know it.

    :raises ClusterError: the API server does not answer.
    """
    if context.plan.joins:
        return existing.authority(Kubectl.of(context.state))
    return access.authority(context.state.kubeconfig)


@contextmanager
def credentials(context: Context, certificate_key: str | None = None) -> Iterator[kubeadm.Credentials]:
    """A fresh token, good until this ends, and by what the cluster is known.

    :raises ClusterError: the API server does not answer.
    """
    with tokens.lent(Kubectl.of(context.state)) as token:
        yield kubeadm.Credentials(token, (tokens.ca_hash(authority(context)),), certificate_key)


def asks(context: Context, node: NodePlan, question: Callable[[Node], bool]) -> Callable[[], bool]:
    """A step's ``done``: a question to the node; a node that does not answer says no."""

    def done() -> bool:
        try:
            with connected(context, node) as there:
                return question(there)
        except WinlabError:
            return False

    return done


def _files(context: Context, node: NodePlan) -> dict[str, contract.NodeFile]:
    texts = {
        "/etc/systemd/system/containerd.service": containerd.unit(),
        "/etc/systemd/system/kubelet.service": kubelet.unit(),
        "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": kubelet.drop_in(),
        "/etc/containerd/config.toml": containerd.config(context.plan.cluster.versions, "linux"),
        "/etc/crictl.yaml": containerd.crictl("linux"),
    }
    if node.role == "controller":
        texts |= kubeadm.patches(cluster(context))
    return {path: contract.NodeFile(text) for path, text in texts.items()}


def _prepare(context: Context, node: NodePlan) -> Step:
    prepare = contract.Prepare(
        files=_files(context, node),
        services=["containerd", "kubelet"],
        images=required.node_images(context.plan, controller=node.role == "controller"),
    )

    def run(progress: Progress) -> None:
        with connected(context, node) as there:
            there.run(prepare, progress.say)

    def prepared(there: Node) -> bool:
        found = there.run(contract.LinuxStatus())
        return bool(found.programs) and found.containerd.service == "running" and found.prepared

    needs = (f"boot {node.name}", f"insert {node.name}")
    return Step(f"prepare {node.name}", run, asks(context, node, prepared), needs, usual=40 * context.scale)


def _kubeadm(
    there: Node,
    arguments: list[str],
    configuration: str,
    progress: Progress,
    leave: Callable[[], object] = lambda: None,
) -> None:
    """Run kubeadm in a node; what it says is the progress.

    A try that was interrupted is undone first: kubeadm itself starts over only on a clean node.

    :param leave: what of that try is undone elsewhere, before the node forgets it.
    """
    if there.run(contract.LinuxStatus()).started:
        progress.say("an earlier try was interrupted: kubeadm reset")
        leave()
        there.run(contract.RunKubeadm(arguments=["reset", "--force"]), progress.say)
    there.run(contract.RunKubeadm(arguments=arguments, configuration=configuration), progress.say)


def _is_joined(there: Node) -> bool:
    return there.run(contract.LinuxStatus()).joined


def _init(context: Context, node: NodePlan) -> Step:
    def run(progress: Progress) -> None:
        text = kubeadm.init(cluster(context), member(context, node), tokens.new())
        with connected(context, node) as there:
            _kubeadm(there, ["init"], text, progress)

    name, needs = f"init {node.name}", (f"prepare {node.name}",)
    return Step(name, run, asks(context, node, _is_joined), needs, usual=45 * context.scale)


def _kubeconfig(context: Context, node: NodePlan) -> Step:
    def run(progress: Progress) -> None:
        progress.say(f"reading {ADMIN}")
        with connected(context, node) as there:
            text = there.execute(["sudo", "cat", ADMIN])
        own = kubeconfig.for_lab(text, context.plan.lab, context.plan.cluster.external)
        context.state.write(context.state.kubeconfig, own)
        _await_api(context, progress)

    def done() -> bool:
        return context.state.kubeconfig.exists() and Kubectl.of(context.state).answers()

    return Step(CONFIG, run, done, (f"init {node.name}",), usual=2)


def _await_api(context: Context, progress: Progress) -> None:
    """Wait until the API server answers: after a restart of its controller that takes a while.

    :raises ClusterError: it does not.
    """
    begun = time.monotonic()
    while not Kubectl.of(context.state).answers():
        where = context.plan.cluster.external
        progress.say(f"waiting for the API server at {where}")
        if time.monotonic() - begun > API_LIMIT * context.scale:
            raise ClusterError(
                f"The API server at {where} does not answer.",
                why="Its controller runs, and kubeadm has made it.",
                cure="Run the same command again; or destroy the lab and create it anew.",
                evidence="winlab logs controller-1; winlab exec controller-1 -- sudo ctr -n k8s.io tasks ls",
            )
        time.sleep(POLL)


def _given_kubeconfig(context: Context, admin: str) -> Step:
    def run(progress: Progress) -> None:
        context.state.write(context.state.kubeconfig, admin)
        progress.say(f"asking the API server at {context.plan.cluster.external}")
        if not Kubectl.of(context.state).answers():
            raise ClusterError(
                "The cluster that the lab is to join does not answer any more.",
                cure="See that it runs, then run the same command again.",
                evidence=f"winlab kubectl --lab {context.plan.lab} -- get --raw=/readyz",
            )

    def done() -> bool:
        kept = context.state.kubeconfig
        return kept.exists() and kept.read_text() == admin and Kubectl.of(context.state).answers()

    return Step(CONFIG, run, done, (KUBECTL,), usual=2)


def _join_controller(context: Context, first: NodePlan, node: NodePlan, needs: tuple[str, ...]) -> Step:
    def run(progress: Progress) -> None:
        key = secrets.token_hex(32)  # AES-256, by which the certificates are kept for the other controllers
        upload = kubeadm.init(cluster(context), member(context, first), tokens.new(), key)
        with connected(context, first) as there:
            progress.say(f"handing over the certificates from {first.name}")
            words = ["init", "phase", "upload-certs", "--upload-certs"]
            there.run(contract.RunKubeadm(arguments=words, configuration=upload))  # unheard: it prints the key

        def leave() -> None:
            # kubeadm's reset does it only for a node that has come as far as a kubelet of its own; and two members of
            # which one is gone have no majority: the whole cluster would stand still
            with connected(context, first) as other:
                other.run(contract.ForgetMember(address=node.address), progress.say)

        with credentials(context, key) as joining, connected(context, node) as there:
            text = kubeadm.join_controller(cluster(context), member(context, node), joining)
            _kubeadm(there, ["join"], text, progress, leave)

    return Step(joined(node.name), run, asks(context, node, _is_joined), needs, usual=60 * context.scale)


def _join_worker(context: Context, node: NodePlan, needs: tuple[str, ...]) -> Step:
    def run(progress: Progress) -> None:
        with credentials(context) as joining, connected(context, node) as there:
            if context.plan.alias is not None:
                name, address = context.plan.alias
                there.execute(["sudo", "sh", "-c", HOSTS], f"{address} {name}\n".encode())
            text = kubeadm.join_worker(cluster(context), member(context, node), joining)
            _kubeadm(there, ["join"], text, progress)

    return Step(joined(node.name), run, asks(context, node, _is_joined), needs, usual=20 * context.scale)
