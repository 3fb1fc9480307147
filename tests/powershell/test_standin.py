"""The stand-in's powershell.exe: winlab's scripts, run by the engine over the stand-in's world, without a machine."""

from __future__ import annotations

import base64
import html
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from powershell.cases import LOGINS, NEW_KEY, OLD_KEY
from workers import FILES, JOIN, KUBELET, PROGRAMS, PROXY, Computer, Worker, digest_of

from winlab import data
from winlab_standin.guest import (
    accounts,
    bootstrap,
    bridge,
    devices,
    engine,
    firewall,
    loginplayers,
    nativecommands,
    node,
    routes,
    scripts,
    sysprep,
    wine,
)
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.releases import NO_OPENSSH, PORT_TAKEN, REMOTE_APP, TOOLS_HANG, USER_APP, Windows
from winlab_standin.guest.resident import Resident
from winlab_standin.guest.shell import Cancelled, Shell, Streams
from winlab_standin.guest.world import World

GENERALIZE = (data.folder("unattend") / "windows/generalize.xml").read_text()
BOOTSTRAP = re.search(
    "<CommandLine>(powershell.exe .*?)</CommandLine>",
    (data.folder("unattend") / "windows/Autounattend.xml.j2").read_text(),
)


class Scripted(Worker):
    """A worker whose scripts are run by the engine."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
        super().__init__(folder, monkeypatch)
        for name in PROGRAMS:
            body = f"MZ {name}"
            (self.machine.cd / "programs" / name).write_text(body)
        rows = json.loads((self.machine.cd / "payload.json").read_text())
        rows["programs"] = {name: {"sha256": digest_of(f"MZ {name}")} for name in PROGRAMS}
        (self.machine.cd / "payload.json").write_text(json.dumps(rows))
        monkeypatch.setattr(engine, "FOLDER", program.parent)
        monkeypatch.setattr(engine, "STATE", self.state)
        monkeypatch.setattr(bridge, "VOLATILE", self.state / "volatile.json")
        monkeypatch.setattr(devices, "labels", lambda: {"D": scripts.LABEL})
        monkeypatch.setattr(scripts, "machine", lambda *_: self.machine)
        monkeypatch.setattr(World, "real", lambda: self.machine.world)
        self.again: list[str] = []
        monkeypatch.setattr(bootstrap, "restart", self.again.append)
        monkeypatch.setattr(wine, "pass_through", self.through)

    def up_by_players(self) -> None:
        """Up to the cluster, simulated."""
        for script, settings in (
            ("features", {"features": ["Containers"], "release": "2022"}),
            ("containerd", {"config": "version = 3\n"}),
            ("binaries", {}),
            ("kubelet", {"command": KUBELET}),
            ("join", {"configuration": JOIN, "name": "node-1"}),
        ):
            scripts.play(f"{script}.ps1", self.machine, settings)
            self.restart()

    def through(self, words: list[str], tell: Callable[[str], None], path: str = "") -> int:
        if words[0].endswith("kubeadm.exe"):
            return self.programs.join(words, tell, path)
        code, text = self.programs.call(words)
        for line in text.splitlines():
            tell(line)
        return code

    def ask(self, script: str, settings: Any) -> tuple[int, list[str], str]:
        said: list[str] = []
        told: list[str] = []
        shell = Shell(self.machine.world, COMMANDS)
        streams = Streams(said.append, told.append, lambda: json.dumps(settings))
        line = rf"powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File D:\scripts\{script}.ps1"
        code = shell.run(line, streams)
        return code, "".join(said).splitlines(), "".join(told)

    def be(self, windows: Windows) -> None:
        """Have this Windows installed."""
        self.machine.world.windows = self.machine.world.registry.windows = windows

    def shell(self, line: str, alone: bool = False) -> tuple[int, str, str]:
        """Run a line as WinRM does, without input; *alone*: as the answer file does."""
        said: list[str] = []
        told: list[str] = []
        code = Shell(self.machine.world, COMMANDS, alone=alone).run(line, Streams(said.append, told.append))
        return code, "".join(said), "".join(told)

    def play(self, script: str, **settings: Any) -> dict[str, Any]:
        code, said, told = self.ask(script, settings)
        assert code == 0, told
        return dict(json.loads(said[-1]))


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Path) -> Iterator[Scripted]:
    made = Scripted(tmp_path, monkeypatch, engine)
    yield made
    Resident(made.state / "resident").end()


def test_the_whole_way(scripted: Scripted) -> None:
    worker = scripted
    assert worker.play("status")["containers_feature"] == "absent"
    assert worker.play("features", features=["Containers"], release="2022") == {"restart": True}
    assert worker.play("status")["restart_pending"] is True
    (worker.state / "volatile.json").unlink()
    worker.restart()
    assert worker.play("features", features=["Containers"], release="2022") == {"restart": False}
    assert worker.play("status")["features_set"] == "Containers"
    for script, settings in (
        ("containerd", {"config": "version = 3\n"}),
        ("binaries", {}),
        ("kubelet", {"command": KUBELET}),
        ("join", {"configuration": JOIN, "name": "NODE-1"}),
        ("cni", {"files": FILES, "network": None}),
        ("proxy", {"command": PROXY, "kubeconfig": "k", "config": "c"}),
    ):
        assert worker.play(script, **settings).get("changed") is True, script
        assert worker.play(script, **settings).get("changed") is False, f"{script} again"
    found = worker.play("status")
    assert found["kubelet"] == {"service": "running", "command": KUBELET, "joined": True}
    assert found["containerd"]["service"] == "running"
    units = worker.machine.services.units()
    assert units["kubelet"].recovery == (5.0, 5.0, 5.0)
    assert units["kubelet"].depends == ("containerd",)
    assert units["kube-proxy"].pretence
    assert worker.programs.path == r"C:\k"


@pytest.fixture
def joined(scripted: Scripted) -> Scripted:
    """A worker after join.ps1: simulated where possible, which is quicker."""
    scripted.up_by_players()
    return scripted


@dataclass
class FirstLogon:
    """What bootstrap.ps1 does at the first logon, and reports."""

    scripted: Scripted
    serial: list[str]  # what comes on the serial port
    passwords: list[str]
    ran: list[list[str]]
    off: list[int]

    def run(self) -> str:
        """By the very command of the answer file; everything that the serial port has received."""
        assert BOOTSTRAP is not None
        code, out, err = self.scripted.shell(html.unescape(BOOTSTRAP[1]), alone=True)
        assert code == 0, (self.serial, out, err)
        return "".join(self.serial)


@pytest.fixture
def first_logon(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> FirstLogon:
    machine, made = scripted.machine, FirstLogon(scripted, [], [], [], [])
    home = machine.cd / "winlab"
    (home / "scripts").mkdir(parents=True)
    (home / "scripts/10-own.ps1").write_text("Set-Content -Path 'C:\\own.txt' -Value 1")
    for name in ("bootstrap.ps1", "beacon.ps1"):
        (home / name).write_bytes((data.folder("unattend") / "windows" / name).read_bytes())
    for name in ("winrm.pfx", *bootstrap.SSH_FILES):
        (home / name).write_text(name)
    (home / "node.json").write_text(json.dumps({"node": "node-1", "mtu": 1442, "pfx_password": "<&\"' secret"}))
    monkeypatch.setattr(bootstrap, "pem", lambda data, password: (made.passwords.append(password), (data, b"key"))[1])
    monkeypatch.setattr(nativecommands, "run", made.ran.append)
    monkeypatch.setattr(World, "serial", lambda _, text: made.serial.append(text))
    monkeypatch.setattr(accounts, "rename", lambda *_: None)
    monkeypatch.setattr(World, "log_off", lambda _: made.off.append(1))
    monkeypatch.setattr(World, "logged_on", lambda _: False)
    monkeypatch.setitem(node.NOTHING, "dead_tasks", ["winlab-beacon"])  # it would outlive the test
    hurry(monkeypatch)
    return made


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits of the scripts, which are for a real machine."""
    plain = engine._environment
    monkeypatch.setattr(engine, "_environment", lambda *given: {**plain(*given), "WINLAB_PS_HASTE": "100"})


def test_bootstrap(first_logon: FirstLogon) -> None:
    scripted, machine = first_logon.scripted, first_logon.scripted.machine
    assert first_logon.run().endswith("winlab: phase=ready\r\n")
    assert first_logon.passwords == ["<&\"' secret"]
    assert (machine.config / "standin-winrm.crt").read_bytes() == b"winrm.pfx"
    assert scripted.again == ["WinRM", "sshd"]
    assert first_logon.ran == [["ip", "link", "set", "dev", "eth0", "mtu", "1442"]]
    registry = machine.world.registry
    assert firewall.category(registry) == firewall.PRIVATE
    assert [firewall.allows(registry, port) for port in (5986, 22, 5985)] == [True, True, False]
    policy = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System"
    assert registry.get(policy, "LocalAccountTokenFilterPolicy") == "0x1"
    assert (machine.c("winlab/ready.txt")).read_text().strip() == "node-1"
    assert machine.c("own.txt").exists()
    assert machine.node.kept()["tasks"]["winlab-beacon"]["trigger"] == node.AT_START
    assert first_logon.off == [1]


def test_bootstrap_without_openssh(first_logon: FirstLogon) -> None:
    machine = first_logon.scripted.machine
    machine.world.windows = Windows(traps=(NO_OPENSSH,))
    said = first_logon.run()
    assert "winlab: warning=ssh: OpenSSH is not available (workers.openssh=FILE brings it):" in said
    assert said.endswith("winlab: phase=ready\r\n")
    assert first_logon.scripted.again == ["WinRM"]
    assert "sshd" not in machine.node.kept()["services"]


def test_bootstrap_with_guest_tools_that_never_end(first_logon: FirstLogon) -> None:
    machine = first_logon.scripted.machine
    machine.world.windows = Windows(traps=(TOOLS_HANG,))
    for name in ("virtio-win-guest-tools.exe", "qemu-ga-x86_64.msi"):
        (machine.cd / "winlab" / name).touch()
    said = first_logon.run()
    assert "winlab: phase=guest-agent\r\nwinlab: phase=guest-tools\r\n" in said
    assert said.endswith("winlab: phase=ready\r\n")
    log = machine.c("winlab/bootstrap.log").read_text(errors="replace")
    assert "The guest tools ended with exit code 1460: it took more than 10 minutes" in log
    assert "The guest agent's installer" not in log


def test_bootstrap_whose_end_is_not_on_the_serial_port(
    first_logon: FirstLogon, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = first_logon.scripted.machine
    machine.world.windows = Windows(traps=(PORT_TAKEN,))
    monkeypatch.setattr(World, "logged_on", lambda _: True)
    said = first_logon.run()
    assert said.splitlines()[-1] == "winlab: phase=scripts"
    assert machine.c("winlab/ready.txt").read_text().strip() == "node-1"
    assert "The serial port can't be written" in machine.c("winlab/bootstrap.log").read_text(errors="replace")


def test_the_beacon_of_a_windows_whose_winrm_did_not_start(
    first_logon: FirstLogon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And whose account is locked: the traps `winrm-stopped` and `lockout`."""
    scripted = first_logon.scripted
    first_logon.run()
    for heard in (scripted.again, first_logon.serial):
        heard.clear()
    monkeypatch.setattr(Computer, "services", lambda _: {"WinRM": "WinRM" in scripted.again, "sshd": True})
    monkeypatch.setattr(accounts, "LOCKED", tmp_path / "locked")
    (tmp_path / "locked").write_text(f"{time.time() + 600}\n")
    line = r"powershell.exe -NoProfile -ExecutionPolicy Bypass -File C:\winlab\beacon.ps1 -Lines 4 -Pause 1"
    code, _, told = scripted.shell(line, alone=True)
    assert code == 0, told
    lines = "".join(first_logon.serial).splitlines()
    states = [re.findall(" WinRM=([A-Za-z]+) ", one) for one in lines]
    assert states == [["Stopped"], ["Stopped"], ["Running"], ["Running"]]
    assert scripted.again == ["WinRM"]
    assert all(" account=locked" in one for one in lines)


def test_a_network_of_hns(joined: Scripted) -> None:
    network = {"type": "L2Bridge", "name": "cbr0", "subnet": "10.244.2.0/24", "gateway": "10.244.2.1"}
    network |= {"node_address": "10.77.0.12", "endpoint": {"name": "cbr0_ep", "address": "10.244.2.2"}}
    firewall.set_category(joined.machine.world.registry, firewall.PRIVATE)
    assert joined.play("cni", files=FILES, network=network) == {"changed": True}
    assert (joined.state / "drop").exists()
    assert firewall.category(joined.machine.world.registry) == firewall.PUBLIC
    kept = joined.machine.node.kept()
    assert [row["Name"] for row in kept["networks"]] == ["cbr0"]
    assert [row["IPAddress"] for row in kept["endpoints"]] == ["10.244.2.2"]
    assert joined.play("cni", files=FILES, network=network) == {"changed": False}
    assert joined.play("status")["endpoints"] == ["cbr0_ep"]


def test_a_network_of_hns_that_is_recreated(joined: Scripted) -> None:
    network = {"type": "L2Bridge", "name": "cbr0", "subnet": "10.244.2.0/24", "gateway": "10.244.2.1"}
    settings = {"command": PROXY, "kubeconfig": "k", "config": "winkernel:\n  networkName: cbr0\n"}
    joined.play("cni", files=FILES, network=network)
    joined.play("proxy", **settings)
    first = joined.machine.node.networks()["cbr0"]["ID"]
    assert joined.machine.c("winlab/proxy-network.txt").read_text() == first
    joined.play("cni", files=FILES, network={**network, "subnet": "10.244.9.0/24", "gateway": "10.244.9.1"})
    second = joined.machine.node.networks()["cbr0"]["ID"]
    assert second != first
    assert joined.machine.c("winlab/proxy-network.txt").read_text() == second, "network.ps1 has started it again"
    assert joined.play("status")["proxy"] == {"service": "running", "command": PROXY, "stale": False}
    joined.machine.c("winlab/proxy-network.txt").write_text(first)
    assert joined.play("status")["proxy"]["stale"]
    assert joined.play("proxy", **settings) == {"changed": True, "service": "running"}


def test_routes(joined: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[str]] = []
    monkeypatch.setattr(routes, "run", lambda words, **_: done.append(words))
    wanted = [{"to": "10.244.1.0/24", "via": "10.77.0.11"}]
    assert joined.play("routes", routes=wanted) == {"changed": True}
    assert done == [["ip", "route", "replace", "10.244.1.0/24", "via", "10.77.0.11"]]
    assert routes.kept(joined.machine.config) == {"10.244.1.0/24": "10.77.0.11"}
    assert joined.play("routes", routes=wanted) == {"changed": False}
    assert joined.play("routes", routes=[]) == {"changed": True}
    assert routes.kept(joined.machine.config) == {}


def test_sysprep(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(World, "power", lambda _, action, delay: asked.append(action))
    scripted.play("features", features=["Containers"], release="2022")
    assert scripted.play("seal", generalize=GENERALIZE, begin=True) == {"restart": True}
    (scripted.state / "volatile.json").unlink()
    scripted.restart()
    told = scripted.play("seal", generalize=GENERALIZE, begin=False)
    assert (told["restart"], told["build"], told["rearms"]) == (False, "20348.2762", 5)
    assert asked == []
    assert scripted.play("sealed")["succeeded"] is False
    scripted.play("seal", generalize=GENERALIZE, begin=True)
    assert asked == ["poweroff"]
    told = scripted.play("sealed")
    assert (told["state"], told["succeeded"]) == (node.RESEALED, True)
    assert told["errors"] == [sysprep.LOG_LINE]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sysprep asks of the machine."""
    made: list[str] = []
    monkeypatch.setattr(World, "power", lambda _, action, delay: made.append(action))
    hurry(monkeypatch)
    return made


def test_a_windows_without_openssh_is_generalized(scripted: Scripted, asked: list[str]) -> None:
    scripted.be(Windows(traps=(NO_OPENSSH,)))
    scripted.play("seal", generalize=GENERALIZE, begin=True)
    assert (asked, scripted.play("sealed")["succeeded"]) == (["poweroff"], True)


def test_an_app_that_a_remote_session_can_t_remove_stops_nothing(scripted: Scripted, asked: list[str]) -> None:
    """The scripts leave that to SYSTEM. What a remote session does itself, it can't."""
    scripted.be(Windows(installation="Server", traps=(REMOTE_APP,)))
    (app,) = scripted.machine.node.apps()
    _, said, told = scripted.shell(
        f"powershell.exe -NoProfile -Command \"Remove-AppxPackage -Package '{app}_1.0' -AllUsers\""
    )
    assert "0x80073D19" in said + told
    assert scripted.machine.node.apps() == [app]
    code, lines, told = scripted.ask("seal", {"generalize": GENERALIZE, "begin": True})
    assert code == 0, told
    assert f"winlab: removing the app {app}" in lines
    assert scripted.machine.node.apps() == []
    assert (asked, scripted.play("sealed")["succeeded"]) == (["poweroff"], True)


def test_an_app_of_one_user_stops_sysprep(scripted: Scripted, asked: list[str]) -> None:
    scripted.be(Windows(installation="Server", traps=(USER_APP,)))
    code, said, told = scripted.ask("seal", {"generalize": GENERALIZE, "begin": True})
    assert code == 0, told
    assert "winlab: it stays: Removal failed. 0x80073CFA" in said
    told_then = scripted.play("sealed")
    assert (asked, told_then["state"], told_then["succeeded"]) == ([], node.COMPLETE, False)
    assert "0x80073cf2" in told_then["errors"][-1]


def test_an_answer_file_that_sysprep_refuses(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(World, "power", lambda _, action, delay: asked.append(action))
    scripted.play("seal", generalize="<unattend/>", begin=True)
    told = scripted.play("sealed")
    assert (asked, told["state"]) == ([], node.COMPLETE)
    assert "sysprep.exe" in told["errors"][0]


def test_new_logins(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, passwords = scripted.machine, list[str]()
    for path in ("ProgramData/ssh/administrators_authorized_keys", "Users/Administrator/.ssh/authorized_keys"):
        machine.c(path).parent.mkdir(parents=True)
        machine.c(path).write_text(f"{OLD_KEY}\r\n")
    for name, value in (("Transport", "HTTPS"), ("CertificateThumbprint", "0123")):
        machine.world.registry.add(r"WSMan\localhost\Listener\Listener_1", name, "REG_SZ", value)
    monkeypatch.setattr(bootstrap, "pem", lambda data, password: (data, password.encode()))
    monkeypatch.setattr(loginplayers, "set_password", lambda _machine, password: passwords.append(password))
    assert scripted.play("logins", **{**LOGINS, "former": OLD_KEY}) == {"changed": True}
    assert machine.c("ProgramData/ssh/administrators_authorized_keys").read_text() == f"{NEW_KEY}\n"
    assert (machine.config / "standin-winrm.crt").read_bytes() == base64.b64decode(LOGINS["pfx"])
    assert (machine.config / "standin-winrm.key").read_text() == LOGINS["pfx_password"]
    assert scripted.again == ["sshd", "WinRM"]
    assert passwords == [LOGINS["password"]]


def test_other_requests(joined: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    clock: list[float] = []
    monkeypatch.setattr(World, "set_clock", lambda _, seconds: clock.append(seconds))
    told = joined.play("probe", text="Gr\u00fc\u00dfe <&\"'", block="x" * 9000)
    assert (told["text"], told["elevated"]) == ("Gr\u00fc\u00dfe <&\"'", True)
    assert told["version"].startswith("5.1.")
    assert joined.play("updates") == {"installed": [], "failed": [], "restart": False}
    now = int(time.time())
    assert joined.play("faults", skew=7200, free=None, now=now) == {"changed": True}
    assert abs(clock[0] - now - 7200) < 60
    logs = joined.play("logs", everything=True)["logs"]
    assert "kubelet: running" in logs["services"]
    assert "kubelet.exe" in logs["commands"]
    assert joined.play("load") == {"changed": False}


def test_a_missing_file(scripted: Scripted) -> None:
    code, _, told = scripted.shell(r"powershell.exe -NoProfile -File D:\scripts\nosuch.ps1")
    assert code == scripts.NO_FILE
    assert "does not exist" in told


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("$env:COMPUTERNAME", "NODE-1"),
        ("$PSVersionTable.PSVersion.ToString(2)", "5.1"),
        ("(Get-Service -Name 'W32Time').Status", "Running"),
        ("whoami.exe /groups; $LASTEXITCODE", "0"),
        ("(Get-PSDrive -Name 'C').Free -gt 0", "True"),
        ("sc.exe query nosuch; $LASTEXITCODE", "1060"),
        ("(Get-Command Get-HnsNetwork -ErrorAction Ignore) -eq $null", "True"),
    ],
)
def test_commands(scripted: Scripted, command: str, says: str) -> None:
    code, said, told = scripted.shell(f'powershell.exe -NoProfile -Command "{command}"')
    assert (code, said.splitlines()[-1:]) == (0, [says]), told


def test_scripts_share_an_engine_but_those_that_are_alone(scripted: Scripted) -> None:
    line = 'powershell.exe -NoProfile -Command "$PID"'
    _, first, _ = scripted.shell(line)
    assert scripted.shell(line) == (0, first, "")
    code, other, _ = scripted.shell(f"cmd.exe /c {line}", alone=True)
    assert (code, other == first) == (0, False)
    arguments = '-Command "Set-Content C:\\pid.txt $PID"'
    engine._run_task(
        COMMANDS, {"execute": "powershell", "arguments": arguments, "trigger": "", "who": "", "settings": ""}
    )
    assert scripted.machine.c("pid.txt").read_text().strip() not in (first.strip(), other.strip())
    assert scripted.shell(line) == (0, first, "")


def test_two_scripts_at_once(scripted: Scripted) -> None:
    first = "Set-Content C:\\begun.txt 1; while (-not (Test-Path C:\\go.txt)) { Start-Sleep 1 }; $PID"
    line = f'powershell.exe -NoProfile -Command "{first}"'
    told: list[tuple[int, str, str]] = []
    work = threading.Thread(target=lambda: told.append(scripted.shell(line)))
    work.start()
    while not scripted.machine.c("begun.txt").exists():
        assert work.is_alive()
        time.sleep(0.1)
    code, other, _ = scripted.shell('powershell.exe -NoProfile -Command "Set-Content C:\\go.txt 1; $PID"')
    work.join()
    assert (code, told[0][0]) == (0, 0)
    assert other != told[0][1]


def test_the_process_that_started_it_ends_it(scripted: Scripted) -> None:
    shell = Shell(scripted.machine.world, COMMANDS)
    gone = threading.Event()
    shell.cancelled = gone.is_set
    threading.Timer(1, gone.set).start()
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        shell.run('powershell.exe -Command "Start-Sleep -Seconds 60"', Streams(lambda _: None, lambda _: None))
    assert time.monotonic() - begun < 30
    assert not list(scripted.state.glob("node.*"))
