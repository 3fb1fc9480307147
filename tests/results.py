"""What winlab prints with ``-o json``: parsed, and checked against the schema of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from winlab.cli import result


def document(printed: str) -> dict[str, Any]:
    """The one document that a command printed."""
    result.check(printed)
    made: dict[str, Any] = json.loads(printed)
    return made


def items(printed: str) -> list[Any]:
    """The items of a result."""
    found: list[Any] = document(printed)["items"]
    return found


def item(printed: str) -> Any:
    """The item of a result that has only one."""
    (found,) = items(printed)
    return found


def error(printed: str) -> dict[str, Any]:
    """Why a command failed."""
    made: dict[str, Any] = document(printed)["error"]
    return made


def streamed(printed: str) -> list[Any]:
    """The items of documents that a command printed one by one, each on a line."""
    return [item(line) for line in printed.splitlines()]


def events(file: Path) -> list[dict[str, Any]]:
    """What ``--events`` wrote."""
    return [json.loads(line) for line in file.read_text().splitlines()]
