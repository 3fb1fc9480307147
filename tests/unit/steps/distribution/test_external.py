"""A machine becomes a node of an external cluster. tests/integration/test_identity.py does it with real API servers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import answers
import plans
import pytest
import runs
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from external import K3S
from lab_fakes import Api

from winlab.adapters.kube import identity, signing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import spec
from winlab.design.contract.call import Call, R
from winlab.design.plan import make as plan
from winlab.design.plan.existing import ForeignCluster
from winlab.engine.run import Run
from winlab.errors import ClusterError
from winlab.steps import amendment, joining, pod_network
from winlab.steps.distribution import known
from winlab.steps.linux import node as linux_node

REQUEST = signing.Requested("winlab-node-1-0a", x509.Name([]), ec.generate_private_key(ec.SECP256R1()))


class Guest:
    """A node that runs every script, and remembers what it was given."""

    def __init__(self) -> None:
        self.calls: list[Call[Any]] = []
        self.commands: list[tuple[list[str], bytes]] = []
        self.tell: object = None

    def run(self, call: Call[R], *_args: object) -> R:
        self.calls.append(call)
        return answers.result(call, {})

    def execute(self, command: list[str], stdin: bytes = b"") -> str:
        self.commands.append((command, stdin))
        return ""


class Cluster:
    """What the identity's own functions do, and in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.approvals: list[tuple[int, list[str]]] = [(0, []), (1, [])]
        self.issued: list[Any] = [("", "Pending"), ("CERTIFICATE", "")]
        self.api = Api({})

        def note(what: str, answer: object = None) -> Any:
            return lambda *_args: self.did.append(what) or answer

        monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _folder: self.api))
        monkeypatch.setattr(identity, "request", note("request", REQUEST))
        monkeypatch.setattr(identity, "allow_renewal", note("allow renewal"))
        monkeypatch.setattr(identity, "authorities", note("authorities", identity.Authorities("SERVERS", "CLIENTS")))
        monkeypatch.setattr(identity, "proxy_token", note("proxy", "token"))
        monkeypatch.setattr(identity, "has_asked_to_serve", lambda *_: False)
        monkeypatch.setattr(identity, "approve_serving", lambda *_: self.did.append("approve") or self.approvals.pop(0))
        monkeypatch.setattr(signing, "issued", lambda *_: self.issued.pop(0))
        monkeypatch.setattr(signing, "delete", note("delete request"))
        runs.clock(monkeypatch)


def run_of(*changes: str, cluster: ForeignCluster = K3S, guest: object = None) -> Run:
    wanted = spec.load("1-1-1", changes)
    return runs.run(plan.make(wanted, "lab", plans.TCG, plans.stock(wanted), cluster), guest=guest)


def voice() -> Any:
    return SimpleNamespace(say=lambda *_args: None)


def join(run: Run) -> None:
    runs.titled(linux_node.steps(run, run.plan.linux_nodes()[0]), "join node-1").run(voice())


def test_a_linux_node_gets_its_certificate_its_cas_and_its_kube_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    there, guest = Cluster(monkeypatch), Guest()
    join(run_of("workers.os=debian-13", guest=guest))
    (call,) = [one for one in guest.calls if one.script == "member"]
    given = call.settings("linux")
    kubelet, proxy = (yaml.safe_load(given[name]) for name in ("kubeconfig", "proxy"))
    for config in (kubelet, proxy):
        assert config["clusters"][0]["cluster"]["tls-server-name"] == "kubernetes.default.svc"
        assert config["clusters"][0]["cluster"]["server"] == "https://192.0.2.10:6443"
    assert kubelet["users"][0]["name"] == "system:node:node-1"
    assert proxy["users"][0]["user"] == {"token": "token"}
    assert given["client_ca"] == "CLIENTS"
    assert [one for one in there.did if one != "authorities"] == [
        "request", "allow renewal", "proxy", "delete request", "approve", "approve",
    ]  # fmt: skip


def test_a_windows_node_gets_its_configuration_and_no_kube_proxy_here(monkeypatch: pytest.MonkeyPatch) -> None:
    there, calls = Cluster(monkeypatch), list[Call[Any]]()
    run = run_of("workers.os=windows-2022")
    known.membership(run).join_windows(run.plan.windows_nodes()[0], calls.append, voice())
    given = calls[0].settings("windows")
    assert given.keys() == {"kubeconfig", "client_ca", "configuration", "name"}
    assert yaml.safe_load(given["configuration"])["clusterDNS"] == ["10.96.0.10"]
    assert "proxy" not in there.did


def test_a_certificate_for_something_else_is_reported_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    there, said = Cluster(monkeypatch), list[str]()
    there.approvals = [(0, ["'csr-1': it is for other names"])]
    run = run_of("workers.os=windows-2022")
    progress: Any = SimpleNamespace(say=said.append)
    known.membership(run).join_windows(run.plan.windows_nodes()[0], lambda _call: None, progress)
    assert said[-1] == "a certificate of node-1 is not approved: 'csr-1': it is for other names"


def test_a_cluster_that_signs_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Cluster(monkeypatch)
    monkeypatch.setattr(signing, "issued", lambda *_: ("", "Approved: by winlab"))
    with pytest.raises(ClusterError, match="does not sign the certificate") as caught:
        join(run_of("workers.os=debian-13", guest=Guest()))
    assert (caught.value.why, "--cluster-signing-cert-file" in caught.value.cure) == ("Approved: by winlab", True)
    assert "delete request" not in there.did


def test_a_kubelet_that_does_not_ask_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch)
    monkeypatch.setattr(identity, "approve_serving", lambda *_: (0, []))
    with pytest.raises(ClusterError, match="does not ask for the certificate"):
        join(run_of("workers.os=debian-13", guest=Guest()))


def test_a_linux_node_knows_the_server_s_name_by_its_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address goes in on the standard input: the name is the external cluster's choice."""
    for advertised, lines in (
        (K3S.advertised, []),
        ("https://kind:6443", [(["sudo", "sh", "-c", joining.HOSTS], b"192.0.2.10 kind\n")]),
    ):
        Cluster(monkeypatch)
        guest = Guest()
        join(run_of("workers.os=debian-13", cluster=replace(K3S, advertised=advertised), guest=guest))
        assert guest.commands == lines


def test_labs_that_winlab_makes_keep_their_own_way_to_join() -> None:
    own = runs.run(plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal"))
    assert own.plan.cluster.membership is own.plan.cluster.distribution
    assert type(known.membership(own)) is type(known.of(own))


def test_calico_needs_no_pod_network_of_the_controller_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """MicroK8s gives none."""
    run = run_of("workers.os=windows-2022")
    row = {"metadata": {"name": "node-1"}, "spec": {}}
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda *_: Api({"get nodes": {"items": [row]}})))
    assert pod_network.await_share(run, run.plan.node("node-1"), voice()).pod_cidr is None


@pytest.mark.parametrize("joins", [True, False])
def test_a_removed_node_leaves_nothing_in_an_external_cluster(monkeypatch: pytest.MonkeyPatch, joins: bool) -> None:
    run = run_of("workers.os=windows-2022") if joins else runs.run(plans.make(plans.TCG, "1-1-1"))
    api = Api({"get nodes": {"items": []}, "get clusterrolebindings,": "clusterrolebinding/winlab:renewal:node-1\n"})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda *_: api))
    step = amendment._leave(run, "node-1", [])
    assert step.done() is not joins
    step.run(voice())
    kinds = [line.split()[1] for line, _ in api.asked if line.startswith("delete")]
    ours = ["clusterrolebindings", "serviceaccounts", "certificatesigningrequests"]
    assert kinds == ["node", *(ours if joins else [])]
