"""mutants.py, which changes the scripts: when it fails."""

from __future__ import annotations

import subprocess  # noqa: TID251 - asks make
from pathlib import Path

import pytest
from powershell.mutants import enough

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("hits", "made", "least", "is_enough"),
    [
        (16, 20, 16, True),
        (15, 20, 16, False),
        (0, 20, 0, True),
        (4, 5, 16, True),  # the file has no more places
        (3, 5, 16, False),
        (0, 0, 16, True),
    ],
)
def test_how_many_must_be_noticed(hits: int, made: int, least: int, is_enough: bool) -> None:
    assert enough(hits, made, 20, least) is is_enough


@pytest.mark.parametrize(
    ("given", "least"), [([], "16"), (["COUNT=40"], "32"), (["COUNT=1"], "0"), (["COUNT=20", "LEAST=19"], "19")]
)
def test_make_says_how_many(given: list[str], least: str) -> None:
    words = ["make", "--dry-run", "--old-file=.venv/.installed", "mutants", *given]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f'--least "{least}"' in told
