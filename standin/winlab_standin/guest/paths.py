"""Windows paths: drive letters, and names whose case does not matter, over the folders where volumes are mounted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

_DRIVE = re.compile(r"^([A-Za-z]):")


@dataclass
class Drives:
    """The folder of each drive letter."""

    letters: dict[str, Path] = field(default_factory=dict)

    def absolute(self, path: str, cwd: str) -> str:
        """*path* seen from the folder *cwd*, as a full Windows path without ``.`` and ``..``."""
        path = path.strip().strip('"').replace("/", "\\")
        drive = _DRIVE.match(path)
        letter = (drive.group(1) if drive else cwd[0]).upper()
        rest = path[2:] if drive else path
        if not rest.startswith("\\"):
            same = cwd[:1].upper() == letter
            rest = f"{cwd[2:] if same else ''}\\{rest}"
        parts: list[str] = []
        for part in rest.split("\\"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return f"{letter}:\\" + "\\".join(parts)

    def real(self, path: str, cwd: str = "C:\\") -> Path | None:
        """The file behind a Windows path, whether it exists or not; None if there is no such drive."""
        full = self.absolute(path, cwd)
        place = self.letters.get(full[0])
        if place is None:
            return None
        for part in full[3:].split("\\"):
            if part:
                place = match(place, part)
        return place


def match(folder: Path, name: str) -> Path:
    """The child of *folder* with this *name* in any case; if there is none, the path that it would have."""
    exact = folder / name
    if is_there(exact) or not is_there(folder) or not folder.is_dir():
        return exact
    lower = name.lower()
    return next((child for child in folder.iterdir() if child.name.lower() == lower), exact)


def is_there(path: Path) -> bool:
    """Whether there is such a file. A CD that was just ejected has no files, as on Windows. Linux still has it mounted
    for some moments, and then returns other errors."""
    try:
        return path.exists()
    except OSError:
        return False
