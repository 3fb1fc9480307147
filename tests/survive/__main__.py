"""``python -m survive``: runs the remaining lives, and writes the table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from survive import copies, lives, planted, report, targets
from survive.command import ROOT, Wired
from survive.record import Record

LIVES = (*lives.SIGNALS, lives.ABANDON, lives.DESTROY, "guest", *copies.LIVES)
DAEMONS = tuple(targets.DAEMONS)
SNAPSHOTS = "snapshots"
GROUPS = f"{SNAPSHOTS}: from {copies.LIVES[0]} to {copies.LIVES[-1]}; services: from {DAEMONS[0]} on"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make survive", description=__doc__)
    parser.add_argument("--lives", default="all", help=f"of {', '.join((*LIVES, *DAEMONS))}; {GROUPS}")
    parser.add_argument("--spec", default="--spec 1-0-1", help="the words of 'winlab create' that say what is made")
    parser.add_argument("--lab", default="survive")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "survive")
    parser.add_argument("--within", type=float, default=60, help="abandon: see docs/survive.md")
    parser.add_argument("--table", type=Path, help="write the table into this page")
    options = parser.parse_args()
    assert os.geteuid() == 0, "daemons are killed and started: this needs root"
    record = Record(options.results / "kills.jsonl")
    env = {"WINLAB_STATE": str(options.results / "state")}
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:7.0f} s  {text}", flush=True)

    wired = Wired(options.results / "work", env)
    stage = lives.Stage(record, wired, options.lab, tuple(options.spec.split()), say, planted.scanner())
    failed, chosen = False, _chosen(options.lives)
    of_snapshots = [life for life in chosen if life in copies.LIVES]
    for life in [life for life in chosen if life not in of_snapshots] + [SNAPSHOTS] * bool(of_snapshots):
        say(f"== {life}")
        try:
            if life == SNAPSHOTS:
                copies.run(stage, of_snapshots)
            else:
                _play(stage, life, options.within)
        except lives.LifeError as error:
            failed = True
            say(f"  given up: {error}")
    if options.table is not None:
        report.write(options.table, record)
    faults = [kill for kill in record.kills() if not kill.is_well]
    for kill in faults:
        say(f"fault: {kill.life}, {kill.step}, {kill.moment}: {kill.fault}")
    sys.exit(bool(failed or faults))


def _play(stage: lives.Stage, life: str, within: float) -> None:
    if life == lives.ABANDON:
        lives.abandonment(stage, within)
    elif life == lives.DESTROY:
        lives.destruction(stage)
    elif life in lives.SIGNALS:
        lives.creation(stage, life)
    else:
        lives.creation(stage, life, lives.middles(lives.calm(stage)))


def _chosen(text: str) -> list[str]:
    every = [*LIVES, *DAEMONS]
    groups = {"all": every, "services": DAEMONS, SNAPSHOTS: copies.LIVES}
    names = [name for word in text.replace(",", " ").split() for name in groups.get(word, [word])]
    unknown = [name for name in names if name not in every]
    assert not unknown, f"no such lives: {', '.join(unknown)}"
    return names


if __name__ == "__main__":
    main()
