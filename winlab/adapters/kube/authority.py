"""Certificates that identify a cluster, and kubeconfigs for its services. Pure, except for reading a given file."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from winlab import documents
from winlab.errors import UsageError


def authority(path: Path) -> str:
    """The certificates, as PEM, that identify the first cluster in a kubeconfig.

    :raises UsageError: the file is not a kubeconfig, or does not name an authority.
    """
    try:
        cluster = documents.from_yaml(path.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        return base64.b64decode(cluster["certificate-authority-data"]).decode()
    except (LookupError, TypeError, AttributeError, ValueError, OSError, yaml.YAMLError) as error:
        raise UsageError(f"'{path}' does not name the certificate authority of its cluster.", why=str(error)) from error


def key_hashes(pem: bytes) -> list[str]:
    """``sha256:`` and the SHA-256 of each certificate's public key (SPKI, DER), by which nodes pin a CA.

    :raises UsageError: there is no certificate, or one with a key of an unknown kind.
    """
    try:
        keys = [certificate.public_key() for certificate in x509.load_pem_x509_certificates(pem)]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UsageError("The cluster's CA is not a certificate in PEM.", why=str(error)) from error
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return [f"sha256:{hashlib.sha256(key.public_bytes(*form)).hexdigest()}" for key in keys]


def with_token(authority: str, endpoint: str, user: str, token: str) -> str:
    """A kubeconfig that logs in by a service account's token.

    :param authority: the cluster's certificates, as PEM.
    :param endpoint: host:port.
    """
    return kubeconfig(authority, endpoint, user, {"token": token})


def kubeconfig(authority: str, endpoint: str, user: str, credentials: dict[str, str], server_name: str = "") -> str:
    """A kubeconfig of one user.

    :param authority: the cluster's certificates, as PEM.
    :param endpoint: host:port.
    :param credentials: the user's fields.
    :param server_name: the name that the server's certificate must have; empty: the endpoint's host.
    """
    encoded = base64.b64encode(authority.encode()).decode()
    cluster = {"server": f"https://{endpoint}", "certificate-authority-data": encoded}
    if server_name:
        cluster["tls-server-name"] = server_name
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": user}}],
        "current-context": "default",
    }
    text: str = yaml.safe_dump(made, sort_keys=False)
    return text
