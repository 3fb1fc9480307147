"""Record the commands of a file: ``python -m cast SESSION OUTPUT`` writes OUTPUT.cast and OUTPUT.svg."""

from __future__ import annotations

import sys
from pathlib import Path

from cast.picture import draw
from cast.record import Cast, record


def commands(text: str) -> list[str]:
    """The commands of a session: one a line; empty lines and those that begin with ``#`` don't count."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def main() -> int:
    """Record and draw; with a file .cast as SESSION only draw it. The exit code is that of the command that failed."""
    source, output = map(Path, sys.argv[1:])
    code = 0
    if source.suffix == ".cast":
        cast = Cast.read(source.read_text(encoding="utf-8"))
    else:
        cast, code = record(commands(source.read_text(encoding="utf-8")))
        output.with_suffix(".cast").write_text(cast.text(), encoding="utf-8")
    output.with_suffix(".svg").write_text(draw(cast), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
