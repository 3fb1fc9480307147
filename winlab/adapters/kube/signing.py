"""Certificates that a cluster's own CAs sign: requests, their approval, and what comes back.

Source: kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from winlab.adapters.kube.kubectl import Kubectl, understood
from winlab.errors import ClusterError
from winlab.printable import printable

LARGEST = 1 << 15  # characters of a certificate or request; one with a chain has some 4,000
REFUSED = ("Denied", "Failed")


@dataclass(frozen=True)
class Requested:
    """A request that the cluster has, and its key, which the cluster never gets."""

    name: str
    subject: x509.Name
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def key_pem(self) -> str:
        """The key as PEM."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def request(
    kubectl: Kubectl, purpose: str, user: str, group: str, signer: str, usages: Sequence[str], labels: dict[str, str]
) -> Requested:
    """Ask for a client certificate. The caller approves the request, waits for :func:`issued`, and deletes it.

    :param purpose: begins the request's name.
    :param usages: exactly those that the signer allows.
    :raises ClusterError: the API server refuses it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    names = ((NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, user))
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in names])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    made = Requested(f"{purpose}-{secrets.token_hex(4)}", subject, key)
    spec = {
        "request": base64.b64encode(csr.public_bytes(Encoding.PEM)).decode(),
        "signerName": signer,
        "usages": list(usages),
    }
    kubectl.apply([{**reference(made.name), "metadata": {"name": made.name, "labels": labels}, "spec": spec}])
    return made


def approve(kubectl: Kubectl, name: str) -> None:
    """Approve a request. Safe to repeat.

    :raises ClusterError: these credentials may not do that.
    """
    kubectl.run("certificate", "approve", name)


def delete(kubectl: Kubectl, name: str) -> None:
    """Delete a request; the certificate stays valid. The cluster itself deletes it after an hour.

    :raises ClusterError: the API server refuses.
    """
    kubectl.delete([reference(name)])


def issued(kubectl: Kubectl, asked: Requested) -> tuple[str, str]:
    """The certificate as PEM, empty while there is none; and what the request's conditions say.

    :raises ClusterError: the cluster refused the request, or sent another certificate than was asked for.
    """
    with understood("What the cluster says of a certificate"):
        status: dict[str, Any] = kubectl.get("certificatesigningrequest", asked.name).get("status") or {}
        rows = [dict(row) for row in status.get("conditions") or []]
        says = printable("; ".join(f"{row.get('type')}: {row.get('message')}" for row in rows))[:500]
        encoded = status.get("certificate") or ""
        if any(row.get("type") in REFUSED for row in rows):
            raise ClusterError("The cluster refuses to sign a certificate.", why=f"'{asked.name}' says: {says}.")
        if not encoded:
            return "", says
        if len(encoded) > LARGEST:
            raise ValueError(f"it has more than {LARGEST >> 10} KiB")
        text = base64.b64decode(encoded, validate=True).decode("ascii")
        leaf = x509.load_pem_x509_certificates(text.encode())[0]
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if leaf.public_key().public_bytes(*form) != asked.key.public_key().public_bytes(*form):
        raise ClusterError("The cluster signed another key than it was asked to.", why=f"The request: '{asked.name}'.")
    if leaf.subject != asked.subject:
        raise ClusterError(
            "The cluster signed another name than it was asked to.",
            why=f"Asked for: {asked.subject.rfc4514_string()}; "
            f"signed: {printable(leaf.subject.rfc4514_string())[:200]}.",
        )
    return text, says


def reference(name: str) -> dict[str, Any]:
    """What names a request."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
    }
