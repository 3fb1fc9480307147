"""Scripts in nodes: their input, their output, their errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import answers
import pytest

from winlab.adapters.guests import base
from winlab.adapters.guests import scripts as nodes
from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_both, on_linux, on_windows
from winlab.design.contract.call import Call, CallResult
from winlab.design.distribution.kubeadm.calls import RunKubeadm
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder


def tag(system: str) -> Tag:
    return Tag(
        lab="lab", node="node-1", role="worker", os=system, image="x", user="u",
        address="10.77.0.101", floating="172.31.241.1", plan="p",
    )  # fmt: skip


def fresh(result: type[CallResult], **changed: Any) -> dict[str, Any]:
    """The result of a script of a fresh guest, with some fields changed."""
    return {**answers.FRESH[result], **changed}


LOGS = b'{"logs": {}}\n'


class Guest:
    """Answers commands by what they contain; the first that fits."""

    def __init__(self, answers: dict[str, tuple[int, bytes, bytes]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bytes]] = []
        self.closed = False
        self.lost = False

    def execute(
        self,
        command: Sequence[str],
        stdout: Callable[[bytes], None] = base.discard,
        stderr: Callable[[bytes], None] = base.discard,
        stdin: bytes = b"",
        waiting: Callable[[], None] = base.patient,
    ) -> int:
        line = " ".join(command)
        self.asked.append((line, stdin))
        if self.lost:
            raise UnreachableError("gone")
        for part, (code, out, err) in self.answers.items():
            if part in line:
                for at in range(0, len(out), 7):  # in pieces, as a connection brings them
                    stdout(out[at : at + 7])
                stderr(err)
                return code
        return 0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, Guest], NodeScripts]:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))

    def make(system: str, guest: Guest) -> NodeScripts:
        monkeypatch.setattr(nodes, "connect", lambda _tag, _state: guest)
        return NodeScripts(tag(system), LabFolder("lab"), 1.0)

    return make


def test_settings_go_in_by_stdin_and_the_last_line_is_the_result(login: Callable[[str, Guest], NodeScripts]) -> None:
    guest = Guest({"kubeadm": (0, b'[preflight] Running\njoined\n{"changed": true}\n', b"")})
    heard: list[str] = []
    secret = "abcdef.0123456789abcdef"
    call = RunKubeadm(arguments=["join"], configuration=secret)
    assert login("linux", guest).run(call, heard.append) == on_both.Changed(changed=True)
    assert heard == ["[preflight] Running", "joined"]
    line, stdin = guest.asked[-1]
    assert line == "sudo python3 /run/winlab/node.pyz run-kubeadm"
    assert json.loads(stdin) == {"arguments": ["join"], "configuration": secret}
    assert not any(secret in asked for asked, _ in guest.asked)


def test_the_script_is_uploaded_once(login: Callable[[str, Guest], NodeScripts]) -> None:
    guest = Guest({"logs": (0, LOGS, b"")})
    node = login("linux", guest)
    node.run(on_both.Logs())
    node.run(on_both.Logs())
    assert sum("cat >" in line for line, _ in guest.asked) == 1


def test_windows_scripts_run_from_the_drive_that_has_them(login: Callable[[str, Guest], NodeScripts]) -> None:
    guest = Guest({"payload.json": (0, b"E:\r\n", b""), "logs.ps1": (0, b'{"logs": {"kubelet": "x"}}\r\n', b"")})
    assert login("windows", guest).run(on_both.Logs()).logs == {"kubelet": "x"}
    assert guest.asked[-1][0] == (
        "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File E:\\scripts\\logs.ps1"
    )


def test_no_drive_with_the_cd(login: Callable[[str, Guest], NodeScripts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.time, "sleep", lambda _seconds: None)
    with pytest.raises(GuestError, match="does not see winlab's payload CD"):
        login("windows", Guest({})).run(on_both.Logs())


@pytest.mark.parametrize(
    ("code", "out", "err", "says"),
    [
        (1, b"copying\n", b"No drive has winlab's CD.\n", "No drive has winlab's CD."),
        (1, b"only this\n", b"", "only this"),
        (7, b"", b"", "ended with exit code 7"),
    ],
)
def test_failures_are_repeated(
    login: Callable[[str, Guest], NodeScripts], code: int, out: bytes, err: bytes, says: str
) -> None:
    with pytest.raises(GuestError) as caught:
        login("linux", Guest({"load": (code, out, err)})).run(on_both.LoadImages())
    assert says in str(caught.value)


@pytest.mark.parametrize("out", [b"", b"no json\n", b"[1]\n", b'{"a":' * 100_000])
def test_no_result_is_a_failure(login: Callable[[str, Guest], NodeScripts], out: bytes) -> None:
    with pytest.raises(GuestError, match="result"):
        login("linux", Guest({"logs": (0, out, b"")})).run(on_both.Logs())


def test_a_lost_connection_is_closed(login: Callable[[str, Guest], NodeScripts]) -> None:
    guest = Guest({"logs": (0, LOGS, b"")})
    node = login("linux", guest)
    node.run(on_both.Logs())
    guest.lost = True
    with pytest.raises(UnreachableError):
        node.run(on_both.Logs())
    assert guest.closed


def test_a_line_is_reported_at_once(login: Callable[[str, Guest], NodeScripts]) -> None:
    """The last output of a script before it hangs is what users need."""
    heard: list[str] = []

    class Hanging(Guest):
        def execute(self, command: Sequence[str], stdout: Any = None, *more: Any) -> int:
            if "load" in " ".join(command):
                stdout(b"importing a.tar\n")
                assert heard == ["importing a.tar"]
                stdout(b'{"changed": false}\n')
            return 0

    assert not login("linux", Hanging({})).run(on_both.LoadImages(), heard.append).changed
    assert heard == ["importing a.tar"]


def test_a_cd_that_vanishes_briefly_is_searched_again(
    login: Callable[[str, Guest], NodeScripts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just after it was put in; and it may come back under another letter."""
    monkeypatch.setattr(base, "PAUSE", 0)
    guest = Guest(
        {
            "for %d": (0, b"E:", b""),
            "-File E:": (-196608, b"", b"The argument to the -File parameter does not exist."),
            "-File F:": (0, LOGS, b""),
        }
    )
    node = login("windows", guest)
    tries: list[str] = []

    def moved(command: Sequence[str], *streams: Any, **others: Any) -> int:
        if "-File" in " ".join(command):
            tries.append(" ".join(command))
            if len(tries) == 2:
                guest.answers["for %d"] = (0, b"F:", b"")
        return Guest.execute(guest, command, *streams, **others)

    monkeypatch.setattr(guest, "execute", moved)
    assert node.run(on_both.Logs()).logs == {}
    assert len(tries) == 3


def test_a_cd_that_does_not_come_back_is_reported(
    login: Callable[[str, Guest], NodeScripts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "PAUSE", 0)
    guest = Guest({"for %d": (0, b"E:", b""), "-File": (0xFFFD0000, b"", b"does not exist.")})
    with pytest.raises(GuestError, match="'logs' failed") as caught:
        login("windows", guest).run(on_both.Logs())
    assert "does not exist" in caught.value.why


@pytest.mark.parametrize(
    ("call", "told", "field"),
    [
        (on_both.LoadImages(), {}, "changed"),
        (on_both.LoadImages(), {"changed": "true"}, "changed"),
        (on_both.LoadImages(), {"changed": 1}, "changed"),
        (on_both.Push(program="kubelet", restore=False), {"changed": True, "sha256": None}, "sha256"),
        (on_both.Logs(), {"logs": {"kubelet": ["a", "b"]}}, "logs.kubelet"),
        (on_linux.LinuxStatus(), fresh(on_linux.LinuxFacts, kubelet={}), "kubelet.service"),
        (on_linux.LinuxStatus(), fresh(on_linux.LinuxFacts, containerd={"service": "hung"}), "containerd.service"),
        (on_linux.LinuxStatus(), fresh(on_linux.LinuxFacts, pushed="kubelet"), "pushed"),
    ],
)
def test_a_malformed_result_is_not_trusted(
    login: Callable[[str, Guest], NodeScripts], call: Call[Any], told: dict[str, Any], field: str
) -> None:
    with pytest.raises(GuestError) as caught:
        login("linux", Guest({call.script: (0, json.dumps(told).encode(), b"")})).run(call)
    assert caught.value.what == f"'{call.script}' in 'node-1' gave a result with missing or wrong fields: {field}."
    assert f"{field}: " in caught.value.why


def test_unknown_fields_of_another_winlab_are_ignored(login: Callable[[str, Guest], NodeScripts]) -> None:
    guest = Guest({"load": (0, b'{"changed": true, "colour": "red"}', b"")})
    assert login("linux", guest).run(on_both.LoadImages()).changed


def test_a_seal_that_needs_no_restart_reports_the_rest() -> None:
    call = on_windows.Seal(generalize="", superseded=False, begin=True)
    assert call.read({"restart": True}, "golden", "lab").restart
    whole = {"restart": False, "build": "20348.1", "evaluation_minutes": None, "rearms": 3}
    assert call.read(whole, "golden", "lab").model_dump() == whole
    with pytest.raises(GuestError, match="'seal' in 'golden'") as caught:
        call.read({"restart": False, "build": "20348.1"}, "golden", "lab")
    assert "evaluation_minutes, rearms" in caught.value.why


def test_a_system_is_given_the_settings_that_it_knows() -> None:
    call = on_both.Routes(routes=[on_both.RouteSetting("10.244.1.0/24", "10.77.0.12")], masquerade=None)
    assert call.settings("windows") == {"routes": [{"to": "10.244.1.0/24", "via": "10.77.0.12"}]}
    assert call.settings("linux").keys() == {"routes", "masquerade"}
    with pytest.raises(AssertionError, match="no script 'prepare' on windows"):
        on_linux.Prepare(files={}, services=[]).settings("windows")


def test_a_line_that_never_ends_is_cut() -> None:
    heard: list[str] = []
    lines = nodes.Lines(heard.append, 1000)
    for _ in range(1000):
        lines(b"x" * 10_000)
        assert len(lines._line) <= 1000
    lines(b"\nnext\nlast")
    lines.end()
    assert heard == ["x" * 1000, "next", "last"]


def test_a_node_that_prints_much_does_not_fill_the_hosts_memory(
    login: Callable[[str, Guest], NodeScripts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "RESULT", 1000)
    monkeypatch.setattr(nodes, "LINE", 100)
    heard: list[str] = []
    long = b"a" * 5000
    with pytest.raises(GuestError, match="without a result"):
        login("linux", Guest({"logs": (0, b'{"logs": {"kubelet": "' + long + b'"}}\n', b"")})).run(on_both.Logs())
    with pytest.raises(GuestError) as caught:
        login("linux", Guest({"load": (1, long + b"\n{" + long + b"\n", b"")})).run(on_both.LoadImages(), heard.append)
    assert [len(line) for line in heard] == [100, 100]
    assert len(caught.value.why) <= 201


def test_kept_output_is_limited() -> None:
    kept = base.Kept(10)
    kept(b"0123456789")
    with pytest.raises(GuestError, match="printed more than"):
        kept(b"x")
