#!/usr/bin/env python3
"""Writes the parts of docs/ that are made from code or records: pictures, and what is between two markers of one name.

tools/generate_docs.py            writes them
tools/generate_docs.py --check    says what is not as it should be, and writes nothing
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import record, table  # noqa: E402
from reference import commands, messages  # noqa: E402
from winlab.design import addon, cni  # noqa: E402
from winlab.design.cause.catalog import CAUSES  # noqa: E402
from winlab.design.cni.profile import WINDOWS_RELEASES  # noqa: E402


def cni_profiles() -> str:
    """The table of docs/cni.md."""
    releases = " / ".join(WINDOWS_RELEASES)
    rows = [
        f"| profile | pods on Linux / Windows | who carries the routes | Windows {releases} | rehearsal |",
        "| --- | --- | --- | --- | --- |",
    ]
    for profile in cni.profiles().values():
        levels = [profile.support(release).level for release in WINDOWS_RELEASES]
        shown = " / ".join("**supported**" if level == "supported" else level for level in levels)
        rehearsal = "no" if profile.no_rehearsal else "yes"
        rows.append(f"| `{profile.name}` | {profile.pods} | {profile.carrier} | {shown} | {rehearsal} |")
    return "\n".join(rows)


def addons() -> str:
    """The list of docs/addons.md: those that come with winlab."""
    rows = ["| add-on | what it brings | settings |", "| --- | --- | --- |"]
    for name, one in addon.registry().items():
        folder = Path(inspect.getfile(type(one))).parent
        if ROOT not in folder.parents:
            continue  # it belongs to another package that is installed here
        readme = (folder / "README.md").relative_to(ROOT)
        settings = ", ".join(f"`{field}`" for field in one.Settings.model_fields) or "none"
        rows.append(f"| [`{name}`](../{readme}) | {one.summary} | {settings} |")
    return "\n".join(rows)


def causes() -> str:
    """The table of docs/causes.md."""
    rows = ["| cause | effect | what and why | cure | known from |", "| --- | --- | --- | --- | --- |"]
    for one in CAUSES:
        cells = (f"`{one.name}`", one.effect.value, f"{one.what} {one.why}", one.cure, one.source)
        rows.append(f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |")
    return "\n".join(rows)


PARTS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/cni.md", "cni profiles"): cni_profiles,
    ("docs/addons.md", "add-ons"): addons,
    ("docs/causes.md", "causes"): causes,
    ("docs/commands.md", "commands"): commands.page,
    ("docs/messages.md", "messages"): messages.page,
    ("docs/benchmarks.md", "goals"): lambda: table.goals(record.read()),
    ("docs/benchmarks.md", "results"): lambda: table.results(record.read()),
}
PICTURES: dict[str, Callable[[], str]] = {"docs/benchmarks.svg": lambda: table.picture(record.read())}


def updated(text: str, marker: str, part: str) -> str:
    """*text* with *part* between the markers; ValueError unless each occurs exactly once."""
    begin, end = f"<!-- generated: {marker} -->\n", f"<!-- end: {marker} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the markers of '{marker}' are not there")
    return f"{before}{begin}{part}\n{end}{after}"


def update(*, check: bool = False) -> list[str]:
    """Write what is not as it should be; returns that. With *check*, nothing is written."""
    stale = []

    def put(path: Path, text: str, made: str, what: str) -> None:
        if made != text:
            stale.append(what)
            if not check:
                path.write_text(made, encoding="utf-8")

    for (name, marker), make in PARTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        put(ROOT / name, text, updated(text, marker, make()), f"{name}: {marker}")
    for name, make in PICTURES.items():
        path = ROOT / name
        put(path, path.read_text(encoding="utf-8") if path.exists() else "", make(), name)
    return stale


def main() -> int:
    """Write, or check."""
    check = "--check" in sys.argv
    stale = update(check=check)
    print("\n".join(stale) or "all parts are as they should be")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
