"""Logs as real Windows writes them (logs/README.md): each is explained by exactly its cause, healthy ones by none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from winlab.design.cause.catalog import CAUSES
from winlab.design.cause.model import Clue
from winlab.design.cause.reading import Log, explain, log_of

LOGS = Path(__file__).parent / "logs"
NAMES = sorted(path.name for path in LOGS.iterdir() if path.suffix != ".md")
NONE = {"healthy", "unknown"}
HOW = {
    "as it is": lambda content: content,
    "of Windows": lambda content: content.replace(b"\n", b"\r\n"),
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "UTF-16 without a mark": lambda content: content.decode().encode("utf-16-le"),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", NAMES)
def test_a_log_is_explained_by_its_cause_alone(name: str, how: str) -> None:
    cause = name.partition(".")[0]
    shown = explain([log_of(name, HOW[how]((LOGS / name).read_bytes()))])
    assert [one.cause.name for one in shown] == ([] if cause in NONE else [cause])
    for one in shown:
        assert 1 <= len(one.evidence) <= one.lines
        lines = (LOGS / name).read_text().splitlines()
        for line in one.evidence:
            assert line.log == name
            assert line.text.strip(".")[:40] in lines[line.number - 1]


def test_every_cause_has_a_log_and_every_log_names_its_source() -> None:
    assert {name.partition(".")[0] for name in NAMES} == {cause.name for cause in CAUSES} | NONE
    about = (LOGS / "README.md").read_text()
    assert re.findall(r"^\| `([^`]+)`", about, re.MULTILINE) == NAMES
    findings = {
        int(number) for row in re.findall(r"findings? ([\d, and]+)", about) for number in re.findall(r"\d+", row)
    }
    assert findings >= {*range(1, 17)} - {12, 15}  # 12 is none, 15 stands for section 3


def test_every_clue_is_one_of_a_log() -> None:
    """A clue that no log has might as well be wrong."""
    never = []
    for cause in CAUSES:
        logs = [log_of(name, (LOGS / name).read_bytes()) for name in NAMES if name.startswith(f"{cause.name}.")]
        for clue in cause.clues:
            alone = cause.__class__(cause.name, cause.effect, (clue,), cause.what, cause.why, cause.cure, cause.source)
            if not explain(logs, [alone]):
                never.append(f"{cause.name}: {clue.word} {clue.pattern}")
    assert never == []


def test_the_catalog_is_complete() -> None:
    names = [cause.name for cause in CAUSES]
    assert len(names) == len(set(names))
    for cause in CAUSES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cause.name)
        for text in (cause.what, cause.why, cause.cure):
            assert text.endswith("."), text
        assert cause.source


def _with_until(clue: Clue) -> list[Clue]:
    return [clue, *(_with_until(clue.until) if clue.until else [])]


def test_no_pattern_takes_long() -> None:
    """The author of a log must not keep winlab busy: repetitions have a limit."""
    for clue in (each for cause in CAUSES for one in cause.clues for each in _with_until(one)):
        assert clue.word == clue.word.lower()
        assert clue.word.isascii()
        assert not re.search(r"(?<!\\)[*+]|\{\d+,\}", clue.pattern), clue.pattern
        re.compile(clue.pattern)


def test_the_words_of_winlab_for_a_cause_match_no_other() -> None:
    """A failure's message has these words, and is in the archive that is explained."""
    for cause in CAUSES:
        for text in (cause.what, cause.why, cause.cure):
            assert {one.cause.name for one in explain([Log("failure.json", text)])} <= {cause.name}, text


OWN = (
    "firewall takes no inbound rules",
    "windows has no network adapter",
    "the serial port can't be written",
    "the guest tools ended with exit code",
    "the guest agent's installer ended with exit code",
    "openssh is not available",
    "winlab: beacon",
    "winlab: phase=",
    "there is no hns endpoint '",
    "has not made the hns endpoint '",
    "is not made after three minutes",
    "containerd does not answer after",
    "is it for another windows?",
    "windows did not install",
    "windows update: ",
    "task for updates ended without",
    "setup is not complete: its state is",
    "the state of windows is ",
    "it is up, and ",
    "reports that it is ready, but nothing answers",
    "commands run with a filtered token",
    "a policy restricts powershell to",
    "letters don't come back as they were sent",
    "does not arrive whole",
    "input does not end",
    "refuses the administrator's password",
    "has locked the administrator's account",
    "does not answer winrm at",
    "no answer file was found",
    "automatic logon failed: there is no account",
)


@pytest.mark.parametrize("word", OWN)
def test_the_words_of_winlab_are_up_to_date(word: str) -> None:
    """Anyone who changes a message changes the clue, too."""
    assert any(clue.word.startswith(word) for cause in CAUSES for one in cause.clues for clue in _with_until(one)), word
    root = Path(__file__).parents[4]
    folders = ("winlab", "unattend/windows", "standin/winlab_standin/guest")
    paths = (
        path for folder in folders for path in (root / folder).rglob("*") if path.suffix in (".py", ".ps1", ".cmd")
    )
    assert any(word in path.read_text(encoding="utf-8").lower() for path in paths if "cause" not in path.parts)
