"""``python -m survive``: plays the lives that are left, and writes the table."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from survive import lives, planted, report, targets
from survive.command import ROOT, Wired
from survive.record import Record

LIVES = (*lives.SIGNALS, "destroy", "guest")
DAEMONS = tuple(targets.DAEMONS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make survive", description=__doc__)
    parser.add_argument("--lives", default="all", help=f"of {', '.join((*LIVES, *DAEMONS))}; services: the last four")
    parser.add_argument("--spec", default="--spec 1-0-1", help="the words of 'winlab create' that say what is made")
    parser.add_argument("--lab", default="survive")
    parser.add_argument("--others", default="", help="labs that other people change meanwhile")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "survive")
    parser.add_argument("--within", type=float, help="destroy: only points within so many seconds")
    parser.add_argument("--table", type=Path, help="write the table into this page")
    options = parser.parse_args()
    assert os.geteuid() == 0, "daemons are killed and started: this needs root"
    record = Record(options.results / "kills.jsonl")
    env = {"WINLAB_STATE": str(options.results / "state")}
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:7.0f} s  {text}", flush=True)

    wired = Wired(options.results / "work", env)
    others = tuple(options.others.split())
    stage = lives.Stage(record, wired, options.lab, tuple(options.spec.split()), say, others, planted.scanner())
    for life in _chosen(options.lives):
        say(f"== {life}")
        if life == "destroy":
            lives.destruction(stage, options.within)
        elif life in lives.SIGNALS:
            lives.creation(stage, life)
        else:
            lives.creation(stage, life, lives.middles(lives.calm(stage)))
    if options.table is not None:
        report.write(options.table, record)


def _chosen(text: str) -> list[str]:
    every = [*LIVES, *DAEMONS]
    groups = {"all": every, "services": DAEMONS}
    names = [name for word in text.replace(",", " ").split() for name in groups.get(word, [word])]
    unknown = [name for name in names if name not in every]
    assert not unknown, f"no such lives: {', '.join(unknown)}"
    return names


if __name__ == "__main__":
    main()
