"""An interrupted move: only the same move continues, or the lab is removed."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.errors import ConflictError, WinlabError
from winlab.events import ignore
from winlab.lab_folder import LabFolder
from winlab.operations import move_note
from winlab.operations.carry_out import Job, carry_out
from winlab.operations.move_note import MoveNote
from winlab.site import Site

NOTE = MoveNote(node="node-1", source="hypervisor-1", target="hypervisor-2", cold=True, ran=True, autostart=False)


@pytest.fixture
def folder() -> LabFolder:
    folder = LabFolder("lab")
    folder.make()
    move_note.write(folder, NOTE)
    return folder


def test_other_commands_are_refused_until_the_move_is_finished(
    folder: LabFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Site, "hypervisors", lambda _: nullcontext(Hypervisors(())))
    with pytest.raises(ConflictError, match="A move of 'node-1' from 'hypervisor-1' to 'hypervisor-2'") as caught:
        carry_out(Job("lab", lambda _: None), Site(), ignore)
    assert "'winlab move node-1 hypervisor-2 --lab lab'" in caught.value.cure
    assert carry_out(Job("lab", lambda _: "done", moves=True), Site(), ignore) == "done"
    assert move_note.read(folder) == NOTE
    move_note.remove(folder)
    assert carry_out(Job("lab", lambda _: "done"), Site(), ignore) == "done"


def test_a_damaged_note_is_not_taken_for_none(folder: LabFolder) -> None:
    (folder.path / "move.json").write_text("{}")
    with pytest.raises(WinlabError, match="can't be read"):
        move_note.read(folder)
