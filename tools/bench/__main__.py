"""``python -m bench``: run measurements, record what they found, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys

import generate_docs
from bench import commands, host, labs, many, media, one_vm, record, scale
from bench.framework import MEASUREMENTS, collect
from bench.stage import Stage
from winlab import WinlabError

GROUPS = (labs, one_vm, many, scale, commands, media)  # imported for the measurements that they register


def main() -> int:
    """Run the measurements that the command line names."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; default: all")
    parser.add_argument("--spec", default="--spec 1-1-1 --rehearse", help="words of 'winlab create': the lab")
    parser.add_argument("--cold", action="store_true", help="also create-cold: root, and a host without labs")
    parser.add_argument("--keep", action="store_true", help="leave the Ready lab for the next run")
    parser.add_argument("--repetitions", type=int, help="in place of each measurement's own number")
    options = parser.parse_intermixed_args()
    if unknown := set(options.names) - set(MEASUREMENTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    wanted = options.names or list(MEASUREMENTS)
    chosen = [one for name, one in MEASUREMENTS.items() if name in wanted and (options.cold or not one.cold)]
    if not chosen:
        parser.error("create-cold needs --cold")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stage = Stage(tuple(shlex.split(options.spec)), record.ROOT / "build/bench", _say)
    here = {**host.describe(), "lab": options.spec}
    failed: list[str] = []
    try:
        for one in chosen:
            _say(one.name)
            times = options.repetitions or one.repetitions
            try:
                result = collect(one.work(stage, times), _say)
            except WinlabError as error:
                failed.append(one.name)
                _say(f"  failed: {error}")
                continue
            record.write(record.read().on(here).having(one.name, result))
    finally:
        generate_docs.update()
        _say("removing what was made")
        stage.sweep(keep=options.keep)
    if failed:
        _say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
