"""Events: what docs/events.md says of them is what they are."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import get_type_hints

import guard
import pytest

from winlab import errors, events
from winlab.errors import ClusterError, ExitCode, Failure, GuestError, HostError, LabError
from winlab.events import Event, Planned, StepEvent, StepFailed

DOCS = Path(__file__).parents[2] / "docs/events.md"
HEAD = """\
# Events

Long-running commands report progress as events.
A lab's journal (`<state>/labs/<lab>/journal.jsonl`) has the events of every command that changed the lab, with
`StepProgress` at most every 3 s for each step. If the journal can't be written, a `Note` says so once.
[watching.md](watching.md) describes the commands that read it.
In Python a listener is any function that takes an event of `winlab.events`.

The field `event` names the class. Fields may be added at any time; if a field is removed or changes its meaning,
`schema` is incremented.

This page is generated from `winlab/events.py`: run `pytest tests/unit/test_events.py --regenerate`.

## `--events FILE`

Every command that has a result takes `--events FILE` ([output.md](output.md)). It writes one JSON object per line.
The last one is `RunEnded`, also if the command fails or is interrupted: with its exit code, its failures and the
archive for support. A command with several runs has one for each.

`winlab create --events /dev/fd/3 3>&1 >/dev/null | jq 'select(.event == "StepDone").step'` prints steps as they end.

"""
TYPES = {"str": "text", "int": "whole number", "float": "number", "float | None": "number or null"}
LISTED = {"int": "whole numbers", "str": "texts"}


Row = tuple[str, str, str]


def table(fields: list[Row]) -> str:
    rows = [("field", "type", "meaning"), ("---", "---", "---")]
    rows += [(f"`{name}`", kind, words) for name, kind, words in fields]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fields(kind: type, beyond: type | None = None) -> list[Row]:
    """The fields of a class that another does not have."""
    assert dataclasses.is_dataclass(kind)
    known = {one.name for one in dataclasses.fields(beyond)} if beyond and dataclasses.is_dataclass(beyond) else set()
    found = []
    for one in dataclasses.fields(kind):
        if one.name not in known:
            shape = str(one.type).replace("ExitCode", "int")
            listed = shape.startswith("tuple[")
            name = shape.removeprefix("tuple[").removesuffix(", ...]")
            text = f"list of {LISTED.get(name, name)}" if listed else TYPES.get(name, name)
            found.append((one.name, text, one.metadata.get("words", "")))
    return found


def section(kind: type, base: type | None) -> str:
    own = fields(kind, base)
    words = " ".join((kind.__doc__ or "").split())
    return f"### {kind.__name__}\n\n{words}\n" + (f"\n{table(own)}\n" if own else "")


def reference() -> str:
    """The text of docs/events.md."""
    steps = StepEvent.__subclasses__()
    others = [one for one in Event.__subclasses__() if one is not StepEvent]
    parts = [
        HEAD,
        "## Fields of every event\n\n" + table([("event", "text", "the event's class"), *fields(Event)]) + "\n",
        "## Events of a run\n\n" + "\n".join(section(one, Event) for one in others),
        "## Events of a step\n\nAll of them have these fields, too:\n\n" + table(fields(StepEvent, Event)) + "\n",
        "\n".join(section(one, StepEvent) for one in steps),
        "## Values in events\n\n" + "\n".join(section(one, None) for one in (Planned, Failure)),
    ]
    return parts[0] + "\n".join(parts[1:])


def test_the_docs_are_generated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("--regenerate"):
        monkeypatch.setattr(guard, "base", None)
        DOCS.write_text(reference(), encoding="utf-8")
    assert DOCS.read_text(encoding="utf-8") == reference()


def test_every_field_is_explained() -> None:
    assert get_type_hints(StepFailed)["failure"] is Failure
    for line in reference().splitlines():
        assert not line.endswith("|  |"), line


def test_a_record_is_json_with_everything() -> None:
    error = GuestError("no", why="a", cure="b", evidence="c", causes=[OSError(5, "x")])
    found = json.loads(json.dumps(events.record(StepFailed(step="join node-1", failure=Failure.of(error)))))
    assert found["event"] == "StepFailed"
    assert found["failure"]["exit_code"] == 9
    assert found["failure"]["causes"][0]["error"] == "OSError"


def test_several_errors_are_one_error_with_the_first_one_s_exit_code() -> None:
    made = errors.together([KeyError("x"), ClusterError("a"), HostError("b")])
    assert isinstance(made, LabError)
    assert made.exit_code is ExitCode.CLUSTER
    assert [one.what for one in Failure.each(made)] == ["KeyError: 'x'", "a", "b"]
    caught: list[ClusterError] = []
    try:
        raise made
    except* ClusterError as group:
        caught.extend(one for one in group.exceptions if isinstance(one, ClusterError))
    except* (KeyError, HostError):
        pass
    assert [one.what for one in caught] == ["a"]
    only = HostError("b")
    assert errors.together([only]) is only
