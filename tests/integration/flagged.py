"""Control planes that differ in the flags that distributions give to upstream's programs; without nodes of their own.

Flags: k3s pkg/daemons/control/server.go; microk8s-resources/default-args; kubeadm's phases as written on a controller.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from control_plane import ControlPlane
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

HERE = "127.0.0.1"
PODS, SERVICES = "10.42.0.0/16", "10.43.0.0/16"
NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")  # of an API server's certificate
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Flags:
    """What a distribution does differently.

    :param apart: one CA signs servers, another one clients.
    :param verifies: the API server verifies kubelets.
    :param allocates: the controller manager gives nodes their pod CIDRs.
    """

    name: str
    authorization: str = "Node,RBAC"
    admission: str = "NodeRestriction"
    tokens: bool = True
    apart: bool = False
    verifies: bool = False
    allocates: bool = True


KUBEADM = Flags("kubeadm")
K3S = Flags("k3s", apart=True, verifies=True)
BARE = Flags("microk8s", "AlwaysAllow", "EventRateLimit", tokens=False, verifies=True, allocates=False)
MICROK8S = Flags("microk8s-rbac", "RBAC,Node", "EventRateLimit", tokens=False, verifies=True, allocates=False)
ALL = (KUBEADM, K3S, BARE, MICROK8S)


class Authority:
    """A CA of one cluster."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.path, self.key_path = self._write(name, made.sign(self._key, hashes.SHA256()), self._key)

    @property
    def pem(self) -> str:
        return self.path.read_text()

    def sign(self, user: str, group: str = "", names: Sequence[x509.GeneralName] = ()) -> tuple[Path, Path]:
        """A certificate and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [(NameOID.ORGANIZATION_NAME, group)] * bool(group) + [(NameOID.COMMON_NAME, user)]
        made = self._builder(x509.Name([x509.NameAttribute(kind, text) for kind, text in parts]), key)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self._write(user.replace(":", "-"), made.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now, number = datetime.datetime.now(datetime.UTC), x509.random_serial_number()
        return x509.CertificateBuilder(self._name, subject, key.public_key(), number, now - DAY, now + DAY)

    def _write(self, name: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> tuple[Path, Path]:
        paths = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        paths[0].write_bytes(made.public_bytes(Encoding.PEM))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return paths


class Flagged(ControlPlane):
    """etcd, API server and controller manager with the flags of one distribution."""

    def __init__(self, folder: Path, flags: Flags, address: str = HERE) -> None:
        super().__init__(folder, address)
        self.flags = flags
        self.port, self._etcd_port, self._peer_port, self._manager_port = _free(4)
        self.servers = Authority(folder, f"{flags.name}-server-ca")
        self.clients = Authority(folder, f"{flags.name}-client-ca") if flags.apart else self.servers

    @property
    def kubectl_program(self) -> Path:
        """The kubectl of its own version."""
        return self._programs["kubectl"]

    def start(self) -> None:
        """Start it; it answers when this returns."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / "sa.key").write_bytes(pem)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        (self.folder / "sa.pub").write_bytes(public)
        (self.folder / "events.yaml").write_text(yaml.safe_dump(_events()))
        self._kubeconfig(self.admin, *self.clients.sign("admin", "system:masters"))
        manager = self.clients.sign("system:kube-controller-manager")
        self._kubeconfig(self.folder / "manager.conf", *manager)
        (self.folder / "super-admin.conf").write_text(self.admin.read_text())
        self._start("etcd", *self._etcd())
        self._start("kube-apiserver", *self._api_server())
        self._await_ready()
        self._start("kube-controller-manager", *self._manager())
        self._await_manager()

    def kubeconfig_of(self, text: str, name: str) -> Path:
        """A kubeconfig as a file."""
        path = self.folder / f"{name}.conf"
        path.write_text(text)
        return path

    def _kubeconfig(self, path: Path, certificate: Path, key: Path) -> None:
        cluster = {
            "server": f"https://{self.address}:{self.port}",
            "certificate-authority-data": _coded(self.servers.path),
        }
        user = {"client-certificate-data": _coded(certificate), "client-key-data": _coded(key)}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": cluster}],
            "users": [{"name": "one", "user": user}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        path.write_text(yaml.safe_dump(made))

    def _etcd(self) -> Sequence[str]:
        here, peers = f"http://{HERE}:{self._etcd_port}", f"http://{HERE}:{self._peer_port}"
        return (
            *(f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={here}", f"--advertise-client-urls={here}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
        )

    def _api_server(self) -> Sequence[str]:
        flags, at = self.flags, self.folder
        names = [
            *map(x509.DNSName, NAMES),
            *(x509.IPAddress(ipaddress.ip_address(one)) for one in (self.address, "10.43.0.1")),
        ]
        certificate, key = self.servers.sign("kube-apiserver", names=names)
        to_kubelets = self.clients.sign("kube-apiserver-kubelet-client", "system:masters")
        admission = {"kind": "AdmissionConfiguration", "apiVersion": "apiserver.config.k8s.io/v1"}
        plugins = [{"name": "EventRateLimit", "path": f"{at}/events.yaml"}]
        (at / "admission.yaml").write_text(yaml.safe_dump({**admission, "plugins": plugins}))
        return (
            *(f"--bind-address={self.address}", f"--advertise-address={self.address}", f"--secure-port={self.port}"),
            "--allow-privileged=true",  # as all of them have it, for HostProcess pods, too
            # kubeadm, k3s 1.22 and MicroK8s 1.28 (canonical/microk8s#4095) and later: names need not resolve
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=http://{HERE}:{self._etcd_port}",
            f"--authorization-mode={flags.authorization}",
            f"--enable-admission-plugins={flags.admission}",
            *([f"--admission-control-config-file={at}/admission.yaml"] * ("EventRateLimit" in flags.admission)),
            *(["--enable-bootstrap-token-auth=true"] * flags.tokens),
            *([f"--kubelet-certificate-authority={self.servers.path}"] * flags.verifies),
            *(f"--kubelet-client-certificate={to_kubelets[0]}", f"--kubelet-client-key={to_kubelets[1]}"),
            f"--service-cluster-ip-range={SERVICES}",
            *(f"--client-ca-file={self.clients.path}", f"--tls-cert-file={certificate}"),
            f"--tls-private-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            *(f"--service-account-key-file={at}/sa.pub", f"--service-account-signing-key-file={at}/sa.key"),
        )

    def _manager(self) -> Sequence[str]:
        kubeconfig = self.folder / "manager.conf"
        pairs = {"kubelet-serving": self.servers, "kubelet-client": self.clients}
        pairs |= {"kube-apiserver-client": self.clients, "legacy-unknown": self.servers}
        one = (
            f"--cluster-signing-cert-file={self.servers.path}",
            f"--cluster-signing-key-file={self.servers.key_path}",
        )
        four = [
            word
            for signer, ca in pairs.items()
            for word in (
                f"--cluster-signing-{signer}-cert-file={ca.path}",
                f"--cluster-signing-{signer}-key-file={ca.key_path}",
            )
        ]
        share = (f"--cluster-cidr={PODS}", f"--service-cluster-ip-range={SERVICES}")
        return (
            *("--bind-address=127.0.0.1", f"--secure-port={self._manager_port}", f"--kubeconfig={kubeconfig}"),
            *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
            *(four if self.flags.apart else one),
            *(f"--root-ca-file={self.servers.path}", f"--service-account-private-key-file={self.folder}/sa.key"),
            "--use-service-account-credentials=true",
            *(f"--allocate-node-cidrs={str(self.flags.allocates).lower()}", *(share * self.flags.allocates)),
            "--leader-elect=false",
        )


@contextmanager
def running(folder: Path, flags: Flags) -> Iterator[Flagged]:
    """A control plane that answers, for the length of a with-block."""
    made = Flagged(folder, flags)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _events() -> dict[str, object]:
    """As MicroK8s has it."""
    limits = [{"type": "Server", "qps": 5000, "burst": 20000}]
    return {"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits}


def _coded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _free(count: int) -> list[int]:
    """Ports that nothing listens on."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server((HERE, 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in made]
