"""What a run looks like: on a terminal, in a pipe, and where symbols or colours can't be shown."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
import time
from contextlib import suppress
from datetime import date
from pathlib import Path

import histories
import pytest
from histories import PLANNED, Script
from rich.console import Console

from winlab.cli import daily, live, progress
from winlab.errors import Failure
from winlab.events import Note, Planned, StepDone, StepFailed, StepProgress


def booting() -> Script:
    """The lab of histories.py while node a boots, and b has not begun."""
    text = "waiting for a to answer at 172.31.240.18, as it usually does by now"
    return Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3).step("progress", 3, 45, text=text, fraction=0.5)


@pytest.fixture(autouse=True)
def _locale(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")


def drawn(script: Script, *, width: int = 80, height: int = 24, colors: bool = False) -> list[str]:
    """The lines of the view after these events."""
    out = io.StringIO()
    system = "standard" if colors else None
    console = Console(file=out, force_terminal=True, width=width, height=height, color_system=system)  # type: ignore[arg-type]
    view = live.LiveView(console)
    for event in script.events:
        view.tell(event)
    out.truncate(0)
    out.seek(0)
    console.print(view)
    return out.getvalue().splitlines()


def test_each_machine_has_a_line_and_the_run_a_total() -> None:
    a, b, lab, total = drawn(booting())
    assert re.fullmatch(r"\S a    1 of 3  boot 0:42, usually 1:00 50%: waiting for a to answer at 172\.31\..*…", a)
    assert b == "  b    0 of 1  waits"
    assert lab == "  lab  1 of 1  done"
    assert total == "  2 of 5 steps are done, 45 s so far, about 50 s left"


def test_a_booting_machine_shows_its_phase() -> None:
    script = booting().step("progress", 3, 50, text="waiting for a to answer at 172.31.240.18: cloud-init")
    assert drawn(script)[0].endswith("boot 0:47, usually 1:00: cloud-init")


def test_no_line_is_wider_than_the_terminal_and_none_wraps() -> None:
    for width in (20, 40, 80, 200):
        lines = drawn(booting(), width=width)
        assert len(lines) == 4
        assert all(len(line) <= width for line in lines)


def test_a_low_terminal_shows_what_is_at_work() -> None:
    (line, total) = drawn(booting(), height=4)
    assert "boot 0:42" in line
    assert "steps are done" in total


def test_a_failure_is_red_if_colours_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Script().did(1, 0, 2).step("started", 2, 2).step("failed", 2, 5, what="No space.")
    assert any("\x1b[31mfailed" in line for line in drawn(failed, colors=True))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b" in line for line in drawn(failed, colors=True))


def test_a_first_guess_is_not_usual_and_the_rest_is_rough() -> None:
    guessed = tuple(Planned(one.step, one.reaches, one.lab, one.node, 600.0, one.after, True) for one in PLANNED)
    script = Script(planned=guessed).did(1, 0, 2).step("checking", 2, 2).step("started", 2, 2)
    text = "\n".join(drawn(script))
    assert "usually" not in text
    assert "about 30 min left (estimated)" in text
    event = StepProgress(step="boot a", text="waiting", seconds=75, usual=120, fraction=0.5, estimated=True)
    assert progress.describe(event) == "boot a: waiting 50% (1 min 15 s)"


@pytest.mark.parametrize(
    ("code", "steps", "is_shown"), [(2, 1, False), (5, 1, False), (9, 1, True), (2, 2, True), (5, 0, True)]
)
def test_a_refusal_by_the_only_step_is_the_error_alone(code: int, steps: int, is_shown: bool) -> None:
    """ux D26: '✗ import passwd (0 s)' came before the error."""
    event = StepFailed(step="import passwd", total=steps, failure=Failure("No image.", exit_code=code))
    assert (progress.finished(event) is not None) == is_shown


def test_progress_lines() -> None:
    event = StepProgress(step="boot node-1", text="waiting", seconds=75, usual=120, fraction=0.5)
    assert progress.describe(event) == "boot node-1: waiting 50% (1 min 15 s, usually 2 min 00 s)"
    assert progress.clock(59.4) == "59 s"
    assert [progress.about(one) for one in (0, 8, 53, 75, 540, 9000)] == [
        "5 s",
        "10 s",
        "55 s",
        "1 min",
        "9 min",
        "2 h",
    ]


def test_a_pipe_gets_a_line_for_each_step_and_one_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    script = Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3)
    for second in range(4, 190, 3):
        script.step("progress", 3, second, text=f"waiting {second}")
    script.step("done", 3, 190).end(191)
    with live.view() as tell:
        for event in script.events:
            tell(event)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["✓ network (2 s)", "✓ disk a (1 s)"]
    assert lines[-1] == "✓ boot a (3 min 07 s)"
    waits = lines[2:-1]
    assert len(waits) == 3
    assert waits[0] == (
        "… boot a: waiting 64 (1 min 01 s, usually 1 min 00 s); 2 of 5 steps are done, 1 min 04 s so far, "
        "about 35 s left"
    )


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    with live.view() as tell:
        tell(StepDone(step="disk a", seconds=2))
    assert capsys.readouterr().err == "✓ disk a (2 s)\n"


def test_work_outside_a_run_has_a_line_of_its_own() -> None:
    script = Script()
    script.events = [StepProgress(step="plan", text="reading ws.iso", fraction=0.25, seconds=3)]
    (line,) = drawn(script)
    assert line.endswith("plan: reading ws.iso 25% (3 s)")
    script.events.append(StepDone(step="plan", seconds=4))
    assert drawn(script) == [""] or drawn(script) == []


def shown(*notes: Note) -> list[str]:
    """What stays on a terminal of these notes."""
    out = io.StringIO()
    view = live.LiveView(Console(file=out, force_terminal=True, width=80, color_system=None))
    for note in notes:
        view.tell(note)
    return out.getvalue().splitlines()


def test_a_terminal_shows_a_repeated_note_once_a_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ux N16. Others are always shown, and a pipe has all."""
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "new"))
    hint, warning = Note(text="emulated", repeats=True), Note(text="the clock is off")
    assert shown(hint, warning, hint, warning) == ["! emulated", "! the clock is off", "! the clock is off"]
    assert shown(hint, Note(text="another", repeats=True)) == ["! another"]
    with live.view() as tell:
        tell(hint)
    assert capsys.readouterr().err == "! emulated\n"
    file = tmp_path / "new" / daily.FILE
    file.write_text(file.read_text().replace(date.today().isoformat(), "2026-01-01"))
    assert shown(hint) == ["! emulated"]
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", None])
def test_a_note_is_shown_if_its_record_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    file = tmp_path / daily.FILE
    file.mkdir() if content is None else file.write_bytes(content)
    assert shown(Note(text="emulated", repeats=True)) == ["! emulated"]


def test_an_ended_run_leaves_only_its_log() -> None:
    assert "".join(drawn(histories.whole())).strip() == ""


def terminal(monkeypatch: pytest.MonkeyPatch, **more: str) -> str:
    """What a real terminal of 80 columns receives from a run that fails."""
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", **more}.items():
        monkeypatch.setenv(name, value)
    main, other = pty.openpty()
    received = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while part := os.read(main, 65536):
                received.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    failed = booting().step("failed", 3, 64, what="No answer.").end(65, 9).events
    with os.fdopen(other, "w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        with live.view() as tell:
            for event in [*failed[:-2], Note(lab="lab", text="a hint")]:
                tell(event)
            time.sleep(0.5)  # the view is drawn now and then
            for event in failed[-2:]:
                tell(event)
        monkeypatch.undo()
    reader.join()
    os.close(main)
    return b"".join(received).decode()


def screen(text: str, width: int) -> list[str]:
    """The lines that are left on the screen: cursor up, erase line, carriage return; nothing else moves the cursor."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[^\x1b]", text):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part.endswith("A") and part.startswith("\x1b"):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
            assert column <= width
    return [line.rstrip() for line in lines if line.strip()]


def test_the_view_on_a_real_terminal_ends_with_its_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hung once, because printing a line draws the view again."""
    text = terminal(monkeypatch)
    assert "  2 of 5 steps are done" in text
    assert "\x1b[31m✗ boot a" in text
    assert screen(text, 80) == [
        "✓ network (2 s)",
        "✓ disk a (1 s)",
        "! a hint",
        "✗ boot a (1 min 01 s)",
        "  No answer.",
    ]


def test_the_view_on_a_terminal_of_ascii_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = terminal(monkeypatch, LC_ALL="C", NO_COLOR="1")
    assert text.isascii()
    assert "31m" not in text
    assert screen(text, 80)[-2:] == ["x boot a (1 min 01 s)", "  No answer."]
