"""The hosts' certificates: a site's own authority, and what it signs. All are X.509 v3 with P-256 keys, as PEM text.

A certificate's name is the host's chassis, because OVN's roles compare it with the rows that a controller changes. The
certificates of hosts with a relay can serve, and those of others only connect. Controllers check who signed a server's
certificate, not whose it is, so otherwise any host could take a relay's place.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
AUTHORITY_VALID = datetime.timedelta(days=3650)
EARLIER = datetime.timedelta(days=1)  # hosts' clocks differ

SERVES = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
CONNECTS = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
BOTH = x509.ExtendedKeyUsage([*SERVES, *CONNECTS])


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: str
    key: str


def make_key() -> str:
    """A new private key."""
    return _key_text(ec.generate_private_key(ec.SECP256R1()))


def make_authority(chassis: str, of: str = "hosts") -> Pair:
    """The authority of a site whose first host is *chassis*.

    :param of: whose certificates it signs.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    # RFC 5280 has at most 64 characters in a name
    name = _name(f"winlab {of} of {chassis}"[:64])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, key.public_key(), AUTHORITY_VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_text(certificate), _key_text(key))


def make_request(chassis: str, key: str) -> str:
    """A request for a certificate."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name(chassis))
        .sign(_private(key), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )


def sign(request: str, chassis: str, address: str, use: x509.ExtendedKeyUsage, authority: Pair) -> str:
    """A certificate for the key of a request. Nothing else in the request counts.

    :param use: ``SERVES``, ``CONNECTS`` or ``BOTH``.
    :raises ValueError: it is not a request, its signature is wrong, or its key is not P-256.
    """
    asked = x509.load_pem_x509_csr(request.encode())
    public = asked.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise ValueError("the key is not of the curve P-256")
    if not asked.is_signature_valid:
        raise ValueError("its signature is wrong")
    issuer, key = x509.load_pem_x509_certificate(authority.certificate.encode()), _private(authority.key)
    names = x509.SubjectAlternativeName([x509.DNSName(chassis), x509.IPAddress(ipaddress.ip_address(address))])
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    certificate = (
        _builder(_name(chassis), issuer.subject, public, VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(use, critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _text(certificate)


def fault(certificate: str, key: str, authority: str, chassis: str) -> str:
    """What is wrong with a certificate that a host was given, as the end of a sentence; empty if nothing is."""
    try:
        given, issuer = (x509.load_pem_x509_certificate(text.encode()) for text in (certificate, authority))
        given.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, ValueError) as error:
        return f"was not signed by the site's authority ({error or type(error).__name__})"
    names = [str(one.value) for one in given.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [chassis]:
        return f"is for {', '.join(names) or 'no one'}, not for {chassis}"
    if given.public_key() != _private(key).public_key():
        return "is for another key"
    return ""


def ends(certificate: str) -> datetime.datetime:
    """When a certificate ends.

    :raises ValueError: it is not one.
    """
    return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc


def is_due(certificate: str, now: datetime.datetime) -> bool:
    """Whether it should be renewed: less than a third of its time is left, or it can't be read."""
    try:
        return ends(certificate) - now < VALID / 3
    except ValueError:
        return True


def fingerprint(certificate: str) -> str:
    """What identifies a certificate: the SHA-256 of its text; empty if there is none."""
    return hashlib.sha256(certificate.encode()).hexdigest() if certificate else ""


def _builder(
    name: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, valid: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + valid)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _private(key: str) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key.encode(), password=None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    return loaded


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
