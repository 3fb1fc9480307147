"""The files of the pages: winlab's own, and those of noVNC and xterm.js, whose packages are shipped as they are."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).resolve().parent
# npm packages, unchanged: what browsers get of each, besides its licence
NOVNC, XTERM = "novnc-novnc-1.7.0.tgz", "xterm-xterm-6.0.0.tgz"
PACKAGES = {
    "novnc": (NOVNC, ("core/", "vendor/", "docs/LICENSE", "AUTHORS")),
    "xterm": (XTERM, ("lib/xterm.mjs", "css/xterm.css")),
}
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
}


@cache
def files() -> MappingProxyType[str, bytes]:
    """All files by their paths, such as ``ui.js`` and ``novnc/core/rfb.js``."""
    found = {path.name: path.read_bytes() for path in sorted((HERE / "pages").iterdir())}
    for name, (archive, wanted) in PACKAGES.items():
        with tarfile.open(HERE / "packages" / archive) as package:
            for member in package:
                path = member.name.removeprefix("package/")
                if member.isfile() and path.startswith(("LICENSE", *wanted)):
                    reader = package.extractfile(member)
                    found[f"{name}/{path}"] = reader.read() if reader else b""
    return MappingProxyType(found)


def kind(path: str) -> str:
    """The media type of a file."""
    return TYPES.get(Path(path).suffix, "text/plain")
