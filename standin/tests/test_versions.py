"""winlab and the stand-in have one version, winlab/version.py's; each asks for the other in that version."""

from __future__ import annotations

import tomllib
from pathlib import Path

import winlab

TOP = Path(__file__).resolve().parent.parent.parent


def test_each_asks_for_the_other_in_its_own_version() -> None:
    ours = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    standin = tomllib.loads((TOP / "standin/pyproject.toml").read_text(encoding="utf-8"))
    assert ours["project"]["optional-dependencies"]["rehearse"] == [f"winlab-standin=={winlab.__version__}"]
    assert f"winlab=={winlab.__version__}" in standin["project"]["dependencies"]
    source = Path(standin["tool"]["hatch"]["version"]["path"])
    assert (TOP / "standin" / source).resolve() == TOP / ours["tool"]["hatch"]["version"]["path"]
