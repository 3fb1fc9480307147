"""A cluster's administrator is replaced: the new one has all rights, the old one has none, kubeadm works as before."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certificates
import plans
import pytest
import runs
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from winlab.adapters.kube import kubeconfig, reduced
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.reduced import Identity
from winlab.adapters.vm import domains
from winlab.design.distribution import known
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.steps.distribution.known import of
from winlab.steps.distribution.kubeadm import administrator
from winlab.steps.states import ADMINISTRATOR, READY_AGAIN

OWN = "kubeadm:cluster-admins"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def identity(*groups: str) -> Identity:
    """An administrator's, as kubeadm makes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject(*groups)).sign(key, hashes.SHA256())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return Identity(certificates.coded(certificates.CA), certificates.coded(signed(csr)), certificates.coded(pem))


def subject(*groups: str) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-admin")])


def signed(csr: x509.CertificateSigningRequest) -> str:
    """What a CA makes of it; whose key that is does not matter here."""
    builder = x509.CertificateBuilder(
        x509.Name([]), csr.subject, csr.public_key(), 1, START, START + datetime.timedelta(days=365)
    )
    made = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


class Cluster:
    """An API server: a binding, requests for certificates, and who asks by which kubeconfig."""

    def __init__(self) -> None:
        self.subjects: list[str] | None = [OWN]
        self.requests: dict[str, dict[str, Any]] = {}
        self.always: set[str] = {"system:masters"}
        self.signs = True
        self.late = 0  # how many questions are still answered as before a binding changed
        self.seen: list[set[str]] = []  # who had the binding, over time

    def run(self, kubectl: Kubectl, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        groups = administrator.groups(reduced.own_identity(kubectl.kubeconfig.read_text()))
        mighty = bool(groups & {*(self.subjects or []), *self.always})
        match words:
            case ("auth", "can-i", "*", "*", "--all-namespaces"):
                if self.late or not mighty:
                    self.late = max(0, self.late - 1)
                    raise ClusterError("kubectl auth failed.", why="no")
                return "yes"
            case ("get", "--raw=/api/v1/nodes?limit=1"):
                if not mighty and not self.late:
                    raise ClusterError("kubectl get failed.", why="Error from server (Forbidden): nodes is forbidden")
                self.late = max(0, self.late - 1)
                return "{}"
        if not mighty:
            raise ClusterError(f"kubectl {words[0]} failed.", why="Error from server (Forbidden)")
        return self._do(words, stdin)

    def _do(self, words: tuple[str, ...], stdin: str | None) -> str:
        match words:
            case ("apply", *_):
                (given,) = yaml.safe_load_all(stdin or "")
                if given["kind"] == "ClusterRoleBinding":
                    assert (given["metadata"]["name"], given["roleRef"]["name"]) == (OWN, "cluster-admin")
                    self.subjects = [one["name"] for one in given["subjects"]]
                    self.seen.append(set(self.subjects))
                else:
                    self.requests[given["metadata"]["name"]] = given
                return ""
            case ("certificate", "approve", name):
                if self.signs:
                    csr = x509.load_pem_x509_csr(base64.b64decode(self.requests[name]["spec"]["request"]))
                    self.requests[name]["status"] = {"certificate": certificates.coded(signed(csr))}
                return ""
            case ("get", "certificatesigningrequest", name, "--output=json"):
                return json.dumps(self.requests[name])
            case ("get", "clusterrolebinding", name, *_) if name == OWN:
                if self.subjects is None:
                    return ""
                rows = [{"kind": "Group", "name": one} for one in self.subjects]
                return json.dumps({"metadata": {"name": OWN}, "subjects": rows})
            case ("delete", *_):
                del self.requests[yaml.safe_load(stdin or "")["metadata"]["name"]]
                return ""
        raise AssertionError(words)


class Controller:
    def __init__(self, text: str) -> None:
        self.text = text

    def execute(self, command: list[str], stdin: bytes = b"") -> str:
        if command == ["sudo", "cat", known.DEFAULT.admin_file]:
            return self.text
        assert command == ["sudo", "sh", "-c", administrator.WRITE, known.DEFAULT.admin_file]
        self.text = stdin.decode()
        return ""


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *groups: str, spec: str = "1-0-1") -> None:
        self.cluster, self.held = Cluster(), identity(*groups)
        user = {"client-certificate-data": self.held.certificate, "client-key-data": self.held.key}
        self.controllers = {
            f"controller-{number}": Controller(certificates.admin(user=user)) for number in range(1, int(spec[0]) + 1)
        }
        self.run = runs.run(plans.make(plans.TCG, spec), guests=lambda node: self.controllers[node.name])
        self.plan, self.folder = self.run.plan, self.run.folder
        self.fresh = self.folder.within("fresh")
        own = kubeconfig.for_lab(self.held, "lab", self.plan.cluster.external, self.plan.network.external_cidr)
        self.folder.write(self.folder.kubeconfig, own)
        self.old = Kubectl(Path("/kubectl"), self.folder.kubeconfig)
        run: Callable[..., str] = self.cluster.run
        monkeypatch.setattr(Kubectl, "of", classmethod(lambda cls, _folder: self.old))
        monkeypatch.setattr(Kubectl, "run", lambda kubectl, *words, **more: run(kubectl, *words, **more))
        monkeypatch.setattr(domains, "state", lambda *_: "running")
        runs.clock(monkeypatch)

    def renew(self) -> frozenset[str]:
        """The groups of the new administrator."""
        after = [READY_AGAIN("lab", "controller-1")]
        step = of(self.run).renew_administrator(self.fresh, after)
        assert (step.reaches, step.needs, step.done()) == (ADMINISTRATOR("lab"), frozenset(after), False)
        step.run(Quiet())
        return administrator.groups(made(self.fresh))


def made(folder: LabFolder) -> Identity:
    return reduced.own_identity(kubeconfig.read(folder))


def test_the_old_administrator_has_no_rights_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, OWN, spec="3-0-1")
    (group,) = world.renew()
    assert group.startswith("winlab:")
    # no one is locked out in between, and kubeadm finds its binding at each moment
    assert world.cluster.seen == [{OWN, group}, {group}]
    assert world.cluster.requests == {}
    assert made(world.fresh).authority == world.held.authority
    with pytest.raises(ClusterError):
        world.old.run("get", "nodes")
    new = made(world.fresh)
    for controller in world.controllers.values():
        assert reduced.identity(controller.text, "controller") == new
        whole = yaml.safe_load(controller.text)
        assert whole["clusters"][0]["cluster"]["server"] == "https://10.77.0.11:6443"
        assert whole["users"][0]["name"] == "kubernetes-admin"


def test_a_key_belongs_to_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, OWN)
    world.renew()
    new = made(world.fresh)
    key = serialization.load_pem_private_key(base64.b64decode(new.key), password=None)
    certificate = x509.load_pem_x509_certificate(base64.b64decode(new.certificate))
    assert certificate.public_key() == key.public_key()
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "kubernetes-admin"


def test_a_copy_of_a_copy_refuses_its_own_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "winlab:0123456789abcdef")
    world.cluster.subjects = ["winlab:0123456789abcdef", "others"]
    (group,) = world.renew()
    assert world.cluster.subjects == ["others", group]


def test_two_copies_of_one_name_have_different_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    first = World(monkeypatch, OWN).renew()
    assert World(monkeypatch, OWN).renew() != first


def test_an_api_server_that_learns_of_bindings_late(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, OWN)
    world.cluster.late = 2
    (group,) = world.renew()
    assert world.cluster.subjects == [group]


@pytest.mark.parametrize("groups", [(OWN, "system:masters"), (OWN, "mine")])
def test_rights_by_something_else_are_reported(monkeypatch: pytest.MonkeyPatch, groups: tuple[str, ...]) -> None:
    world = World(monkeypatch, *groups)
    world.cluster.always |= {"mine"}
    with pytest.raises(ClusterError, match="does not refuse its old administrator") as caught:
        world.renew()
    assert f"groups are {', '.join(sorted(groups))}" in caught.value.why


def test_a_cluster_that_signs_nothing_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, OWN)
    world.cluster.signs = False
    with pytest.raises(ClusterError, match="signs no certificate"):
        world.renew()
    assert (world.cluster.subjects, world.cluster.requests) == ([OWN], {})
    assert reduced.identity(world.controllers["controller-1"].text, "controller-1") == world.held


@pytest.mark.parametrize(("group", "gets"), [(OWN, False), ("winlab:0123456789abcdef", True)])
def test_a_further_controller_gets_the_cluster_s_own_administrator(
    monkeypatch: pytest.MonkeyPatch, group: str, gets: bool
) -> None:
    world = World(monkeypatch, group, spec="3-0-1")
    first = world.plan.node("controller-1")
    there = Controller("")
    administrator.hand_over(world.run, first, there)  # type: ignore[arg-type]
    assert bool(there.text) is gets
    if gets:
        assert reduced.identity(there.text, "controller-2") == world.held
