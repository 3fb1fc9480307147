"""The guest's base: how it fails, as text that goes to Setup's log and to the serial port."""

from __future__ import annotations

import pytest

from winlab_standin.guest.base import TAIL, CommandError, Result, StandinError, run, start


def test_a_failure_says_why() -> None:
    assert str(StandinError("It ended.", why="Somebody ended it.")) == "It ended.\n  why: Somebody ended it."
    assert str(StandinError("It ended.")) == "It ended."


def test_a_failed_program_is_shown_with_its_command_line_and_last_output() -> None:
    result = Result(3, "not this", "".join(f"line {number}\n" for number in range(30)), 1.6)
    said = str(CommandError(["mount", "a b"], result))
    assert said.startswith("'mount 'a b'' ended with exit code 3 after 2 s.\n  why: line 10\n")
    assert said.count("line ") == TAIL
    assert "It printed nothing." in str(CommandError(["sync"], Result(1, "", "", 0.0)))
    assert len(str(CommandError(["echo", "x" * 1000], result)).splitlines()[0]) < 500


@pytest.mark.parametrize("begin", [run, start])
def test_a_missing_program(begin: object) -> None:
    assert callable(begin)
    with pytest.raises(StandinError, match="'no-such-program' is not installed"):
        begin(["no-such-program"])
