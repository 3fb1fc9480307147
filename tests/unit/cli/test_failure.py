"""A command that fails in a step of a lab ends with the path of an archive; whatever happens, the failure is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import results
from commands import run as winlab

from winlab import Lab, Listener
from winlab.cli import lab
from winlab.errors import (
    ConflictError,
    Failure,
    GuestError,
    HostError,
    LabError,
    NotFoundError,
    OffError,
    UsageError,
    WinlabError,
)
from winlab.events import RunEnded, StepFailed, StepProgress, StepStarted

ERROR = GuestError("'join' failed.", why="It is tired.")
Work = Callable[[Listener], None]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, BaseException | None]]:
    """The labs of which an archive was made, and what failed."""
    calls: list[tuple[str, BaseException | None]] = []

    def support(self: Lab, to: Path | None = None, *, failed: BaseException | None = None, listener: Listener) -> Path:
        listener(StepProgress(step="support", text="collecting", seconds=60))  # in a pipe, shown once a minute
        calls.append((self.name, failed))
        return to or Path(f"/state/support/{self.name}.tar.gz")

    monkeypatch.setattr(Lab, "support", support)
    monkeypatch.delenv("WINLAB_SUPPORT_SECONDS", raising=False)
    return calls


def destroying(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    monkeypatch.setattr(Lab, "destroy", lambda self, *, anyone, listener: work(listener))


def fail(tell: Listener, error: Exception = ERROR) -> None:
    tell(StepStarted(step="join node-1"))
    tell(StepFailed(step="join node-1", failure=Failure.of(error)))
    tell(RunEnded(exit_code=9, failures=(Failure.of(error),)))
    raise error


def test_the_path_ends_the_message(
    made: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    destroying(monkeypatch, fail)
    assert winlab(monkeypatch, "destroy", "--lab", "mine") == 9
    said = capsys.readouterr().err.splitlines()
    shown = said.index("winlab: 'join' failed.")
    assert shown < said.index(next(line for line in said if "collecting" in line))  # users see it before the wait
    assert said[-1] == "everything about it: /state/support/mine.tar.gz"
    assert made == [("mine", ERROR)]


def test_the_end_of_the_run_names_it(
    made: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    destroying(monkeypatch, fail)
    file = tmp_path / "events"
    assert winlab(monkeypatch, "destroy", "--lab", "mine", "--output", "json", "--events", str(file)) == 9
    events = results.events(file)
    assert [one["event"] for one in events] == ["StepStarted", "StepFailed", "StepProgress", "RunEnded"]
    assert events[-1]["support"] == "/state/support/mine.tar.gz"
    assert events[-1]["failures"][0]["what"] == "'join' failed."
    failed = results.error(capsys.readouterr().out)
    assert (failed["what"], failed["support"]) == ("'join' failed.", "/state/support/mine.tar.gz")


@pytest.mark.parametrize("error", [HostError("OVN does not answer."), KeyError("bug")])
def test_a_failure_outside_a_run(
    made: list[Any], error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a bug."""

    def work(tell: Listener) -> None:
        tell(StepStarted(step="something"))
        raise error

    destroying(monkeypatch, work)
    winlab(monkeypatch, "destroy", "--output", "json")
    said = capsys.readouterr()
    assert results.error(said.out)["support"] == "/state/support/lab.tar.gz"
    assert said.err.splitlines()[-1] == "everything about it: /state/support/lab.tar.gz"


def test_a_failure_after_the_last_step(
    made: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lab is up, and its cluster refuses the question what it has."""
    destroying(monkeypatch, lambda tell: tell(StepStarted(step="ready node-1")))

    def say(_: object) -> None:
        raise ERROR

    monkeypatch.setattr(lab, "say", say)
    assert winlab(monkeypatch, "destroy", "--lab", "mine") == 9
    assert capsys.readouterr().err.splitlines()[-1] == "everything about it: /state/support/mine.tar.gz"


def _untouched(tell: Listener) -> None:
    tell(StepProgress(step="plan"))
    raise HostError("No.")


def _bad_input(tell: Listener) -> None:
    fail(tell, UsageError("This is no program."))


def _no_such_image(tell: Listener) -> None:
    fail(tell, NotFoundError("There is no file 'nosuch.tar'."))


def _locked(tell: Listener) -> None:
    fail(tell, ConflictError("The image has another SHA-256 than the lock file says."))


def _off(tell: Listener) -> None:
    fail(tell, OffError("'node-1' is off."))


def _several(tell: Listener) -> None:
    fail(tell, LabError([OffError("'node-1' is off."), NotFoundError("There is no file.")]))


def _interrupted(tell: Listener) -> None:
    tell(StepStarted(step="x"))
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (_untouched, 4),
        (_bad_input, 2),
        (_interrupted, 130),
        (_no_such_image, 5),
        (_locked, 6),
        (_off, 9),
        (_several, 9),
    ],
)
def test_no_archive_if_there_is_nothing_to_report(
    made: list[Any], work: Work, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ux N9: what the user mistyped needs none."""
    destroying(monkeypatch, work)
    assert winlab(monkeypatch, "destroy") == code
    assert "everything about it" not in capsys.readouterr().err
    assert made == []


def test_a_failure_beside_a_refusal_is_collected(made: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    destroying(monkeypatch, lambda tell: fail(tell, LabError([OffError("'node-1' is off."), ERROR])))
    assert winlab(monkeypatch, "destroy") == 9
    assert [lab_ for lab_, _ in made] == ["lab"]


def test_no_archive_is_requested(
    made: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WINLAB_SUPPORT_SECONDS", "0")
    destroying(monkeypatch, fail)
    assert winlab(monkeypatch, "destroy", "--output", "json") == 9
    said = capsys.readouterr()
    assert results.error(said.out)["support"] == ""
    assert "everything about it" not in said.err
    assert made == []


@pytest.mark.parametrize("trouble", [WinlabError("The folder is full."), KeyError("bug"), KeyboardInterrupt()])
def test_trouble_with_the_archive_hides_nothing(
    made: list[Any], trouble: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def support(self: Lab, **_: object) -> Path:
        raise trouble

    monkeypatch.setattr(Lab, "support", support)
    destroying(monkeypatch, fail)
    assert winlab(monkeypatch, "destroy", "--output", "json") == 9
    said = capsys.readouterr()
    assert results.error(said.out)["failures"][0]["what"] == "'join' failed."
    assert "winlab: 'join' failed." in said.err
    assert "everything about it" not in said.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("WINLAB_STALL_SECONDS", "x"), ("WINLAB_SUPPORT_SECONDS", "soon"), ("WINLAB_OVN_NB", "/run/ovn/ovnnb_db.sock")],
)
@pytest.mark.parametrize("words", [["version"], ["destroy", "-y"], ["exec", "node-1", "hostname"]])
def test_a_variable_that_is_not_valid_ends_every_command_at_once(
    words: list[str], name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ux D38. Help is always shown."""
    monkeypatch.setenv(name, value)
    destroying(monkeypatch, fail)
    assert winlab(monkeypatch, *words) == 2
    said = capsys.readouterr().err
    assert f"{name} is '{value}'." in said
    assert "cure:" in said
    assert winlab(monkeypatch, *words[:1], "--help") == 0


def test_the_command(made: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert winlab(monkeypatch, "support") == 0
    assert capsys.readouterr().out == "/state/support/lab.tar.gz\n"
    assert winlab(monkeypatch, "support", "mine", "--to", "it.tar.gz") == 0
    assert winlab(monkeypatch, "support", "--lab", "mine") == 0
    assert [name for name, _ in made] == ["lab", "mine", "mine"]
    assert winlab(monkeypatch, "support", "mine", "--lab", "other") == 2
    assert "'--lab' has two values: 'mine' and 'other'." in capsys.readouterr().err
