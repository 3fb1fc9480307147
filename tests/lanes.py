"""Run all tests in lanes side by side, and show what took longest: ``python -m lanes [--all] [--keep-labs]``.

labs      the golden image, a lab that joins an external cluster, then the shared labs and what is done to them
hosts     several hosts (tests/hosts). winlab gives a host seconds to answer, so they need their share of the CPUs
machines  other machines, and what needs a host that is set up
parts     what needs neither guests nor a host that is set up, with real programs
quiet     style, types, unit tests, fuzzing, PowerShell

The cluster is made when the other lanes have ended (the fixture ``labs`` waits for that). An emulated cluster
takes more than a core even when nothing happens in it, and its API server restarts if it gets less: it should stand for
as short a time as possible, and alone. With PowerShell beside it, even at the lowest priority, ``create`` took 14
minutes instead of 6. Until then one lane rarely needs both cores, so the lanes share them.

Each line of output begins with the name of its lane. Durations, with set-up, go to build/durations/ (durations.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess  # noqa: TID251 - runs the tests
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import durations

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SUDO = (
    [] if os.geteuid() == 0 else ["sudo", "--preserve-env=CI,WINLAB_TEST_MINORS,WINLAB_SURVIVE_SEED,WINLAB_TEST_TURN"]
)
HOST_FILE = Path("/etc/winlab/host.yaml")
WINLAB = [*SUDO, sys.executable, "-m", "winlab"]
LIMIT = 3000  # seconds for one test of a lane at a low priority, which may wait for a CPU most of the time
TURN = ROOT / "build/labs-turn"  # it exists when the shared labs may be made
TRACES = [*SUDO, "env", "PYTHONPATH=tests", sys.executable, "-m", "survive.traces"]


class Lane:
    """Commands that run one after another; the later ones also run when an earlier one failed."""

    def __init__(self, name: str, nice: int, *commands: Sequence[str]) -> None:
        self.name = name
        self.failed: list[str] = []
        self._nice = nice
        self._commands = commands
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        """Wait until it ends."""
        while self._thread.is_alive():  # in pieces, so that Ctrl-C arrives
            self._thread.join(1)

    def interrupt(self) -> None:
        """Ctrl-C for what runs: pytest then removes its labs."""
        self._commands = ()
        if self._process:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)

    def _run(self) -> None:
        for command in self._commands:
            if not self._commands:
                break  # interrupted
            begun = time.monotonic()
            code = self._run_one(command)
            said = "passed" if code == 0 else f"ended with exit code {code}"
            self._print(f"{' '.join(command)}: {said} after {durations.text(time.monotonic() - begun)}")
            if code != 0:
                self.failed.append(" ".join(command))

    def _run_one(self, command: Sequence[str]) -> int:
        env = {**os.environ, durations.LANE: self.name, "WINLAB_TEST_TURN": str(TURN)}
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        words = ["nice", "-n", str(self._nice), *command]
        with subprocess.Popen(
            words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=out, text=True, errors="replace",
            start_new_session=True,
        ) as process:  # fmt: skip
            self._process = process
            with suppress(OSError):  # where Linux groups processes by session, "nice" counts only within one: sched(7)
                Path(f"/proc/{process.pid}/autogroup").write_text(str(self._nice))
            assert process.stdout is not None
            for line in process.stdout:
                self._print(line.rstrip())
        return process.returncode

    def _print(self, line: str) -> None:
        print(f"{self.name:8} | {line}", flush=True)


def lanes(options: argparse.Namespace) -> list[Lane]:
    """The lanes with their commands."""
    pytest = str(BIN / "pytest")
    make = ("make", "--no-print-directory")
    more = [] if options.all else ["and not slow"]
    kept = ["--keep-labs"] if options.keep_labs else []

    def integration(which: str, *words: str) -> list[str]:
        return [*SUDO, pytest, "-q", "tests/integration", "-m", " ".join([which, *more]), *words]

    unhurried = f"TIMEOUT={LIMIT}"
    quiet = (
        *([*make, target, unhurried] for target in ("check", "test-unit", "test-fuzz")),
        ["nice", "-n", "9", *make, "test-powershell", unhurried, f"MARKS={'' if options.all else 'not slow'}"],
    )
    return [
        Lane("labs", 0, integration("labs", *kept)),
        Lane("hosts", 0, integration("hosts")),
        Lane("machines", 5, integration("machines")),
        Lane("parts", 10, integration("not labs and not hosts and not machines", f"--timeout={LIMIT}")),
        Lane("quiet", 10, *quiet),
    ]


def run(every: list[Lane]) -> None:
    """Run all lanes to their end, the first one's labs alone; after Ctrl-C, to the end of what cleans up."""
    TURN.parent.mkdir(exist_ok=True)
    TURN.unlink(missing_ok=True)
    for lane in every:
        lane.start()
    try:
        labs, *others = every
        for lane in others:
            lane.wait()
        TURN.touch()
        labs.wait()
    except KeyboardInterrupt:
        for lane in every:
            lane.interrupt()
        for lane in every:
            lane.wait()
        raise


def traces() -> dict[str, list[str]]:
    """What the host has that tests could leave behind."""
    done = subprocess.run(TRACES, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def remove_interrupted() -> None:
    """Destroy the tests' labs that an interrupted run left, before the host is looked at."""
    labs = {lab for row in traces()["rows"] for lab in re.findall(r'"winlab", "(it-[a-z0-9-]+)"', row)}
    for lab in sorted(labs):
        subprocess.run([*WINLAB, "destroy", "--lab", lab, "--anyone"], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)


def main() -> int:
    """The exit code of all."""
    parser = argparse.ArgumentParser(prog="python -m lanes", description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="also tests marked 'slow', and every minor of Kubernetes")
    parser.add_argument("--keep-labs", action="store_true", help="keep the shared labs for the next run, or use them")
    options = parser.parse_args()
    if options.all:
        os.environ.setdefault("WINLAB_TEST_MINORS", "all")
    begun = time.monotonic()
    durations.clear()
    was_set_up = HOST_FILE.exists()
    subprocess.run([*WINLAB, "host", "setup", "--install"], cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    if not options.keep_labs:
        remove_interrupted()
    before = traces()
    every = lanes(options)
    try:
        run(every)
        after = before if options.keep_labs else traces()
    finally:
        if not was_set_up and not options.keep_labs:
            subprocess.run([*WINLAB, "host", "teardown", "--force"], cwd=ROOT, stdin=subprocess.DEVNULL, check=False)
    failed = [f"{lane.name}: {command}" for lane in every for command in lane.failed]
    for kind in before:
        failed += [f"left on the host: {kind}: {row}" for row in sorted({*after[kind]} - {*before[kind]})]
        failed += [f"gone from the host: {kind}: {row}" for row in sorted({*before[kind]} - {*after[kind]})]
    print(durations.report(time.monotonic() - begun))
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
