"""A short run of every parser, the same each time; ``make fuzz`` runs longer, another one each day (CONTRIBUTING.md)."""

from __future__ import annotations

from pathlib import Path

import fuzzing
import parsers  # noqa: F401 - registers them
import pytest

SEED = "winlab"
SECONDS = 2.0  # for each parser, at most; the valid inputs are always fed
INPUTS = 25
LONG = 4000  # bytes of an input that are shown
CASES = sorted(path for path in fuzzing.CASES.iterdir() if path.name != "README.md")


@pytest.mark.parametrize("name", sorted(fuzzing.PARSERS))
def test_no_input_has_an_unexpected_outcome(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    parser, seed = fuzzing.PARSERS[name], SEED
    totals = fuzzing.run(parser, seed, seconds=SECONDS * parser.weight, inputs=INPUTS)
    folder = tmp_path_factory.mktemp("inputs")
    told = [
        f"{bad.what}\n{bad.trace}{bad.content[:LONG]!r}\nmake fuzz REPLAY={bad.save(folder)}"
        for bad in totals.unexpected
    ]
    assert not told, f"SEED={seed}\n" + "\n".join(told)
    assert totals.inputs, "nothing was fed"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inputs_that_failed_before(case: Path) -> None:
    totals = fuzzing.replay(fuzzing.PARSERS[case.name.partition(".")[0]], case.read_bytes())
    assert not totals.unexpected, totals.unexpected[0].what + totals.unexpected[0].trace


def test_an_unexpected_outcome_is_noticed() -> None:
    """What the harness must notice: another exception, an empty error, too much memory, a program, an exit."""
    from winlab.errors import UsageError

    def crash(content: bytes, folder: Path) -> None:
        raise KeyError("x")

    def mute(content: bytes, folder: Path) -> None:
        raise UsageError("no")

    def greedy(content: bytes, folder: Path) -> None:
        bytearray(fuzzing.MEMORY + (64 << 20))

    def start(content: bytes, folder: Path) -> None:
        import subprocess

        subprocess.run(["true"])

    def end(content: bytes, folder: Path) -> None:
        import os

        os._exit(3)

    def fine(content: bytes, folder: Path) -> None:
        raise UsageError("no", cure="yes")

    for feed, says in (
        (crash, "KeyError"),
        (mute, "without why"),
        (greedy, "MemoryError"),
        (start, "TouchedTheWorld"),
        (end, "ended with 3"),
    ):
        totals = fuzzing.replay(fuzzing.Parser("x", feed, lambda: [], ()), b"input")
        assert says in totals.unexpected[0].what, says
        assert totals.unexpected[0].content == b"input"
    assert not fuzzing.replay(fuzzing.Parser("x", fine, lambda: [], ()), b"input").unexpected


def test_the_same_seed_makes_the_same_inputs() -> None:
    parser = fuzzing.PARSERS["lock-file"]
    seeds = list(parser.seeds())
    made = [[fuzzing.make(parser, seeds, seed, number) for number in range(30)] for seed in ("a", "a", "b")]
    assert made[0] == made[1] != made[2]
