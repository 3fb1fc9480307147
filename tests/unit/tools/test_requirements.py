"""Packages that make-venv and make-deb install have digests, and match the requirements of winlab and the stand-in."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[3]
LISTS = ROOT / "tools/requirements"
OWN = {"winlab", "winlab-standin"}


def rows(name: str) -> list[tuple[Requirement, list[str]]]:
    """The requirements of a list, each with its digests."""
    text = (LISTS / f"{name}.txt").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    found = []
    for line in lines.splitlines():
        first, *digests = line.split("--hash=sha256:")
        found.append((Requirement(first.strip()), [digest.strip() for digest in digests]))
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", ["build", "all", "run"])
def test_each_package_has_one_version_and_its_digests(name: str) -> None:
    found = rows(name)
    assert len({row.name for row, _ in found}) == len(found) > 5
    for row, digests in found:
        assert [one.operator for one in row.specifier] == ["=="], row
        assert digests, row
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests), row
    assert "//" not in (LISTS / f"{name}.txt").read_text()  # no package index of the one who wrote it


@pytest.mark.parametrize("name", ["build", "run"])
def test_the_lists_agree(name: str) -> None:
    every = {row.name: (row.specifier, digests) for row, digests in rows("all")}
    for row, digests in rows(name):
        assert every.get(row.name, (row.specifier, digests)) == (row.specifier, digests)


def test_packages_for_users_have_no_tools_of_developers() -> None:
    run = {row.name for row, _ in rows("run")}
    assert run < {row.name for row, _ in rows("all")}
    assert run.isdisjoint({"pytest", "mypy", "ruff", "pyte"})


@pytest.mark.parametrize("file", ["pyproject.toml", "standin/pyproject.toml", "tools/requirements/build.in"])
def test_every_requirement_has_a_pinned_version_that_fits(file: str) -> None:
    """After a change of a pyproject.toml: tools/lock-python."""
    if file.endswith(".in"):
        wanted = [line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#")]
    else:
        project = tomllib.loads((ROOT / file).read_text())
        wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
        wanted += project["project"].get("optional-dependencies", {}).get("dev", [])
    there = {canonical(row.name): next(iter(row.specifier)).version for row, _ in [*rows("build"), *rows("all")]}
    for requirement in map(Requirement, wanted):
        if requirement.name not in OWN:
            assert requirement.specifier.contains(there[canonical(requirement.name)]), requirement


@pytest.mark.parametrize(
    ("script", "mark", "count"), [("make-venv", '/bin/pip" install', 3), ("make-deb", '"${install[@]}" ', 2)]
)
def test_nothing_is_installed_without_digests(script: str, mark: str, count: int) -> None:
    """winlab itself comes from the checkout; with --no-deps nothing else does."""
    text = (ROOT / "tools" / script).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if mark in line]
    assert len(lines) == count
    for line in lines:
        assert "--require-hashes" in line or "--no-deps --no-build-isolation" in line
        assert "--only-binary" in line or "--no-build-isolation" in line
