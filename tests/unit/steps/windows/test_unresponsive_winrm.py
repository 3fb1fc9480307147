"""WinRM stops responding during create: winlab reports it and falls back to ssh, or the agent says why not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import runs
from windows_ways import Agent, Windows

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import crash, display, domains, first_boot
from winlab.adapters.vm.crash import Crash
from winlab.design.plan import tags
from winlab.engine.run import Run
from winlab.errors import GuestError, StalledError
from winlab.events import Event, NodeCrashed, NodeTransport, StepProgress, Told
from winlab.lab_folder import LabFolder
from winlab.steps import boot, evidence, screens, serial, unheard
from winlab.steps.windows import node as windows_node


class Lab:
    """A node whose steps run over real logins to a fake Windows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
        monkeypatch.setenv("WINLAB_STATE", str(state))
        self.clock = runs.clock(monkeypatch, screens, serial, unheard, boot)
        self.windows = Windows(monkeypatch, self.clock)
        self.agent = Agent(monkeypatch, self.windows)
        monkeypatch.setattr(domains, "state", lambda *_: "running")
        monkeypatch.setattr(display, "look", lambda *_: b"")
        monkeypatch.setattr(first_boot, "is_marked", lambda *_: False)
        monkeypatch.setattr(domains, "written_bytes", lambda *_: 0)
        monkeypatch.setattr(crash, "read", lambda *_: None)
        monkeypatch.setattr(evidence, "keep", lambda *_: None)
        self.plan = plans.make(plans.KVM, "1-1-1")
        self.folder = LabFolder("lab")
        self.folder.make()
        self.heard: list[Event] = []

    def run(self, pool: Any = None) -> Run:
        return runs.run(
            self.plan,
            pool=pool,
            folder=self.folder,
            guests=lambda node: NodeScripts(tags.of(self.plan, node), self.folder, 1.0),
        )

    def step(self, title: str) -> None:
        steps = windows_node.steps(self.run(), self.plan.node("node-1"))
        runs.titled(steps, title).run(Told(self.heard.append, title))

    def boot(self) -> None:
        said = b"winlab: phase=ready\r\n"
        pool = SimpleNamespace(exists=lambda _: True, download=lambda _, offset=0, most=0: said[offset:])
        boot.step(self.run(pool), self.plan.node("node-1"), None).run(Told(self.heard.append, "boot node-1"))

    @property
    def ways(self) -> list[tuple[str, str]]:
        return [(one.transport, one.sign) for one in self.heard if isinstance(one, NodeTransport)]

    def ran(self, script: str) -> list[str]:
        return [way for way, one in self.windows.ran if one == script]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    return Lab(monkeypatch, tmp_path)


def test_the_script_is_run_again_over_ssh_and_later_steps_use_it(lab: Lab) -> None:
    lab.windows.cut = {"containerd"}
    begun = lab.clock.now
    lab.step("containerd node-1")
    assert lab.ran("containerd") == ["winrm", "ssh"]
    assert lab.ways == [("ssh", "ssh")]
    assert 120 <= lab.clock.now - begun < 180
    begun = lab.clock.now
    lab.step("binaries node-1")
    assert lab.ran("binaries") == ["ssh"]
    assert lab.clock.now - begun < 10
    assert lab.ways == [("ssh", "ssh")]


def test_winrm_is_used_again_when_it_answers(lab: Lab) -> None:
    lab.windows.cut = {"containerd"}
    lab.step("containerd node-1")
    lab.windows.deaf = set()
    lab.step("binaries node-1")
    assert lab.ran("binaries") == ["winrm"]
    assert lab.ways == [("ssh", "ssh"), ("winrm", "")]


def test_a_brief_outage_is_not_a_failure(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that is remade: the connection is back after some seconds."""
    lab.windows.cut = {"containerd"}
    slept: list[float] = []

    def sleeping() -> None:
        slept.append(lab.clock.now)
        if len(slept) == 3:
            lab.windows.deaf = set()

    lab.clock.sleeping = sleeping
    lab.step("containerd node-1")
    assert lab.ran("containerd") == ["winrm", "winrm"]
    assert lab.ways == []


def test_an_unreachable_node_is_reported_with_the_words_of_its_agent(lab: Lab) -> None:
    lab.windows.cut, lab.windows.deaf = {"containerd"}, {"ssh"}
    with pytest.raises(StalledError):
        lab.step("containerd node-1")
    assert lab.ways == [("", "agent")]
    kept = {path.name: path.read_text() for path in (lab.folder.path / "evidence/node-1").iterdir()}
    assert kept.keys() >= {"agent-kubelet.log", "agent-network.log", "agent-firewall.log"}
    assert not any("evil" in name for name in kept)
    assert lab.ran("logs") == ["agent"]


def test_without_an_agent_the_serial_port_shows_life(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.windows.cut, lab.windows.deaf = {"containerd"}, {"ssh"}
    lab.agent.is_there = False

    def read(log: Any) -> None:
        log.beacon = "WinRM=Stopped"

    monkeypatch.setattr(serial.SerialLog, "read", read)
    with pytest.raises(StalledError, match="no sign of life") as caught:
        lab.step("containerd node-1")
    assert "answers neither WinRM nor ssh" in caught.value.why
    assert lab.ways == [("", "WinRM=Stopped")]


def test_a_node_that_is_down_is_not_called_unresponsive(lab: Lab) -> None:
    lab.windows.cut, lab.windows.deaf = {"containerd"}, {"ssh"}
    lab.agent.is_there = False
    with pytest.raises(StalledError):
        lab.step("containerd node-1")
    assert lab.ways == []


def test_a_bugcheck_in_the_middle_of_a_script_ends_the_wait(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.windows.cut, lab.windows.deaf = {"containerd"}, {"ssh"}
    monkeypatch.setattr(crash, "read", lambda *_: Crash(0x139, (3, 0, 0, 0)))
    begun = lab.clock.now
    with pytest.raises(GuestError, match="0x00000139 KERNEL_SECURITY_CHECK_FAILURE"):
        lab.step("containerd node-1")
    assert lab.clock.now - begun < 10
    assert [one.code for one in lab.heard if isinstance(one, NodeCrashed)] == ["0x00000139"]


def test_the_screens_of_a_long_wait_are_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.windows.cut, lab.windows.deaf = {"containerd"}, {"ssh"}
    looks: list[float] = []
    monkeypatch.setattr(display, "look", lambda *_: looks.append(lab.clock.now) or b"P6\n4 2\n255\n" + bytes(24))
    with pytest.raises(StalledError):
        lab.step("containerd node-1")
    assert len(list(screens.folder(lab.folder, "node-1").iterdir())) == 1  # it never changed
    assert 14 <= len(looks) <= 16  # one a minute


def test_the_first_boot_completes_over_ssh_if_winrm_never_answers(lab: Lab) -> None:
    lab.windows.deaf = {"winrm"}
    lab.boot()
    assert lab.ways == [("ssh", "ssh")]


def test_an_unreachable_first_boot_is_reported_with_the_words_of_its_agent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.windows.deaf = {"winrm", "ssh"}
    monkeypatch.setattr(evidence, "collect", lambda *_: (Path("evidence"), []))
    with pytest.raises(StalledError, match="no sign of life"):
        lab.boot()
    assert lab.ways == [("", "agent")]
    assert (lab.folder.path / "evidence/node-1/agent-bootstrap.log").is_file()


def test_every_step_reports_its_retries(lab: Lab) -> None:
    lab.windows.cut = {"containerd"}
    lab.step("containerd node-1")
    assert any(isinstance(one, StepProgress) and "is run again (2/3)" in one.text for one in lab.heard)
