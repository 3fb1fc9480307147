from __future__ import annotations

import datetime
import ipaddress
import os
import stat
from types import SimpleNamespace

import plans
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from winlab.design.plan import credentials
from winlab.errors import ConflictError, NotFoundError, WinlabError
from winlab.events import StepDone, StepProgress
from winlab.lab_folder import LabFolder, labs


def test_certificates_are_the_nodes_and_signed_by_the_lab() -> None:
    plan = plans.make(plans.TCG)
    made = credentials.generate(plan)
    authority = x509.load_pem_x509_certificate(made.ca_certificate.encode())
    certificate = x509.load_pem_x509_certificate(made.nodes["node-1"].certificate.encode())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    node = plan.node("node-1")
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {node.address, node.floating}
    assert ipaddress.ip_address(node.floating) in names.get_values_for_type(x509.IPAddress)
    assert names.get_values_for_type(x509.DNSName) == ["node-1", "node-1.lab.winlab.internal"]


def test_pfx_opens_with_its_password_alone() -> None:
    made = credentials.generate(plans.make(plans.TCG))
    blob = made.pfx("node-1")
    key, certificate, _ = pkcs12.load_key_and_certificates(blob, made.nodes["node-1"].pfx_password.encode())
    assert key is not None
    assert certificate is not None
    with pytest.raises(ValueError, match="Invalid password"):
        pkcs12.load_key_and_certificates(blob, b"wrong")


def test_passwords_are_random_and_complex() -> None:
    found = {credentials.password() for _ in range(200)}
    assert len(found) == 200
    for text in found:
        assert len(text) == 20
        assert any(c.islower() for c in text)
        assert any(c.isupper() for c in text)
        assert any(c.isdigit() for c in text)
    assert len(credentials.password(8)) == 8


def test_files_are_private_and_made_once() -> None:
    plan = plans.make(plans.TCG)
    folder = LabFolder("lab")
    assert not folder.has_credentials_for(plan)
    made = folder.ensure_credentials(plan)
    assert folder.ensure_credentials(plan) == made
    assert folder.has_credentials_for(plan)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    for path in (folder.path / "credentials.json", folder.ssh_key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    hosts = folder.known_hosts.read_text()
    assert all(f"{n.floating},{n.name}.lab.winlab.internal ssh-ed25519 " in hosts for n in plan.nodes)


def test_a_lost_file_is_written_again_with_the_same_secrets() -> None:
    plan = plans.make(plans.TCG)
    folder = LabFolder("lab")
    made = folder.ensure_credentials(plan)
    folder.ca.unlink()
    assert not folder.has_credentials_for(plan)
    assert folder.ensure_credentials(plan) == made
    assert folder.has_credentials_for(plan)


def test_credentials_of_other_nodes_are_not_reused() -> None:
    folder = LabFolder("lab")
    made = folder.ensure_credentials(plans.make(plans.TCG, "1-0-1"))
    for other in (plans.make(plans.TCG), plans.make(plans.TCG, "1-0-1", "network.floating_block=9")):
        assert not folder.credentials_fit(other)
        anew = folder.ensure_credentials(other)
        assert anew.identity != made.identity
        assert set(anew.nodes) == {node.name for node in other.nodes}
        assert other.nodes[0].floating in folder.known_hosts.read_text()


def test_missing_and_damaged_credentials_are_explained() -> None:
    folder = LabFolder("lab")
    with pytest.raises(NotFoundError, match="not in this account"):
        folder.credentials()
    folder.write(folder.path / "credentials.json", '{"ssh_key": ')
    with pytest.raises(WinlabError, match="damaged"):
        folder.credentials()


def test_one_winlab_at_a_time() -> None:
    with LabFolder("lab").locked(), pytest.raises(ConflictError, match="Another winlab"), LabFolder("lab").locked():
        pass
    with LabFolder("lab").locked():
        pass


def test_journal_and_list() -> None:
    folder = LabFolder("lab")
    folder.record(StepDone(step="a"))
    folder.record(StepProgress(step="b", text="x"))
    folder.record(StepProgress(step="b", text="comes too soon after it"))
    folder.record(StepDone(step="b"))
    assert [line.count('"step"') for line in folder.journal.read_text().splitlines()] == [1, 1, 1]
    assert labs() == ["lab"]
    folder.remove()
    assert labs() == []
    folder.remove()


def test_no_secret_is_readable_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is created with its final permissions; and none is left half written."""
    modes = []
    real = os.open

    def watched(path: str, flags: int, mode: int = 0o777, **more: int) -> int:
        modes.append(mode)
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    folder = LabFolder("lab")
    folder.write(folder.path / "x", "secret")
    assert set(modes) == {0o600}
    assert [p.name for p in folder.path.iterdir()] == ["x"]


@pytest.mark.parametrize("year", [1999, 2026, 2049])
def test_certificates_are_valid_whatever_the_clock_said(monkeypatch: pytest.MonkeyPatch, year: int) -> None:
    """The host's clock was ahead or behind when it made the lab; it is right now."""

    now = datetime.datetime.now(datetime.UTC)
    clock = SimpleNamespace(now=lambda tz: datetime.datetime(year, 1, 1, tzinfo=tz))
    wrong = SimpleNamespace(datetime=clock, UTC=datetime.UTC, timedelta=datetime.timedelta)
    monkeypatch.setattr(credentials, "datetime", wrong)
    made = credentials.generate(plans.make(plans.KVM, "1-1-1"))
    pems = [made.ca_certificate, *(node.certificate for node in made.nodes.values() if node.certificate)]
    assert len(pems) == 2
    for pem in pems:
        found = x509.load_pem_x509_certificate(pem.encode())
        assert found.not_valid_before_utc < now < found.not_valid_after_utc


def test_nodes_that_stay_keep_their_credentials_and_others_get_some() -> None:
    old, new = plans.make(plans.TCG), plans.make(plans.TCG, "1-3-1")
    held = credentials.generate(old)
    made = credentials.adapted(new, held)
    for name in ("controller-1", "node-1"):
        assert made.nodes[name] == held.nodes[name]
    assert made.nodes.keys() == {node.name for node in new.nodes}
    assert (made.ssh_key, made.administrator_password) == (held.ssh_key, held.administrator_password)
    assert made.identity == credentials.identity(new)
    authorities = x509.load_pem_x509_certificates(made.ca_certificate.encode())
    assert len(authorities) == 2, "the first CA's key was not kept"
    for name, authority in (("node-1", 0), ("node-2", 1), ("node-3", 1)):
        certificate = x509.load_pem_x509_certificate(made.nodes[name].certificate.encode())
        certificate.verify_directly_issued_by(authorities[authority])


def test_credentials_of_nodes_that_go_go_too_with_their_ca() -> None:
    old, new = plans.make(plans.TCG), plans.make(plans.TCG, "1-2-1")
    held = credentials.generate(old)
    made = credentials.adapted(old, credentials.adapted(new, held))
    assert made == held


def test_a_linux_node_brings_no_further_ca() -> None:
    held = credentials.generate(plans.make(plans.TCG))
    made = credentials.adapted(plans.make(plans.TCG, "1-1-1", "linux_workers.count=1"), held)
    assert made.ca_certificate == held.ca_certificate
    assert made.nodes["linux-1"].host_key


def test_a_lab_without_windows_nodes_keeps_a_ca() -> None:
    held = credentials.generate(plans.make(plans.TCG))
    made = credentials.adapted(plans.make(plans.TCG, "1-0-1"), held)
    assert x509.load_pem_x509_certificates(made.ca_certificate.encode())
    again = credentials.adapted(plans.make(plans.TCG), made)
    authorities = x509.load_pem_x509_certificates(again.ca_certificate.encode())
    certificate = x509.load_pem_x509_certificate(again.nodes["node-1"].certificate.encode())
    certificate.verify_directly_issued_by(authorities[-1])


def test_a_node_with_other_addresses_or_another_system_is_another_node() -> None:
    held = credentials.generate(plans.make(plans.TCG))
    for change in ("network.cidr=10.78.0.0/24", "workers.os=debian-13"):
        made = credentials.adapted(plans.make(plans.TCG, "1-1-1", change), held)
        assert made.nodes["node-1"] != held.nodes["node-1"]


def test_the_folder_keeps_credentials_of_nodes_that_stay() -> None:
    folder = LabFolder("lab")
    held = folder.ensure_credentials(plans.make(plans.TCG))
    assert folder.has_credentials_of(["controller-1", "node-1"])
    assert not folder.has_credentials_of(["node-2"])
    made = folder.ensure_credentials(plans.make(plans.TCG, "1-2-1"))
    assert made.nodes["node-1"] == held.nodes["node-1"]
    assert len(folder.known_hosts.read_text().splitlines()) == 3
    assert folder.ca.read_text() == made.ca_certificate


def test_nodes_that_are_being_given_others_are_recognized_by_both_cas() -> None:
    plan = plans.make(plans.TCG)
    held, fresh = credentials.generate(plan), credentials.generate(plan)
    meanwhile = credentials.giving(held, fresh)
    authorities = x509.load_pem_x509_certificates(meanwhile.ca_certificate.encode())
    for made, authority in zip((held, fresh), authorities, strict=True):
        x509.load_pem_x509_certificate(made.nodes["node-1"].certificate.encode()).verify_directly_issued_by(authority)
    assert meanwhile.ssh_key == held.ssh_key
    assert meanwhile.nodes["node-1"].host_key == held.nodes["node-1"].host_key
    assert meanwhile.nodes["node-1"].vnc_password == fresh.nodes["node-1"].vnc_password


def test_former_credentials_are_tried_at_the_nodes_as_they_are_now() -> None:
    plan = plans.make(plans.TCG)
    held, fresh = credentials.generate(plan), credentials.generate(plan)
    former = credentials.former(held, fresh)
    assert (former.ssh_key, former.administrator_password) == (held.ssh_key, held.administrator_password)
    assert (former.ca_certificate, former.nodes) == (fresh.ca_certificate, fresh.nodes)
