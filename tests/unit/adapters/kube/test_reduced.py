"""A controller's admin.conf brings certificates and a key to this host, and nothing that runs programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import certificates
import pytest
import yaml
from certificates import coded

from winlab.adapters.kube import kubeconfig, reduced
from winlab.errors import GuestError, UsageError
from winlab.lab_folder import LabFolder

EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", "touch /tmp/taken"]}


def test_the_kubeconfig_of_kubeadm_is_accepted_except_for_the_address() -> None:
    own = kubeconfig.for_lab(reduced.identity(certificates.admin(), "controller-1"), "lab", "192.0.2.1:6443", "x")
    made = yaml.safe_load(own)
    assert made["clusters"][0]["cluster"]["server"] == "https://192.0.2.1:6443"
    assert made["clusters"][0]["cluster"]["certificate-authority-data"] == coded(certificates.CA)
    assert made["users"][0]["user"] == {
        "client-certificate-data": coded(certificates.CA),
        "client-key-data": coded(certificates.KEY),
    }
    assert "10.77" not in own


@pytest.mark.parametrize(
    ("admin", "says"),
    [
        (certificates.admin(user={"exec": EXEC}), "exec"),
        (certificates.admin(user={"tokenFile": "/root/.ssh/id_ed25519"}), "tokenFile"),
        (certificates.admin(user={"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (certificates.admin(user={"client-key": "/root/key"}), "client-key"),
        (certificates.admin(cluster={"proxy-url": "http://10.77.0.11:1"}), "proxy-url"),
        (certificates.admin(cluster={"insecure-skip-tls-verify": True}), "insecure-skip-tls-verify"),
        (certificates.admin(cluster={"certificate-authority": "/etc/shadow"}), "certificate-authority"),
        (certificates.admin(extensions=[]), "extensions"),
        (certificates.admin(cluster={"certificate-authority-data": None}), "certificate-authority-data is not"),
        (certificates.admin(cluster={"certificate-authority-data": coded("root:x:0")}), "certificate-authority-data"),
        (certificates.admin(cluster={"certificate-authority-data": coded(certificates.KEY)}), "authority-data is not"),
        (certificates.admin(cluster={"certificate-authority-data": coded(f"{certificates.CA}x: y")}), "is not base64"),
        (certificates.admin(user={"client-key-data": "not base64!"}), "client-key-data is not base64 of PEM"),
        (certificates.admin(user={"client-key-data": {"a": 1}}), "client-key-data is not base64 of PEM"),
        (certificates.admin(users=[]), "exactly one of users"),
        (certificates.admin(clusters=[{}, {}]), "exactly one of clusters"),
        (certificates.admin() + "#" * (1 << 16), "it has more than 64 KiB"),
        ("[" * 5000, ""),
        ("a: [", ""),
        ("", "not a mapping"),
    ],
)
def test_anything_else_is_refused(admin: str, says: str) -> None:
    with pytest.raises(GuestError, match="not as kubeadm writes it") as caught:
        reduced.identity(admin, "controller-1")
    assert says in caught.value.why
    assert "destroy the lab" in caught.value.cure


@pytest.mark.parametrize(
    ("user", "cluster"), [({"exec": EXEC}, {}), ({"tokenFile": "/etc/shadow"}, {}), ({}, {"proxy-url": "http://x"})]
)
def test_settings_that_run_programs_are_never_merged(
    user: dict[str, Any], cluster: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(mine))
    folder = LabFolder("lab")
    folder.write(folder.kubeconfig, kubeconfig.named("lab", {"server": "https://x:1", **cluster}, user))
    with pytest.raises(UsageError, match="is not merged") as caught:
        kubeconfig.publish("lab")
    assert next(iter({**user, **cluster})) in caught.value.why
    assert not mine.exists()
