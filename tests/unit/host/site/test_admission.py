"""The first host admits others: what it writes and answers, and whom it refuses."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from winlab.design.plan.addresses import host_addresses
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError, UsageError, WinlabError
from winlab.events import Quiet
from winlab.host import boot, changes, databases_program, facts, ovn_sockets
from winlab.host import relay_program as program
from winlab.host.changes import Record
from winlab.host.site import (
    admission,
    certificates,
    databases,
    external,
    issued,
    messages,
    own_facts,
    raft,
    relay,
    tunnels,
)
from winlab.host.site.messages import Answer, Candidate, Request
from winlab.run import Result

KEY = certificates.make_key()
ASKED = Request(
    chassis="c2", request=certificates.make_request("c2", KEY), tunnel_address="203.0.113.2", tunnel_mtu=1442
)
CONNECTION = "198.51.100.2 50000 198.51.100.1 22"


class First:
    """A first host; certificates and facts are real files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.tunnels: list[str] = []
        self.relays: list[str] = []
        self.sockets: list[ovn_sockets.Socket] = []
        self.encaps: list[dict[str, object]] = [{"chassis_name": "c1", "ip": "203.0.113.1"}]
        self.hypervisors: set[str] = set()
        self.path = tmp_path / "host.yaml"
        folder = tmp_path / "tls"
        monkeypatch.setattr(program, "FOLDER", folder)
        monkeypatch.setattr(program, "AUTHORITY", folder / "ca.pem")
        monkeypatch.setattr(program, "DATABASE", tmp_path / "relay.db")
        monkeypatch.setattr(issued, "PATH", folder / "issued.json")
        monkeypatch.setattr(relay, "AUTHORITY_KEY", folder / "authority-key.pem")
        monkeypatch.setattr(changes, "LOCK", tmp_path / "lock")
        monkeypatch.setattr(admission, "Record", lambda: Record(tmp_path / "changes.yaml"))
        read, write = facts.read_facts, facts.write_facts
        monkeypatch.setattr(facts, "read_facts", lambda: read(self.path))
        monkeypatch.setattr(facts, "write_facts", lambda found: write(found, self.path))
        monkeypatch.setattr(tunnels, "recorded", lambda: self.tunnels[-1] if self.tunnels else "")
        monkeypatch.setattr(tunnels, "ensure", self.ensure_tunnels)
        monkeypatch.setattr(relay, "ensure", lambda _chassis, address, *_more: self.relays.append(address))
        monkeypatch.setattr(ovn_sockets, "ensure", lambda one, *_more: self.sockets.append(one))
        monkeypatch.setattr(admission, "encaps", lambda: self.encaps)
        monkeypatch.setattr(external, "ensure", lambda *_: None)
        monkeypatch.setattr(external, "ensure_bfd", lambda _: None)
        monkeypatch.setattr(external, "own_mac", lambda: "02:57:00:00:00:01")
        monkeypatch.setattr(admission, "hypervisors", lambda: self.hypervisors)
        facts.write_facts(HostFacts(chassis="c1", resolvers=["192.0.2.53"]))

    def ensure_tunnels(self, address: str, *_more: Any) -> int:
        self.tunnels.append(address)
        return 8942

    def admit(self, asked: Request = ASKED, connection: str = CONNECTION) -> Answer:
        return admission.admit(asked.model_dump_json(), connection, Quiet())


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> First:
    return First(monkeypatch, tmp_path)


def test_a_listed_host_that_is_off_keeps_its_external_address(first: First) -> None:
    known = facts.read_facts()
    taken = {f"c{number}": address for number, address in enumerate(host_addresses(known.external_cidr), 10)}
    facts.write_facts(known.model_copy(update={"external_addresses": taken}))
    first.hypervisors = taken.keys() - {"c12"}  # OVN knows none of them
    assert str(first.admit().external_address) == taken["c12"]


def test_a_host_is_given_all_that_it_needs(first: First) -> None:
    answer = messages.read(Answer, first.admit().model_dump_json(), "h1")
    assert certificates.fault(answer.certificate, KEY, answer.authority, "c2") == ""
    assert (answer.chassis, answer.southbound) == ("c1", "ssl:198.51.100.1:6642")
    assert (answer.facts.resolvers, answer.facts.tunnel_mtu) == (["192.0.2.53"], 1442)
    assert (first.relays, first.tunnels) == (["198.51.100.1"], ["198.51.100.1"])
    assert first.sockets == [ovn_sockets.SOUTHBOUND]
    known = facts.read_facts()
    assert (known.southbound, known.tunnel_mtu) == (answer.southbound, 1442)
    assert (str(answer.external_address), answer.gateway_mac) == ("172.31.240.2", "02:57:00:00:00:01")
    assert known.external_addresses == {"c2": "172.31.240.2"}


def test_later_hosts_find_the_same_site(first: First) -> None:
    one = first.admit()
    held = certificates.fingerprint(one.authority)
    third = ASKED.model_copy(update={"chassis": "c3", "tunnel_mtu": 8942})
    for asked in (third, ASKED.model_copy(update={"authority": held})):
        other = first.admit(asked, "198.51.100.3 50000 192.0.2.1 22")
        assert (other.authority, other.southbound) == (one.authority, one.southbound)
        assert (other.facts.tunnel_mtu, other.tunnel_address) == (1442, one.tunnel_address)
    assert {path.stat().st_mode & 0o777 for path in program.FOLDER.iterdir()} == {0o600}
    assert program.FOLDER.stat().st_mode & 0o777 == 0o700


def test_the_third_host_gets_what_databases_need(first: First, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first.admit()
    first.encaps.append({"chassis_name": "c2", "ip": "203.0.113.2"})
    for name in ("PROGRAM", "AUTHORITY"):
        monkeypatch.setattr(databases_program, name, tmp_path / name)
    monkeypatch.setattr(databases, "AUTHORITY_KEY", tmp_path / "authority-key")
    monkeypatch.setattr(raft, "is_usable", lambda: True)
    monkeypatch.setattr(databases, "form", lambda known, *_: known)
    candidate = Candidate(request=certificates.make_request("c3", KEY), address="198.51.100.3")
    third = ASKED.model_copy(update={"chassis": "c3", "databases": candidate})
    answer = messages.read(Answer, first.admit(third).model_dump_json(), "h1")
    given = answer.databases
    assert given is not None
    assert {name: str(at) for name, at in given.hosts.items()} == {"c1": "198.51.100.1", "c3": "198.51.100.3"}
    assert certificates.fault(given.certificate, KEY, given.authority, "c3") == ""
    assert certificates.fault(given.certificate, KEY, answer.authority, "c3")  # another authority than the hosts'
    assert answer.southbound == "ssl:198.51.100.1:6642,ssl:198.51.100.3:6642"
    assert facts.read_facts().databases == {"c1": "198.51.100.1", "c3": "198.51.100.3"}
    again = messages.read(Answer, first.admit(ASKED).model_dump_json(), "h1")
    assert again.databases is None  # it did not ask for them


def test_a_first_host_whose_facts_lost_its_site_still_has_the_same_address(
    first: First, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.DATABASE.touch()
    said = '[{"rows": [{"target": "pssl:6642:192.0.2.1"}]}]'
    monkeypatch.setattr(own_facts, "run", lambda args, **_: Result(tuple(args), 0, said, "", 0.0))
    assert first.admit().southbound == "ssl:192.0.2.1:6642"
    assert first.relays == ["192.0.2.1"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"chassis": "c1"}, "the same name in OVN, c1"),
        ({"chassis": "c9"}, "has the name c9 already"),
        ({"authority": "0" * 64}, "has joined another site"),
    ],
)
def test_a_host_that_is_someone_else_is_refused(first: First, change: dict[str, str], why: str) -> None:
    first.encaps.append({"chassis_name": "c9", "ip": "203.0.113.9"})
    with pytest.raises(ConflictError, match=why) as caught:
        first.admit(ASKED.model_copy(update=change))
    assert caught.value.cure
    assert first.relays == []


def request_of(key: str) -> Request:
    return ASKED.model_copy(update={"request": certificates.make_request("c2", key)})


def test_a_name_is_given_again_only_to_the_same_key_while_it_is_taken(first: First) -> None:
    held = certificates.fingerprint(first.admit().authority)
    first.encaps.append({"chassis_name": "c2", "ip": "203.0.113.2"})
    first.admit(ASKED.model_copy(update={"tunnel_address": "203.0.113.7"}))  # it may move
    other = certificates.make_key()
    for authority in ("", held):
        with pytest.raises(ConflictError, match="another key") as caught:
            first.admit(request_of(other).model_copy(update={"authority": authority}))
        assert "chassis-del c2" in caught.value.cure
    first.admit()
    del first.encaps[1:]  # it is off
    first.hypervisors.add("c2")
    with pytest.raises(ConflictError, match="another key"):
        first.admit(request_of(other))
    first.hypervisors.clear()  # it left, or was removed
    assert (
        certificates.fault(first.admit(request_of(other)).certificate, other, relay.text(program.AUTHORITY), "c2") == ""
    )
    first.encaps.append({"chassis_name": "c2", "ip": "203.0.113.2"})
    with pytest.raises(ConflictError, match="another key"):
        first.admit()
    assert str(issued.PATH) in Record(first.path.with_name("changes.yaml")).changes.files


@pytest.mark.parametrize("text", ["[]", "{", '{"c2": 1}', "\xff\xfe"])
def test_a_damaged_record_of_keys_admits_no_one(first: First, text: str) -> None:
    first.admit()
    issued.PATH.write_text(text, encoding="latin-1")
    with pytest.raises(HostError, match=r"issued\.json") as caught:
        first.admit()
    assert "remove it" in caught.value.cure


@pytest.mark.parametrize("damaged", ["key", "\xff"])
def test_a_damaged_authority_is_reported_as_that(first: First, damaged: str) -> None:
    first.admit()
    relay.AUTHORITY_KEY.write_text(damaged, encoding="latin-1")
    with pytest.raises(HostError, match=r"authority .* is damaged") as caught:
        first.admit()
    assert "backup" in caught.value.cure


def test_a_request_with_another_kind_of_key_is_refused(first: First) -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "c2")])
    asked = x509.CertificateSigningRequestBuilder().subject_name(name).sign(ed25519.Ed25519PrivateKey.generate(), None)
    text = asked.public_bytes(serialization.Encoding.PEM)
    odd = asked.public_bytes(serialization.Encoding.DER).replace(bytes([0x2B, 0x65, 0x70]), bytes([0x2B, 0x65, 0x7F]))
    unknown = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(odd) + b"-----END CERTIFICATE REQUEST-----\n"
    )
    for request in (text, unknown):
        with pytest.raises(UsageError, match="request for a certificate can't be used") as caught:
            first.admit(ASKED.model_copy(update={"request": request.decode()}))
        assert caught.value.why
    assert first.relays == []


@pytest.mark.parametrize("known", [HostFacts(chassis="c1", joined="ann@h0"), None])
def test_a_host_that_is_not_the_first_of_a_site_admits_no_one(first: First, known: HostFacts | None) -> None:
    if known is None:
        first.path.unlink()
    else:
        facts.write_facts(known)
    with pytest.raises(HostError, match="can't admit others") as caught:
        first.admit()
    assert caught.value.cure


@pytest.mark.parametrize(
    "connection", ["", "2001:db8::2 50000 2001:db8::1 22", "1 2 3 4", "a b 127.0.0.1 22", "x " * 9]
)
def test_the_first_host_must_be_reached_by_an_address_of_its_own(first: First, connection: str) -> None:
    with pytest.raises(UsageError, match="does not know the address") as caught:
        first.admit(connection=connection)
    assert "--join USER@ADDRESS" in caught.value.cure


GOOD = ASKED.model_dump(mode="json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[",
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "chassis": "-x"}),
        json.dumps({**GOOD, "chassis": "c2\nCN=c1"}),
        json.dumps({**GOOD, "tunnel_mtu": 1279}),
        json.dumps({**GOOD, "tunnel_address": "h2"}),
        json.dumps({**GOOD, "request": "key"}),
        json.dumps(GOOD) + " " * messages.LARGEST,
    ],
)
def test_a_malformed_message_is_refused(text: str) -> None:
    with pytest.raises(WinlabError, match="can't be used") as caught:
        messages.read(Request, text, "h2")
    assert caught.value.why
    assert "same version" in caught.value.cure


def test_the_program_runs_no_winlab_that_others_can_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    progress: Any = SimpleNamespace(say=said.append)
    doubts = ["'/home/ann' belongs to ann"]
    path = tmp_path / "admit"
    monkeypatch.setattr(admission, "PROGRAM", path)
    monkeypatch.setattr(boot, "doubts", lambda _: doubts)

    def text(*, trust: bool) -> str:
        admission.ensure_program(Record(tmp_path / "changes.yaml"), progress, trust=trust)
        return path.read_text() if path.exists() else ""

    path.write_text(admission.program_text(sys.executable))  # of an earlier version
    assert text(trust=False) == ""
    assert "--trust-python" in said.pop()
    trusted = text(trust=True)
    assert "--trust-python" in trusted
    assert path.stat().st_mode & 0o777 == 0o700
    assert text(trust=False) == trusted  # of the same Python
    doubts.clear()
    assert text(trust=False) == admission.program_text(sys.executable)
    doubts.append("'/home/ann' belongs to ann")
    monkeypatch.setattr(sys, "executable", "/home/eve/python")
    assert text(trust=False) == ""
    assert len(said) == 1


def test_the_program_runs_this_winlab_alone() -> None:
    text = admission.program_text("/opt/it's/python")
    assert """exec '/opt/it'\\''s/python' -I -m winlab host admit "$@"\n""" in text
