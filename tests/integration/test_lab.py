"""The lab itself: two labs side by side, logged in to by ssh and WinRM, and destroyed again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess  # noqa: TID251 - test hosts in network namespaces
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import results
from browser import browser
from harness import (
    LAB_A,
    LAB_B,
    Golden,
    Labs,
    Second,
    Winlab,
    added,
    answering,
    ask,
    evidence,
    is_ready,
    nodes,
    text,
    traces,
    worked,
)

from winlab.adapters.vm import agent
from winlab.host.facts import read_facts
from winlab.operations.look import find_node
from winlab.site import Site

STOOD_STILL = 60.0  # seconds


def test_create_ends_with_a_table(labs: Labs) -> None:
    assert "the cluster is Ready" in labs.printed_a
    for part in ("FROM HOST", "controller-1", "node-1", "10.77.0.11", "10.77.0.101"):
        assert part in labs.printed_a


def test_status(labs: Labs) -> None:
    assert [(n["name"], n["state"], n["answers"]) for n in answering(labs.a)] == [
        ("controller-1", "running", True),
        ("node-1", "running", True),
    ]


def test_list_shows_both(labs: Labs, winlab: Winlab) -> None:
    assert {row["name"] for row in winlab.items("list")} >= {LAB_A, LAB_B}


def test_create_again_changes_nothing(labs: Labs, winlab: Winlab) -> None:
    before = traces()
    assert worked(winlab.events("create", *labs.spec_a, "--lab", LAB_A)) == {}
    assert added(before, traces(), LAB_A) == []


def test_another_spec_is_refused(labs: Labs, winlab: Winlab) -> None:
    done = winlab("create", *labs.spec_a, "--lab", LAB_A, "--set", "workers.cpus=1")
    assert done.returncode == 6
    assert "winlab destroy --lab it-a" in done.stderr


@pytest.fixture(scope="session")
def controller(labs: Labs) -> dict[str, str]:
    """The first lab's controller's report about itself and its neighbour."""
    return ask(
        labs.a,
        "controller-1",
        erms="grep -c -w erms /proc/cpuinfo",
        name="hostname -f",
        address="ip -4 -br addr show eth0",
        link="ip link show eth0",
        short="getent ahostsv4 node-1",
        long="getent ahostsv4 node-1.it-a.winlab.internal",
        itself="getent ahostsv4 controller-1",  # a node knows its own real address by its name
        ping="ping -c 2 -W 5 node-1",
        identity="cat /etc/machine-id",
    )


@pytest.fixture(scope="session")
def worker(labs: Labs) -> dict[str, str]:
    """The same of its worker."""
    return ask(
        labs.a,
        "node-1",
        name="hostname",
        addresses="ipconfig /all",
        short="nslookup controller-1",
        long="nslookup controller-1.it-a.winlab.internal",
        ping="ping -n 2 controller-1",
        own="type C:\\winlab-it\\own.txt",
        programs="dir /b C:\\k",
        # a simulated script would refuse this
        kubelet='powershell.exe -NoProfile -Command "(Get-Service -Name kubelet).Status"',
    )


def test_an_emulated_cpu_has_nothing_that_slows_it_down(controller: dict[str, str]) -> None:
    assert controller["erms"].strip() == "0" or read_facts().accelerator == "kvm"


@pytest.mark.parametrize("node", ["controller-1", "node-1"])
def test_exec_passes_streams_and_exit_code(labs: Labs, node: str) -> None:
    command = {"controller-1": "echo out; echo err >&2; exit 7", "node-1": "echo out& echo err 1>&2& exit 7"}[node]
    done = labs.a("exec", node, "--", command)
    assert (done.returncode, done.stdout.split(), done.stderr.split()) == (7, ["out"], ["err"])


def test_windows_by_winrm_and_by_ssh(labs: Labs) -> None:
    for via in ("winrm", "ssh"):
        name, version = text(labs.a("exec", "node-1", "--via", via, "--", "hostname& ver")).strip().split(maxsplit=1)
        assert name == "NODE-1"
        assert "10.0.20348" in version


def test_an_unresponsive_winrm_and_the_agent(labs: Labs) -> None:
    """WinRM is stopped: the logs come by ssh. And QEMU's guest agent runs commands, with no network at all."""
    assert "stopped successfully" in text(labs.a("exec", "node-1", "--via", "ssh", "--", "net stop winrm"))
    try:
        done = labs.a("logs", "node-1", "--lines", "1")
        code, told = _by_agent("node-1", "type C:\\winlab\\ready.txt & exit 3")
    finally:
        started = labs.a("exec", "node-1", "--via", "ssh", "--", "net start winrm")
    assert "What is above came by ssh." in done.stdout, done.stderr
    assert (code, told.strip()) == (3, b"node-1")  # the author of the file decides how a line ends
    assert "started successfully" in text(started)
    assert text(labs.a("exec", "node-1", "--", "hostname")).strip() == "NODE-1"


def _by_agent(node: str, line: str) -> tuple[int, bytes]:
    with Site().hypervisors() as hosts:
        machine = find_node(LAB_A, node, hosts)
        code, out, _ = agent.execute(hosts.on(machine).conn, machine, ["cmd.exe", "/c", line])
    return code, out


def test_ssh_command_uses_the_planned_host_keys(labs: Labs) -> None:
    # without a terminal ssh reads the session's commands from the standard input, which is empty here
    done = labs.a("ssh", "controller-1")
    assert done.returncode == 0, done.stderr
    assert "Permanently added" not in done.stderr


def test_a_node_is_known_by_its_name(labs: Labs, state: Path) -> None:
    hosts = state / "labs" / LAB_A / "known_hosts"
    kept = hosts.read_text()
    hosts.write_text("".join(f"{line.split(',', 1)[1]}\n" for line in kept.splitlines()))
    try:
        for words in (["ssh", "controller-1"], ["exec", "controller-1", "--", "true"]):
            done = labs.a(*words)
            assert done.returncode == 0, done.stderr
    finally:
        hosts.write_text(kept)


def test_wrong_host_key_is_refused(labs: Labs, winlab: Winlab, state: Path) -> None:
    hosts = state / "labs" / LAB_A / "known_hosts"
    kept = hosts.read_text()
    lines = kept.splitlines()
    keys = [line.split()[1:] for line in lines]
    swapped = [" ".join([line.split()[0], *key]) for line, key in zip(lines, reversed(keys), strict=True)]
    hosts.write_text("\n".join(swapped) + "\n")
    try:
        done = labs.a("exec", "controller-1", "--", "true")
    finally:
        hosts.write_text(kept)
    assert done.returncode == 9
    assert "is not 'controller-1'" in done.stderr


def test_wrong_certificate_is_refused(labs: Labs, state: Path) -> None:
    """The node's certificate against the CA of another lab."""
    from winlab.design import spec
    from winlab.design.plan import credentials
    from winlab.design.plan import make as plan
    from winlab.host.facts import read_facts
    from winlab.supply.images import stock

    authority = state / "labs" / LAB_A / "ca.pem"
    kept = authority.read_text()
    wanted = spec.load("1-0-1")
    other = credentials.generate(plan.make(wanted, "other", read_facts(), stock.take(wanted)))
    authority.write_text(other.ca_certificate)
    try:
        done = labs.a("exec", "node-1", "--", "hostname")
    finally:
        authority.write_text(kept)
    assert done.returncode == 9
    assert "is not 'node-1'" in done.stderr


def test_names_and_addresses(controller: dict[str, str], worker: dict[str, str]) -> None:
    assert controller["name"].strip() == "controller-1.it-a.winlab.internal"
    assert "10.77.0.11/24" in controller["address"]
    assert "mtu 1500" in controller["link"]
    assert worker["name"].strip() == "NODE-1"
    assert "10.77.0.101" in worker["addresses"]
    assert "10.77.0.1" in worker["addresses"].split()


def test_dns_between_the_nodes(controller: dict[str, str], worker: dict[str, str]) -> None:
    for name in ("short", "long"):
        assert controller[name].startswith("10.77.0.101 ")
        assert "10.77.0.11" in worker[name]
    assert controller["itself"].startswith("10.77.0.11 ")


def test_ping_both_ways(controller: dict[str, str], worker: dict[str, str]) -> None:
    assert " 0% packet loss" in controller["ping"]
    assert "Reply from 10.77.0.11" in worker["ping"]


def test_labs_with_equal_addresses_are_apart(labs: Labs, controller: dict[str, str]) -> None:
    # 10.77.0.101 is node-1 in the one lab, and unused in the other
    other = ask(
        labs.b,
        "controller-1",
        identity="cat /etc/machine-id",
        ping="ping -c 1 -W 2 10.77.0.101; echo code $?",
        name="getent ahostsv4 node-1; echo code $?",
    )
    assert other["identity"] != controller["identity"]
    # the programs' own codes for "nobody": winlab has others for a guest that it can't reach
    assert other["ping"].endswith("code 1")
    assert other["name"].endswith("code 2")


@pytest.fixture
def outside() -> Iterator[str]:
    """A test host beyond the host, in a network namespace: 198.51.100.2 (for documentation), with a web server."""
    name = "winlab-it-outside"

    def ip(*args: str) -> None:
        subprocess.run(["ip", *args], check=True)

    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    ip("netns", "add", name)
    try:
        ip("link", "add", "wl-it-out", "type", "veth", "peer", "name", "wl-it-in", "netns", name)
        ip("addr", "add", "198.51.100.1/24", "dev", "wl-it-out")
        ip("link", "set", "wl-it-out", "up")
        ip("-n", name, "addr", "add", "198.51.100.2/24", "dev", "wl-it-in")
        ip("-n", name, "link", "set", "wl-it-in", "up")
        ip("-n", name, "link", "set", "lo", "up")
        server = subprocess.Popen(
            ["ip", "netns", "exec", name, "python3", "-u", str(Path(__file__).parent / "whoami_server.py")],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            yield "http://198.51.100.2:8000/"
        finally:
            server.terminate()
            server.wait()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
        subprocess.run(["ip", "link", "del", "wl-it-out"], capture_output=True, check=False)


@pytest.mark.parametrize("node", ["controller-1", "node-1"])
def test_nat_to_the_outside(labs: Labs, outside: str, node: str) -> None:
    """TCP out of both guests; beyond the host they have the host's own address. There is no route back to them."""
    program = "curl.exe" if node == "node-1" else "curl"
    assert text(labs.a("exec", node, "--", f"{program} -s -m 60 {outside}")).strip() == "198.51.100.1"


def test_an_interrupted_create_is_resumed(second: Second) -> None:
    """Ctrl-C came when the machine had just been started; the same command, run again, found it running."""
    assert second.interrupted == 130
    kinds = [event["event"] for event in second.journal if event.get("step") == "start controller-1"]
    ends = [kind for kind in kinds if kind not in ("StepChecking", "StepProgress")]
    done = ends.index("StepDone")
    assert set(ends[:done]) == {"StepStarted"}  # one more time than it was killed there
    assert set(ends[done + 1 :]) == {"StepSkipped"}


def test_member_without_root_has_a_lab(labs: Labs, member: Winlab) -> None:
    assert "all nodes answer" in labs.second.printed
    assert text(labs.b("exec", "controller-1", "--", "echo", "hello")).strip() == "hello"
    # but no credentials of root's lab
    done = member("exec", "--lab", LAB_A, "controller-1", "--", "true")
    assert done.returncode == 5
    assert "not in this account" in done.stderr


def test_screen(labs: Labs, tmp_path: Path) -> None:
    path = tmp_path / "screen.png"
    text(labs.a("screenshot", "node-1", str(path)))
    image = path.read_bytes()
    assert image.startswith(b"\x89PNG")
    assert struct.unpack(">II", image[16:24]) >= (640, 400)
    shown = text(labs.a("vnc", "node-1", "--print"))
    address, port = shown.split("vnc://")[1].split()[0].rsplit(":", 1)
    assert address == "127.0.0.1"
    with socket.create_connection((address, int(port)), timeout=10) as screen:
        assert screen.recv(12).startswith(b"RFB 003.")
        screen.sendall(b"RFB 003.008\n")
        count = screen.recv(1)[0]
        assert set(screen.recv(count)) == {2}  # VNC authentication, and nothing weaker


def test_screen_and_lab_in_the_browser(labs: Labs, winlab: Winlab, tmp_path: Path) -> None:
    """With a fake lab, test_screens.py also types, and makes a copy by a click."""
    for words, shown in (
        (("vnc", "node-1", "--web", "--lab", LAB_A), "document.querySelector('#screen canvas')?.width >= 640"),
        (("ui",), "document.querySelector('.node img')?.naturalWidth > 300"),
    ):
        serving = winlab.start(*words)
        with serving, browser(tmp_path / words[0]) as page:
            assert serving.stdout is not None
            page.open(serving.stdout.readline().split(": ", 1)[1].strip())
            page.wait(shown)
            assert page.errors == []
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=60)
        assert serving.returncode == 0
    assert "node-1" in text(labs.a("graph"))


def test_serial_log_shows_the_phases(labs: Labs) -> None:
    log = text(labs.a("serial", "node-1", "--log"))
    order = [log.index(f"winlab: phase={phase}") for phase in ("specialize", "firstLogon", "ready")]
    assert order == sorted(order)
    assert "winlab: phase=ready" in text(labs.a("serial", "controller-1", "--log"))


@pytest.mark.usefixtures("engine")
def test_winlab_s_scripts_are_run_by_powershell(labs: Labs, worker: dict[str, str]) -> None:
    """No part of a worker's life was simulated: the golden image, its clone, and everything over WinRM."""
    assert "PowerShell scripts are run by the PowerShell engine" in labs.said_a
    assert "winlab's scripts are run by a PowerShell engine" in text(labs.a("serial", "node-1", "--log"))
    assert worker["kubelet"].strip() == "Running"


def test_the_worker_is_a_clone(labs: Labs, golden: Golden, worker: dict[str, str]) -> None:
    """It was never installed, has what the image has, and answers by its own name with its own keys. No installation
    medium is left in it, which would stop a Windows that comes out of sysprep."""

    def info(path: Path) -> dict[str, object]:
        words = ["qemu-img", "info", "--force-share", "--output=json", str(path)]
        found: dict[str, object] = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
        return found

    backing = str(info(Path(f"/var/lib/winlab/pool/{LAB_A}.node-1.disk.qcow2"))["backing-filename"])
    assert "-golden-" in backing
    assert "backing-filename" not in info(Path(backing))
    subprocess.run(["qemu-img", "check", "-q", "--force-share", backing], check=True)
    assert "windowsPE" not in text(labs.a("serial", "node-1", "--log"))
    words = ["virsh", "domblklist", f"winlab-{LAB_A}.node-1"]
    drives = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "base-windows" not in drives
    assert "media" not in drives
    assert worker["name"].strip() == "NODE-1"
    assert worker["own"].strip() == golden.own
    assert "kubelet.exe" in worker["programs"]


def test_media_are_untouched(labs: Labs, scripted: Winlab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ISO in the pool is the one in the cache, byte for byte; the redirect was in the overlay."""
    from winlab.design.catalog import recipes
    from winlab.supply.images import cache
    from winlab.supply.media import windows_iso

    monkeypatch.setenv("WINLAB_POWERSHELL", scripted.env.get("WINLAB_POWERSHELL", ""))  # as when the lab was made
    image = cache.lookup(recipes.get("windows-rehearsal"))
    assert image is not None
    # of this very image: older ones may be there
    base = Path(f"/var/lib/winlab/pool/base-windows-rehearsal-{image.key[:16]}.iso")
    assert subprocess.run(["cmp", image.path, base], check=False).returncode == 0
    assert len(windows_iso.no_prompt_patches(base)) == 2


def test_the_installation_s_cds_are_gone(labs: Labs) -> None:
    """They were ejected; one of them holds secrets (where else secrets are not: test_secrets_planted.py)."""
    left = {path.name: path for path in Path("/var/lib/winlab/pool").glob("it-a.*")}
    assert left["it-a.controller-1.seed.iso"].stat().st_mode & 0o077 == 0
    assert not [name for name in left if "answer" in name or "media" in name]


def test_a_restart_of_the_lab_is_survived(labs: Labs) -> None:
    """Both nodes are switched off and on: another boot, the same addresses and names, Ready by a new report."""
    booted = text(labs.a("exec", "node-1", "--", "type C:\\winlab\\ready.txt"))
    starts = {node: _starts(labs, node) for node in ("node-1", "controller-1")}
    before = answering(labs.a)
    began = time.time()
    text(labs.a("restart"))
    assert min(_reported(labs).values()) >= began
    assert all(_starts(labs, node) > count for node, count in starts.items())
    after = answering(labs.a)
    assert [(row["address"], row["external"]) for row in after] == [(row["address"], row["external"]) for row in before]
    assert "10.77.0.11/24" in text(labs.a("exec", "controller-1", "--", "ip -4 -br addr show eth0"))
    again = text(labs.a("exec", "node-1", "--", "type C:\\winlab\\ready.txt"))
    assert again == booted, evidence(labs, "node-1")
    log = text(labs.a("serial", "node-1", "--log"))
    assert log.count("winlab: phase=firstLogon") == 1  # a second boot is not a second installation


@pytest.mark.slow  # two minutes; a reset corrects clocks in the same way
def test_a_suspended_node_is_resumed_with_the_right_time(labs: Labs) -> None:
    """Its clock stood still while it was suspended. What runs in it is the same as before.

    A clock counts as right while it is less behind than PowerShell takes to start and answer.
    """
    starts = _starts(labs, "node-1")
    assert text(labs.a("suspend", "node-1")).startswith("node-1: suspended")
    suspended = time.monotonic()
    asked = labs.a("exec", "node-1", "--", "hostname")
    assert asked.returncode == 9
    assert "winlab resume node-1 --lab it-a" in asked.stderr
    assert labs.a("status").returncode == 20
    time.sleep(max(0.0, suspended + STOOD_STILL - time.monotonic()))
    printed = text(labs.a("resume", "node-1", "--output", "json"))
    resumed = results.item(printed)
    assert (resumed["before"], resumed["state"]) == ("suspended", "running")
    assert resumed["clock"] > 2, printed
    assert _starts(labs, "node-1") == starts
    _reported(labs)


def _reported(labs: Labs) -> dict[str, float]:
    """When each node last reported whether it is Ready, by its own clock; all must be."""
    said = {}
    for name, node in nodes(labs).items():
        assert is_ready(node), evidence(labs, name)
        (row,) = [row for row in node["status"]["conditions"] if row["type"] == "Ready"]
        said[name] = datetime.fromisoformat(row["lastHeartbeatTime"]).timestamp()
    return said


def _starts(labs: Labs, node: str) -> int:
    """How often the firmware has started a node, by what it said on the serial port."""
    return text(labs.a("serial", node, "--log")).count("BdsDxe: starting ")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ssh", "--lab", "it-a", ""], {"controller-1", "node-1"}),
        (["status", "--lab", "it-"], {LAB_A, LAB_B}),
        (["plan", "--spec", "3"], {"3-2-1"}),
        (["plan", "--os", "windows-20"], {"windows-2019", "windows-2022", "windows-2025"}),
    ],
)
def test_completion_offers_names(labs: Labs, winlab: Winlab, words: list[str], offered: set[str]) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("winlab")],
        env={
            **os.environ,
            **winlab.env,
            "_WINLAB_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["winlab", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert offered <= set(done.stdout.split())


def test_another_account_is_refused_at_once(labs: Labs, member: Winlab) -> None:
    create = ("create", *labs.spec_a, "--lab", LAB_A)
    for words in (create, ("suspend", "--lab", LAB_A), ("destroy", "--lab", LAB_A)):
        done = member(*words)
        assert (done.returncode, "--anyone" in done.stderr) == (6, True)
    done = member(*create, "--anyone")
    assert done.returncode == 6
    assert "this account has no credentials" in done.stderr
    assert "--lab NAME" in done.stderr


@pytest.mark.ends_labs
def test_destroy_leaves_the_host_as_it_was(labs: Labs, winlab: Winlab, member: Winlab, state: Path) -> None:
    """The last test that uses them: it destroys both labs. One of them loses its secrets first."""
    folder = state / "labs" / LAB_A
    shutil.rmtree(folder)  # pictures of screens may be in it, where a machine was slow
    folder.mkdir(mode=0o700)
    winlab.ok("destroy", "--lab", LAB_A)
    assert "There is no lab" in winlab.ok("destroy", "--lab", LAB_A)
    found = {row["name"] for row in winlab.items("list")}
    assert LAB_A not in found
    assert LAB_B in found
    assert text(labs.b("exec", "controller-1", "--", "echo", "still here")).strip() == "still here"
    member.ok("destroy", "--lab", LAB_B)
    after = traces()
    assert added(labs.second.before, after, LAB_A) == added(labs.second.before, after, LAB_B) == []
