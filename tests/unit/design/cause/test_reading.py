"""How logs are read: what counts, what was overcome, and that hostile logs take little time."""

from __future__ import annotations

import pytest

from winlab.design.cause.model import Cause, Clue, Effect
from winlab.design.cause.reading import MOST, SHOWN, WIDTH, Log, decoded, explain, log_of, recognise

DRIVER = "2026-01-01 10:00:03, Error      SP     Result = 0x80070103"


def names(*texts: str) -> list[str]:
    return [one.cause.name for one in explain(Log(f"{number}", text) for number, text in enumerate(texts))]


def one(effect: Effect, *clues: Clue, name: str = "it") -> Cause:
    return Cause(name, effect, clues, "What.", "Why.", "Cure.", "Source")


@pytest.mark.parametrize("how", ["utf-16", "utf-16-le", "utf-8", "utf-8-sig"])
def test_encodings_of_windows(how: str) -> None:
    text = "Fehler beim Lesen für 中: 0x80070570"
    assert decoded(text.encode(how)) == text


def test_fatal_causes_come_before_minor_ones_and_both_before_silence() -> None:
    hurts, ends, silent = "warning=ssh: winlab: warning=ssh: no", DRIVER, "winlab: phase=windowsPE"
    assert names(f"{silent}\n{hurts}", ends) == ["driver-refused", "no-ssh"]
    assert names(f"{silent}\n{hurts}") == ["no-ssh"]
    assert names(silent) == ["silent-in-windows-pe"]


def test_a_failure_before_a_later_phase_was_overcome() -> None:
    assert names(f"winlab: phase=windowsPE\n{DRIVER}\n") == ["driver-refused"]
    assert names(f"winlab: phase=windowsPE\n{DRIVER}\nwinlab: phase=ready\n") == []
    assert names("winlab: warning=ssh: no\nwinlab: phase=ready\n") == ["no-ssh"]


def test_a_line_belongs_to_one_cause() -> None:
    causes = [one(Effect.ENDS, Clue("both"), name="first"), one(Effect.ENDS, Clue("both"), Clue("own"), name="second")]
    assert [each.cause.name for each in explain([Log("", "both")], causes)] == ["first"]
    assert [each.cause.name for each in explain([Log("", "both\nown")], causes)] == ["first", "second"]


def test_harmless_entries_of_setup_don_t_count() -> None:
    assert names("2026-01-01 10:00:02, Info      IBS  it says 0x80070570") == []
    assert names("2026-01-01 10:00:02, Warning   IBS  it goes on\n  in a second line: 0x80070570") == []
    assert names("2026-01-01 10:00:02, Error     IBS  it goes on\n  in a second line: 0x80070570") == ["medium-damaged"]
    assert names("2026-01-01 10:00:02, Info      IBS  x\nwinlab: dump of Setup:\n0x80070570") == ["medium-damaged"]


def test_repetitions_count_until_a_later_line_clears_them() -> None:
    cause = one(Effect.HURTS, Clue("bad", times=3, until=Clue("good")))

    def count(text: str) -> int:
        return sum(each.lines for each in explain([Log("", "\n".join(text.split()))], [cause]))

    assert count("bad bad") == 0
    assert count("bad bad bad") == 3
    assert count("bad bad good bad") == 0
    assert count("good bad bad bad bad") == 4


def test_evidence_is_short_and_printable() -> None:
    text = f"x\n{'a' * 5000} 0x80070570 \x1b]0;title\x07{'b' * 5000}\n" + "0x80070570\n" * 10
    (shown,) = explain([Log("a.log", text)])
    assert shown.lines == 11
    assert len(shown.evidence) == SHOWN
    line = shown.evidence[0]
    assert (line.log, line.number) == ("a.log", 2)
    assert "0x80070570" in line.text
    assert "\x1b" not in line.text
    assert line.text.startswith("...")
    assert line.text.endswith("...")
    assert len(line.text) <= WIDTH + 6


def test_a_journal_counts_with_the_failures_of_its_last_run() -> None:
    failed = '{"event": "StepFailed", "failure": {"what": "0x80070570"}}'
    begun = '{"event": "RunStarted"}'
    said = '{"event": "StepProgress", "text": "0x80070570"}'
    for lines, count in (([begun, failed], 1), ([begun, failed, begun, said], 0), ([failed], 1), ([said], 0)):
        shown = explain([log_of("journal.jsonl", "\n".join(lines).encode())])
        assert sum(each.lines for each in shown) == count
    (shown,) = explain([log_of("journal.jsonl", f"{begun}\n{said}\n{failed}".encode())])
    assert shown.evidence[0].number == 3
    assert explain([log_of("serial.log", said.encode())])


def test_steps_get_only_the_cause_that_ended_them() -> None:
    assert recognise("fine", DRIVER) is not None
    assert recognise("winlab: warning=ssh: no", "winlab: phase=windowsPE") is None


@pytest.mark.parametrize(
    "line",
    [
        "winlab: beacon 1 addresses=" + "169.254." * 500,
        "winlab: beacon 1 addresses=" + "1" * 4000,
        "bdsdxe: failed to start " + "CD-ROM" * 600,
        "pnputil.exe /add-driver " + "/own-" * 800,
        "0x40031 " + "0x80070001   -   " * 230,
        "0x8007000d " * 380,
        "winlab: phase=scripts winlab: error=bootstrap:",
        "2026-01-01 10:00:02, Info 0x80070570",
    ],
)
def test_a_hostile_log_takes_no_longer(line: str) -> None:
    """A guest may write anything: no log may need more than time in proportion. This would take hours."""
    content = ((line + "\n") * ((1 << 20) // (len(line) + 1))).encode()
    explain([log_of("serial.log", content)])
    explain([log_of("serial.log", content.replace(b"\n", b" "))])


def test_of_too_many_lines_the_last_ones_are_read() -> None:
    (shown,) = explain([Log("", "0x80070570\n" * (MOST + 500))])
    assert shown.lines == MOST
