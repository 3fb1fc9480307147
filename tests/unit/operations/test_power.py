"""stop, start, restart, suspend, resume, autostart: what is switched, in which order, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import example
import pytest
import results
from commands import run as winlab
from lab_fakes import Api
from switched import NOW, Played, lab

from winlab import Lab
from winlab.adapters.kube import expiry, kubeconfig
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains, pushed, resources
from winlab.adapters.vm import faults as faults_of_vm
from winlab.adapters.vm.pushed import Pushed
from winlab.design import fault
from winlab.errors import ClusterError, GuestError, HostError, NotFoundError, OffError
from winlab.events import Event, Note, StepDone
from winlab.host import daemons, firewall, units
from winlab.lab_folder import LabFolder
from winlab.operations import autostart, look, power, reach
from winlab.site import Site
from winlab.steps.power import clock

NODES = ["controller-1", "node-1"]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    with lab(monkeypatch) as made:
        monkeypatch.setattr("winlab.operations.faults.report", lambda *_: None)
        monkeypatch.setattr(firewall, "trouble", lambda: "")
        monkeypatch.setattr(Site, "hypervisors", lambda *_: nullcontext(made.lab.hypervisors))
        monkeypatch.setattr(power, "time", SimpleNamespace(time=lambda: NOW))
        LabFolder("lab").make()
        monkeypatch.setattr(LabFolder, "credentials", lambda _: None)
        monkeypatch.setattr(resources, "free_memory_mib", lambda _: 1 << 20)
        yield made


class Ear:
    """A listener that remembers the steps that did something, and the notes."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.notes: list[str] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self.done.append(event.step)
        elif isinstance(event, Note):
            self.notes.append(event.text)


def states(played: Played) -> list[str]:
    return [one.state for one in domains.machines(played.conn, "lab")]


def cluster(monkeypatch: pytest.MonkeyPatch, expires: float = NOW + 1e7) -> Api:
    """A cluster that this account can use, whose nodes are always Ready by a new report."""
    when = datetime.fromtimestamp(NOW + 60, UTC).isoformat()
    row = {"type": "Ready", "status": "True", "lastHeartbeatTime": when}
    node = {"status": {"conditions": [row]}}
    api = Api({"get node": node, "get lease": {"spec": {"renewTime": when}}})
    monkeypatch.setattr(Kubectl, "of", lambda _: api)
    monkeypatch.setattr(kubeconfig, "read", lambda _: "")
    monkeypatch.setattr(expiry, "of", lambda _: datetime.fromtimestamp(expires, UTC))
    return api


def test_workers_stop_before_controllers_and_start_after_them(played: Played) -> None:
    ear = Ear()
    switched = power.stop("lab", Site(), (), ear)
    assert ear.done == ["stop node-1", "stop controller-1"]
    assert [(one.node, one.before, one.state) for one in switched] == [(node, "running", "off") for node in NODES]
    ear = Ear()
    power.start("lab", Site(), (), ear)
    assert [step for step in ear.done if step.startswith("start")] == ["start controller-1", "start node-1"]
    assert states(played) == ["running", "running"]


def test_nothing_resumes_while_the_firewall_is_flushed(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewall, "trouble", lambda: "is missing")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    power.stop("lab", Site(), (), Ear())
    for verb in (power.start, power.restart, power.resume):
        with pytest.raises(HostError, match="is missing"):
            verb("lab", Site(), (), Ear())
    assert states(played) == ["off", "off"]
    restored: list[object] = []
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(firewall, "restore", restored.append)
    power.start("lab", Site(), (), Ear())
    assert len(restored) == 1
    assert states(played) == ["running", "running"]


def test_machines_already_in_the_requested_state_are_skipped(played: Played) -> None:
    power.stop("lab", Site(), ["node-1"], Ear())
    before, ear = list(played.log), Ear()
    power.stop("lab", Site(), ["node-1"], ear)
    assert ear.done == []
    assert played.log == before
    power.start("lab", Site(), ["controller-1"], ear)
    assert ear.done == []


def test_actions_are_in_the_journal(played: Played) -> None:
    power.stop("lab", Site(), (), Ear())
    lines = [json.loads(line) for line in LabFolder("lab").journal.read_text().splitlines()]
    assert [one["event"] for one in lines if one["event"] not in ("StepChecking", "StepProgress")] == [
        "RunStarted", "StepStarted", "StepDone", "StepStarted", "StepDone", "RunEnded",
    ]  # fmt: skip


def test_another_accounts_lab_can_be_stopped_and_leaves_no_folder(played: Played) -> None:
    played.problem = lambda: NotFoundError("its credentials are not in this account")
    LabFolder("lab").path.rmdir()
    power.stop("lab", Site(), (), Ear())
    assert states(played) == ["off", "off"]
    assert not LabFolder("lab").path.exists()


def test_restart_of_a_node_is_a_new_boot(played: Played) -> None:
    boots, ear = played.domain("node-1").ID(), Ear()
    power.restart("lab", Site(), ["node-1"], ear)
    assert ear.done[:2] == ["stop node-1", "start node-1"]
    assert played.domain("node-1").ID() != boots
    assert states(played) == ["running", "running"]


def test_restart_of_a_lab_stops_all_before_it_starts_any(played: Played) -> None:
    ear = Ear()
    power.restart("lab", Site(), (), ear)
    steps = [step for step in ear.done if not step.startswith("log in to")]
    assert steps == ["stop node-1", "stop controller-1", "start controller-1", "start node-1"]


def test_an_interrupted_restart_is_resumed(played: Played) -> None:
    power.stop("lab", Site(), ["node-1"], Ear())
    ear = Ear()
    power.restart("lab", Site(), ["node-1"], ear)
    assert "start node-1" in ear.done
    assert "stop node-1" not in ear.done


def test_suspend_and_resume(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch)
    power.suspend("lab", Site(), (), Ear())
    assert states(played) == ["suspended", "suspended"]
    played.behind = dict.fromkeys(NODES, 7200.0)
    ear = Ear()
    switched = power.resume("lab", Site(), (), ear)
    assert [(one.before, one.state, one.clock) for one in switched] == [("suspended", "running", 7200.0)] * 2
    assert {"ready again controller-1", "ready again node-1"}.isdisjoint(ear.done)  # they were when it looked
    assert ear.notes == []


def test_machines_that_are_off_stay_off(played: Played) -> None:
    power.stop("lab", Site(), ["node-1"], Ear())
    for verb in (power.suspend, power.resume):
        ear = Ear()
        verb("lab", Site(), (), ear)
        assert states(played)[1] == "off"
        assert "Off, and left so: node-1" in ear.notes[0]
        with pytest.raises(GuestError, match="node-1 can't be") as caught:
            verb("lab", Site(), ["node-1"], Ear())
        assert "winlab start node-1 --lab lab" in caught.value.cure


@pytest.mark.parametrize("verb", [power.stop, power.start, power.restart, power.suspend, power.resume])
@pytest.mark.parametrize(("name", "nodes"), [("lab", ["node-1", "node-9"]), ("other", [])])
def test_an_unknown_name_touches_nothing(played: Played, verb: Any, name: str, nodes: Sequence[str]) -> None:
    with pytest.raises(NotFoundError):
        verb(name, Site(), nodes, Ear())
    assert states(played) == ["running", "running"]
    assert played.log == []


def test_memory_is_checked_before_anything_starts(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory_mib", lambda _: 1023)
    power.start("lab", Site(), (), Ear())  # they have theirs
    power.stop("lab", Site(), (), Ear())
    with pytest.raises(HostError, match="need 1024 MiB") as caught:
        power.start("lab", Site(), (), Ear())
    assert "winlab stop --lab NAME" in caught.value.cure
    assert states(played) == ["off", "off"]
    power.start("lab", Site(), ["node-1"], Ear())


def test_start_waits_until_the_nodes_are_ready(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(monkeypatch)
    power.stop("lab", Site(), (), Ear())
    power.start("lab", Site(), (), Ear())
    assert {asked.split()[2] for asked, _ in api.asked} == set(NODES)


def test_nodes_are_not_waited_for_without_a_controller(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(monkeypatch)
    power.stop("lab", Site(), (), Ear())
    ear = Ear()
    power.start("lab", Site(), ["node-1"], ear)
    assert api.asked == []
    assert ear.notes == ["Not waiting until the nodes are Ready: controller-1 must run for that."]


def test_a_missing_kubectl_is_reported(played: Played) -> None:
    folder = LabFolder("lab")
    folder.write(folder.kubeconfig, "there")
    ear = Ear()
    power.start("lab", Site(), ["node-1"], ear)
    assert ear.notes == [
        "Not waiting until the nodes are Ready: kubectl is missing. 'winlab repair --lab lab' obtains it."
    ]


def test_a_fault_that_is_over_is_forgotten_before_the_state_is_the_same_again(played: Played) -> None:
    """The node was killed, and started by a command that was interrupted; then it is shut down in order."""
    conn = played.conn
    kill = fault.make("kill", ("node-1",))
    machine = domains.machines(conn)[-1]
    faults_of_vm.write_records(conn, machine, "lab", [kill.record()])
    power.stop("lab", Site(), ["node-1"], Ear())
    assert faults_of_vm.records(conn, machine) == []


def test_a_crashed_node_is_left_alone(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    real = domains._state
    monkeypatch.setattr(domains, "_state", lambda one: "crashed" if one.name().endswith("node-1") else real(one))
    ear = Ear()
    power.suspend("lab", Site(), (), ear)
    assert ear.done == ["suspend controller-1"]
    assert ear.notes == ["Crashed, and left so: node-1. 'winlab start --lab lab' starts what is crashed."]
    with pytest.raises(GuestError, match="node-1 can't be suspended: crashed") as caught:
        power.suspend("lab", Site(), ["node-1"], Ear())
    assert caught.value.cure == "Start with 'winlab start node-1 --lab lab'."


@pytest.mark.parametrize(("days", "behind", "notes"), [(200, 0.0, 0), (200, 3 * 86400.0, 1), (20, 0.0, 1)])
def test_the_expiry_of_certificates_is_reported(
    played: Played, monkeypatch: pytest.MonkeyPatch, days: float, behind: float, notes: int
) -> None:
    cluster(monkeypatch, NOW + days * 86400 + 60)
    played.behind["node-1"] = behind
    ear = Ear()
    power.start("lab", Site(), (), ear)
    assert len(ear.notes) == notes
    assert all(f"({days} days)" in note for note in ear.notes)


def test_expired_certificates_end_it_instead_of_a_wait(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    api = cluster(monkeypatch, NOW - 1)
    power.stop("lab", Site(), (), Ear())
    with pytest.raises(ClusterError, match="expired on 2027-01-15"):
        power.start("lab", Site(), (), Ear())
    assert api.asked == []
    assert states(played) == ["running", "running"]


@pytest.mark.parametrize(("systemd", "unit"), [(True, True), (True, False), (False, False)])
def test_autostart(played: Played, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, systemd: bool, unit: bool) -> None:
    monkeypatch.setattr(daemons, "has_systemd", lambda: systemd)
    monkeypatch.setattr(units, "UNIT", tmp_path / "winlab-host.service")
    if unit:
        units.UNIT.touch()
    done = autostart.change("lab", Site(), wanted=True)
    assert "The lab starts with the host now." in LabFolder("lab").journal.read_text()
    assert (done.nodes, done.hint == "") == (tuple(NODES), unit)
    assert [one.autostart for one in domains.machines(played.conn, "lab")] == [True, True]
    assert autostart.change("lab", Site(), wanted=False).hint == ""
    assert [one.autostart for one in domains.machines(played.conn, "lab")] == [False, False]


@pytest.mark.parametrize(("state", "verb"), [("off", "start"), ("suspended", "resume"), ("paused", "resume")])
def test_exec_and_ssh_say_what_to_run(played: Played, monkeypatch: pytest.MonkeyPatch, state: str, verb: str) -> None:
    monkeypatch.setattr(domains, "_state", lambda _: state)
    for reaching in (reach.login, reach.ssh):
        with pytest.raises(GuestError, match=f"'node-1' is {state}") as caught:
            reaching("lab", "node-1", Site())
        assert caught.value.cure == f"Run 'winlab {verb} node-1 --lab lab'."


def test_a_node_that_is_off_has_no_screen(played: Played) -> None:
    """As for every other command: exit code 9, and the cure."""
    power.stop("lab", Site(), ["node-1"], Ear())
    with pytest.raises(OffError, match="'node-1' is off") as caught:
        reach.screenshot("lab", "node-1", Site())
    assert caught.value.cure == "Run 'winlab start node-1 --lab lab'."


def test_the_commands(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert winlab(monkeypatch, "stop", "node-1") == 0
    assert capsys.readouterr().out == "node-1: off, was running\n"
    events = tmp_path / "events.jsonl"
    assert winlab(monkeypatch, "stop", "--force", "--output", "json", "--events", str(events)) == 0
    kinds = [one["event"] for one in results.events(events)]
    assert (kinds[0], kinds.index("RunEnded")) == ("RunStarted", len(kinds) - 1)
    assert [(one["name"], one["before"], one["state"]) for one in results.items(capsys.readouterr().out)] == [
        ("controller-1", "running", "off"), ("node-1", "off", "off"),
    ]  # fmt: skip
    played.behind["node-1"] = 60.0
    assert winlab(monkeypatch, "start") == 0
    assert "node-1: running, was off; its clock was set by +60.0 s\n" in capsys.readouterr().out
    assert winlab(monkeypatch, "restart", "node-1") == 0
    assert winlab(monkeypatch, "suspend") == 0
    assert winlab(monkeypatch, "resume") == 0
    capsys.readouterr()
    assert winlab(monkeypatch, "autostart", "on", "--output", "json") == 0
    assert results.item(capsys.readouterr().out)["nodes"] == NODES
    monkeypatch.setattr(look, "connect", played.connect)
    monkeypatch.setattr(Lab, "faults", lambda _: [])
    assert winlab(monkeypatch, "status") == 0
    assert "The lab starts with the host." in capsys.readouterr().out
    played.domain("node-1").setAutostart(0)
    assert winlab(monkeypatch, "stop", "node-1") == 0
    assert winlab(monkeypatch, "status") == 20
    assert "Of its nodes these start with the host: controller-1." in capsys.readouterr().out


def test_status_names_programs_that_the_user_pushed(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ux N8: libvirt keeps the record, so that other accounts see it, too."""
    monkeypatch.setattr(look, "connect", played.connect)
    monkeypatch.setattr(Lab, "faults", lambda _: [])
    node = played.subject("node-1").machine
    own = Pushed("kubelet.exe", "c" * 64, "2026-11-26 12:54 UTC")
    pushed.write(played.conn, node, "lab", [own])
    faults_of_vm.write_records(played.conn, node, "lab", [{"kind": "disk"}])
    assert winlab(monkeypatch, "status") == 0
    assert "node-1: kubelet.exe is your own build (cccccccccccc...), pushed at 2026-11-26" in capsys.readouterr().out
    assert winlab(monkeypatch, "status", "--output", "json") == 0
    rows = {row["name"]: row["pushed"] for row in results.items(capsys.readouterr().out)}
    assert rows == {
        "controller-1": [],
        "node-1": [{"program": "kubelet.exe", "sha256": "c" * 64, "at": "2026-11-26 12:54 UTC"}],
    }
    pushed.write(played.conn, node, "lab", [])
    assert pushed.read(played.conn, node) == []
    assert faults_of_vm.records(played.conn, node) == [{"kind": "disk"}]


def test_strange_records_of_pushed_programs_are_skipped(played: Played) -> None:
    """Anyone who may use libvirt can write them."""
    node = played.subject("node-1").machine
    rows = [1, {"program": "x"}, {"program": "x", "sha256": 1, "at": "y"}, {"program": "x", "sha256": "y", "at": "z"}]
    pushed.RECORDS.write(played.conn, node, "lab", rows)
    assert pushed.read(played.conn, node) == [Pushed("x", "y", "z")]


def test_status_names_a_clock_that_is_wrong(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after the host slept. Windows is not asked: that would start PowerShell."""
    monkeypatch.setattr(look, "connect", played.connect)
    monkeypatch.setattr(Lab, "faults", lambda _: [])
    played.behind = dict.fromkeys(NODES, 7200.0)
    assert winlab(monkeypatch, "status") == 0
    out = capsys.readouterr().out
    assert (
        "controller-1: Its clock is 7200 s behind the host's. 'winlab repair controller-1 --lab lab' sets it.\n" in out
    )
    assert "node-1: Its" not in out
    monkeypatch.setattr(clock, "skew", lambda *_: -7205.0)  # wrong on purpose
    assert look.status("lab", Site())[0].problem == ""
    monkeypatch.setattr(clock, "skew", lambda *_: 3600.0)
    assert "10800 s behind" in look.status("lab", Site())[0].problem
    played.behind = dict.fromkeys(NODES, -29.0)
    monkeypatch.setattr(clock, "skew", lambda *_: 0.0)
    assert [(one.answers, one.problem) for one in look.status("lab", Site())] == [(True, "")] * 2


def test_the_example(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    exec(example.code("Off and on"), {"lab": Lab("lab")})
    assert capsys.readouterr().out == "controller-1 running running 0.0\nnode-1 off running 0.0\n"
    assert states(played) == ["running", "running"]
    assert all(one.autostart for one in domains.machines(played.conn, "lab"))


def test_a_machine_beside_the_cluster_is_not_waited_for_as_a_node(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no node that could be Ready."""
    api = cluster(monkeypatch)
    real = domains.machines

    def machines(*args: Any) -> Any:
        found = real(*args)
        return [replace(one, tag=one.tag.model_copy(update={"role": "machine"})) for one in found[1:]]

    monkeypatch.setattr(domains, "machines", machines)
    power.stop("lab", Site(), ["node-1"], Ear())
    ear = Ear()
    power.start("lab", Site(), ["node-1"], ear)
    assert ear.done
    assert not any(step.startswith("ready") for step in ear.done)
    assert api.asked == []
