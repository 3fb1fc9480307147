"""bootstrap.ps1, by the very command of the answer file."""

from __future__ import annotations

import html
import json
import re

import pytest
from powershell.conftest import SCRIPTS
from powershell.doubles.machine import Machine, Told


@pytest.fixture
def fresh(machine: Machine) -> Machine:
    """A machine at its first logon, with the answer CD in its drive."""
    home = machine.d / "winlab"
    (home / "scripts").mkdir(parents=True)
    (home / "files/Tools").mkdir(parents=True)
    (home / "bootstrap.ps1").write_bytes((SCRIPTS / "bootstrap.ps1").read_bytes())
    (home / "beacon.ps1").write_bytes((SCRIPTS / "beacon.ps1").read_bytes())
    (home / "node.json").write_text('{"node": "node-1", "mtu": 1450, "pfx_password": "p"}')
    keys = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "administrators_authorized_keys")
    for name in ("winrm.pfx", *keys, "files/Tools/x.txt"):
        (home / name).write_text(name)
    (home / "scripts/10-one.ps1").write_text("Set-Content -Path 'C:\\one.txt' -Value 1")
    machine.state({**machine.state(), "dead_tasks": ["winlab-beacon"]})  # it would outlive the test
    return machine


def bootstrap(machine: Machine) -> Told:
    template = (SCRIPTS / "Autounattend.xml.j2").read_text()
    found = re.search(r"<CommandLine>powershell.exe (.*?)</CommandLine>", template)
    assert found is not None
    flags, command = html.unescape(found[1]).split(' -Command "')
    return machine.execute([*flags.split(), "-Command", command.rstrip('"')])


def serial(machine: Machine) -> str:
    return (machine.folder / "com1.txt").read_text()


def test_it_makes_the_machine_reachable_and_can_be_run_again(fresh: Machine) -> None:
    for _ in range(2):
        told = bootstrap(fresh)
        assert told.code == 0, (told.out, told.err)
        assert serial(fresh).endswith("phase=ready\n")
    assert (fresh.c / "winlab/ready.txt").read_text().strip() == "node-1"
    assert (fresh.c / "Tools/x.txt").exists()
    assert (fresh.c / "one.txt").exists()
    registry = (fresh.folder / "registry.json").read_text()
    assert "DefaultPassword" not in registry
    assert fresh.notes().rstrip().endswith("run logoff.exe")


def test_a_script_of_the_user_that_throws(fresh: Machine) -> None:
    (fresh.d / "winlab/scripts/20-two.ps1").write_text("throw 'two is broken'")
    assert bootstrap(fresh).code == 1
    told = serial(fresh)
    assert "\nwinlab: error=bootstrap: two is broken\nwinlab: BEGIN dump\n" in told
    assert told.endswith("winlab: END dump\n")
    assert "winlab: dump of services:" in told
    assert not (fresh.c / "winlab/ready.txt").exists()
    assert "two is broken" in (fresh.c / "winlab/bootstrap.log").read_text(errors="replace")
    assert "DefaultPassword" not in (fresh.folder / "registry.json").read_text()


def test_an_error_of_a_module_s_function_ends_it(fresh: Machine) -> None:
    """Functions of modules, such as New-NetFirewallRule, don't see the preference of a script that '&' calls."""
    refusing = fresh.folder / "refusing.psm1"
    refusing.write_text(
        "function New-NetFirewallRule { [CmdletBinding()] param([Parameter(ValueFromRemainingArguments)]$All)\n"
        "  Write-Error 'Access is denied.' }\nExport-ModuleMember -Function New-NetFirewallRule\n"
    )
    (fresh.d / "winlab/bootstrap.ps1").write_text(
        f"Remove-Item -Path Function:New-NetFirewallRule; Import-Module '{refusing}' -Force -Global\n"
        + (SCRIPTS / "bootstrap.ps1").read_text()
    )
    assert bootstrap(fresh).code == 1
    assert "error=bootstrap: Access is denied." in serial(fresh)
    assert "phase=ready" not in serial(fresh)


def test_a_profile_that_ignores_inbound_rules(fresh: Machine) -> None:
    state = fresh.state()
    state["closed"] = ["Public"]
    fresh.state(state)
    assert bootstrap(fresh).code == 1
    assert "takes no inbound rules in the profile Public" in serial(fresh)


def test_without_an_adapter(fresh: Machine) -> None:
    state = fresh.state()
    state["adapters"] = []
    fresh.state(state)
    assert bootstrap(fresh).code == 1
    assert "error=bootstrap: Windows has no network adapter: its driver is missing\n" in serial(fresh)


def test_the_built_in_account_of_another_language_is_renamed(fresh: Machine) -> None:
    state = fresh.state()
    state["users"][0]["Name"] = "Administrateur"
    state["users"][1]["Name"] = "Invité"
    fresh.state(state)
    assert bootstrap(fresh).code == 0
    assert [row["Name"] for row in fresh.state()["users"]] == ["Administrator", "Invité"]
    assert "user Administrator True" in fresh.notes()


def test_without_ssh_there_is_a_warning_and_the_node_is_ready(fresh: Machine) -> None:
    """Where Windows Update can't be reached, all of winlab's own work still runs over WinRM."""
    state = fresh.state()
    del state["services"]["sshd"]
    fresh.state({**state, "offline": 99})
    told = bootstrap(fresh)
    assert told.code == 0, (told.out, told.err)
    (warning,) = (line for line in serial(fresh).splitlines() if "warning=" in line)
    assert warning.startswith("winlab: warning=ssh: OpenSSH is not available (workers.openssh=FILE brings it):")
    assert serial(fresh).endswith("phase=ready\n")


def test_the_beacon_reports_the_health_of_windows(fresh: Machine) -> None:
    assert bootstrap(fresh).code == 0
    task = fresh.state()["tasks"]["winlab-beacon"]
    assert r"C:\winlab\beacon.ps1" in json.dumps(task).replace(r"\\", "\\")
    before = serial(fresh)
    told = fresh.execute(["-NoProfile", "-File", str(fresh.c / "winlab/beacon.ps1"), "-Lines", "2", "-Pause", "0"])
    assert told.code == 0, (told.out, told.err)
    lines = serial(fresh).removeprefix(before).splitlines()
    assert [line.split()[:3] for line in lines] == [["winlab:", "beacon", "1"], ["winlab:", "beacon", "2"]]
    assert "addresses=10.77.0.12 gateway=10.77.0.1 WinRM=Running sshd=Running" in lines[0]
    assert "MB boot=17 event=7000 " in lines[0]
