"""status.ps1, logs.ps1, probe.ps1, sealed.ps1 and push.ps1, and what common.ps1 does for all of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from powershell.cases import COMMAND, CONFIG, PROXY
from powershell.doubles.looks import Left, act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import (
    CONTAINERD,
    change,
    contained,
    featured,
    payload,
    pending,
    proxied,
    read,
    service,
    write,
)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_status_of_a_fresh_node(node: Machine) -> None:
    ran = act(node, "status")
    absent = {"service": "absent", "command": ""}
    assert ran.told.result == {
        "boot_time": "2026-11-21T10:00:00Z",
        "boot_id": "17",
        "build": "20348.2762",
        "containers_feature": "absent",
        "files": {},
        "registry": {},
        "features_set": "",
        "images_from": "",
        "restart_pending": False,
        "containerd": {"service": "absent", "sha256": "", "config_sha256": "", "environment_sha256": ""},
        "binaries": {},
        "installed_from": "",
        "cd": sha256(node.d / "payload.json"),
        "pushed": [],
        "kubelet": {**absent, "joined": False},
        "cni": {},
        "endpoints": [],
        "proxy": {**absent, "stale": False},
    }
    assert (ran.changes, ran.notes) == ({}, [])


def test_status_of_a_node_that_has_everything(node: Machine) -> None:
    proxied(node)
    pending(node)
    write(node, r"C:\winlab\payload.sha256", "abc")
    write(node, r"C:\etc\cni\net.d\a.conf", "{}")
    write(node, r"C:\k\kubelet.exe.winlab-original", "x")
    write(node, r"C:\k\note.txt", "x")
    write(node, r"C:\opt\cni\bin\win-bridge.exe.winlab-original", "x")
    service(node, "containerd", CONTAINERD, "Stopped")
    facts = act(node, "status").told.result
    folder = node.c / "Program Files/containerd"
    assert sorted(facts["pushed"]) == ["kubelet.exe", "win-bridge.exe"]
    assert facts["features_set"] == "Containers,RemoteAccess,Routing,RSAT-RemoteAccess-PowerShell"
    assert facts["containerd"] == {
        "service": "stopped",
        "sha256": sha256(folder / "containerd.exe"),
        "config_sha256": sha256(folder / "config.toml"),
        "environment_sha256": "",
    }
    assert facts["binaries"] == {path.name: sha256(path) for path in (node.c / "k").glob("*.exe")}
    assert facts["kubelet"] == {"service": "running", "command": COMMAND["command"], "joined": True}
    assert facts["proxy"] == {"service": "running", "command": PROXY["command"], "stale": False}
    assert facts["cni"] == {"a.conf": sha256(node.c / "etc/cni/net.d/a.conf")}
    assert facts["endpoints"] == ["cbr0_ep"]
    assert facts["installed_from"] == "abc"
    assert facts["containers_feature"] == "installed"
    assert facts["restart_pending"] is True


def test_status_before_a_feature_s_restart_and_without_the_counter_of_starts(node: Machine) -> None:
    change(node, features=node.state()["features"] | {"Containers": "InstallPending"})
    path = node.folder / "registry.json"
    path.write_text(path.read_text().replace("PrefetchParameters", "Other"))
    facts = act(node, "status", containers_feature="pending").told.result
    assert facts["boot_id"] == facts["boot_time"] == "2026-11-21T10:00:00Z"


# -- logs

LOGS = {
    "kubelet": r"C:\var\log\kubelet\kubelet.log",
    "containerd": r"C:\var\log\containerd\containerd.log",
    "kubeadm": r"C:\var\log\kubeadm\join.log",
    "kube-proxy": r"C:\var\log\kube-proxy\kube-proxy.log",
    "network": r"C:\winlab\network.log",
}


def test_logs(node: Machine) -> None:
    proxied(node)
    service(node, "kube-proxy", PROXY["command"], "Stopped")
    for name, path in LOGS.items():
        write(node, path, "".join(f"{name} {number} ü\n" for number in range(99)))
    state = "containerd: running\nkubelet: running\nkube-proxy: stopped\nhns: running"
    for settings, count in (({}, 60), ({"lines": 2}, 2)):
        logs = act(node, "logs", settings).told.result["logs"]
        assert logs == {
            **{name: "\n".join(f"{name} {number} ü" for number in range(99 - count, 99)) for name in LOGS},
            "services": state,
        }


def test_missing_logs(node: Machine) -> None:
    logs = act(node, "logs").told.result["logs"]
    assert logs.pop("services") == "containerd: absent\nkubelet: absent\nkube-proxy: absent\nhns: stopped"
    assert logs == dict.fromkeys(LOGS, "")


def test_all_logs(node: Machine) -> None:
    """The evidence for readers who were not present."""
    proxied(node)
    when = "2026-11-21T10:01:00Z"
    long = {"log": "System", "id": 7, "level": 3, "provider": "disk", "time": when, "message": "a\r\n b"}
    change(
        node,
        networks=[{"Name": "cbr0", "ID": "n1", "Subnets": [{"Policies": [{"Type": 1}]}]}],
        policies=[{"ID": "p1", "References": ["/endpoints/e1"]}],
        events=[*node.state()["events"], long],
    )
    (node.folder / "routes.txt").write_text("10.244.1.0/24 10.77.0.12\n")
    count = 25
    for number in range(count):
        write(node, rf"C:\var\log\pods\ns_pod{number}\main\0.log", f"of pod {number}\nend")
        os.utime(node.c / f"var/log/pods/ns_pod{number}/main/0.log", (1e9 + number, 1e9 + number))
    write(node, r"C:\winlab\bootstrap.log", "one\ntwo\nthree")
    write(node, r"C:\etc\cni\net.d\10.conf", '{"name": "l2"}')
    write(node, r"C:\etc\cni\net.d\calico-kubeconfig", "token: secret")
    write(node, r"C:\winlab\guest.log", "x" * 204799 + "yz")
    ran = act(node, "logs", {"lines": 2, "everything": True})
    # a file's FullName is that of this host here
    logs = {re.sub(r".*-c-(?=winlab|etc|var)", "", name): text for name, text in ran.told.result["logs"].items()}
    assert logs.keys() > {*LOGS, "services"}
    assert json.loads(logs["hns-networks"])[0]["Subnets"] == [{"Policies": [{"Type": 1}]}]
    assert json.loads(logs["hns-endpoints"])[0]["Name"] == "cbr0_ep"
    assert json.loads(logs["hns-policies"]) == [{"ID": "p1", "References": ["/endpoints/e1"]}]
    assert "io.containerd.runhcs.v1" in logs["containers"]
    assert "4711" in logs["tasks"]
    assert logs["images"].startswith("REF")
    assert "Windows IP Configuration" in logs["addresses"]
    assert "10.244.1.0/24 10.77.0.12" in logs["routes"]
    assert f"kube-proxy: {PROXY['command']}" in logs["commands"].splitlines()
    assert logs["hotfixes"].startswith("KB5030216 Security Update")
    lines = logs["events-system"].splitlines()
    assert lines[0] == "2026-11-21T10:01:00Z disk 7 a b"
    assert len(lines) == 2  # the newest; those of level 4 only inform
    assert "7000" in lines[1]
    assert "There is not an event log" in logs["events-hns"]
    assert logs["winlab-bootstrap"] == "two\nthree"
    assert logs["winlab-guest"] == "x" * 204798 + "yz"
    assert logs["etc-cni-net.d-10.conf"] == '{"name": "l2"}'
    assert "secret" not in json.dumps(logs)
    pods = {name for name in logs if name.startswith("var-log-pods")}
    assert pods == {f"var-log-pods-ns_pod{number}-main-0" for number in range(5, 25)}
    assert logs["var-log-pods-ns_pod24-main-0"] == "of pod 24\nend"
    assert not ran.changes
    assert all(re.match(r"run (ctr|ipconfig|route)\.exe .*(ls|/all|print)$", note) for note in ran.notes)


def test_all_logs_of_a_fresh_node(node: Machine) -> None:
    """Unreadable parts are reported in their place."""
    logs = act(node, "logs", {"everything": True}).told.result["logs"]
    assert "ctr.exe" in logs["containers"]
    assert "not recognized" in logs["containers"]
    assert "'Get-HnsNetwork' is not recognized" in logs["hns-networks"]
    assert not any(name.startswith(("var-", "etc-")) for name in logs)


@pytest.mark.parametrize("lines", [-1, 10001])
def test_too_many_lines(node: Machine, lines: int) -> None:
    refuse(node, "logs", {"lines": lines}, f"settings.lines is {lines}, not between 1 and 10000.")


@pytest.mark.parametrize("lines", [1, 10000])
def test_as_many_lines_as_can_be(node: Machine, lines: int) -> None:
    act(node, "logs", {"lines": lines})


# -- probe and sealed


@pytest.mark.parametrize(
    ("integrity", "elevated"), [("S-1-16-12288", True), ("S-1-16-16384", True), ("S-1-16-8192", False)]
)
def test_the_probe(node: Machine, integrity: str, elevated: bool) -> None:
    change(node, integrity=integrity)
    block = "abc\u00fc" * 100
    facts = act(node, "probe", {"text": "ü\u65e5\"'<&", "block": block}).told.result
    clock = facts.pop("clock")
    assert abs(clock / 1000 - time.time()) < 60
    assert facts == {
        "text": "ü\u65e5\"'<&",
        "sha256": hashlib.sha256(block.encode()).hexdigest(),
        "elevated": elevated,
        "language": "FullLanguage",
        "version": "7.6.9" if facts["version"].startswith("7.6") else facts["version"],
    }
    assert facts["version"][0].isdigit()


def test_a_result_is_one_line_of_ascii(node: Machine) -> None:
    told = node.run("probe", {"text": "a\u00fc\n\u65e5", "block": ""})
    assert told.out[-1].isascii()
    assert r"\u00fc" in told.out[-1]
    assert r"\u65e5" in told.out[-1]


def test_progress_of_sysprep(node: Machine) -> None:
    facts = {"running": False, "state": "IMAGE_STATE_COMPLETE", "succeeded": False, "errors": []}
    assert act(node, "sealed").told.result == facts
    sysprep = r"C:\Windows\System32\Sysprep"
    change(node, processes=["sysprep"])
    node.registry(r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State", "ImageState", "OTHER")
    write(node, rf"{sysprep}\Sysprep_succeeded.tag")
    write(node, rf"{sysprep}\Panther\setuperr.log", "".join(f"error {number}\n" for number in range(30)))
    ran = act(node, "sealed")
    errors = [f"error {number}" for number in range(10, 30)]
    assert ran.told.result == {"running": True, "state": "OTHER", "succeeded": True, "errors": errors}
    assert (ran.changes, ran.notes) == ({}, [])


PACKAGE = "SYSPRP Package Microsoft.Copilot_0.4.2.0 was installed for a user, but not provisioned for all users."
REFUSED = "SYSPRP Failed to remove apps for the current user: 0x80073cf2."


@pytest.mark.parametrize(
    ("errors", "activities", "told"),
    [
        ([REFUSED], ["a", PACKAGE, "b", PACKAGE], [PACKAGE, REFUSED]),
        ([PACKAGE, REFUSED], [PACKAGE], [PACKAGE, REFUSED]),
        ([REFUSED], ["a"], [REFUSED]),
        (["other"], [PACKAGE], ["other"]),
    ],
)
def test_the_app_that_sysprep_refuses_is_named(
    node: Machine, errors: list[str], activities: list[str], told: list[str]
) -> None:
    """Only its log of activities may have it, or the log of errors far from its end."""
    for name, lines in (("setuperr", errors), ("setupact", activities)):
        text = "".join(f"{line}\n" for line in lines)
        write(node, rf"C:\Windows\System32\Sysprep\Panther\{name}.log", text)
    act(node, "sealed", errors=told)


# -- push

PLACES = {
    "kubelet.exe": (r"C:\k\kubelet.exe", ["kubelet"]),
    "kube-proxy.exe": (r"C:\k\kube-proxy.exe", ["kube-proxy"]),
    "kube-log-runner.exe": (r"C:\k\kube-log-runner.exe", ["kube-proxy", "kubelet"]),
    "containerd.exe": (r"C:\Program Files\containerd\containerd.exe", ["kubelet", "containerd"]),
    "win-bridge.exe": (r"C:\opt\cni\bin\win-bridge.exe", []),
    "kubectl.exe": (r"C:\k\kubectl.exe", []),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_program_is_swapped_and_restored(node: Machine, name: str) -> None:
    proxied(node)
    digest = node.program(node.d / "push" / name, "# another")
    path, services = PLACES[name]
    original = node.path(path).read_text()
    swap = {"program": name, "restore": False}
    switched = [f"service {one} Stopped" for one in services] + [f"service {one} Running" for one in reversed(services)]
    ran = act(node, "push", swap, changed=True, sha256=digest)
    origin = next(part for part in ("cni", "programs") if (node.d / part / name).exists())
    assert ran.changes == {path: rf"= D:\push\{name}", f"{path}.winlab-original": rf"= D:\{origin}\{name}"}
    assert ran.notes == switched
    again = act(node, "push", swap, changed=False, sha256=digest)
    assert (again.changes, again.notes) == ({}, [])
    # another one: the original is still the first
    second = node.program(node.d / "push" / name, "# a third")
    ran = act(node, "push", swap, changed=True, sha256=second)
    assert ran.changes == {path: rf"= D:\push\{name}"}
    ran = act(node, "push", {**swap, "restore": True}, changed=True)
    assert ran.changes == {path: rf"= D:\{origin}\{name}", f"{path}.winlab-original": None}
    assert ran.notes == switched
    assert node.path(path).read_text() == original
    again = act(node, "push", {**swap, "restore": True}, changed=False, sha256=sha256(node.path(path)))
    assert (again.changes, again.notes) == ({}, [])


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_services_that_an_interrupted_run_stopped_are_started(node: Machine, restore: bool, is_there: bool) -> None:
    """Windows ends a script with the shell of a connection that was cut, also between stop and start."""
    proxied(node)
    name = "kube-log-runner.exe"
    node.program(node.d / "push" / name, "# another")
    swap = {"program": name, "restore": restore}
    if restore is not is_there:
        act(node, "push", {"program": name}, changed=True)
    services = node.state()["services"]
    stopped = {one: {**services[one], "status": "Stopped"} for one in ("kube-proxy", "kubelet")}
    change(node, services={**services, **stopped})
    ran = act(node, "push", swap, changed=not is_there)
    assert ran.notes == ["service kubelet Running", "service kube-proxy Running"]


def test_half_a_copy_of_the_original_does_not_count(node: Machine) -> None:
    proxied(node)
    node.program(node.d / "push/kubelet.exe", "# another")
    original = read(node, r"C:\k\kubelet.exe")
    write(node, r"C:\k\kubelet.exe.winlab-original.winlab-new", "half")
    act(node, "push", {"program": "kubelet.exe"}, changed=True)
    assert read(node, r"C:\k\kubelet.exe.winlab-original") == original
    assert not list((node.c / "k").glob("*.winlab-new"))


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (r"..\x.exe", "is no name of a program."),
        ("kubelet", "'kubelet' is no name of a program."),
        ("-x.exe", "'-x.exe' is no name of a program."),
        ("crictl.exe", "'crictl.exe' is not installed here: there is nothing to swap."),
        ("kubelet.exe", r"winlab's CD has no push\kubelet.exe."),
    ],
)
def test_files_that_push_refuses(node: Machine, program: str, text: str) -> None:
    proxied(node)
    ran = refuse(node, "push", {"program": program}, text)
    assert (ran.changes, ran.notes) == ({}, [])


# -- common.ps1


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_settings_come_by_the_console_where_the_script_gets_no_input(machine: Machine, mark: bytes) -> None:
    """As under a program that hands its own input on: in a process of its own, because there can be one console."""
    given = mark + '{"text": "\u00fc",\n"block": ""}'.encode()
    words = ["-NoProfile", "-NonInteractive", "-Command", f"& '{machine.d}/scripts/probe.ps1'"]
    told = machine.execute(words, given)
    assert told.result["text"] == "\u00fc", told.err


def test_settings_of_more_than_one_line(node: Machine) -> None:
    told = node.run("probe", stdin=b'\xef\xbb\xbf{"text":\n "x",\n"block": ""}\n\n')
    assert told.result["text"] == "x"


@pytest.mark.parametrize("given", [[], [""], ["  "]])
def test_missing_settings_count_as_empty(node: Machine, given: list[str]) -> None:
    featured(node)
    told = node.ask({"script": str(node.d / "scripts/containerd.ps1"), "lines": given, "step": True})
    assert told.code == 1
    assert "settings.config is empty" in told.err[0]


@pytest.mark.parametrize(
    ("given", "text"), [("[1]", "The settings are no JSON object."), ('{"config":', ""), ('"x"', "no JSON object")]
)
def test_settings_that_are_not_an_object(node: Machine, given: str, text: str) -> None:
    left = Left(node)
    told = node.run("containerd", stdin=given.encode())
    assert (told.code, told.result) == (1, None)
    assert text in "\n".join(told.err)
    assert left.changes() == {}


def test_an_error_of_windows_names_its_place(node: Machine) -> None:
    proxied(node)
    ran = refuse(node, "proxy", PROXY, "", fail=("Set-Acl", 1))
    (line,) = ran.told.err
    assert re.fullmatch(r"it failed on purpose \(\w*\.?\w*, line \d+\)", line)
    service(node, "kube-proxy", status="Running")
    ran = refuse(node, "proxy", {**PROXY, "config": ""}, "")
    assert ran.told.err == ["settings.config is empty."]


MUTEX = "mutex-Global-winlab-changes"


@pytest.mark.parametrize("waits", [0, 3])
def test_a_script_waits_for_one_that_an_earlier_winlab_started(node: Machine, waits: int) -> None:
    contained(node)
    (node.folder / MUTEX).write_text(str(waits))
    ran = act(node, "load", changed=False)
    said = "winlab: waiting for a script that an earlier winlab started here"
    assert ran.told.out.count(said) == waits
    assert not (node.folder / MUTEX).exists()


def test_a_script_that_ended_silently_is_not_waited_for(node: Machine) -> None:
    contained(node)
    (node.folder / MUTEX).write_text("left")
    assert act(node, "load", changed=False).told.out == ['{"changed":false}']


@pytest.mark.parametrize("script", ["logs", "probe", "sealed", "status"])
def test_scripts_that_only_read_wait_for_no_other(node: Machine, script: str) -> None:
    (node.folder / MUTEX).write_text("3")
    assert "waiting" not in "".join(act(node, script, {"text": "", "block": ""}).told.out)
    assert (node.folder / MUTEX).read_text() == "3"


# -- what survives a cut connection

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z "


def log_of(node: Machine, script: str) -> list[str]:
    """What a script has reported of itself in Windows, without the times."""
    lines = (node.c / f"winlab/logs/{script}.log").read_text().splitlines()
    assert all(re.match(STAMP, line) for line in lines), lines
    return [re.sub(STAMP, "", line) for line in lines]


def serial(node: Machine) -> list[str]:
    path = node.folder / "com1.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_a_change_is_kept_in_windows_and_reported_on_the_serial_port(node: Machine) -> None:
    contained(node)
    payload(node, "other.exe", "#")
    act(node, "binaries", changed=True)
    assert serial(node) == ["winlab: script=binaries begins", "winlab: script=binaries has ended"]
    kept = log_of(node, "binaries")
    assert (kept[0], kept[-1]) == ("begins", "has ended")
    assert "copying kubelet.exe" in kept


def test_a_failure_is_kept_and_reported(node: Machine) -> None:
    refuse(node, "binaries", None, "containerd is not set up")
    why = "failed: containerd is not set up: containerd.ps1 comes first."
    assert serial(node) == ["winlab: script=binaries begins", f"winlab: script=binaries {why}"]
    assert log_of(node, "binaries") == ["begins", why]


@pytest.mark.parametrize(("busy", "lines"), [(4, ["begins", "has ended"]), (5, ["has ended"]), (6, [])])
def test_another_program_has_the_serial_port(node: Machine, busy: int, lines: list[str]) -> None:
    """It is tried five times; then each line once: the work continues."""
    contained(node)
    (node.folder / "serial-busy.txt").write_text(str(busy))
    act(node, "load", changed=False)
    assert serial(node) == [f"winlab: script=load {line}" for line in lines]
    refusals = [line for line in log_of(node, "load") if "the serial port can't be written" in line]
    assert len(refusals) == busy


@pytest.mark.parametrize(("size", "kept"), [((1 << 20) - 4096, False), ((1 << 20) + 1, True)])
def test_the_log_of_a_script_does_not_grow_forever(node: Machine, size: int, kept: bool) -> None:
    contained(node)
    write(node, r"C:\winlab\logs\load.log", "x" * size)
    act(node, "load", changed=False)
    old = node.c / "winlab/logs/load.log.old"
    assert old.exists() == kept
    if kept:
        assert old.stat().st_size == size
        assert log_of(node, "load") == ["begins", "has ended"]


def test_a_log_that_can_t_be_written_stops_nothing(node: Machine) -> None:
    contained(node)
    write(node, r"C:\winlab\logs", "a file")
    act(node, "load", changed=False)
    assert serial(node) == ["winlab: script=load begins", "winlab: script=load has ended"]


@pytest.mark.parametrize("script", ["logs", "probe", "sealed", "status"])
def test_scripts_that_only_read_report_nothing(node: Machine, script: str) -> None:
    act(node, script, {"text": "", "block": ""})
    assert serial(node) == []
    assert not (node.c / "winlab/logs").exists()


@pytest.mark.parametrize("how", ["first", "second"])
def test_a_program_that_runs_is_renamed_out_of_the_way(node: Machine, how: str) -> None:
    """Windows lets a program that runs be renamed, not written over or removed."""
    proxied(node)
    payload(node, "runhcs.exe", "# another")
    # the new file can't be moved into its place: the old one still exists under another name
    number = {"first": 1, "second": 2}[how]
    refuse(node, "containerd", CONFIG, "it failed on purpose", fail=("Move-Item", number))
    folder = node.c / "Program Files/containerd"
    there = {path.name.split(".6")[0] for path in folder.glob("runhcs*")}
    assert "runhcs.exe.winlab-new" in there
    ran: Any = act(node, "containerd", CONFIG, changed=True)
    assert {path.name for path in folder.glob("runhcs*")} == {"runhcs.exe"}
    assert (folder / "runhcs.exe").read_bytes() == (node.d / "programs/runhcs.exe").read_bytes()
    assert ran.told.result["changed"]
