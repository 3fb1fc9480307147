"""Ways into a node: where WinRM is unresponsive, ssh; where nothing answers, the guest agent reports why."""

from __future__ import annotations

import plans
import pytest
import runs
import windows_ways
from lab_fakes import machine
from windows_ways import Agent, Refused, Windows

from winlab.adapters.guests import agent, base, connect
from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import agent as channel
from winlab.design.contract import on_both
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.events import NodeTransport
from winlab.lab_folder import LabFolder

FOLDER = LabFolder("lab")
MACHINE = machine("node-1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> runs.Clock:
    return runs.clock(monkeypatch)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, clock: runs.Clock) -> Windows:
    return Windows(monkeypatch, clock)


def tag(name: str = "node-1") -> Tag:
    plan = plans.make(plans.KVM, "1-1-1")
    return tags.of(plan, plan.node(name))


def way_after(clock: runs.Clock, seconds: float) -> str:
    """The connection by which a login succeeds then; empty if it does not."""
    clock.now += seconds
    try:
        guest = connect.connect(tag(), FOLDER)
    except UnreachableError:
        return ""
    assert isinstance(guest, windows_ways.Login)
    return guest._way


def test_an_unresponsive_winrm_is_replaced_by_ssh_and_used_again_later(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"winrm"}
    assert [way_after(clock, 20) for _ in range(6)] == [""] * 6  # WinRM may only be late
    assert [way_after(clock, 20) for _ in range(2)] == ["ssh", "ssh"]
    assert windows.logins[-2:] == ["knock", "ssh"]  # its libraries are not waited for any more
    windows.deaf = {"ssh"}
    assert way_after(clock, 20) == "winrm"


def test_a_node_that_restarts_is_not_unresponsive(windows: Windows, clock: runs.Clock) -> None:
    """Both work, ssh answers first: only from then on WinRM is late."""
    windows.deaf = {"winrm"}
    assert [way_after(clock, 50) for _ in range(2)] == ["", ""]
    windows.deaf = {"winrm", "ssh"}
    assert way_after(clock, 50) == ""
    windows.deaf = {"winrm"}
    assert [way_after(clock, 50) for _ in range(4)] == ["", "", "", "ssh"]


def test_the_report_names_the_way_that_does_not_answer(windows: Windows) -> None:
    windows.deaf = {"winrm", "ssh"}
    with pytest.raises(UnreachableError, match="winrm"):
        connect.connect(tag(), FOLDER)


def test_ssh_is_not_asked_all_the_time(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"winrm"}
    for _ in range(30):
        way_after(clock, 3)
    assert windows.logins.count("ssh") <= 7


def test_an_old_answer_does_not_count(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"winrm"}
    assert way_after(clock, 0) == ""
    assert way_after(clock, connect.FORGOTTEN + 1) == ""


def test_a_shell_that_does_not_understand_winlab_is_not_a_way(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf, windows.shell = {"winrm"}, b"%OS%\r\n"  # PowerShell
    assert [way_after(clock, 60) for _ in range(5)] == [""] * 5


def test_a_refusal_is_an_answer(windows: Windows, clock: runs.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(way: str, *_: object) -> base.Guest:
        windows.logins.append(way)
        raise GuestError("'node-1' refuses the Administrator's password.")

    monkeypatch.setattr(connect, "_log_in", refuse)
    for _ in range(20):
        clock.now += 60
        with pytest.raises(GuestError, match="refuses"):
            connect.connect(tag(), FOLDER)
    assert set(windows.logins) == {"winrm"}


def test_a_linux_node_has_one_way(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"ssh"}
    for _ in range(20):
        clock.now += 60
        with pytest.raises(UnreachableError):
            connect.connect(tag("controller-1"), FOLDER)
    assert set(windows.logins) == {"ssh"}


def test_a_way_that_was_asked_for_is_the_only_one(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"winrm"}
    for _ in range(20):
        clock.now += 60
        with pytest.raises(UnreachableError):
            connect.connect(tag(), FOLDER, "winrm")
    assert set(windows.logins) == {"winrm"}


def test_each_change_is_reported_once(windows: Windows, clock: runs.Clock) -> None:
    windows.deaf = {"winrm"}
    for _ in range(10):
        way_after(clock, 20)
    told: list[NodeTransport] = []
    for _ in range(2):
        with NodeScripts(tag(), FOLDER, 1.0) as there:
            there.tell = told.append
            there.run(on_both.LoadImages())
    assert [(one.transport, one.unresponsive, one.sign) for one in told] == [("ssh", ("winrm",), "ssh")]
    assert told[0].text == "'node-1' is up but does not answer WinRM: winlab uses ssh instead."
    windows.deaf = set()
    with NodeScripts(tag(), FOLDER, 1.0) as there:
        there.tell = told.append
        there.run(on_both.LoadImages())
    assert [one.transport for one in told] == ["ssh", "winrm"]


# -- the guest agent


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, windows: Windows) -> Agent:
    return Agent(monkeypatch, windows)


def test_the_agent_reports_why_logins_fail(inside: Agent) -> None:
    texts = agent.texts(None, MACHINE, tag(), FOLDER, on_both.Logs())
    assert texts["kubelet"] == "it \N{REPLACEMENT CHARACTER}[2J started"
    assert texts["network"].startswith("ipconfig.exe /all: \N{REPLACEMENT CHARACTER}[31mfine")
    assert texts.keys() >= {"ports", "winrm", "sshd", "firewall", "bootstrap"}
    assert inside.windows.ran == [("agent", "logs")]
    assert inside.windows.logins == []


def test_without_an_agent_nothing_is_reported(inside: Agent) -> None:
    inside.is_there = False
    assert agent.texts(None, MACHINE, tag(), FOLDER, on_both.Logs()) == {}
    assert len(inside.asked) == 1


def test_an_agent_that_does_not_start_programs_says_so(inside: Agent) -> None:
    inside.says["guest-exec"] = Refused("Command guest-exec has been disabled", 1)
    assert "has been disabled" in agent.texts(None, MACHINE, tag(), FOLDER, on_both.Logs())["network"]


@pytest.mark.parametrize("answer", ["no json", "[]", '{"return": 7}', '{"return": {"pid": "7"}}', '{"return": []}'])
def test_a_malformed_answer_of_an_agent_does_not_count(inside: Agent, answer: str) -> None:
    inside.says["guest-exec"] = answer
    with pytest.raises(GuestError):
        channel.execute(None, MACHINE, ["cmd.exe", "/c", "ver"])


@pytest.mark.parametrize("status", [{"exited": 1}, {}, {"exited": False, "out-data": "x"}])
def test_a_program_that_does_not_end_is_abandoned(inside: Agent, status: dict[str, object]) -> None:
    inside.says["guest-exec-status"] = status
    with pytest.raises(GuestError, match="has not ended"):
        channel.execute(None, MACHINE, ["cmd.exe", "/c", "ver"])


@pytest.mark.parametrize(
    ("status", "result"),
    [
        ({"exited": True, "exitcode": 3}, (3, b"", b"")),
        ({"exited": True, "signal": 9, "err-data": "YQ=="}, (-1, b"", b"a")),
        ({"exited": True, "exitcode": "0", "out-data": "?", "err-data": 7}, (-1, b"", b"")),
    ],
)
def test_results_of_a_program_run_by_an_agent(
    inside: Agent, status: dict[str, object], result: tuple[int, bytes, bytes]
) -> None:
    inside.says["guest-exec-status"] = status
    assert channel.execute(None, MACHINE, ["cmd.exe", "/c", "ver"]) == result
