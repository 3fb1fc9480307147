"""The program that winlab runs in Linux nodes: the package unattend/linux/winlab_node as one file.

The file is a zip that Python runs (docs.python.org, "zipapp"). The module zipapp would copy the times of files, but
these bytes depend only on the sources. Nothing is compressed, so that an emulated CPU has nothing to unpack.
"""

from __future__ import annotations

import io
import zipfile

from winlab import data

PACKAGE = "winlab_node"
START = f"""\
import sys

from {PACKAGE}.__main__ import start

sys.exit(start())
"""


def build() -> bytes:
    """The program's bytes."""
    folder = data.folder("unattend") / f"linux/{PACKAGE}"
    sources = {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {"__main__.py": START.encode(), **sources}.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # without a given time, that is the start of 1980
    return buffer.getvalue()
