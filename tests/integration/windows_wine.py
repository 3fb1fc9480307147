"""The stand-in's Wine as a place where tests run Windows' programs: its root file system, and a drive D:."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - runs the stand-in's root in namespaces of its own
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# As the installed system does at its start (installed.py), with an empty C:; then the output of ``D:\play.py``
START = r"""
import json, pathlib, subprocess, sys
for folder in ("/c/Windows/System32/config", "/run/standin"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
from winlab_standin.guest import releases, wine, winservices
wine.arrange()
wine.prepare(releases.Windows(), 1, winservices.registry_text([]))
wine.start()
wine.drive("D", pathlib.Path("/work"))
exec(pathlib.Path("/work/play.py").read_text())
wine.call(["wineboot", "--shutdown"])
subprocess.run(["wineserver", "-k"], check=False)
"""
ENTER = (
    'mount --bind /dev "$1/dev"; mount -t proc proc "$1/proc"; for f in c run tmp; do mount -t tmpfs none "$1/$f"; '
    'done; mount --bind "$3" "$1/work"; '
    'exec chroot "$1" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin PYTHONPATH=/usr/lib/standin python3 -c "$2"'
)
CALL = r"""
calls = json.loads(pathlib.Path("/work/calls.json").read_text())
found = []
for words in calls:
    done = subprocess.run(
        ["wine", *words], env=wine.ENVIRONMENT, cwd="/c", capture_output=True, text=True, errors="replace", timeout=300
    )
    found.append([done.returncode, done.stdout.replace("\r\n", "\n"), done.stderr.replace("\r\n", "\n")])
pathlib.Path("/work/found.json").write_text(json.dumps(found))
"""


@dataclass(frozen=True)
class Answer:
    """What a Windows program answered."""

    code: int
    output: str
    errors: str


def enter(root: Path, script: str, work: Path) -> str:
    """Run Python in the stand-in's root, with *work* as its ``/work``; what it printed."""
    for name in ("dev", "proc", "c", "run", "tmp", "work"):
        (root / name).mkdir(exist_ok=True)
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-ec",
        ENTER,
        "sh",
        str(root),
        script,
        str(work),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def call(root: Path, drive: Path, calls: list[list[str]]) -> list[Answer]:
    """Run Windows' programs, one after the other, in one Wine; *drive* is its D:."""
    (drive / "calls.json").write_text(json.dumps(calls))
    (drive / "play.py").write_text(CALL)
    (drive / "found.json").unlink(missing_ok=True)
    enter(root, START, drive)
    found: list[list[Any]] = json.loads((drive / "found.json").read_text())
    return [Answer(int(code), output, errors) for code, output, errors in found]
