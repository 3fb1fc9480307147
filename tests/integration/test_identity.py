"""A node's identity comes from any control plane by an administrator's kubeconfig alone: four sets of flags."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import select
import socket
import socketserver
import ssl
import subprocess  # noqa: TID251 - runs winlab as users do
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flagged
import pytest
import results
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from flagged import Flagged

from winlab.adapters.kube import authority, endpoint, existing, identity, probe, signing
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.signing import Requested
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.design.cni.model import SERVER_NAME
from winlab.design.distribution.external import files
from winlab.design.distribution.model import ClusterSettings, Member
from winlab.design.plan.existing import ForeignCluster
from winlab.errors import ClusterError, WinlabError
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource

NODE, ADDRESS = "win-1", "10.77.0.101"
KUBELET, OTHER = "linux-1", "127.0.0.2"  # a node that a real kubelet runs for; an address that no certificate has
LIMIT = 300.0  # seconds that only a hang exceeds


@pytest.fixture(scope="module", params=flagged.ALL, ids=lambda flags: flags.name)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flagged]:
    with flagged.running(tmp_path_factory.mktemp(request.param.name), request.param) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: Flagged) -> Kubectl:
    return Kubectl(cluster.kubectl_program, cluster.admin)


@pytest.fixture(scope="module")
def node(cluster: Flagged, admin: Kubectl) -> Kubectl:
    """kubectl with the certificate that a node got; it has registered itself."""
    ca = eventually(lambda: identity.authorities(admin))
    asked = identity.request(admin, NODE)
    identity.allow_renewal(admin, NODE)
    certificate = issued(admin, asked)
    text = identity.kubelet_kubeconfig(ca.server, f"127.0.0.1:{cluster.port}", NODE, certificate, asked.key_pem)
    made = Kubectl(cluster.kubectl_program, cluster.kubeconfig_of(text, "node"))
    eventually(lambda: made.apply([registered(NODE)]))
    return made


def registered(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"winlab.internal/machine": "x"}}}


def eventually(act: Callable[[], object]) -> object:
    """What *act* returns, once it does: controllers publish and sign a moment after the API server is ready."""
    begun = time.monotonic()
    while True:
        try:
            return act()
        except WinlabError:
            assert time.monotonic() - begun < LIMIT
            time.sleep(0.5)


def issued(admin: Kubectl, asked: Requested) -> str:
    begun = time.monotonic()
    while not (found := signing.issued(admin, asked)[0]):
        assert time.monotonic() - begun < LIMIT, admin.get("certificatesigningrequests")
        time.sleep(0.5)
    return found


def ask_as(node: Kubectl, name: str, signer: str, usages: tuple[str, ...], addresses: list[str]) -> None:
    """Ask for a certificate as the node's kubelet does."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = ((NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, identity.user(NODE)))
    builder = x509.CertificateSigningRequestBuilder(x509.Name([x509.NameAttribute(*row) for row in names]))
    if addresses:
        san = [x509.DNSName(NODE), *(x509.IPAddress(ipaddress.ip_address(one)) for one in addresses)]
        builder = builder.add_extension(x509.SubjectAlternativeName(san), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages)}
    made = {**signing.reference(name), "spec": spec}
    node.run("create", "--filename=-", stdin=json.dumps(made))


def certificate_of(admin: Kubectl, name: str) -> str:
    status = admin.get("certificatesigningrequest", name).get("status") or {}
    if not status.get("certificate"):
        raise ClusterError(f"'{name}' is not signed: {status}")
    return str(status["certificate"])


def test_the_cas_are_those_of_servers_and_clients(cluster: Flagged, admin: Kubectl, node: Kubectl) -> None:
    found = identity.authorities(admin)
    assert found.server == cluster.servers.pem
    assert found.clients.strip() == cluster.clients.pem.strip()
    assert (found.server.strip() == found.clients.strip()) != cluster.flags.apart


def test_labels_arrive_as_they_are(admin: Kubectl) -> None:
    """In YAML these would be a boolean and a number for kubectl."""
    labels = {"winlab.internal/a": "y", "winlab.internal/b": "1e3"}
    metadata = {"name": "labels", "namespace": "default", "labels": labels}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    admin.apply([made])
    assert admin.same([made])
    assert admin.get("configmap", "labels", "--namespace=default")["metadata"]["labels"] == labels
    admin.delete([made])


def test_the_certificate_is_the_node_s(cluster: Flagged, node: Kubectl) -> None:
    assert node.get("node", NODE)["metadata"]["name"] == NODE
    who = json.loads(node.run("auth", "whoami", "--output=json"))["status"]["userInfo"]
    assert who["username"] == f"system:node:{NODE}"
    assert "system:nodes" in who["groups"]


def test_without_roles_a_node_may_do_anything(cluster: Flagged, node: Kubectl) -> None:
    bare = cluster.flags.authorization == "AlwaysAllow"
    if bare:
        assert node.get("secrets", "--all-namespaces")["items"] == []
    else:
        with pytest.raises(ClusterError, match="kubectl get"):
            node.get("secrets", "--all-namespaces")


def test_the_cluster_says_whether_it_knows_roles(cluster: Flagged, admin: Kubectl) -> None:
    assert identity.has_rbac(admin) == (cluster.flags.authorization != "AlwaysAllow")


def test_the_node_renews_its_certificate(admin: Kubectl, node: Kubectl) -> None:
    ask_as(node, "renewal", identity.CLIENT, identity.CLIENT_USAGES, [])
    assert eventually(lambda: certificate_of(admin, "renewal"))


def test_the_serving_certificate_is_approved_for_the_planned_address(admin: Kubectl, node: Kubectl) -> None:
    usages = ("digital signature", "server auth")
    ask_as(node, "planned", identity.SERVING, usages, [ADDRESS])
    ask_as(node, "other", identity.SERVING, usages, ["192.0.2.99"])
    approved, refused = identity.approve_serving(admin, NODE, [ADDRESS])
    assert approved == 1
    assert refused == ["'other': it is for other names or addresses than the node's"]
    assert eventually(lambda: certificate_of(admin, "planned"))
    assert "conditions" not in (admin.get("certificatesigningrequest", "other").get("status") or {})
    assert identity.approve_serving(admin, NODE, [ADDRESS])[0] == 0


def test_kube_proxy_reads_services_and_no_secrets(cluster: Flagged, admin: Kubectl, node: Kubectl) -> None:
    token = identity.proxy_token(admin, NODE, "8760h")
    ca = identity.authorities(admin).server
    text = authority.kubeconfig(ca, f"127.0.0.1:{cluster.port}", "kube-proxy", {"token": token}, SERVER_NAME)
    proxy = Kubectl(cluster.kubectl_program, cluster.kubeconfig_of(text, "proxy"))
    for kind in ("services", "endpointslices", "nodes"):
        assert "items" in proxy.get(kind, *(["--all-namespaces"] * (kind != "nodes")))
    if cluster.flags.authorization != "AlwaysAllow":
        with pytest.raises(ClusterError):
            proxy.get("secrets", "--all-namespaces")


def test_the_probe_sees_what_the_flags_say(cluster: Flagged, admin: Kubectl, node: Kubectl) -> None:
    seen = probe.look(admin)
    assert seen.lacking == ()
    assert seen.rbac == (cluster.flags.authorization != "AlwaysAllow")
    assert [one.name for one in seen.nodes] == [NODE]
    as_node = probe.look(node) if not seen.rbac else None  # a node may not even list DaemonSets where roles exist
    assert as_node is None or as_node.lacking == ()


def test_the_command_says_what_the_cluster_needs(cluster: Flagged, node: Kubectl, tmp_path: Path) -> None:
    there = os.environ | {"HOME": str(tmp_path), "PATH": f"{cluster.kubectl_program.parent}:{os.environ['PATH']}"}
    words = ["join", "--check", "--kubeconfig", str(cluster.admin), "--rehearse", "--output", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "winlab", *words], capture_output=True, text=True, check=False, env=there, timeout=300
    )
    assert done.returncode == 2, done.stderr  # it is at 127.0.0.1 alone, which nodes can't use
    findings = results.item(done.stdout)["findings"]
    rows = {row["about"]: row for row in findings}
    assert rows["workers reach the API"]["level"] == "refused"
    assert rows["credentials"]["level"] == "ok"
    assert rows["roles (RBAC)"]["level"] == ("warning" if cluster.flags.authorization == "AlwaysAllow" else "ok")
    refused = [row["about"] for row in findings if row["level"] == "refused"]
    assert refused == ["workers reach the API"]


def test_every_set_of_flags_says_what_nodes_need(cluster: Flagged, admin: Kubectl, node: Kubectl) -> None:
    found = eventually(lambda: existing.read(admin, f"127.0.0.1:{cluster.port}"))
    assert isinstance(found, ForeignCluster)
    assert found.ca == cluster.servers.pem
    assert found.service_cidr == flagged.SERVICES
    assert found.dns == "10.43.0.10"
    assert endpoint.connect(f"127.0.0.1:{cluster.port}", found.ca)
    if cluster.flags.apart:
        with pytest.raises(ssl.SSLError):
            endpoint.connect(f"127.0.0.1:{cluster.port}", cluster.clients.pem)


def test_a_real_kubelet_gets_a_certificate_of_its_own(cluster: Flagged, admin: Kubectl, tmp_path: Path) -> None:
    """By an address that is not in the API server's certificate; and by the name that it knows, also when it renews."""
    ca = eventually(lambda: identity.authorities(admin))
    assert isinstance(ca, identity.Authorities)
    asked = identity.request(admin, KUBELET)
    identity.allow_renewal(admin, KUBELET)
    certificate = issued(admin, asked)
    (tmp_path / "ca.crt").write_text(ca.clients)
    with relay(cluster.port) as port, silent(tmp_path / "cri.sock") as runtime:
        config = identity.kubelet_kubeconfig(ca.server, f"{OTHER}:{port}", KUBELET, certificate, asked.key_pem)
        (tmp_path / "kubelet.conf").write_text(config)
        settings = ClusterSettings(
            versions.get(), f"{OTHER}:{port}", (), flagged.PODS, flagged.SERVICES, dns="10.43.0.10"
        )
        text = files.kubelet_configuration(settings, Member(KUBELET, ADDRESS)).replace(
            "/etc/kubernetes/pki", str(tmp_path)
        )
        (tmp_path / "config.yaml").write_text(f"{text}failCgroupV1: false\n")  # this host may have them
        words = [
            *(
                f"--config={tmp_path}/config.yaml",
                f"--kubeconfig={tmp_path}/kubelet.conf",
                f"--cert-dir={tmp_path}/pki",
            ),
            *(
                f"--root-dir={tmp_path}/root",
                f"--hostname-override={KUBELET}",
                f"--container-runtime-endpoint={runtime}",
            ),
        ]
        with (tmp_path / "log").open("wb") as log:
            program = kubelet_program()
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
        try:
            own = eventually(lambda: renewed(tmp_path, process, certificate))
        finally:
            process.kill()
            process.wait()
    assert isinstance(own, x509.Certificate)
    own.verify_directly_issued_by(x509.load_pem_x509_certificate(cluster.clients.pem.encode()))
    assert own.subject == asked.subject


def kubelet_program() -> Path:
    known = versions.get()
    (made,) = BuildSource(known.kubernetes).obtain_all([Program("kubelet", known.kubernetes, "linux")], Quiet())
    return made.path


def renewed(folder: Path, process: subprocess.Popen[bytes], first: str) -> x509.Certificate:
    """The certificate in place of the *first*, with another key: the one that winlab sent is no longer used."""
    log, kept = (folder / "log").read_text()[-2000:], folder / "pki/kubelet-client-current.pem"
    assert process.poll() is None, log
    own = x509.load_pem_x509_certificate(kept.read_bytes()) if kept.exists() else None
    if own is None or own.public_key() == x509.load_pem_x509_certificate(first.encode()).public_key():
        raise ClusterError("The kubelet has not renewed its certificate.", why=log)
    return own


@contextmanager
def relay(to: int) -> Iterator[int]:
    """The port of another address of this host that leads to a port of 127.0.0.1."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((flagged.HERE, to)) as far:
                ends = {self.request: far, far: self.request}
                while ready := select.select(list(ends), [], [])[0]:
                    for end in ready:
                        if not (part := end.recv(1 << 16)):
                            return
                        ends[end].sendall(part)

    with socketserver.ThreadingTCPServer((OTHER, 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()


@contextmanager
def silent(path: Path) -> Iterator[str]:
    """A container runtime that never answers: the kubelet waits for it, and renews its certificate meanwhile.

    So it changes nothing on this host.
    """
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield f"unix://{path}"


def test_nothing_is_left_but_the_node(admin: Kubectl, node: Kubectl) -> None:
    for name in (NODE, KUBELET):
        assert identity.is_left(admin, name)
        identity.remove(admin, name)
        identity.remove(admin, name)
        assert not identity.is_left(admin, name)
    assert [row["metadata"]["name"] for row in admin.get("nodes")["items"]] == [NODE]
    kinds = "clusterrolebindings,serviceaccounts,certificatesigningrequests"
    rows = admin.get(kinds, "--all-namespaces")["items"]
    assert [row["metadata"]["name"] for row in rows if "winlab" in row["metadata"]["name"]] == []
