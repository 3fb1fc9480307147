"""What a command with ``--output json`` prints, and what its last line is: docs/events.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import typer
from commands import ran

from winlab import Lab, Listener
from winlab.cli.common import Output
from winlab.cli.session import Session
from winlab.errors import ClusterError, ExitCode, Failure, UsageError
from winlab.events import Note, RunEnded, RunStarted

ERROR = ClusterError("no", why="a", cure="b", evidence="c", causes=[ValueError("x")])


@pytest.fixture
def session() -> Session:
    """Of a command with --output json."""
    made = Session()
    made.output = Output.JSON
    return made


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_result_without_events_is_one_document(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.result = [{"lab": "a"}]
    session.finish(ExitCode.DIFFERS)
    session.finish(ExitCode.OK)  # once
    assert capsys.readouterr().out == '[\n  {\n    "lab": "a"\n  }\n]\n'


def test_nothing_is_printed_as_json_unless_it_is_asked_for(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.finish(0)
    people = Session()
    with people.shown(Output.TABLE) as tell:
        tell(RunEnded(exit_code=11, failures=Failure.each(ERROR)))
    people.finish(11, ERROR)
    assert capsys.readouterr().out == ""


def test_events_are_lines_and_the_end_is_the_last_one(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    with session.shown(Output.JSON) as tell:
        tell(Note(text="x", lab="lab"))
    session.finish(0)
    first, last = lines(capsys)
    assert (first["event"], first["text"], first["lab"], first["schema"]) == ("Note", "x", "lab", 1)
    assert (last["event"], last["exit_code"], last["failures"]) == ("RunEnded", 0, [])


def test_a_result_after_events_is_a_line_too(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    """Also results that are not objects."""
    with session.shown(Output.JSON) as tell:
        tell(RunStarted())
        tell(RunEnded(run="1"))
        tell(RunStarted())
        tell(RunEnded(run="2"))
    session.result = [1, "\x1b"]
    session.finish(0)
    rows = lines(capsys)
    assert [row["event"] for row in rows] == ["RunStarted", "RunEnded", "RunStarted", "RunEnded", "Result"]
    assert [row["run"] for row in rows if row["event"] == "RunEnded"] == ["1", "2"]
    assert rows[-1] == {"event": "Result", "schema": 1, "result": [1, "\N{REPLACEMENT CHARACTER}"]}


def test_the_end_of_a_run_that_succeeded_is_printed_at_once(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if the command fails after that: then it is not the last line."""
    with session.shown(Output.JSON) as tell:
        tell(RunEnded())
        assert [row["event"] for row in lines(capsys)] == ["RunEnded"]
    session.finish(11, ERROR)
    (last,) = lines(capsys)
    assert (last["event"], last["exit_code"], len(last["failures"])) == ("RunEnded", 11, 1)


@pytest.mark.parametrize("reported", [True, False])
def test_a_failure_is_the_last_line_once(session: Session, capsys: pytest.CaptureFixture[str], reported: bool) -> None:
    """Whether or not the engine reported it; a result that the command had before comes first."""
    if reported:
        with session.shown(Output.JSON) as tell:
            tell(RunEnded(run="1", exit_code=11, failures=Failure.each(ERROR)))
    session.result = {"seen": 1}
    session.finish(11, ERROR)
    result, last = lines(capsys)
    assert (result["event"], result["result"]) == ("Result", {"seen": 1})
    assert (last["event"], last["exit_code"], last["run"]) == ("RunEnded", 11, "1" if reported else "")
    names = ("what", "why", "cure", "evidence", "exit_code", "error", "causes")
    cause = dict(zip(names, ("ValueError: x", "", "", "", 1, "ValueError", []), strict=True))
    assert last["failures"] == [dict(zip(names, ("no", "a", "b", "c", 11, "ClusterError", [cause]), strict=True))]


def test_an_interrupt_is_the_last_line(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.finish(130, KeyboardInterrupt())
    (last,) = lines(capsys)
    assert (last["event"], last["exit_code"], last["failures"]) == ("RunEnded", 130, [])


def test_a_reader_that_stops_reading_is_not_a_failure(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        session.result = {"seen": 1}
        session.finish(0)
        print("into the void", flush=True)


def _said_no(tell: Listener) -> None:
    tell(Note())
    raise typer.Abort


def _failed(tell: Listener) -> None:
    tell(Note())
    raise UsageError("no")


@pytest.mark.parametrize(("work", "code"), [(_said_no, 1), (_failed, 2), (lambda tell: tell(Note()), 0)])
def test_the_last_line_has_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[Listener], None], code: int
) -> None:
    """Also if Typer ends the command: the user does not accept the terms, for example."""
    monkeypatch.setattr(Lab, "destroy", lambda self, *, anyone, listener: work(listener))
    done = ran("destroy", "--output", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["event"] for row in rows] == ["Note", "RunEnded"]
    assert (rows[-1]["exit_code"], done.exit_code) == (code, code)
