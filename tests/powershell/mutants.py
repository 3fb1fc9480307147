"""Changes winlab's PowerShell scripts at random, one place at a time, and reports which changes the tests notice.

python tests/powershell/mutants.py --count 20 --seed 1 (as root), or ``make mutants COUNT=20 SEED=1``, which fails if
fewer than four of five are noticed. Every ``.ps1`` of
unattend/windows takes part, also the script inside updates.ps1, each place as likely as any other:

- a comparison is turned, ``-and`` and ``-or`` trade places, a ``-not`` goes
- a statement is left out, a ``throw``, an ``-ErrorAction``
- a number, a boolean is another; a string is empty

Not changed is what no test could judge:

- the text of messages: of ``throw``, of ``Write-Progressing`` and ``Write-Warning``, and whether the latter two say it
- how long something is waited for: ``Start-Sleep``, ``WaitOne``, ``FromSeconds``, the number of tries of a loop that
  sleeps
- ``$ProgressPreference``, by which PowerShell draws no bars
- programs and scripts outside of unattend/windows, the answer file's lines, pe.cmd

What changes nothing that Windows or winlab could see stays in, and counts as not noticed.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess  # noqa: TID251 - runs the engine
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT)]

from powershell import engine as engines  # noqa: E402 - this file is a program
from powershell.doubles import session as sessions  # noqa: E402

SCRIPTS = ROOT / "unattend/windows"
LIMIT = 900  # seconds for the tests of one change
# Its tests are the life of one worker: none of them can be left out before another
LIFE = "test_worker.py"
CONFINED = "WINLAB_MUTANTS_CONFINED"
# A changed script may remove anything: it sees this machine read-only, but for a /tmp of its own and what is kept ($0)
CONFINE = """set -e
mount --make-rprivate /
mount --bind "$0" "$0"
while read -r _ point _; do
    case "$(printf '%b' "$point")" in "$0" | /dev* | /proc* | /sys*) continue ;; esac
    mount -o remount,bind,ro "$(printf '%b' "$point")"
done < /proc/self/mounts
mount -t tmpfs tmpfs /tmp
exec "$@"
"""


@dataclasses.dataclass(frozen=True)
class Change:
    """One change of one file."""

    file: str
    start: int
    length: int
    text: str
    kind: str

    def made(self, source: str) -> str:
        """The file's text with it."""
        return source[: self.start] + self.text + source[self.start + self.length :]

    def shown(self, source: str) -> str:
        """The difference that it makes."""
        lines = difflib.unified_diff(source.splitlines(), self.made(source).splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def changes(engine: Path) -> list[Change]:
    """Every change that can be made."""
    files = sorted(str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.ps1"))
    words = [engine, "-NoProfile", "-NonInteractive", "-File", HERE / "mutants.ps1", *files]
    said = subprocess.run(words, cwd=SCRIPTS, capture_output=True, text=True, check=True)
    return [Change(**json.loads(line)) for line in said.stdout.splitlines()]


@dataclasses.dataclass(frozen=True)
class Test:
    """A test, what it runs, and how long that takes."""

    name: str
    seconds: float
    scripts: frozenset[str]
    shares: bool  # it runs them in the process that all tests share


class Runner:
    """Runs tests in forks of this process, which has pytest and a warm engine already."""

    def __init__(self, engine: Path, quick: bool) -> None:
        self.engine = engine
        self.quick = quick
        sessions.KEPT = sessions.Session(engine)

    def run(self, scripts: Path, names: Sequence[str], record: Path | None = None) -> bool:
        """Do the tests pass, with the scripts of that folder?"""
        child = os.fork()
        if not child:
            os.environ |= {"WINLAB_POWERSHELL": str(self.engine), "WINLAB_TEST_SCRIPTS": str(scripts)}
            os.environ |= {"WINLAB_TEST_RECORD": str(record)} if record else {}
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            flags = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout", "120"]
            wanted = ["-m", "not alone"] if self.quick else []
            os._exit(pytest.main([*flags, *wanted, *names]))
        until = time.monotonic() + LIMIT
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        sessions.KEPT.revive()
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, 1, -signal.SIGKILL):
            raise SystemExit(f"pytest ended with exit code {code}")
        return code == 0

    def tests(self, folder: Path) -> list[Test]:
        """All tests, which pass. Kept until a test or a script changes."""
        digest = hashlib.sha256(bytes(self.quick))
        for path in sorted([*HERE.rglob("*.p*"), *SCRIPTS.rglob("*.ps1")]):
            if path.suffix in (".py", ".ps1") and "mutants" not in path.name:
                digest.update(path.read_bytes())
        kept = folder / f"tests-{digest.hexdigest()[:16]}.jsonl"
        if not kept.exists():
            fresh = kept.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            if not self.run(SCRIPTS, [str(HERE)], fresh):
                raise SystemExit("The tests fail without any change.")
            fresh.rename(kept)
        rows = [json.loads(line) for line in kept.read_text().splitlines()]
        return [Test(row["test"], row["seconds"], frozenset(row["scripts"]), row["shares"]) for row in rows]

    def notices(self, every: list[Test], change: Change) -> bool:
        """Do the tests notice it?"""
        with tempfile.TemporaryDirectory(prefix="winlab-mutant-") as folder:
            copy = Path(folder) / "windows"
            shutil.copytree(SCRIPTS, copy)
            file = copy / change.file
            file.write_text(change.made(file.read_text()))
            # those of a process of their own take longest
            return not all(self.run(copy, names) for names in chosen(every, change) if names)


def chosen(every: list[Test], change: Change) -> tuple[list[str], list[str]]:
    """The tests that run the changed file: those that share a process, the quick ones first; and the others."""
    stem = Path(change.file).stem
    fitting = sorted((test for test in every if stem in test.scripts), key=lambda test: test.seconds)
    others = [test.name for test in fitting if not test.shares and LIFE not in test.name]
    if any(LIFE in test.name for test in fitting):
        others.append(str(HERE / LIFE))
    return [test.name for test in fitting if test.shares], others


def confine(kept: Path) -> None:
    """Start this program again in a mount namespace of its own; needs root. Does nothing there."""
    if CONFINED in os.environ:
        return
    words = ["unshare", "--mount", "sh", "-c", CONFINE, kept, sys.executable, "-P", *sys.argv]
    os.execvpe("unshare", [str(word) for word in words], os.environ | {CONFINED: "1", "TMPDIR": "/tmp"})


def enough(hits: int, made: int, asked: int, least: int) -> bool:
    """Whether *hits* of *made* changes are enough, if *least* of the *asked* ones are: a small file has fewer."""
    return hits * asked >= least * min(made, asked)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20, help="how many changes")
    parser.add_argument("--seed", default="", help="repeats a run; else by the clock")
    parser.add_argument("--only", default="", help="files whose name has this")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer of them are noticed")
    parser.add_argument("--quick", action="store_true", help="without the tests that start the engine themselves")
    given = parser.parse_args()
    seed = given.seed or str(int(time.time()))
    folder = ROOT / ".pytest_cache/mutants"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        engine = engines.locate(ROOT / ".pytest_cache/d/powershell")
    except engines.MissingEngineError as missing:
        raise SystemExit(str(missing)) from missing
    if not engines.runs_doubles(engine):
        raise SystemExit(f"{engine} {engines.PARSES_ONLY}")
    os.chdir(ROOT)
    confine(folder)
    runner = Runner(engine, given.quick)
    every = runner.tests(folder)
    possible = [change for change in changes(engine) if given.only in change.file]
    picked = random.Random(seed).sample(possible, min(given.count, len(possible)))
    hits = 0
    for number, change in enumerate(picked, 1):
        begun = time.monotonic()
        hit = runner.notices(every, change)
        hits += hit
        source = (SCRIPTS / change.file).read_text()
        said = f"{'noticed' if hit else 'NOT NOTICED'}, {time.monotonic() - begun:.0f} s"
        print(
            f"-- {number} of {len(picked)}: {change.kind} of {change.file}: {said}\n{change.shown(source)}", flush=True
        )
    print(f"{hits} of {len(picked)} changes noticed, of {len(possible)} possible ones; seed {seed}")
    return int(not enough(hits, len(picked), given.count, given.least))


if __name__ == "__main__":
    sys.exit(main())
