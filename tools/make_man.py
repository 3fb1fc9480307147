#!/usr/bin/env python3
"""Writes a manual page for winlab and each of its commands: ``tools/make_man.py FOLDER``.

The pages have the text of --help. ``man -l FOLDER/winlab-create.1`` shows one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from winlab.cli import main, pages, tree
from winlab.cli.manual import PROGRAM
from winlab.version import __version__


def texts() -> dict[str, str]:
    """The manual pages by the names of their files."""
    found = {}
    for one in pages.contexts(typer.main.get_command(main.app), PROGRAM):
        name = pages.typed(one).replace(" ", "-")
        what = pages.summary(one.command) if one.parent else tree.SUMMARY.removesuffix(".")
        head = f'.TH {name.upper()} 1 "" "{PROGRAM} {__version__}" "{PROGRAM}"\n.SH NAME\n{name} \\- {_escaped(what)}\n'
        found[f"{name}.1"] = f"{head}.SH DESCRIPTION\n.nf\n{_escaped(one.get_help())}\n.fi\n"
    return found


def _escaped(text: str) -> str:
    """A text for troff: a backslash, a hyphen, and a line that begins as a request would."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def write(folder: Path) -> None:
    """Write all pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
