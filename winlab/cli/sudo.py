"""``sudo winlab`` as it works here: sudo looks for programs in a path of its own, without virtual environments."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SECURE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of Debian's and Ubuntu's /etc/sudoers


def runnable(text: str) -> str:
    """A text in which ``sudo winlab`` names the file that runs now, unless sudo finds winlab by itself."""
    if "sudo winlab " not in text or shutil.which("winlab", path=SECURE_PATH):
        return text
    program = shutil.which(sys.argv[0])
    if program is None or Path(program).name != "winlab":
        return text
    return text.replace("sudo winlab ", f"sudo {Path(program).absolute()} ")
