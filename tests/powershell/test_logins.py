"""logins.ps1: another key, host key, certificate and password; what logged in before is refused once it is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from powershell.cases import LOGINS, NEW_KEY, OLD_KEY
from powershell.doubles.looks import act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import AUTHORIZED, HOST_KEY, LISTENER, change, listening, read, write

OWN_KEY = "ssh-rsa AAAAown me@home"
CERTIFICATES = r"Cert\LocalMachine\My"


@pytest.fixture
def there(node: Machine) -> Machine:
    """A node with its first logins, a key of its user, and a certificate that winlab did not make."""
    listening(node)
    for path in AUTHORIZED:
        write(node, path, f"{OLD_KEY}\r\n\r\n{OWN_KEY}\r\n")
    node.registry(rf"{CERTIFICATES}\0123", "Issuer", "CN=winlab lab CA")
    node.registry(rf"{CERTIFICATES}\4567", "Issuer", "CN=a company")
    return node


def keys(node: Machine) -> list[list[str]]:
    return [read(node, path).splitlines() for path in AUTHORIZED]


def registry(node: Machine) -> dict[str, dict[str, Any]]:
    return dict(json.loads((node.folder / "registry.json").read_text()))


def test_everything_changes_once(there: Machine) -> None:
    ran = act(there, "logins", LOGINS, changed=True)
    assert keys(there) == [[OLD_KEY, OWN_KEY, NEW_KEY]] * 2
    assert read(there, HOST_KEY) == LOGINS["host_key"]
    assert read(there, f"{HOST_KEY}.pub") == f"{LOGINS['host_key_public']}\n"
    found = registry(there)
    assert found[LISTENER]["CertificateThumbprint"] == "ABCD"
    certificates = {name.removeprefix(f"{CERTIFICATES}\\") for name in found if name.startswith(f"{CERTIFICATES}\\")}
    assert certificates == {"4567", "ABCD"}
    assert [note for note in ran.notes if note.startswith(("service", "certificate", "password"))] == [
        "service sshd Stopped",
        "service sshd Running",
        rf"certificate winrm.pfx to {CERTIFICATES.replace('Cert', 'Cert:')} with pfx secret",
        "password of Administrator An0ther-secret",
    ]
    assert not there.path(r"C:\winlab\winrm.pfx").exists()


def test_the_former_key_goes_when_it_is_named(there: Machine) -> None:
    act(there, "logins", LOGINS)
    act(there, "logins", {**LOGINS, "former": OLD_KEY})
    assert keys(there) == [[OWN_KEY, NEW_KEY]] * 2


def test_a_key_is_known_by_itself_not_by_its_comment_or_options(there: Machine) -> None:
    for path in AUTHORIZED:
        write(there, path, f'from="10.0.0.0/8" {OLD_KEY.replace("winlab lab", "other")}\n')
    act(there, "logins", {**LOGINS, "former": OLD_KEY})
    assert keys(there) == [[NEW_KEY]] * 2


def test_no_secret_is_shown(there: Machine) -> None:
    ran = act(there, "logins", LOGINS)
    said = "\n".join([*ran.told.out, *ran.told.err])
    for name in ("host_key", "password", "pfx", "pfx_password"):
        assert LOGINS[name] not in said
    log = there.path(r"C:\winlab\logs\logins.log").read_text()
    assert not any(LOGINS[name] in log for name in ("host_key", "password", "pfx", "pfx_password"))


def test_a_windows_without_openssh(there: Machine) -> None:
    state = there.state()
    del state["services"]["sshd"]
    there.state(state)
    ran = act(there, "logins", LOGINS)
    assert keys(there) == [[OLD_KEY, "", OWN_KEY]] * 2
    assert any(note.startswith("password of") for note in ran.notes)


@pytest.mark.parametrize("command", ["Import-PfxCertificate", "Set-WSManInstance", "Restart-Service"])
def test_a_failure_leaves_the_old_password(there: Machine, command: str) -> None:
    ran = refuse(there, "logins", LOGINS, "on purpose", fail=(command, 1))
    assert not any(note.startswith("password") for note in ran.notes)
    assert not there.path(r"C:\winlab\winrm.pfx").exists()
    act(there, "logins", LOGINS)
    assert keys(there) == [[OLD_KEY, OWN_KEY, NEW_KEY]] * 2


@pytest.mark.parametrize("name", ["ssh_key", "host_key", "host_key_public", "password", "pfx", "pfx_password"])
def test_a_missing_setting_is_refused_before_anything_changes(there: Machine, name: str) -> None:
    ran = refuse(there, "logins", {**LOGINS, name: ""}, f"settings.{name} is missing")
    assert ran.changes == {}
    assert not [note for note in ran.notes if note.startswith(("service", "certificate", "password"))]


def test_an_account_that_is_gone(there: Machine) -> None:
    change(there, users=[])
    refuse(there, "logins", LOGINS, "User Administrator was not found")
