"""Certificates of hosts: what they are for, and what is refused."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from winlab.host.site import certificates
from winlab.host.site.certificates import CONNECTS, SERVES, Pair

AUTHORITY = certificates.make_authority("c1")
KEY = certificates.make_key()
REQUEST = certificates.make_request("c2", KEY)
HELD = certificates.sign(REQUEST, "c2", "203.0.113.2", CONNECTS, AUTHORITY)


def trusted(folder: Path, server: Pair, client: Pair) -> bool:
    """Whether both ends of a TLS connection accept each other, as OVN's programs do: by who signed, and for what."""
    paths = {}
    for name, pair in (("server", server), ("client", client)):
        for kind, text in (("cert", pair.certificate), ("key", pair.key)):
            paths[name, kind] = folder / f"{name}-{kind}.pem"
            paths[name, kind].write_text(text)
    contexts = []
    for name, protocol in (("server", ssl.PROTOCOL_TLS_SERVER), ("client", ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=AUTHORITY.certificate)
        context.load_cert_chain(paths[name, "cert"], paths[name, "key"])
        contexts.append(context)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [contexts[0].wrap_bio(up, down, server_side=True), contexts[1].wrap_bio(down, up)]
    done: set[int] = set()
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return len(done) == 2


def test_hosts_connect_and_the_relay_serves_and_not_the_other_way_round(tmp_path: Path) -> None:
    key = certificates.make_key()
    relay = certificates.sign(certificates.make_request("c1", key), "c1", "198.51.100.1", SERVES, AUTHORITY)
    assert trusted(tmp_path, Pair(relay, key), Pair(HELD, KEY))
    assert not trusted(tmp_path, Pair(HELD, KEY), Pair(HELD, KEY))  # another host in the relay's place
    assert not trusted(tmp_path, Pair(relay, key), Pair(relay, key))
    other = certificates.make_authority("c1")
    strange = certificates.sign(REQUEST, "c2", "203.0.113.2", CONNECTS, other)
    assert not trusted(tmp_path, Pair(relay, key), Pair(strange, KEY))


def test_a_certificate_names_the_chassis_and_its_address_for_a_year() -> None:
    made = x509.load_pem_x509_certificate(HELD.encode())
    assert made.subject.rfc4514_string() == "CN=c2"
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["c2", "203.0.113.2"]
    left = certificates.ends(HELD) - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left < datetime.timedelta(days=366)


def test_only_the_key_of_a_request_counts() -> None:
    made = certificates.sign(certificates.make_request("c1", KEY), "c2", "203.0.113.2", CONNECTS, AUTHORITY)
    assert certificates.fault(made, KEY, AUTHORITY.certificate, "c2") == ""


def test_the_certificate_of_another_is_noticed() -> None:
    other = certificates.make_authority("c1")
    assert certificates.fault(HELD, KEY, AUTHORITY.certificate, "c2") == ""
    assert "not signed" in certificates.fault(HELD, KEY, other.certificate, "c2")
    assert "is for c2, not for c3" in certificates.fault(HELD, KEY, AUTHORITY.certificate, "c3")
    assert "another key" in certificates.fault(HELD, certificates.make_key(), AUTHORITY.certificate, "c2")
    assert "not signed" in certificates.fault("", KEY, AUTHORITY.certificate, "c2")
    assert "another key" in certificates.fault(HELD, "damaged", AUTHORITY.certificate, "c2")


def test_only_keys_of_one_kind_are_signed() -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "c2")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    text = asked.public_bytes(serialization.Encoding.PEM).decode()
    for wrong in (text, "", HELD):
        with pytest.raises(ValueError, match=r"\S"):
            certificates.sign(wrong, "c2", "203.0.113.2", CONNECTS, AUTHORITY)


def test_a_certificate_is_renewed_when_less_than_a_third_of_its_time_is_left() -> None:
    end = certificates.ends(HELD)
    assert not certificates.is_due(HELD, end - datetime.timedelta(days=123))
    assert certificates.is_due(HELD, end - datetime.timedelta(days=121))
    assert certificates.is_due("", end - datetime.timedelta(days=364))
