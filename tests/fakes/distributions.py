"""Packages of other authors, as if installed: modules and metadata in a folder on Python's path."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Distribution:
    """Where a package was put."""

    folder: Path


def install(
    folder: Path, name: str, version: str, files: dict[str, str], points: dict[str, dict[str, str]]
) -> Distribution:
    """Put a package into *folder*: its files, and what an installer writes about it (dist-info).

    :param points: entry points, by their group and name.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in row.items()) for group, row in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Distribution(folder)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[partial[Distribution]]:
    """Installs packages of other authors for one test: ``distribution(name, version, files, points)``."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield partial(install, tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


MOTD = Path(__file__).with_name("addon_package")


def install_motd(make: partial[Distribution]) -> Distribution:
    """Install the add-on in tests/fakes/addon_package as its pyproject.toml says."""
    project = tomllib.loads((MOTD / "pyproject.toml").read_text())["project"]
    files = {
        str(path.relative_to(MOTD)): path.read_text()
        for path in MOTD.rglob("*")
        if path.is_file() and path.parent != MOTD and path.suffix != ".pyc"
    }
    return make(project["name"], project["version"], files, project["entry-points"])
