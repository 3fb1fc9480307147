"""What a command prints for programs, and what ``--events`` writes: docs/output.md, docs/events.md."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import results
import typer
import yaml
from commands import ran

from winlab import Lab, Listener
from winlab.cli import main, pages, result
from winlab.cli.common import Output
from winlab.cli.kinds.base import Item
from winlab.cli.kinds.supplies import File, Removal
from winlab.cli.session import Session
from winlab.errors import ClusterError, ExitCode, Failure, UsageError
from winlab.events import Note, RunEnded, RunStarted

DOCS = (Path(__file__).parents[3] / "docs/output.md").read_text()
ERROR = ClusterError("no", why="a", cure="b", evidence="c", causes=[ValueError("x")])
FILES = [File(name="a", bytes=1), File(name="b\x1b", bytes=2)]


@pytest.fixture
def session() -> Session:
    """Of a command with --output json."""
    made = Session()
    made.output = Output.JSON
    return made


@pytest.fixture
def file(session: Session, tmp_path: Path) -> Path:
    """Where --events writes."""
    path = tmp_path / "events.jsonl"
    session.record_events(path)
    return path


def test_a_result_is_one_document(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert session.answer(File, FILES)
    session.finish(ExitCode.DIFFERS)
    session.finish(ExitCode.OK)  # once
    assert json.loads(capsys.readouterr().out) == {
        "apiVersion": "winlab/v1",
        "kind": "File",
        "items": [{"name": "a", "bytes": 1}, {"name": "b\N{REPLACEMENT CHARACTER}", "bytes": 2}],
    }


def test_a_result_as_yaml_and_as_names(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.output = Output.YAML
    session.answer(File, FILES[:1])
    session.finish(0)
    assert capsys.readouterr().out == "apiVersion: winlab/v1\nkind: File\nitems:\n- name: a\n  bytes: 1\n"
    names = Session()
    names.output = Output.NAME
    names.answer(File, FILES)
    names.finish(0)
    assert capsys.readouterr().out == "a\nb\N{REPLACEMENT CHARACTER}\n"


def test_no_document_is_printed_for_people(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.finish(0)
    people = Session()
    assert not people.answer(File, FILES)
    with people.shown() as tell:
        tell(RunEnded(exit_code=11, failures=Failure.each(ERROR)))
    people.finish(11, ERROR)
    assert capsys.readouterr().out == ""


def test_events_are_lines_of_a_file(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with session.shown() as tell:
        tell(Note(text="x", lab="lab"))
        (first,) = results.events(file)  # a reader sees it at once
    session.finish(0)
    first, last = results.events(file)
    assert (first["event"], first["text"], first["lab"], first["schema"]) == ("Note", "x", "lab", 1)
    assert (last["event"], last["exit_code"], last["failures"]) == ("RunEnded", 0, [])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "! x\n")


def test_the_end_of_a_run_that_succeeded_is_written_once(session: Session, file: Path) -> None:
    with session.shown() as tell:
        for number in "12":
            tell(RunStarted())
            tell(RunEnded(run=number))
    session.answer(File, FILES)
    session.finish(0)
    rows = results.events(file)
    assert [row["event"] for row in rows] == ["RunStarted", "RunEnded", "RunStarted", "RunEnded"]
    assert [row["run"] for row in rows if row["event"] == "RunEnded"] == ["1", "2"]


def test_a_command_that_fails_after_its_run_has_another_end(session: Session, file: Path) -> None:
    with session.shown() as tell:
        tell(RunEnded())
    session.finish(11, ERROR)
    first, last = results.events(file)
    assert (first["exit_code"], last["exit_code"], len(last["failures"])) == (0, 11, 1)


@pytest.mark.parametrize("reported", [True, False])
def test_a_failure_is_a_document_and_the_last_event(
    session: Session, file: Path, capsys: pytest.CaptureFixture[str], reported: bool
) -> None:
    """Whether or not the engine reported it, and although the command had a result already."""
    if reported:
        with session.shown() as tell:
            tell(RunEnded(run="1", exit_code=11, failures=Failure.each(ERROR)))
    session.answer(File, FILES)
    session.finish(11, ERROR, Path("/support"))
    names = ("what", "why", "cure", "evidence", "exit_code", "error", "causes")
    cause = dict(zip(names, ("ValueError: x", "", "", "", 1, "ValueError", []), strict=True))
    failure = dict(zip(names, ("no", "a", "b", "c", 11, "ClusterError", [cause]), strict=True))
    (last,) = results.events(file)
    assert (last["event"], last["exit_code"], last["run"]) == ("RunEnded", 11, "1" if reported else "")
    assert (last["failures"], last["support"]) == ([failure], "/support")
    texts = {name: failure[name] for name in names[:5]}
    assert results.error(capsys.readouterr().out) == {**texts, "failures": [failure], "support": "/support"}


def test_an_interrupt_is_a_failure(session: Session, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session.finish(130, KeyboardInterrupt())
    (last,) = results.events(file)
    assert (last["event"], last["exit_code"], last["failures"]) == ("RunEnded", 130, [])
    assert results.error(capsys.readouterr().out)["exit_code"] == 130


def test_a_reader_that_stops_reading_is_not_a_failure(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    session.record_events(Path(f"/dev/fd/{writing}"))
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        with session.shown() as tell:
            tell(Note())
        session.answer(File, FILES)
        session.finish(0)
        print("into the void", flush=True)


@pytest.mark.parametrize("name", ["-", "/dev/fd/1", "no/such/folder", "link"])
def test_a_file_for_events_that_can_not_be_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result goes to the standard output; and nothing is written through a link."""
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("victim")
    done = ran("list", "--events", name, "--output=json")
    assert done.exit_code == 2
    assert results.error(done.stdout)["cure"] or name in results.error(done.stdout)["what"]
    assert not Path("victim").exists()


def _said_no(tell: Listener) -> None:
    tell(Note())
    raise typer.Abort


def _failed(tell: Listener) -> None:
    tell(Note())
    raise UsageError("no")


@pytest.mark.parametrize(("work", "code"), [(_said_no, 1), (_failed, 2), (lambda tell: tell(Note()), 0)])
def test_both_have_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work: Callable[[Listener], None], code: int
) -> None:
    """Also if Typer ends the command: the user does not accept the terms, for example."""
    monkeypatch.setattr(Lab, "destroy", lambda self, *, anyone, listener: work(listener))
    monkeypatch.setattr(Lab, "left", lambda self: ())
    file = tmp_path / "events"
    done = ran("destroy", "--output", "json", "--events", str(file))
    rows = results.events(file)
    assert [row["event"] for row in rows] == ["Note", "RunEnded"]
    assert (rows[-1]["exit_code"], done.exit_code) == (code, code)
    if code:
        assert results.error(done.stdout)["exit_code"] == code
    else:
        assert results.item(done.stdout)["removed"] is False


@pytest.mark.parametrize("words", [("list", "-o", "json", "--zzz"), ("list", "--zzz", "-ojson"), ("zzz", "-o=json")])
def test_a_command_line_that_can_not_be_parsed(words: tuple[str, ...]) -> None:
    done = ran(*words)
    assert done.exit_code == 2
    failed = results.error(done.stdout)
    assert "zzz" in failed["what"]
    assert "--help" in failed["cure"]
    assert "zzz" in done.stderr


def test_what_a_failed_command_line_asks_for() -> None:
    assert result.requested(["x", "-o", "yaml"]) is Output.YAML
    assert result.requested(["x", "--output=name"]) is Output.NAME
    assert result.requested(["exec", "a", "--", "kubectl", "-o", "json"]) is Output.TABLE
    assert result.requested(["x", "-o", "png"]) is Output.TABLE


def test_an_error_as_yaml() -> None:
    done = ran("status", "--lab", "a/b", "-o", "yaml")
    assert yaml.safe_load(done.stdout)["error"]["what"] == "'a/b' can't be the name of a lab."
    assert ran("status", "--lab", "a/b", "-o", "name").stdout == ""


NO_RESULT = {
    "completion", "graph", "help", "host admit", "hosts", "inventory", "kubectl", "pwsh", "schema", "serial",
    "spec schema", "spec show", "ssh", "ssh-config",
}  # fmt: skip


def contexts(context: Any) -> Iterator[Any]:
    """The contexts of all commands that are not groups."""
    command = context.command
    if not hasattr(command, "list_commands"):
        yield context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        yield from contexts(inner.make_context(name, [], parent=context, resilient_parsing=True))


def test_every_command_has_the_options() -> None:
    """A new command without a result is named in NO_RESULT."""
    command = typer.main.get_command(main.app)
    found = list(contexts(command.make_context("winlab", [], resilient_parsing=True)))
    params = {
        pages.typed(one).removeprefix("winlab "): {param.name for param in one.command.get_params(one)} for one in found
    }
    assert {name for name, names in params.items() if not {"output", "events"} <= names} == NO_RESULT
    assert all({"quiet", "debug"} <= names for names in params.values())
    assert "fault add loss" in params


def test_every_kind_has_a_schema() -> None:
    done = ran("schema")
    assert done.stdout.split() == sorted(result.kinds())
    for kind in done.stdout.split():
        made = json.loads(ran("schema", kind).stdout)
        part = "error" if kind == "Error" else "items"
        assert made["required"] == ["apiVersion", "kind", part]
        assert made["properties"]["kind"]["const"] == kind
        assert result.kinds()[kind].__doc__
        assert f"| `{kind}` |" in DOCS
    assert ran("schema", "Nope").exit_code == 5


def test_a_document_that_its_schema_does_not_describe() -> None:
    right = result.of(Removal, [Removal(name="a")])
    result.check(json.dumps(right))
    for wrong in ({"bytes": "1"}, {"more": 1}, {"name": None}):
        with pytest.raises(ValueError, match="validation error"):
            result.check(json.dumps({**right, "items": [{**right["items"][0], **wrong}]}))
    with pytest.raises(ValueError, match="validation error"):
        result.check(json.dumps({**right, "more": 1}))
    assert issubclass(Removal, Item)
