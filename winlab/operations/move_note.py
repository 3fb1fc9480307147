"""The note of a move of a node that has begun: while it is there, only the same move continues, or the lab is removed.

The machine may be defined on two hypervisors then, and must not be started on both.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from winlab.errors import ConflictError, WinlabError
from winlab.lab_folder import LabFolder


class MoveNote(BaseModel):
    """A move: ``ran`` is whether the node is to run afterwards, ``autostart`` whether it starts with its host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    source: str
    target: str
    cold: bool
    ran: bool
    autostart: bool


def _path(folder: LabFolder) -> Path:
    return folder.path / "move.json"


def read(folder: LabFolder) -> MoveNote | None:
    """The move that has begun; None if there is none.

    :raises WinlabError: the note is damaged.
    """
    try:
        return MoveNote.model_validate_json(_path(folder).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise WinlabError(
            f"The note of a move in the lab '{folder.lab}' can't be read.",
            why=str(error),
            cure="Find out on which hypervisors its machines are ('winlab status'). Then remove the file.",
            evidence=str(_path(folder)),
        ) from error


def write(folder: LabFolder, note: MoveNote) -> None:
    """Note that a move begins.

    :raises WinlabError: the lab's folder can't be written.
    """
    folder.write(_path(folder), note.model_dump_json(indent=1) + "\n")


def remove(folder: LabFolder) -> None:
    """The move has ended."""
    _path(folder).unlink(missing_ok=True)


def refuse(folder: LabFolder) -> None:
    """Check that no move was interrupted.

    :raises ConflictError: one was.
    """
    if (note := read(folder)) is not None:
        raise interrupted(folder, note)


def interrupted(folder: LabFolder, note: MoveNote) -> ConflictError:
    """The error which says that a move was interrupted."""
    return ConflictError(
        f"A move of '{note.node}' from '{note.source}' to '{note.target}' was interrupted.",
        why="The machine may be on both, and must not run twice.",
        cure=f"Run 'winlab move {note.node} {note.target} --lab {folder.lab}': it finishes the move.",
    )
