"""bootstrap.ps1 in detail: what it leaves on a node, and what continues when something fails."""

from __future__ import annotations

import html
import json
import re
import zipfile

import pytest
from powershell.conftest import SCRIPTS
from powershell.doubles.looks import Left, Ran
from powershell.doubles.machine import Machine
from powershell.stages import change, read, service, write

KEYS = ("ssh_host_ed25519_key", "ssh_host_ed25519_key.pub", "administrators_authorized_keys")
FOLDER_SDDL = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;AU)"
WINLOGON = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon"
POLICY = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"
LISTENERS = r"WSMan\localhost\Listener"
BEACON = (
    r"powershell.exe; -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:\winlab\beacon.ps1; at startup; "
    "SYSTEM ServiceAccount Highest; AllowStartIfOnBatteries DontStopIfGoingOnBatteries"
)
WINRM = "winlab: WinRM over HTTPS: Inbound Allow TCP 5986 Any"
SSHD = "winlab: OpenSSH: Inbound Allow TCP 22 Any"
OWN_KEYS = r"C:\Users\Administrator\.ssh\authorized_keys"  # for an sshd that does not know the group of administrators
GRANTS = "/inheritance:r /grant *S-1-5-32-544:F /grant *S-1-5-18:F"


@pytest.fixture
def fresh(node: Machine) -> Machine:
    """At its first logon, with the answer CD in its drive."""
    home = node.d / "winlab"
    home.mkdir()
    for name in ("bootstrap.ps1", "beacon.ps1"):
        (home / name).write_bytes((SCRIPTS / name).read_bytes())
    (home / "node.json").write_text('{"node": "node-1", "mtu": 1442, "pfx_password": "secret"}')
    for name in ("winrm.pfx", *KEYS):
        (home / name).write_text(name)
    seal(node)
    for name in ("unattend.xml", "unattend-original.xml"):
        write(node, rf"C:\Windows\Panther\{name}", "secret")
    change(node, dead_tasks=["winlab-beacon"])
    return node


def seal(node: Machine) -> None:
    """Files of a CD are read-only."""
    for path in (node.d / "winlab").rglob("*"):
        if path.is_file():
            path.chmod(0o555)


def bootstrap(node: Machine, code: int = 0, fail: tuple[str, int] | None = None) -> Ran:
    found = re.search(
        r'<CommandLine>powershell.exe .*? -Command "(.*?)"</',
        html.unescape((SCRIPTS / "Autounattend.xml.j2").read_text()),
    )
    assert found is not None
    left = Left(node)
    Machine.ran.add("bootstrap")
    told = node.ask({"command": found[1]}, fail=fail)
    assert told.code == code, (told.out, told.err)
    return Ran(told, left.changes(), left.notes())


def serial(node: Machine) -> list[str]:
    path = node.folder / "com1.txt"
    return path.read_text().splitlines() if path.exists() else []


def warnings(node: Machine) -> list[str]:
    return [line for line in serial(node) if "warning=" in line]


PHASES = ["bootstrap", "winrm", "ssh", "ready"]


def test_bootstrap_leaves_the_expected_changes(fresh: Machine) -> None:
    ran = bootstrap(fresh)
    ran.changes.pop(r"C:\winlab\bootstrap.log")
    listener = next(name for name in ran.changes if name.startswith(LISTENERS) and ran.changes[name] is not None)
    listener = listener.rpartition("\\")[0]
    ours = {name.rpartition("\\")[2]: value for name, value in ran.changes.items() if name.startswith(f"{listener}\\")}
    assert (ours.get("Transport"), ours.get("Address")) == ("HTTPS", "*")
    assert "ABCD" in ours.values()
    others = {name: value for name, value in ran.changes.items() if not name.startswith(LISTENERS)}
    assert others == {
        **{rf"C:\ProgramData\ssh\{name}": rf"= D:\winlab\{name}" for name in KEYS},
        OWN_KEYS: r"= D:\winlab\administrators_authorized_keys",
        r"C:\winlab\beacon.ps1": r"= D:\winlab\beacon.ps1",
        r"C:\winlab\ready.txt": "node-1\n",
        r"C:\Windows\Panther": "an empty folder",
        r"C:\Windows\Panther\unattend.xml": None,
        r"C:\Windows\Panther\unattend-original.xml": None,
        r"Cert\LocalMachine\My\ABCD\Issuer": "CN=winlab test",
        r"Cert\LocalMachine\My": None,
        rf"{POLICY}\LocalAccountTokenFilterPolicy": "1",
        rf"{WINLOGON}\AutoAdminLogon": "0",
        rf"{WINLOGON}\AutoLogonCount": "0",
        rf"{WINLOGON}\DefaultPassword": None,
        "rules winlab-sshd": SSHD,
        "rules winlab-winrm": WINRM,
        "service sshd": "Running Automatic",
        "task winlab-beacon": BEACON,
    }
    granted = [f"run icacls.exe {fresh_path(name)} {GRANTS}" for name in KEYS]
    granted.append(f"run icacls.exe C:/Users/Administrator/.ssh/authorized_keys {GRANTS}")
    assert ran.every == [
        rf"acl C:\winlab {FOLDER_SDDL}",
        BEACON_NOTE,
        "user Administrator True",
        "profile 4 Private",
        "disks OnlineAll",
        "run netsh.exe interface ipv4 set subinterface 4 mtu=1442 store=persistent",
        "remoting",
        r"certificate winrm.pfx to Cert:\LocalMachine\My with secret",
        "run sc.exe config WinRM start= auto",
        rf"acl C:\ProgramData\ssh {FOLDER_SDDL}",
        *granted,
        "service sshd Automatic",
        "service sshd Stopped",
        "service sshd Running",
        "flush C",
        "task winlab-beacon started",
        "secret DefaultPassword removed",
        "run logoff.exe ",
    ]
    assert serial(fresh) == [f"winlab: phase={name}" for name in PHASES]


BEACON_NOTE = (
    "task winlab-beacon registered: powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass "
    r"-File C:\winlab\beacon.ps1"
)


def fresh_path(name: str) -> str:
    return f"C:/ProgramData/ssh/{name}"


def test_a_second_run_leaves_the_same(fresh: Machine) -> None:
    bootstrap(fresh)
    service(fresh, "WinRM", status="Running", start="Manual")
    ran = bootstrap(fresh)
    ran.changes.pop(r"C:\winlab\bootstrap.log")
    assert {name for name in ran.changes if not name.startswith(LISTENERS)} == {"service WinRM"}
    assert sorted(fresh.state()["rules"]) == ["winlab-sshd", "winlab-winrm"]


def test_certificates_and_listeners_of_the_model_are_removed(fresh: Machine) -> None:
    for name, issuer in (("OLD", "CN=winlab old"), ("THEIRS", "CN=their root")):
        fresh.registry(rf"Cert\LocalMachine\My\{name}", "Issuer", issuer)
    bootstrap(fresh)
    keys = json.loads((fresh.folder / "registry.json").read_text())
    assert r"Cert\LocalMachine\My\OLD" not in keys
    assert r"Cert\LocalMachine\My\THEIRS" in keys
    listeners = [values for name, values in keys.items() if name.startswith(f"{LISTENERS}\\")]
    assert [row["Transport"] for row in listeners] == ["HTTPS"]


def test_a_serial_port_that_is_busy_is_tried_again(fresh: Machine) -> None:
    (fresh.folder / "serial-busy.txt").write_text("4")
    bootstrap(fresh)
    assert serial(fresh) == [f"winlab: phase={name}" for name in PHASES]


def test_without_a_serial_port_it_continues_and_tries_less(fresh: Machine) -> None:
    (fresh.folder / "serial-busy.txt").write_text("1000")
    ran = bootstrap(fresh)
    assert serial(fresh) == []
    assert read(fresh, r"C:\winlab\ready.txt") == "node-1\n"
    assert sum("The serial port can't be written" in line for line in ran.told.out) == 5 + len(PHASES) - 1


def test_profiles_of_a_domain_stay(fresh: Machine) -> None:
    rows = [{"ifIndex": 4, "category": "DomainAuthenticated"}, {"ifIndex": 7, "category": "Public"}]
    change(fresh, profiles=rows)
    assert [line for line in bootstrap(fresh).notes if line.startswith("profile")] == ["profile 7 Private"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("Set-NetConnectionProfile", "The network's profile stays as it is: it failed on purpose"),
        ("Register-ScheduledTask", "There is no beacon: it failed on purpose"),
        ("Start-ScheduledTask", "The beacon does not start: it failed on purpose"),
        ("Set-StorageSetting", "Further disks may stay offline: it failed on purpose"),
        ("Add-Type", "LSA may still know the password of the automatic logon: it failed on purpose"),
    ],
)
def test_optional_steps_may_fail(fresh: Machine, command: str, said: str) -> None:
    ran = bootstrap(fresh, fail=(command, 1))
    assert any(said in line for line in ran.told.out)
    assert serial(fresh)[-1] == "winlab: phase=ready"


@pytest.mark.parametrize(
    "command",
    [
        "Set-LocalUser", "netsh.exe", "Enable-PSRemoting", "Import-PfxCertificate", "sc.exe", "New-NetFirewallRule",
        "Get-NetFirewallProfile",
    ],
)  # fmt: skip
def test_a_failed_essential_step_ends_it_and_a_second_run_repairs_it(fresh: Machine, command: str) -> None:
    bootstrap(fresh, code=1, fail=(command, 1))
    told = serial(fresh)
    (error,) = (line for line in told if line.startswith("winlab: error=bootstrap: "))
    assert "on purpose" in error or "ended with exit code 77" in error
    assert told[told.index(error) + 1] == "winlab: BEGIN dump"
    assert told[-1] == "winlab: END dump"
    assert not fresh.path(r"C:\winlab\ready.txt").exists()
    assert "DefaultPassword" not in (fresh.folder / "registry.json").read_text()
    assert fresh.notes().splitlines()[-1] == "run logoff.exe "
    bootstrap(fresh)
    assert serial(fresh)[-1] == "winlab: phase=ready"


PARTS = {
    "bootstrap.log": "Windows PowerShell transcript start",
    "Setup": "a Setup error",
    "build": "Microsoft Windows",
    "network": "Windows IP Configuration",
    "adapters": "MacAddress",
    "devices": "a broken card",
    "firewall": "AllowInboundRules",
    "listeners": "Transport",
    "services": "StartType",
    "events": "The hns service failed to start.",
    "disks": "SizeRemaining",
}


def test_the_dump_has_useful_evidence(fresh: Machine) -> None:
    write(fresh, r"C:\Windows\Panther\setuperr.log", "a Setup error\n")
    write(fresh, r"C:\Windows\Panther\UnattendGC\setuperr.log", "another\n")
    fresh.program(fresh.bin / "cmd.exe", 'test "$*" = "/c ver" && echo "Microsoft Windows [Version 10.0]"')
    devices = fresh.state()["devices"]
    broken = {**devices[0], "name": "a broken card", "status": "ERROR"}
    change(fresh, devices=[*devices, broken], adapters=[], closed=["Private"])
    bootstrap(fresh, code=1)
    text = "\n".join(serial(fresh))
    parts = dict(part.split(":", 1) for part in re.split(r"winlab: dump of ", text)[1:])
    assert list(parts) == list(PARTS)
    missing = {name: parts[name] for name, wanted in PARTS.items() if wanted not in parts[name] and name != "adapters"}
    assert missing == {}
    assert "another" in parts["Setup"]
    assert devices[1]["name"] not in parts["devices"]
    assert "a broken card" in parts["devices"]
    assert "6005" not in parts["events"]  # only errors


def test_a_failed_part_of_the_dump_is_reported_and_the_others_are_included(fresh: Machine) -> None:
    change(fresh, adapters=[])
    bootstrap(fresh, code=1, fail=("Get-Volume", 1))
    text = "\n".join(serial(fresh))
    assert "dump of disks:" in text
    assert text.rpartition("dump of disks:")[2].split("\n")[-1] == "winlab: END dump"
    assert "it failed on purpose" in text.rpartition("dump of disks:")[2]


def test_an_adapter_may_come_late_and_each_gets_its_mtu(fresh: Machine) -> None:
    rows = fresh.state()["adapters"]
    change(fresh, adapters=[*rows, {**rows[0], "ifIndex": 9, "name": "Ethernet 2"}])
    mtus = [line for line in bootstrap(fresh).notes if "netsh.exe" in line]
    command = "run netsh.exe interface ipv4 set subinterface {} mtu=1442 store=persistent"
    assert mtus == [command.format(4), command.format(9)]


PROXY = {"server": "http=proxy:3128;https=proxy:3128", "bypass": "<local>;*.corp.example"}
MARK = r"C:\winlab\winhttp.txt"


def with_proxy(fresh: Machine, proxy: object) -> None:
    path = fresh.d / "winlab/node.json"
    path.chmod(0o644)
    path.write_text(json.dumps({"node": "node-1", "mtu": 1442, "pfx_password": "secret", "proxy": proxy}))
    path.chmod(0o555)


def winhttp(ran: Ran) -> list[str]:
    return [line for line in ran.notes if "winhttp" in line]


def test_windows_update_gets_the_proxy_of_the_lab(fresh: Machine) -> None:
    with_proxy(fresh, PROXY)
    ran = bootstrap(fresh)
    command = f"run netsh.exe winhttp set proxy proxy-server={PROXY['server']} bypass-list={PROXY['bypass']}"
    assert winhttp(ran) == [command]
    assert ran.notes.index(command) < ran.notes.index("remoting")  # so OpenSSH comes after it
    assert MARK in ran.changes


def test_a_clone_takes_back_only_what_winlab_has_set(fresh: Machine) -> None:
    write(fresh, MARK, "http=proxy:3128\n")
    ran = bootstrap(fresh)
    assert winhttp(ran) == ["run netsh.exe winhttp reset proxy"]
    assert ran.changes[MARK] is None


def test_a_proxy_that_windows_does_not_take_does_not_stop_the_node(fresh: Machine) -> None:
    with_proxy(fresh, PROXY)
    ran = bootstrap(fresh, fail=("netsh.exe", 2))
    assert winhttp(ran) == []
    assert serial(fresh)[-1] == "winlab: phase=ready"


def test_drivers_of_virtio_may_be_refused_and_those_of_the_user_may_not(fresh: Machine) -> None:
    found = "$WinPEDriver$"
    for name in (f"{found}/netkvm/netkvm.inf", f"{found}/netkvm/netkvm.sys", "drv2/own-card/card.inf"):
        path = fresh.d / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    ran = bootstrap(fresh)
    added = [line for line in ran.notes if "pnputil.exe" in line]
    assert [re.sub(r"\S*/d/", "D:/", line) for line in added] == [
        f"run pnputil.exe /add-driver D:/{found}/netkvm/netkvm.inf /install",
        "run pnputil.exe /add-driver D:/drv2/own-card/card.inf /install",
    ]
    fresh.program(fresh.bin / "pnputil.exe", "exit 5")
    bootstrap(fresh, code=1)
    assert re.search(
        "error=bootstrap: pnputil.exe .*card.inf /install ended with exit code 5", "\n".join(serial(fresh))
    )
    (fresh.d / "drv2/own-card/card.inf").unlink()
    ran = bootstrap(fresh)
    assert any("A driver is left out: pnputil.exe /add-driver" in line for line in ran.told.out)


def test_further_disks_come_online(fresh: Machine) -> None:
    """Some Windows leave disks on a shared bus offline, and Setup's answer file does not change that."""
    change(fresh, disks=[*fresh.state()["disks"], {"number": 1, "size": 1 << 30, "style": "GPT", "offline": True}])
    assert [line for line in bootstrap(fresh).notes if line.startswith("disk")] == [
        *("disks OnlineAll", "disk 1 IsOffline False", "disk 1 IsReadOnly False")
    ]


def test_the_beacon_runs_after_the_bootstrap(fresh: Machine) -> None:
    """So winlab hears of a Windows that is up and can't be reached, also before its first restart."""
    change(fresh, dead_tasks=[])
    bootstrap(fresh)
    told = serial(fresh)
    assert told[told.index("winlab: phase=ready") + 1].startswith("winlab: beacon 1 addresses=10.77.0.12 ")
    assert len(told) == len(PHASES) + 30


@pytest.mark.parametrize(("code", "warned"), [(0, False), (1, True)])
def test_the_guest_tools(fresh: Machine, code: int, warned: bool) -> None:
    fresh.program(fresh.d / "winlab/virtio-win-guest-tools.exe", f"exit {code}")
    ran = bootstrap(fresh)
    installed = r"run virtio-win-guest-tools.exe /install /quiet /norestart /log C:\winlab\guest-tools.log"
    assert installed in ran.notes
    assert "winlab: phase=guest-tools" in serial(fresh)
    assert any("The guest tools ended with exit code 1" in line for line in ran.told.out) == warned


def guest_agent(node: Machine, body: str = "") -> None:
    """The CD has its package."""
    (node.d / "winlab/qemu-ga-x86_64.msi").write_text("MSI")
    node.program(node.bin / "msiexec.exe", body)


@pytest.mark.parametrize(("code", "warned"), [(0, False), (67, True)])
def test_the_guest_agent_does_not_depend_on_the_guest_tools(fresh: Machine, code: int, warned: bool) -> None:
    """Where a driver is in already the tools install nothing."""
    guest_agent(fresh, f"exit {code}")
    fresh.program(fresh.d / "winlab/virtio-win-guest-tools.exe", "exit 67")
    ran = bootstrap(fresh)
    first, second = (line for line in ran.notes if "msiexec.exe" in line or "guest-tools.exe" in line)
    agent = r"run msiexec.exe /i D:/winlab/qemu-ga-x86_64.msi /qn /norestart /l* C:\winlab\guest-agent.log"
    assert re.sub(r"\S*/d/", "D:/", first) == agent
    assert "virtio-win-guest-tools.exe" in second
    said = "\n".join(ran.told.out)
    assert "The guest tools ended with exit code 67" in said
    assert ("The guest agent's installer ended with exit code 67" in said) == warned
    phases = ["bootstrap", "guest-agent", "guest-tools", "winrm", "ssh", "ready"]
    assert serial(fresh) == [f"winlab: phase={name}" for name in phases]


def test_installers_that_hang_are_ended(fresh: Machine) -> None:
    script = fresh.d / "winlab/bootstrap.ps1"
    text, limit = script.read_text(), "$installerLimit = 600000"
    assert text.count(limit) == 1
    script.chmod(0o755)
    script.write_text(text.replace(limit, "$installerLimit = 300"))
    guest_agent(fresh, "exec sleep 3600")
    fresh.program(fresh.d / "winlab/virtio-win-guest-tools.exe", "exec sleep 3600")
    ran = bootstrap(fresh)
    ended = [line for line in ran.notes if line.startswith("run taskkill.exe /f /t /pid ")]
    assert len(ended) == 2
    for what in ("The guest agent's installer", "The guest tools"):
        said = f"{what} ended with exit code 1460: it took more than 10 minutes"
        assert any(said in line for line in ran.told.out)
    assert serial(fresh)[-1] == "winlab: phase=ready"


def test_guest_tools_that_can_t_be_started_are_a_warning(fresh: Machine) -> None:
    fresh.program(fresh.d / "winlab/virtio-win-guest-tools.exe", "")
    (fresh.d / "winlab/virtio-win-guest-tools.exe").chmod(0o444)
    ran = bootstrap(fresh)
    assert any("The guest tools ended with exit code none: " in line for line in ran.told.out)
    assert serial(fresh)[-1] == "winlab: phase=ready"


def test_files_and_scripts_of_the_user(fresh: Machine) -> None:
    home = fresh.d / "winlab"
    for name in ("files/Tools/deep/x.txt", "files/y.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    (home / "scripts").mkdir()
    for name in ("20-b.ps1", "10-a.ps1"):
        (home / "scripts" / name).write_text(f"Add-Content -LiteralPath 'C:\\order.txt' -Value '{name}'")
    (home / "scripts/note.txt").write_text("no script")
    seal(fresh)
    ran = bootstrap(fresh)
    assert ran.changes[r"C:\Tools\deep\x.txt"] == r"= D:\winlab\files\Tools\deep\x.txt"
    assert ran.changes[r"C:\y.txt"] == r"= D:\winlab\files\y.txt"
    assert read(fresh, r"C:\order.txt").split() == ["10-a.ps1", "20-b.ps1"]
    phases = ["bootstrap", "winrm", "ssh", "files", "scripts", "ready"]
    assert serial(fresh) == [f"winlab: phase={name}" for name in phases]


# -- OpenSSH


def without_ssh(node: Machine) -> None:
    state = node.state()
    del state["services"]["sshd"]
    node.state(state)


@pytest.mark.parametrize("offline", [0, 4, 5])
def test_openssh_from_windows_update(fresh: Machine, offline: int) -> None:
    without_ssh(fresh)
    change(fresh, offline=offline)
    ran = bootstrap(fresh)
    asked = ran.notes.count("capability OpenSSH.Server~~~~0.0.1.0 True")
    assert asked == min(offline + 1, 5)
    if offline < 5:
        assert fresh.state()["services"]["sshd"] == {"status": "Running", "start": "Automatic", "depends": []}
        assert warnings(fresh) == []
    else:
        assert warnings(fresh)[0].startswith("winlab: warning=ssh: OpenSSH is not available (workers.openssh=FILE")
    assert sum("OpenSSH is tried again" in line for line in ran.told.out) == min(offline, 4)


INSTALL = """{param}
$state = Get-Machine
$state['services']['sshd'] = @{{ status = 'Stopped'; start = 'Manual'; depends = @() }}
Set-Machine $state
Add-Note "install-sshd $Confirm"
"""


@pytest.mark.parametrize("param", ["param([switch]$Confirm)", "[CmdletBinding()] param()"])
def test_openssh_from_the_package(fresh: Machine, param: str) -> None:
    """Some releases of its installer ask for confirmation, and some don't accept the answer."""
    without_ssh(fresh)
    with zipfile.ZipFile(fresh.d / "winlab/OpenSSH-Win64.zip", "w") as package:
        package.writestr("OpenSSH-Win64/install-sshd.ps1", INSTALL.format(param=param))
    ran = bootstrap(fresh)
    assert sum(line.startswith("install-sshd") for line in ran.notes) == 1
    assert not any(line.startswith("capability") for line in ran.notes)
    assert fresh.state()["services"]["sshd"]["status"] == "Running"
    assert warnings(fresh) == []


def test_the_key_is_replaced_in_both_places(fresh: Machine) -> None:
    """A clone gets a key of its own. In another language an older sshd reads only that in the profile."""
    for path in (OWN_KEYS, r"C:\ProgramData\ssh\administrators_authorized_keys"):
        write(fresh, path, "of the model")
        fresh.path(path).chmod(0o444)
    bootstrap(fresh)
    assert read(fresh, OWN_KEYS) == "administrators_authorized_keys"
    assert read(fresh, r"C:\ProgramData\ssh\administrators_authorized_keys") == "administrators_authorized_keys"


def test_the_logs_of_an_older_sshd_get_their_access_list_too(fresh: Machine) -> None:
    write(fresh, r"C:\ProgramData\ssh\logs\sshd.log")
    acls = [line for line in bootstrap(fresh).notes if line.startswith("acl")]
    assert acls[1:] == [rf"acl C:\ProgramData\ssh {FOLDER_SDDL}", rf"acl C:\ProgramData\ssh\logs {FOLDER_SDDL}"]


@pytest.mark.parametrize(("command", "time"), [("icacls.exe", 1), ("Restart-Service", 1), ("Set-Acl", 2)])
def test_an_ssh_that_fails_is_a_warning(fresh: Machine, command: str, time: int) -> None:
    bootstrap(fresh, fail=(command, time))
    (warning,) = warnings(fresh)
    assert warning.startswith("winlab: warning=ssh: ")
    assert serial(fresh)[-1] == "winlab: phase=ready"


# -- the firewall, and accounts


@pytest.mark.parametrize(
    ("closed", "unguarded", "said"),
    [
        (["Public", "Private"], [], "the profile Private and Public: WinRM and ssh can't be reached"),
        (["Public"], ["Public"], ""),
        (["Domain"], [], ""),
    ],
)
def test_profiles_that_ignore_inbound_rules(fresh: Machine, closed: list[str], unguarded: list[str], said: str) -> None:
    change(fresh, closed=closed, unguarded=unguarded)
    bootstrap(fresh, code=int(bool(said)))
    assert said in "\n".join(serial(fresh))


def test_only_the_built_in_account_is_renamed(fresh: Machine) -> None:
    users = [
        {"Name": "Somebody", "SID": "S-1-5-21-1-2-3-1500"},
        {"Name": "Gast", "SID": "S-1-5-21-1-2-3-501"},
        {"Name": "Chef", "SID": "S-1-5-21-1-2-3-500"},
    ]
    change(fresh, users=users)
    bootstrap(fresh)
    assert [row["Name"] for row in fresh.state()["users"]] == ["Somebody", "Gast", "Administrator"]


def test_a_failed_start_of_the_transcript_is_reported(fresh: Machine) -> None:
    """Stop-Transcript throws then, whatever its -ErrorAction says: it must not take its place."""
    ran = bootstrap(fresh, 1, fail=("Start-Transcript", 1))
    assert serial(fresh)[:2] == ["winlab: error=bootstrap: it failed on purpose", "winlab: BEGIN dump"]
    assert ran.messages == "it failed on purpose"
    assert rf"{WINLOGON}\DefaultPassword" in ran.changes
    assert ran.notes[-1] == "run logoff.exe "
    assert r"C:\winlab\ready.txt" not in ran.changes
