"""The files that winlab renders for this node: written, compared, and removed when winlab no longer gives them."""

from __future__ import annotations

import grp
import pwd
from pathlib import Path

from winlab_node.files import digest_of
from winlab_node.node import Node, NodeError, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from winlab_node.node import Settings

GIVEN = "given"  # the record of the paths that winlab gave this node
TOUCHED = "touched"  # the record of the paths that changed and whose readers have not been restarted yet


def write_files(node: Node, files: dict[str, Settings], copied: list[str]) -> list[str]:
    """Write the files that differ, and remove those that winlab gave before but no longer gives.

    Returns what was changed, with *copied* and what an interrupted run has changed, all without the leading slash. It
    is recorded before the first change: services must be restarted even after an interruption.
    """
    wanted = {name: (row["content"], int(row["mode"], 8), _owner(row.get("owner", ""))) for name, row in files.items()}
    before = node.note(GIVEN, [])
    gone = [name for name in before if name not in files and node.path(name).is_file()]
    changed = [name for name, content in wanted.items() if not node.has(name, *content)]
    touched = sorted({*node.note(TOUCHED, []), *copied, *(name.lstrip("/") for name in (*changed, *gone))})
    if changed or gone:
        node.keep(GIVEN, sorted({*before, *files}))
    if touched:
        node.keep(TOUCHED, touched)
    for name in changed:
        if node.path(name).exists():
            say(f"{name} differs: it is written again")
        node.write(name, *wanted[name])
    for name in gone:
        say(f"{name} is removed: nothing asks for it any more")
        node.path(name).unlink()
    return touched


def facts(node: Node, asked: list[str]) -> dict[str, Settings]:
    """The digest, mode and owner of each of these files that exists, by its path."""
    return {name: _facts(node.path(name)) for name in asked if node.path(name).is_file()}


def left_over(node: Node, asked: list[str]) -> list[str]:
    """The files that winlab gave this node, and that are not among the requested ones (*asked*)."""
    return [name for name in node.note(GIVEN, []) if name not in asked and node.path(name).is_file()]


def _facts(path: Path) -> Settings:
    stat = path.stat()
    return {
        "sha256": digest_of(path),
        "mode": f"{stat.st_mode & 0o7777:04o}",
        "owner": f"{_name_of_user(stat.st_uid)}:{_name_of_group(stat.st_gid)}",
    }


def _owner(text: str) -> tuple[int, int] | None:
    """The numbers of ``user:group``; None for an empty text.

    :raises NodeError: this node has no such user or group.
    """
    if not text:
        return None
    user, _, group = text.partition(":")
    try:
        return pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise NodeError(f"A file is to belong to '{text}': {error.args[0]}.") from None


def _name_of_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _name_of_group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
