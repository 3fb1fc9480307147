"""Windows' names of time zones (time_zones.txt), and what to suggest for names that Windows does not know."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

EXAMPLE = "W. Europe Standard Time"
NO_SUMMER_TIME = "_dstoff"  # never switches to daylight saving time (Microsoft's answer file reference, TimeZone)


@lru_cache
def zones() -> dict[str, tuple[str, ...]]:
    """All of Windows' names, each with the IANA names of its zone."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()
    rows = (line.partition(" =") for line in lines if not line.startswith("#"))
    return {name: tuple(iana.split()) for name, _, iana in rows}


def problem(name: str) -> str | None:
    """The message for a name that Windows does not know, with suggestions; None if it knows the name."""
    plain = name.removesuffix(NO_SUMMER_TIME)
    if plain in zones():
        return None
    meant = next((windows for windows, iana in zones().items() if plain in iana), None)
    if meant is not None:
        return f"{name!r} is an IANA name; Windows calls this zone '{meant}'"
    if "/" in plain:
        return f"{name!r} is an IANA name; Windows has its own names, such as UTC or '{EXAMPLE}' ('tzutil /l')"
    lower = {windows.lower(): windows for windows in zones()}
    near = [f"'{lower[one]}'" for one in difflib.get_close_matches(plain.lower(), lower)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"examples are UTC and '{EXAMPLE}'; 'tzutil /l' lists all"
    return f"Windows has no time zone {name!r}; {hint}"
