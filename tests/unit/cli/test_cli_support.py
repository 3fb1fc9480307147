"""``winlab support [LAB]`` and ``winlab support explain FILE``: one word apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commands
import pytest
import results

from winlab import Lab

LOGS = Path(__file__).parents[1] / "design/cause/logs"


def ran(*words: str) -> commands.Ran:
    return commands.ran("support", *words)


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Any]]:
    """Of which labs an archive was made, and where to."""
    made = []

    def support(self: Lab, to: Path | None = None, **_: object) -> Path:
        made.append((self.name, to))
        path = to or tmp_path / "it.tar.gz"
        path.write_bytes(b"")
        return path

    monkeypatch.setattr(Lab, "support", support)
    return made


@pytest.mark.parametrize(
    "words", [("mine", "--to", "{to}"), ("--to", "{to}", "mine"), ("--lab", "mine", "--to", "{to}")]
)
def test_flags_stand_before_or_after_the_lab(
    collected: list[tuple[str, Any]], tmp_path: Path, words: tuple[str, ...]
) -> None:
    to = tmp_path / "x.tar.gz"
    assert ran(*(word.format(to=to) for word in words)).exit_code == 0
    assert collected == [("mine", to)]


def test_without_a_name_it_is_the_usual_lab(collected: list[tuple[str, Any]]) -> None:
    assert ran().exit_code == 0
    assert collected == [("lab", None)]


def test_a_lab_called_explain(collected: list[tuple[str, Any]]) -> None:
    assert ran("--lab", "explain").exit_code == 0
    assert collected == [("explain", None)]
    assert ran("explain").exit_code == 2  # the file is missing
    assert len(collected) == 1


def test_two_names_are_too_many(collected: list[tuple[str, Any]]) -> None:
    assert ran("a", "b").exit_code == 2
    assert collected == []


def test_a_log_is_explained(collected: list[tuple[str, Any]]) -> None:
    done = ran("explain", str(LOGS / "no-ssh.serial.log"))
    assert done.exit_code == 0
    assert collected == []
    assert done.stdout.startswith("The node has no ssh; everything else works without it.\n  cause:    no-ssh (hurts)")
    assert "  cure:     Give the package with workers.openssh" in done.stdout
    assert "  seen:     no-ssh.serial.log:15: winlab: warning=ssh: OpenSSH is not available" in done.stdout


def test_more_lines_are_counted() -> None:
    assert "            and 6 more lines\n" in ran("explain", str(LOGS / "no-address.serial.log")).stdout


def test_no_known_cause_is_reported() -> None:
    done = ran("explain", str(LOGS / "healthy.serial.log"))
    assert done.exit_code == 0
    assert done.stdout.startswith("No known cause found in ")


@pytest.mark.parametrize("words", [("--output", "json", "{}"), ("{}", "-o", "json")])
def test_as_json(words: tuple[str, ...]) -> None:
    path = LOGS / "healthy.journal.jsonl"
    made = results.item(ran("explain", *(word.format(path) for word in words)).stdout)
    assert (made["file"], made["logs"], made["left"], made["causes"]) == (str(path), 1, "", [])
    (row,) = results.item(ran("explain", str(LOGS / "token.join.log"), "-o", "json").stdout)["causes"]
    assert set(row) == {"name", "effect", "what", "why", "cure", "source", "lines", "evidence"}


def test_help_has_both() -> None:
    said = ran("--help").stdout
    assert "--to" in said
    assert "explain" in said
    assert "FILE" in ran("explain", "--help").stdout
