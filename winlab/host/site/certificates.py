"""The hosts' certificates: a site's own authority, and what it signs. All are X.509 v3 with P-256 keys, as PEM text.

A certificate's name is the host's chassis, because OVN's roles compare it with the rows that a controller changes. The
certificates of hosts with a relay can serve, and those of others only connect. Controllers check who signed a server's
certificate, not whose it is, so otherwise any host could take a relay's place. Certificates for moves have another
authority.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=365)
AUTHORITY_VALID = datetime.timedelta(days=3650)
EARLIER = datetime.timedelta(days=1)  # hosts' clocks differ

SERVES = (ExtendedKeyUsageOID.SERVER_AUTH,)
CONNECTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)
BOTH = (*SERVES, *CONNECTS)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key."""

    certificate: str
    key: str


def make_key() -> str:
    """A new private key."""
    return _key_text(ec.generate_private_key(ec.SECP256R1()))


def make_authority(chassis: str, of: str = "hosts") -> Pair:
    """An authority of a site whose first host is *chassis*.

    :param of: what it signs certificates of, for its name.
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
    """A request for a certificate.

    :raises ValueError: the key is damaged.
    """
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name(chassis))
        .sign(_private(key), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )


def sign(request: str, chassis: str, address: str, use: tuple[x509.ObjectIdentifier, ...], authority: Pair) -> str:
    """A certificate for the key of a request. Nothing else in the request counts.

    :param use: ``SERVES``, ``CONNECTS`` or ``BOTH``.
    :raises ValueError: it is not a request, its signature is wrong, or its key is not P-256.
    """
    public = _requested(request)
    issuer, key = x509.load_pem_x509_certificate(authority.certificate.encode()), _private(authority.key)
    names = x509.SubjectAlternativeName([x509.DNSName(chassis), x509.IPAddress(ipaddress.ip_address(address))])
    # QEMU 7.2 refuses a certificate that may not encipher keys (crypto/tlscredsx509.c), though its key can't
    enciphers = use == BOTH
    usage = x509.KeyUsage(True, False, enciphers, False, False, False, False, False, False)
    certificate = (
        _builder(_name(chassis), issuer.subject, public, VALID)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(use), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _text(certificate)


def key_of(request: str) -> str:
    """The SHA-256 of a request's public key (its SubjectPublicKeyInfo, RFC 5280).

    :raises ValueError: it is not a request, its signature is wrong, or its key is not P-256.
    """
    info = _requested(request).public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


def _requested(request: str) -> ec.EllipticCurvePublicKey:
    try:
        asked = x509.load_pem_x509_csr(request.encode())
        public = asked.public_key()
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
            raise ValueError("the key is not of the curve P-256")
        if not asked.is_signature_valid:
            raise ValueError("its signature is wrong")
    except UnsupportedAlgorithm as error:
        raise ValueError(f"the key or the signature is of an unknown kind ({error})") from error
    return public


def is_pair(pair: Pair) -> bool:
    """Whether both are whole, and belong together."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        return certificate.public_key() == _private(pair.key).public_key()
    except (UnsupportedAlgorithm, ValueError):
        return False


def fault(certificate: str, key: str, authority: str, chassis: str) -> str:
    """What is wrong with a certificate that a host was given, as the end of a sentence; empty if nothing is."""
    try:
        given, issuer = (x509.load_pem_x509_certificate(text.encode()) for text in (certificate, authority))
        given.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, UnsupportedAlgorithm, ValueError) as error:
        return f"was not signed by the site's authority ({error or type(error).__name__})"
    names = [str(one.value) for one in given.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [chassis]:
        return f"is for {', '.join(names) or 'no one'}, not for {chassis}"
    return "" if is_pair(Pair(certificate, key)) else "is for another key"


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
    """The key in a PEM text; ValueError: it is damaged, or of another kind."""
    try:
        loaded = serialization.load_pem_private_key(key.encode(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:  # it has a password, or is of an unknown kind
        raise ValueError(str(error)) from error
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("The key is not of an elliptic curve.")
    return loaded


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
