"""Steps that make Linux guests nodes of the cluster: controllers and workers, driven by winlab_node over ssh."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube import authority as access
from winlab.adapters.kube import existing, kubeconfig, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import contract
from winlab.design.plan.model import NodePlan
from winlab.design.render import kubeadm, nodes
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps.states import API, BOOTED, INITIALISED, KUBECTL, MEMBER, PAYLOAD_INSERTED, PREPARED

ADMIN = "/etc/kubernetes/admin.conf"
# Programs in Go ask with EDNS, and such questions OVN's DNS (23.03) leaves to the lab's name servers
HOSTS = 'read -r line && { grep -qxF "$line" /etc/hosts || echo "$line" >>/etc/hosts; }'
API_SILENCE = 180.0  # seconds on hardware without anything new from an API server whose controller answers


def steps(run: Run, admin: str = "") -> list[Step]:
    """From a booted Linux guest with the payload CD to a joined node.

    :param admin: the kubeconfig of a cluster made elsewhere, if this lab joins one.
    """
    workers = [node for node in run.plan.nodes if node.role == "worker" and node.os == "linux"]
    if run.plan.joins:
        found = [_given_kubeconfig(run, admin), *(_prepare(run, node) for node in workers)]
        return found + [_join_worker(run, node, API(run.lab)) for node in workers]
    first, *others = [node for node in run.plan.nodes if node.role == "controller"]
    found = [_prepare(run, node) for node in (first, *others, *workers)]
    found.append(_init(run, first))
    found.append(_kubeconfig(run, first))
    before = API(run.lab)
    for node in others:  # one after the other: etcd takes one new member at a time
        found.append(_join_controller(run, first, node, before))
        before = MEMBER(run.lab, node.name)
    return found + [_join_worker(run, node, before) for node in workers]


def authority(run: Run) -> str:
    """The cluster's CA as PEM, by which nodes know it.

    :raises ClusterError: the API server does not answer.
    """
    if run.plan.joins:
        return existing.authority(Kubectl.of(run.folder))
    return access.authority(run.folder.kubeconfig)


@contextmanager
def credentials(run: Run, certificate_key: str | None = None) -> Iterator[kubeadm.JoinCredentials]:
    """A fresh token, good until this ends, and by what the cluster is known.

    :raises ClusterError: the API server does not answer.
    """
    with tokens.lent(Kubectl.of(run.folder)) as token:
        yield kubeadm.JoinCredentials(token, (tokens.ca_hash(authority(run)),), certificate_key)


def asks(run: Run, node: NodePlan, question: Callable[[NodeScripts], bool]) -> Callable[[], bool]:
    """A step's ``done``: a question to the node; a node that does not answer says no."""

    def done() -> bool:
        try:
            with run.node(node) as there:
                return question(there)
        except WinlabError:
            return False

    return done


def _prepare(run: Run, node: NodePlan) -> Step:
    prepare = nodes.prepare(run.plan, node)

    def work(progress: Progress) -> None:
        with run.node(node) as there:
            there.run(prepare, progress.say)

    def prepared(there: NodeScripts) -> bool:
        found = there.run(contract.LinuxStatus())
        return bool(found.programs) and found.containerd.service == "running" and found.prepared

    after = [BOOTED(run.lab, node.name), PAYLOAD_INSERTED(run.lab, node.name)]
    reaches = PREPARED(run.lab, node.name)
    return Step(reaches, work, asks(run, node, prepared), after, usual=run.pace.usual(40))


def _kubeadm(
    there: NodeScripts,
    call: contract.RunKubeadm,
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
    there.run(call, progress.say)


def _is_joined(there: NodeScripts) -> bool:
    return there.run(contract.LinuxStatus()).joined


def _init(run: Run, node: NodePlan) -> Step:
    def work(progress: Progress) -> None:
        with run.node(node) as there:
            _kubeadm(there, nodes.init(run.plan, node, tokens.new()), progress)

    reaches, after = INITIALISED(run.lab, node.name), [PREPARED(run.lab, node.name)]
    return Step(reaches, work, asks(run, node, _is_joined), after, usual=run.pace.usual(45))


def _kubeconfig(run: Run, node: NodePlan) -> Step:
    def work(progress: Progress) -> None:
        progress.say(f"reading {ADMIN}")
        with run.node(node) as there:
            text = there.execute(["sudo", "cat", ADMIN])
        own = kubeconfig.for_lab(text, run.plan.lab, run.plan.cluster.external)
        run.folder.write(run.folder.kubeconfig, own)
        _await_api(run, progress)

    def done() -> bool:
        return run.folder.kubeconfig.exists() and Kubectl.of(run.folder).answers()

    after = [INITIALISED(run.lab, node.name), KUBECTL(run.lab)]
    return Step(API(run.lab), work, done, after, also=[MEMBER(run.lab, node.name)], usual=2)


def _await_api(run: Run, progress: Progress) -> None:
    """Wait until the API server answers: after a restart of its controller that takes a while.

    :raises ClusterError: it does not.
    """
    where = run.plan.cluster.external

    def look() -> Met[None] | Waiting:
        rows = Kubectl.of(run.folder).unready()
        return Met(None) if rows is None else Waiting(f"waiting for the API server at {where}", rows)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            f"The API server at {where} does not answer.",
            why="Its controller runs, and kubeadm has made it.",
            cure="Run the same command again; or destroy the lab and create it anew.",
            evidence="winlab logs controller-1; winlab exec controller-1 -- sudo ctr -n k8s.io tasks ls",
        )

    wait.until(look, progress, give_up, stall=run.pace.usual(API_SILENCE))


def _given_kubeconfig(run: Run, admin: str) -> Step:
    def work(progress: Progress) -> None:
        run.folder.write(run.folder.kubeconfig, admin)
        progress.say(f"asking the API server at {run.plan.cluster.external}")
        if not Kubectl.of(run.folder).answers():
            raise ClusterError(
                "The cluster that the lab is to join does not answer any more.",
                cure="See that it runs, then run the same command again.",
                evidence=f"winlab kubectl --lab {run.plan.lab} -- get --raw=/readyz",
            )

    def done() -> bool:
        kept = run.folder.kubeconfig
        return kept.exists() and kept.read_text() == admin and Kubectl.of(run.folder).answers()

    return Step(API(run.lab), work, done, [KUBECTL(run.lab)], usual=2)


def _join_controller(run: Run, first: NodePlan, node: NodePlan, before: State) -> Step:
    def work(progress: Progress) -> None:
        key = secrets.token_hex(32)  # AES-256, by which the certificates are kept for the other controllers
        upload = nodes.init(run.plan, first, tokens.new(), key)
        with run.node(first) as there:
            progress.say(f"handing over the certificates from {first.name}")
            words = ["init", "phase", "upload-certs", "--upload-certs"]
            there.run(replace(upload, arguments=words))  # unheard: it prints the key

        def leave() -> None:
            # kubeadm's reset does it only for a node that has come as far as a kubelet of its own; and two members of
            # which one is gone have no majority: the whole cluster would stand still
            with run.node(first) as other:
                other.run(contract.ForgetMember(address=node.address), progress.say)

        with credentials(run, key) as joining, run.node(node) as there:
            _kubeadm(there, nodes.join(run.plan, node, joining), progress, leave)

    after = [before, PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, asks(run, node, _is_joined), after, usual=run.pace.usual(60))


def _join_worker(run: Run, node: NodePlan, before: State) -> Step:
    def work(progress: Progress) -> None:
        with credentials(run) as joining, run.node(node) as there:
            if run.plan.alias is not None:
                name, address = run.plan.alias
                there.execute(["sudo", "sh", "-c", HOSTS], f"{address} {name}\n".encode())
            _kubeadm(there, nodes.join(run.plan, node, joining), progress)

    after = [before, PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, asks(run, node, _is_joined), after, usual=run.pace.usual(20))
