"""A call that fails in the middle of a script: it is reported, and the next run ends like one without a failure.

Each command that a script asks Windows for fails once, the first and the last time it is called.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from powershell.cases import CNI, COMMAND, CONFIG, FEATURES, GIVEN, JOIN, LOGINS, MEMBER, PROXY, ROUTES, done, image
from powershell.conftest import SCRIPTS
from powershell.doubles.looks import look
from powershell.doubles.machine import Machine, Told
from powershell.doubles.session import Session
from powershell.stages import (
    NET,
    asking,
    change,
    contained,
    featured,
    installed,
    joined,
    listening,
    payload,
    proxied,
    ready,
    write,
)

# What asks Windows for something, or changes it
CALLS = (
    *("New-Item", "Move-Item", "Remove-Item", "Copy-Item", "Set-ItemProperty", "Remove-ItemProperty", "Set-Acl"),
    *("New-Service", "Set-Service", "Start-Service", "Stop-Service", "Get-CimInstance", "Invoke-CimMethod"),
    *(
        "Install-WindowsFeature",
        "Get-WindowsFeature",
        "Install-RemoteAccess",
        "Add-MpPreference",
        "New-NetFirewallRule",
    ),
    *("Register-ScheduledTask", "Start-ScheduledTask", "Unregister-ScheduledTask", "Get-HnsNetwork", "Get-HnsEndpoint"),
    *("Get-HnsPolicyList", "Remove-HnsPolicyList"),
    *("Get-FileHash", "Set-Date", "Optimize-Volume", "netsh.exe", "sc.exe", "ctr.exe", "tar.exe"),
    *("Restart-Service", "Import-PfxCertificate", "Set-WSManInstance", "Set-LocalUser"),
    *("kubeadm.exe", "containerd.exe", "route.exe", "dism.exe"),
)


# What is only cleaned up
HARMLESS = ("Remove-Item",)


@dataclasses.dataclass
class Case:
    """A script on a node with work for it; calls that may fail without harm."""

    script: str
    stage: Callable[[Machine], None]
    settings: object
    harmless: tuple[str, ...] = ()
    then: tuple[tuple[str, object], ...] = ()  # what winlab runs after it anyway


def with_image(node: Machine) -> None:
    contained(node)
    image(node.d / "images/pause.tar", "registry.k8s.io/pause:3.10")


def with_new_programs(node: Machine) -> None:
    """What runs must be stopped for them, and started again."""
    proxied(node)
    payload(node, "kube-log-runner.exe", "# another")
    payload(node, "win-bridge.exe", "# another", "cni")


def with_new_kubeconfig(node: Machine) -> None:
    proxied(node)
    node.path(r"C:\var\lib\kube-proxy\kubeconfig").unlink()


def with_a_network_made_anew(node: Machine) -> None:
    proxied(node)
    change(node, networks=[{**NET, "ID": "networks-2"}])


def with_push(node: Machine) -> None:
    proxied(node)
    node.program(node.d / "push/kube-log-runner.exe", "# another")


def with_updates(node: Machine) -> None:
    change(node, updates=["one"])


def with_given(node: Machine) -> None:
    """Of what an earlier run has written, one thing stays, and two go."""
    write(node, r"C:\ProgramData\old.txt", "old")
    node.registry(r"HKLM\SOFTWARE\motd", "old", 1)
    rows = [{"key": r"HKLM\SOFTWARE\motd", "name": "old"}]
    write(node, r"C:\winlab\given.json", json.dumps({"files": [r"C:\ProgramData\old.txt"], "registry": rows}))


CASES = [
    Case("features", lambda node: None, FEATURES, ("Add-MpPreference", "Stop-Service")),
    # whether containerd answers is asked again and again
    Case("containerd", featured, CONFIG, ("ctr.exe",)),
    Case("load", with_image, None),
    Case("binaries", with_new_programs, None, then=(("join", JOIN), ("proxy", PROXY))),
    Case("configure", with_given, GIVEN),
    Case("kubelet", installed, COMMAND),
    Case("join", ready, JOIN),
    Case("member", asking, MEMBER),
    Case("cni", joined, CNI),
    Case("routes", joined, {"routes": ROUTES}),
    # its start is only tried
    Case("proxy", with_new_kubeconfig, PROXY, ("Start-Service",)),
    Case("proxy", with_a_network_made_anew, PROXY, ("Start-Service",)),
    Case("push", with_push, {"program": "kube-log-runner.exe"}),
    Case("logins", listening, LOGINS),
    Case("updates", with_updates, None),
    Case("faults", lambda node: None, {"skew": 3600, "free": 1_000_000_000, "now": int(time.time())}),
]  # fmt: skip


@pytest.fixture
def fresh(engine: Path, session: Session, tmp_path: Path) -> Callable[[], Machine]:
    """A fresh node each time."""
    numbers: Iterator[int] = iter(range(1000))

    def make() -> Machine:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return Machine(folder, engine, SCRIPTS, session=session).__enter__()

    return make


def settle(node: Machine, case: Case) -> Told:
    """Run it as winlab does: again after each restart that it asks for."""
    for _ in range(3):
        told = node.run(case.script, case.settings)
        assert told.code == 0, (told.out, told.err)
        if not (told.result and told.result.get("restart")) or case.script == "updates":
            break
        node.restart()
    for script, settings in case.then:
        done(node.run(script, settings))
    return told


def left(node: Machine) -> dict[str, str]:
    """What is there, without the logs, which mention failures, old programs, which go when they can, and the volatile
    keys with names of their own, which go with the next start.
    """
    own = r"HKLM\SOFTWARE\winlab-importing-"
    found = {name: text for name, text in look(node).items() if not name.endswith((".log", ".winlab-old"))}
    return {name: text for name, text in found.items() if not name.startswith(own)}


@pytest.mark.slow  # minutes for each script: each call fails in turn
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_a_second_run_repairs_it(fresh: Callable[[], Machine], case: Case) -> None:
    whole = fresh()
    case.stage(whole)
    first = whole.run(case.script, case.settings, watch=CALLS)
    assert first.code == 0, first.err
    if first.result.get("restart") and case.script != "updates":
        whole.restart()
        settle(whole, case)
    for script, settings in case.then:
        done(whole.run(script, settings))
    wanted = left(whole)
    tried = 0
    for command in dict.fromkeys(first.calls):
        for at in {1, first.calls.count(command)}:
            node = fresh()
            case.stage(node)
            told = node.run(case.script, case.settings, fail=(command, at))
            said = f"{command}, call {at}"
            if told.code == 0:
                assert command in (*case.harmless, *HARMLESS), said
            else:
                assert (told.code, told.result) == (1, None), said
                assert "on purpose" in "\n".join([*told.err, *told.out]) or "exit code 77" in told.err[0], (
                    said,
                    told.err,
                )
            if told.result and told.result.get("restart") and case.script != "updates":
                node.restart()
            settle(node, case)
            there = left(node)
            differing = {name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)}
            assert not differing, said
            tried += 1
    assert tried >= 3
