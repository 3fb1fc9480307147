"""How long commands take to start: winlab, and other tools as far as they are installed."""

from __future__ import annotations

import json
import shlex
import tempfile

from bench.framework import Reading, Readings, measurement
from bench.record import Missing
from bench.stage import WINLAB, Stage
from winlab import WinlabError, run

COMMANDS = (
    "winlab --version",
    "winlab list",
    "virsh --version",
    "virsh list --all",
    "kcli version",
    "kcli list vm",
    "virt-install --version",
    "vagrant --version",
)


@measurement(20)
def start_up(stage: Stage, times: int) -> Readings:
    """Commands that do next to nothing."""
    stage.idle()
    for command in COMMANDS:
        program, *rest = command.split()
        if program != "winlab" and run.find(program) is None:
            yield Missing(f"start: {command}", "it is not installed")
            continue
        words = [*WINLAB, *rest] if program == "winlab" else [program, *rest]
        try:
            found = _hyperfine(words, times) if run.find("hyperfine") else _loop(words, times)
        except WinlabError as error:
            yield Missing(f"start: {command}", f"it failed: {error.what}")
            continue
        yield from (Reading(f"start: {command}", seconds) for seconds in found)


def _hyperfine(words: list[str], times: int) -> list[float]:
    with tempfile.NamedTemporaryFile() as file:
        options = ["-N", "--warmup", "1", "--runs", str(max(2, times)), "--export-json", file.name]
        run.run(["hyperfine", *options, shlex.join(words)])
        found = json.load(file)
    return [float(seconds) for seconds in found["results"][0]["times"]]


def _loop(words: list[str], times: int) -> list[float]:
    run.run(words)  # what it reads is in the page cache then
    return [run.run(words).seconds for _ in range(times)]
