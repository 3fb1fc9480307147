"""The lab's credentials: random, and made before anything boots, so that every first connection is verified."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import secrets
import string
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

VALID_DAYS = 3650
# When every certificate begins. No clock can be trusted: the host's may have been ahead when it made the lab, and a
# guest's may be behind (at first Windows assumes that the hardware clock has local time)
VALID_FROM = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class NodeCredentials(BaseModel):
    """What identifies one node. Keys and certificates are PEM or OpenSSH text."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    host_key: str
    host_key_public: str
    vnc_password: str
    certificate: str = ""
    certificate_key: str = ""
    pfx_password: str = ""


class Credentials(BaseModel):
    """Everything secret about a lab."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    identity: str  # identifies the nodes that they were made for
    administrator_password: str
    ssh_key: str
    ssh_key_public: str
    ca_certificate: str
    nodes: dict[str, NodeCredentials]

    def pfx(self, node: str) -> bytes:
        """The node's certificate and key as PKCS #12, AES-256 (Windows Server reads that since 2019)."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12

        row = self.nodes[node]
        key = serialization.load_pem_private_key(row.certificate_key.encode(), password=None)
        return pkcs12.serialize_key_and_certificates(
            node.encode(),
            key,  # type: ignore[arg-type]
            x509.load_pem_x509_certificate(row.certificate.encode()),
            None,
            serialization.BestAvailableEncryption(row.pfx_password.encode()),
        )


def password(length: int = 20) -> str:
    """A random password that Windows' complexity rules accept: letters of both cases, digits and a hyphen."""
    letters = string.ascii_letters + string.digits
    while True:
        text = "".join(secrets.choice(letters) for _ in range(length - 1))
        text = f"{text[: length // 2]}-{text[length // 2 :]}"
        if any(c.islower() for c in text) and any(c.isupper() for c in text) and any(c.isdigit() for c in text):
            return text


def identity(plan: Plan) -> str:
    """A digest of what the nodes' credentials depend on: their names, systems and addresses."""
    rows = [f"{node.name} {node.os} {node.address} {plan.certified(node)}" for node in plan.nodes]
    return hashlib.sha256("\n".join([plan.network.domain, *rows]).encode()).hexdigest()[:16]


def generate(plan: Plan) -> Credentials:
    """Make all credentials of a lab, at random."""
    private, public = _ssh_key(f"winlab {plan.lab}")
    authority, authority_key = _authority(plan.lab)
    return Credentials(
        identity=identity(plan),
        administrator_password=password(),
        ssh_key=private,
        ssh_key_public=public,
        ca_certificate=_pem(authority),
        nodes={node.name: _node(plan, node, authority, authority_key) for node in plan.nodes},
    )


def adapted(plan: Plan, held: Credentials) -> Credentials:
    """The credentials of a lab whose nodes changed: those of nodes that stay are kept, and others are made.

    The CA's key is never kept, so nodes that are added come with a CA of their own. ``ca_certificate`` has every one
    that a certificate of the lab's nodes is from.
    """
    kept = {node.name: held.nodes[node.name] for node in plan.nodes if _has(held, plan, node)}
    authorities = _needed(held.ca_certificate, [row.certificate for row in kept.values() if row.certificate])
    if len(kept) < len(plan.nodes):
        authority, authority_key = _authority(plan.lab)
        made = {node.name: _node(plan, node, authority, authority_key) for node in plan.nodes if node.name not in kept}
        if any(row.certificate for row in made.values()) or not authorities:
            authorities.append(_pem(authority))
        kept |= made
    return held.model_copy(
        update={
            "identity": identity(plan),
            "ca_certificate": "".join(authorities) or held.ca_certificate,
            "nodes": {node.name: kept[node.name] for node in plan.nodes},
        }
    )


def giving(held: Credentials, fresh: Credentials) -> Credentials:
    """The credentials of nodes that have *held* and are being given *fresh*: certificates of both CAs count.

    Screens have the fresh passwords from the start.
    """
    rows = {
        name: held.nodes[name].model_copy(update={"vnc_password": row.vnc_password})
        for name, row in fresh.nodes.items()
    }
    return held.model_copy(update={"ca_certificate": held.ca_certificate + fresh.ca_certificate, "nodes": rows})


def former(held: Credentials, fresh: Credentials) -> Credentials:
    """What nodes that have *fresh* refuse: the key and the password of *held*. The nodes themselves are recognized."""
    old = {name: getattr(held, name) for name in ("administrator_password", "ssh_key", "ssh_key_public")}
    return fresh.model_copy(update=old)


def _has(held: Credentials, plan: Plan, node: NodePlan) -> bool:
    """Whether there are credentials for this very node: by the certificate's names, if it logs in with one."""
    row = held.nodes.get(node.name)
    if row is None or bool(row.certificate) != (node.system.login == "winrm"):
        return False
    if not row.certificate:
        return True
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(row.certificate.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return list(names) == _names(plan, node)


def _names(plan: Plan, node: NodePlan) -> list[x509.GeneralName]:
    """The names in a node's certificate."""
    from cryptography import x509

    return [
        x509.DNSName(node.name),
        x509.DNSName(f"{node.name}.{plan.network.domain}"),
        x509.IPAddress(ipaddress.ip_address(node.address)),
        x509.IPAddress(ipaddress.ip_address(plan.certified(node))),
    ]


def _needed(authorities: str, certificates: Iterable[str]) -> list[str]:
    """Those of the CAs (PEM, one after the other) that the certificates are from."""
    from cryptography import x509

    key_of = x509.AuthorityKeyIdentifier
    used = {
        x509.load_pem_x509_certificate(text.encode()).extensions.get_extension_for_class(key_of).value.key_identifier
        for text in certificates
    }
    every = x509.load_pem_x509_certificates(authorities.encode())
    own = x509.SubjectKeyIdentifier
    return [_pem(one) for one in every if one.extensions.get_extension_for_class(own).value.digest in used]


class MaskedCredentials(Credentials):
    """Placeholders for secrets."""

    def pfx(self, node: str) -> bytes:  # noqa: ARG002
        """A placeholder."""
        return b"<certificate and key of the node, PKCS #12>"


def masked(plan: Plan) -> MaskedCredentials:
    """Placeholders for all secrets of a lab, for ``winlab plan --render``."""
    return MaskedCredentials(
        identity=identity(plan),
        administrator_password="<administrator password>",  # noqa: S106
        ssh_key="<ssh key>",
        ssh_key_public="<ssh public key>",
        ca_certificate="<CA certificate>",
        nodes={
            node.name: NodeCredentials(
                host_key=f"<host key of {node.name}>",
                host_key_public=f"<public host key of {node.name}>",
                vnc_password="<VNC pw>",  # noqa: S106
                certificate=f"<certificate of {node.name}>",
                certificate_key=f"<certificate key of {node.name}>",
                pfx_password="<PFX password>",  # noqa: S106
            )
            for node in plan.nodes
        },
    )


def _ssh_key(comment: str) -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} {comment}"


def _rsa() -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    # RSA, because it is documented and widely used for WinRM's listener
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _certificate_builder(subject: str, issuer: x509.Name | None, key: RSAPrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = max(VALID_FROM, datetime.datetime.now(datetime.UTC))
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _authority(lab: str) -> tuple[x509.Certificate, RSAPrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _rsa()
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _certificate_builder(f"winlab {lab} CA", None, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        key_encipherment=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _node(plan: Plan, node: NodePlan, authority: x509.Certificate, authority_key: RSAPrivateKey) -> NodeCredentials:
    host_key, host_key_public = _ssh_key(node.name)
    vnc = password(8)  # VNC reads no more than eight characters
    if node.system.login != "winrm":  # which wants a certificate
        return NodeCredentials(host_key=host_key, host_key_public=host_key_public, vnc_password=vnc)
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = _rsa()
    issuer_id = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _certificate_builder(node.name, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(plan, node)), critical=False)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return NodeCredentials(
        host_key=host_key,
        host_key_public=host_key_public,
        vnc_password=vnc,
        certificate=_pem(certificate),
        certificate_key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        pfx_password=password(),
    )
