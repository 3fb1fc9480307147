"""A certificate authority, as an external cluster names it; and a controller's admin.conf."""

from __future__ import annotations

import base64
from typing import Any

import yaml

# openssl req -x509 -newkey ec ...; its public key by
# openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256
CA = """-----BEGIN CERTIFICATE-----
MIIBgDCCASegAwIBAgIUAJ50+Oydt/VLgnSoMt2/wuGjYw8wCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjExNTI0MjZaGA8yMTI2MTAy
ODE1MjQyNlowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABGgKR4r8/qcDJFhAajYlCzLdU3FA6rIAmsccM8H4qD6bnGkSJpXO
OKi2oi4Z68065xD+MwLHVD8WRBmk22GN7fmjUzBRMB0GA1UdDgQWBBRAGySST6q2
k5DusjM8ptqo4/DQsTAfBgNVHSMEGDAWgBRAGySST6q2k5DusjM8ptqo4/DQsTAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIDTbjPtgGLAN/WUiuvby
qFRWfrc6Egn0G7iCC3VhLvODAiAyBcf/F1m4fJ5kxWJDFIFuIeRTA0qmYN6m8j0q
E0Urow==
-----END CERTIFICATE-----
"""
# openssl req -x509 -newkey ec ...: of another cluster
OTHER_CA = """-----BEGIN CERTIFICATE-----
MIIBgjCCASegAwIBAgIUDa+IhnaiSWJefc/oInWk6OBMQPAwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjMwMjM3MzhaGA8yMTI2MTAz
MDAyMzczOFowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABCMI4MYTJP3dDgllp36Mdnht8+3mJuqPZ6A0/RrRbFuvc8bU9RYL
eXrdL+DWdm2k86fT0RNqpq7XU8TjE+jIkBujUzBRMB0GA1UdDgQWBBRmQFxlep34
hMAdU6mrHirsGWlzxjAfBgNVHSMEGDAWgBRmQFxlep34hMAdU6mrHirsGWlzxjAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQCYcis44qHYpPi3PNDq
eIUv519K6LTOwmGxrKXhYuzA/QIhALzjG+Ro4WyXWXQPp/OoA+p3eWdei4SqCc7X
7ocESfoE
-----END CERTIFICATE-----
"""
KEY = "-----BEGIN RSA PRIVATE KEY-----\nU0VDUkVU\n-----END RSA PRIVATE KEY-----\n"


def coded(text: str) -> str:
    """Encoded as in a kubeconfig."""
    return base64.b64encode(text.encode()).decode()


def admin(*, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> str:
    """The admin.conf that kubeadm writes, with these fields changed; None removes one."""
    of_cluster = {"certificate-authority-data": coded(CA), "server": "https://10.77.0.11:6443", **(cluster or {})}
    of_user = {"client-certificate-data": coded(CA), "client-key-data": coded(KEY), **(user or {})}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": "kubernetes", "cluster": _given(of_cluster)}],
        "users": [{"name": "kubernetes-admin", "user": _given(of_user)}],
        "contexts": [{"name": "a", "context": {"cluster": "kubernetes", "user": "kubernetes-admin"}}],
        "current-context": "a",
        **top,
    }
    return yaml.safe_dump(whole)


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
