"""A control plane that winlab did not make: real programs on the host itself, set up by kubeadm's phases."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - it is not winlab's cluster
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.events import Quiet
from winlab.supply.artifacts.build.source import BuildSource

API = "kubeadm.k8s.io/v1beta4"
NAME = "elsewhere.example"  # which no name server knows
PODS, SERVICES = "10.200.0.0/16", "10.201.0.0/16"
PORT, ETCD_PORT, MANAGER_PORT = 26443, 22379, 27257
READY_SECONDS = 600.0


class ControlPlane:
    """etcd, API server and controller manager; its nodes know the API server by a name."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address, self.port = address, PORT
        self.admin = folder / "admin.conf"
        self._running: list[subprocess.Popen[bytes]] = []
        known = versions.get()
        names = ("kubeadm", "kubectl", "kube-apiserver", "kube-controller-manager")
        wanted = [*(Program(name, known.kubernetes, "linux") for name in names), Program("etcd", known.etcd, "linux")]
        obtained = BuildSource(known.kubernetes).obtain_all(wanted, Quiet())
        self._programs = {item.artifact.name: item.path for item in obtained if isinstance(item.artifact, Program)}
        self._version = known.kubernetes

    def start(self) -> None:
        """Start it; ready for nodes when this returns."""
        config = self.folder / "kubeadm.yaml"
        config.write_text(yaml.safe_dump_all(self._configuration()))
        self._kubeadm("certs", "all", "--config", config)
        for name in ("admin", "super-admin", "controller-manager"):
            self._kubeadm("kubeconfig", name, "--config", config, "--kubeconfig-dir", self.folder)
            self._point(self.folder / f"{name}.conf", f"https://{self.address}:{PORT}")
        self._start("etcd", *self._etcd())
        self._start("kube-apiserver", *self._api_server())
        self._await_ready()
        self._start("kube-controller-manager", *self._manager())
        self._await_manager()
        binding = ("create", "clusterrolebinding", "kubeadm:cluster-admins", "--clusterrole=cluster-admin")
        self.kubectl(*binding, "--group=kubeadm:cluster-admins", admin=self.folder / "super-admin.conf")
        for phase in (("upload-config", "all"), ("bootstrap-token", "--skip-token-print"), ("addon", "kube-proxy")):
            self._kubeadm(*phase, "--config", config, "--kubeconfig", self.admin)
        info = json.loads(self.kubectl("get", "configmap", "cluster-info", "--namespace=kube-public", "--output=json"))
        kubeconfig = yaml.safe_load(info["data"]["kubeconfig"])
        kubeconfig["clusters"][0]["cluster"]["server"] = f"https://{NAME}:{PORT}"
        change = json.dumps({"data": {"kubeconfig": yaml.safe_dump(kubeconfig)}})
        self.kubectl("patch", "configmap", "cluster-info", "--namespace=kube-public", "--patch", change)

    def stop(self) -> None:
        """Stop all of it, one after the other: without etcd the API server takes long to go."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kubectl(self, *words: str, admin: Path | None = None) -> str:
        """The output of the administrator's kubectl."""
        return self._call(self._programs["kubectl"], f"--kubeconfig={admin or self.admin}", *words)

    def get(self, *words: str) -> Any:
        """The output of ``kubectl get``."""
        return json.loads(self.kubectl("get", *words, "--output=json"))

    def _configuration(self) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": API,
                "kind": "InitConfiguration",
                "localAPIEndpoint": {"advertiseAddress": self.address, "bindPort": PORT},
                "nodeRegistration": {"name": "elsewhere", "criSocket": "unix:///run/containerd/containerd.sock"},
            },
            {
                "apiVersion": API,
                "kind": "ClusterConfiguration",
                "kubernetesVersion": self._version,
                "certificatesDir": str(self.folder / "pki"),
                "controlPlaneEndpoint": f"{NAME}:{PORT}",
                "encryptionAlgorithm": "ECDSA-P256",
                "networking": {"podSubnet": PODS, "serviceSubnet": SERVICES},
            },
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "cgroupDriver": "systemd",
                "failSwapOn": False,
                "resolvConf": "/run/systemd/resolve/resolv.conf",
                # otherwise this host's certificatesDir is every node's
                "authentication": {"x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}},
            },
        ]

    def _etcd(self) -> Sequence[str]:
        here, peers = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PORT + 1}"
        return (
            f"--data-dir={self.folder}/etcd",
            "--unsafe-no-fsync",
            *(f"--listen-client-urls={here}", f"--advertise-client-urls={here}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
        )

    def _api_server(self) -> Sequence[str]:
        pki = self.folder / "pki"
        return (
            *(f"--bind-address={self.address}", f"--advertise-address={self.address}", f"--secure-port={PORT}"),
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=http://127.0.0.1:{ETCD_PORT}",
            *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
            "--enable-bootstrap-token-auth=true",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICES}",
            *(f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/apiserver.crt"),
            f"--tls-private-key-file={pki}/apiserver.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            *(f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key"),
            f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        )

    def _manager(self) -> Sequence[str]:
        pki, kubeconfig = self.folder / "pki", self.folder / "controller-manager.conf"
        return (
            *("--bind-address=127.0.0.1", f"--secure-port={MANAGER_PORT}", f"--kubeconfig={kubeconfig}"),
            *(f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"),
            *(f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"),
            *(f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/sa.key"),
            *("--use-service-account-credentials=true", "--controllers=*,bootstrapsigner,tokencleaner"),
            *("--allocate-node-cidrs=true", f"--cluster-cidr={PODS}", f"--service-cluster-ip-range={SERVICES}"),
            "--leader-elect=false",
        )

    def _start(self, program: str, *flags: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            self._running.append(subprocess.Popen([self._programs[program], *flags], stdout=log, stderr=log))

    def _await_ready(self) -> None:
        self._await("kube-apiserver", "get", "--raw=/readyz")

    def _await_manager(self) -> None:
        """Its first pass over the namespaces publishes the CA, which nodes need."""
        self._await("kube-controller-manager", "get", "configmap", "kube-root-ca.crt", "--namespace=kube-system")

    def _await(self, program: str, *asked: str) -> None:
        """Wait until kubectl succeeds, or the program that was started last has ended."""
        begun = time.monotonic()
        while True:
            try:
                self.kubectl(*asked, admin=self.folder / "super-admin.conf")
                return
            except AssertionError:
                log = (self.folder / f"{program}.log").read_text()[-2000:]
                assert time.monotonic() - begun < READY_SECONDS, log
                assert self._running[-1].poll() is None, log
                time.sleep(1)

    def _kubeadm(self, *words: str | Path) -> None:
        self._call(self._programs["kubeadm"], "init", "phase", *words)

    def _call(self, *command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @staticmethod
    def _point(path: Path, server: str) -> None:
        """kubeadm writes the name, which this host does not know."""
        made = yaml.safe_load(path.read_text())
        made["clusters"][0]["cluster"]["server"] = server
        path.write_text(yaml.safe_dump(made))
