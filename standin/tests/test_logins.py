"""How the stand-in simulates logins.ps1: what logs in afterwards, and what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import plans
import pytest
from workers import Worker

from winlab.design.plan import credentials
from winlab_standin.guest import accounts, bootstrap
from winlab_standin.guest.machine import ScriptError

OLD, NEW, OWN = "ssh-ed25519 AAAAold winlab lab", "ssh-ed25519 AAAAnew winlab try", "ssh-rsa AAAAown me@home"
KEYS = ("ProgramData/ssh/administrators_authorized_keys", "Users/Administrator/.ssh/authorized_keys")
HOST_KEY = "ProgramData/ssh/ssh_host_ed25519_key"


@pytest.fixture(scope="module")
def made() -> credentials.Credentials:
    return credentials.generate(plans.make(plans.TCG))


@pytest.fixture
def wanted(made: credentials.Credentials) -> dict[str, Any]:
    row = made.nodes["node-1"]
    return {
        "ssh_key": NEW,
        "host_key": row.host_key,
        "host_key_public": row.host_key_public,
        "former": None,
        "password": made.administrator_password,
        "pfx": base64.b64encode(made.pfx("node-1")).decode(),
        "pfx_password": row.pfx_password,
    }


class Logins(Worker):
    """A worker with sshd, whose password is kept as text."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        for path in KEYS:
            self.put(path, f"{OLD}\r\n{OWN}\r\n")
        for name in (HOST_KEY, f"{HOST_KEY}.pub"):
            self.put(name, "old")
        self.restarted: list[str] = []
        (folder / "etc").mkdir()
        (folder / "etc/shadow").write_text("root:*:20000:0:99999:7:::\n")
        monkeypatch.setattr(accounts, "SHADOW", folder / "etc/shadow")
        monkeypatch.setattr(accounts, "NTLM", folder / "etc/ntlm")
        monkeypatch.setattr(accounts, "hashes", lambda password: {"crypt": "$6$x", "nt": password})
        monkeypatch.setattr(bootstrap, "restart", self.restarted.append)

    def put(self, path: str, text: str) -> None:
        file = self.machine.c(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def keys(self, path: str = KEYS[0]) -> list[str]:
        return self.machine.c(path).read_text().splitlines()

    def password(self) -> str:
        file = self.machine.config / accounts.SAM
        return str(json.loads(file.read_text())["nt"]) if file.exists() else ""


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logins:
    return Logins(tmp_path, monkeypatch)


def test_new_ones_log_in_and_the_former_key_goes_when_it_is_named(
    worker: Logins, wanted: dict[str, Any], made: credentials.Credentials
) -> None:
    assert worker.play("logins", **wanted) == {"changed": True}
    for path in KEYS:
        assert worker.keys(path) == [OLD, OWN, NEW]
    assert worker.machine.c(HOST_KEY).read_text() == made.nodes["node-1"].host_key
    assert worker.machine.c(f"{HOST_KEY}.pub").read_text() == made.nodes["node-1"].host_key_public + "\n"
    assert (worker.machine.config / "standin-winrm.crt").read_text() == made.nodes["node-1"].certificate
    assert worker.password() == made.administrator_password
    assert made.administrator_password in accounts.NTLM.read_text()
    assert worker.restarted == ["sshd", "WinRM"]
    worker.play("logins", **{**wanted, "former": OLD})
    for path in KEYS:
        assert worker.keys(path) == [OWN, NEW]


def test_without_sshd_winrm_alone_changes(worker: Logins, wanted: dict[str, Any]) -> None:
    worker.machine.c(HOST_KEY).unlink()
    worker.play("logins", **wanted)
    assert worker.keys() == [OLD, OWN]
    assert worker.restarted == ["WinRM"]
    assert worker.password() == wanted["password"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pfx_password": "wrong"}, "Import-PfxCertificate"),
        ({"pfx": "no base64!"}, "base64"),
        ({"password": "simple"}, "does not meet the length, complexity, or history requirements"),
    ],
)
def test_what_windows_refuses_leaves_the_old_password(
    worker: Logins, wanted: dict[str, Any], change: dict[str, str], says: str
) -> None:
    """The password comes last: until then the old one logs in."""
    with pytest.raises(ScriptError, match=says):
        worker.play("logins", **{**wanted, **change})
    assert worker.password() == ""


@pytest.mark.parametrize("name", ["ssh_key", "host_key", "host_key_public", "password", "pfx", "pfx_password"])
def test_a_missing_setting_is_refused_before_anything_changes(
    worker: Logins, wanted: dict[str, Any], name: str
) -> None:
    with pytest.raises(ScriptError, match=rf"settings\.{name} is missing"):
        worker.play("logins", **{**wanted, name: ""})
    assert (worker.keys(), worker.restarted, worker.password()) == ([OLD, OWN], [], "")
