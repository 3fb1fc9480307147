"""Certificates for moves of running machines: who signs them, who can read them, and whose files stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from winlab.design.plan.facts import HostFacts
from winlab.events import Quiet
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import certificates, moves, tunnels


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Record:
    monkeypatch.setattr(moves, "FOLDER", tmp_path / "pki/qemu")
    monkeypatch.setattr(program, "FOLDER", tmp_path / "tls")
    monkeypatch.setattr(moves, "AUTHORITY", tmp_path / "tls/moves-authority.pem")
    monkeypatch.setattr(moves, "AUTHORITY_KEY", tmp_path / "tls/moves-authority-key.pem")
    monkeypatch.setattr(moves, "_group", os.getgid)
    monkeypatch.setattr(tunnels, "recorded", lambda: "203.0.113.1")
    return Record(tmp_path / "changes.yaml")


def test_the_first_host_makes_them_once(record: Record) -> None:
    authority = moves.ensure_first("c1", "203.0.113.1", record, Quiet())
    texts = {path.name: path.read_text() for path in moves.FOLDER.iterdir()}
    assert texts.keys() == {name for names in moves.NAMES.values() for name in names}
    assert {path.stat().st_mode & 0o777 for path in moves.FOLDER.iterdir()} == {0o640}
    assert authority.key not in texts.values()
    assert not certificates.fault(texts["server-cert.pem"], texts["server-key.pem"], texts["ca-cert.pem"], "c1")
    assert moves.ensure_first("c1", "203.0.113.1", record, Quiet()) == authority
    assert {path.name: path.read_text() for path in moves.FOLDER.iterdir()} == texts
    assert {str(path) for path in moves.FOLDER.iterdir()} <= set(record.changes.files)


def test_they_serve_and_connect_and_may_encipher_keys() -> None:
    key, authority = certificates.make_key(), certificates.make_authority("c1", "moves")
    text = moves.sign(certificates.make_request("c2", key), "c2", "203.0.113.2", authority)
    made = x509.load_pem_x509_certificate(text.encode()).extensions
    uses = made.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert made.get_extension_for_class(x509.KeyUsage).value.key_encipherment


def test_what_winlab_did_not_write_stays(record: Record) -> None:
    moves.FOLDER.mkdir(parents=True)
    (moves.FOLDER / "ca-cert.pem").write_text("mine")
    moves.ensure_first("c1", "203.0.113.1", record, Quiet())
    assert [path.read_text() for path in moves.FOLDER.iterdir()] == ["mine"]
    assert moves.fact(HostFacts(southbound="ssl:198.51.100.1:6642")) is None


def test_hosts_of_a_site_say_where_they_receive_machines(record: Record) -> None:
    moves.ensure_first("c1", "203.0.113.1", record, Quiet())
    found = moves.fact(HostFacts(southbound="ssl:198.51.100.1:6642"))
    assert found is not None
    assert found.address == "203.0.113.1"
    assert moves.fact(HostFacts()) is None
