"""The first program of the stand-in: Setup when started from the media, the installed system when from the disk."""

from __future__ import annotations

import sys

from winlab_standin.guest.place import STATE
from winlab_standin.guest.report import bug


def main() -> None:
    """Run what the initial RAM disk has found; a bug shows on the serial port."""
    mode = (STATE / "mode").read_text().strip()
    try:
        if mode == "setup":
            from winlab_standin.guest import setup

            setup.main()
        else:
            from winlab_standin.guest import installed

            installed.main()
    except Exception:
        bug()
        sys.exit(1)


if __name__ == "__main__":
    main()
