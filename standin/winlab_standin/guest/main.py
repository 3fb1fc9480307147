"""The first program of the stand-in: Setup if it was started from the media, the installed system if from the disk."""

from __future__ import annotations

import sys

from winlab_standin.guest.place import STATE
from winlab_standin.guest.report import bug


def main() -> None:
    """Run the system that the initial RAM disk has found; report a bug on the serial port."""
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
