"""A lab's folder on a disk that is full, read-only or another user's; and its lock."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest

from winlab import files
from winlab.engine import engine
from winlab.engine.step import Step
from winlab.errors import AccessError, ConflictError, GuestError, HostError, WinlabError
from winlab.events import Event, Note, Progress, Quiet, StepDone
from winlab.lab_folder import LabFolder
from winlab.steps.states import WORK

TROUBLE: dict[int, tuple[type[WinlabError], str]] = {
    errno.ENOSPC: (HostError, "no space left"),
    errno.EROFS: (AccessError, "can't be changed"),
    errno.EACCES: (AccessError, "can't be changed"),
}


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", TROUBLE)
def test_a_folder_that_can_t_be_written_is_reported(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    kind, says = TROUBLE[number]
    plan = plans.make(plans.KVM, "1-0-1")
    monkeypatch.setattr(files, "write_atomic", failing(number))
    with pytest.raises(kind, match=says) as caught:
        LabFolder("lab").ensure_credentials(plan)
    assert "WINLAB_STATE" in caught.value.cure
    monkeypatch.setattr(Path, "mkdir", failing(number))
    for action in (LabFolder("lab").make, lambda: LabFolder("lab").locked().__enter__()):
        with pytest.raises(kind, match=says):
            action()


def test_credentials_that_can_t_be_read_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EACCES))
    with pytest.raises(AccessError, match="can't be read"):
        LabFolder("lab").credentials()


def test_a_journal_that_can_t_be_written_hides_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step's own error is what users see; the journal's is noted once."""
    folder, noted = LabFolder("lab"), list[str]()
    folder.record(StepDone(step="a"))
    monkeypatch.setattr("winlab.journal.os", SimpleNamespace(**{**vars(os), "open": failing(errno.ENOSPC)}))

    def listen(event: Event) -> None:
        if trouble := folder.record(event):
            noted.append(trouble)

    def work(_: Progress) -> None:
        raise GuestError("the guest said no")

    with pytest.raises(GuestError, match="said no"):
        engine.run([Step(WORK(of="x"), work, lambda: False)], listen)
    (text,) = noted
    assert "No space left" in text
    assert folder.record(Note(text="x")) == ""


def test_a_folder_may_go_while_it_is_locked() -> None:
    folder = LabFolder("lab")
    with folder.locked():
        folder.make()
        folder.remove()
        assert not folder.lock.exists()
        with LabFolder("lab").locked():  # a new lab of that name
            pass
    with folder.locked(), pytest.raises(ConflictError, match="lab 'lab'"), LabFolder("lab").locked():
        pass


def test_build_and_destroy_hold_the_same_lock() -> None:
    """As for a golden image: destroying its lab took the machine from under a running build."""
    folder = LabFolder("golden-x")
    with folder.held(Quiet(), "making it"), pytest.raises(ConflictError), folder.locked():
        pass


def test_any_name_of_a_lab_can_be_locked() -> None:
    """The lock of the staging folders is beside the labs' own."""
    folder = LabFolder("staging")
    folder.make()
    with folder.locked(), folder.staging() as path:
        assert path.exists()
