"""A journal: half-written, moved, replaced, of another version, of any length; with only some of its progress."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winlab import events, journal
from winlab.events import Event, Note, RunStarted, StepChecking, StepDone, StepProgress, StepStarted
from winlab.journal import Follower, Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def writer(path: Path) -> Writer:
    return Writer(path, nullcontext)


def titles(path: Path) -> list[str]:
    return [getattr(event, "step", getattr(event, "text", "")) for event in journal.read(path)]


def test_recorded_events_are_read() -> None:
    every: list[Event] = [
        RunStarted(steps=(events.Planned("a", "b", "c", "d", 1.5, (1, 2)),), command="create", pid=7, run="r"),
        StepProgress(step="a", text="x", fraction=0.5),
        StepProgress(step="a", text="x"),
    ]
    for event in every:
        assert events.parse(json.loads(json.dumps(events.record(event)))) == event


def test_half_a_line_loses_no_other_event(path: Path) -> None:
    """As after kill -9, or on a disk that was full: the next event once went into the rest of the line."""
    writer(path).record(StepDone(step="a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert titles(path) == ["a"]
    writer(path).record(StepDone(step="b"))
    assert titles(path) == ["a", "b"]
    assert Follower(path).news()[1].step == "b"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"StepDone"',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"event": "StepDone", "schema": 2}',
        b'{"event": "StepDone"}',
        b'{"event": "Unheard", "schema": 1}',
        b'{"event": "StepEvent", "schema": 1}',
        b'{"event": "StepDone", "schema": 1, "step": 7}',
        b'{"event": "StepDone", "schema": 1, "time": NaN}',
        b'{"event": "StepDone", "schema": 1, "time": 1e999}',
        b'{"event": "StepDone", "schema": 1, "done": true}',
        b'{"event": "StepDone", "schema": 1, "done": 1' + b"0" * 4000 + b"}",
        b'{"event": "StepFailed", "schema": 1}',
        b'{"event": "StepFailed", "schema": 1, "failure": []}',
        b'{"event": "RunStarted", "schema": 1, "steps": [{"after": ["x"]}]}',
    ],
)
def test_lines_that_are_not_events_are_skipped(path: Path, line: bytes) -> None:
    good = json.dumps(events.record(StepDone(step="a"))).encode()
    path.write_bytes(b"\n".join([good, line, good, b""]))
    assert titles(path) == ["a", "a"]
    assert len(Follower(path).news()) == 2


def test_unknown_fields_are_ignored_and_texts_made_printable(path: Path) -> None:
    row = {**events.record(StepDone(step="\x1b[2Ja")), "later": [1], "step": "\x1b[2Ja"}
    failure = {"what": "\x1b]0;x\x07", "causes": [{"what": "\u202e"}]}
    path.write_text(
        json.dumps(row) + "\n" + json.dumps({"event": "StepFailed", "schema": 1, "failure": failure}) + "\n"
    )
    first, second = journal.read(path)
    assert first.step == "\N{REPLACEMENT CHARACTER}[2Ja"  # type: ignore[attr-defined]
    assert "\x1b" not in repr(second)
    assert "\u202e" not in second.failure.causes[0].what  # type: ignore[attr-defined]


def test_lines_too_long_are_skipped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONGEST_LINE", 400)
    good = json.dumps(events.record(StepDone(step="a")))
    assert len(good) < 400
    long = json.dumps(events.record(StepDone(step="x" * 1000)))
    path.write_text(f"{good}\n{long}\n{good}\n")
    assert titles(path) == ["a", "a"]
    follower = Follower(path)
    assert len(follower.news()) == 2
    with path.open("a") as file:
        file.write(long[:900])
    assert follower.news() == []
    with path.open("a") as file:
        file.write(long[900:] + "\n" + good + "\n")
    assert len(follower.news()) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=6), st.integers(0, 300))
def test_any_bytes_are_read(tmp_path_factory: pytest.TempPathFactory, noise: list[bytes], cut: int) -> None:
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    good = json.dumps(events.record(StepDone(step="a"))).encode()
    path.write_bytes(b"\n".join([*noise, good, *noise])[: cut * 4])
    writer(path).record(Note(text="the end"))
    assert titles(path)[-1] == "the end"


def test_progress_is_recorded_when_it_changes_and_not_too_often(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("winlab.journal.time.monotonic", lambda: now[0])
    write = writer(path)

    def say(text: str, seconds: float = 0, step: str = "a") -> None:
        write.record(StepProgress(step=step, text=text, seconds=seconds))

    say("1")
    say("2")
    say("other", step="b")
    now[0] += journal.OFTEN
    say("1")
    say("3")
    now[0] += journal.OFTEN
    say("4", seconds=3600)  # it takes an hour: once a minute is enough
    now[0] += journal.SELDOM
    say("5", seconds=3600)
    said = [event.text for event in journal.read(path) if isinstance(event, StepProgress)]
    assert said == ["1", "other", "3", "5"]


def test_a_wait_of_days_leaves_a_short_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("winlab.journal.time.monotonic", lambda: now[0])
    write = writer(path)
    for number in range(0, 24 * 3600, 30):
        now[0] = float(number)
        write.record(StepProgress(step="a", text=str(number), seconds=number))
    assert path.stat().st_size < 24 * 60 * 400
    monkeypatch.setattr(journal, "FULL", path.stat().st_size)
    write.record(StepDone(step="a"))
    full = path.stat().st_size
    now[0] += 1000
    write.record(StepProgress(step="a", text="more"))
    write.record(StepChecking(step="a"))
    assert path.stat().st_size == full
    write.record(StepStarted(step="a"))
    assert path.stat().st_size > full


def test_a_long_journal_is_moved_when_a_run_begins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LONG", 500)
    write, follower = writer(path), Follower(path)
    seen = []
    for number in range(12):
        write.record(RunStarted(run=str(number)) if number % 4 == 0 else StepDone(step=str(number)))
        if number % 3 == 0:
            seen += follower.news()
    seen += follower.news()
    assert len(seen) == 12
    assert follower.restarts == 0
    files = [path, journal.older(path)]
    assert [file.exists() for file in files] == [True, True]
    assert titles(path)[-1] == "11"
    assert [event.run for event in journal.read(path) if isinstance(event, RunStarted)] == ["4", "8"]
    assert len(Follower(path).news()) == 8


def test_between_two_files_nothing_is_lost(path: Path) -> None:
    """The writer was killed after it moved the journal, before it began another."""
    writer(path).record(StepDone(step="a"))
    follower = Follower(path)
    path.replace(journal.older(path))
    assert titles(path) == ["a"]
    assert len(follower.news()) == 1
    writer(path).record(StepDone(step="b"))
    assert [event.step for event in follower.news()] == ["b"]  # type: ignore[attr-defined]


def test_the_journal_of_another_lab_is_followed_from_its_start(path: Path) -> None:
    follower = Follower(path)
    assert follower.news() == []
    writer(path).record(StepDone(step="a"))
    assert len(follower.news()) == 1
    path.unlink()
    assert follower.news() == []
    writer(path).record(StepDone(step="b"))
    assert [event.step for event in follower.news()] == ["b"]  # type: ignore[attr-defined]
    assert follower.restarts == 1
    follower.close()


def test_half_an_event_is_read_when_the_rest_arrives(path: Path) -> None:
    line = json.dumps(events.record(StepDone(step="a"))) + "\n"
    path.write_text(line[:30])
    follower = Follower(path)
    assert follower.news() == []
    path.write_text(line)
    assert len(follower.news()) == 1


def test_no_journal_has_no_events(path: Path) -> None:
    assert list(journal.read(path)) == []
