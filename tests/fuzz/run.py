"""``make fuzz``: feeds every parser for some time, and prints the totals."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [
    str(ROOT / part) for part in ("", "tests/fuzz", "tests/unit", "tests/fakes", "standin", "unattend/linux")
]

import fuzzing  # noqa: E402
import parsers  # noqa: E402, F401 - registers them


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--seed", default="")
    options.add_argument("--parser", default="", help="only those with this text in their names")
    options.add_argument("--inputs", type=int, default=1 << 40, help="at most so many for each parser")
    options.add_argument(
        "--failures", type=Path, default=ROOT / "build/fuzz", help="where unexpected inputs are written"
    )
    options.add_argument("--replay", type=Path, help="feed this file, whose name begins with its parser's")
    given = options.parse_args()
    if given.replay:
        rows = [fuzzing.replay(fuzzing.PARSERS[given.replay.name.partition(".")[0]], given.replay.read_bytes())]
        _tell(rows[0], given.failures)
    else:
        seed = given.seed or fuzzing.main_seed()
        chosen = [one for one in fuzzing.PARSERS.values() if given.parser in one.name]
        print(f"{len(chosen)} parsers, {given.seconds:.0f} s, SEED={seed}", flush=True)
        weights, until, rows = sum(one.weight for one in chosen), time.monotonic() + given.seconds, []
        for one in chosen:
            left = max(1.0, until - time.monotonic())
            row = fuzzing.run(one, seed, seconds=left * one.weight / weights, inputs=given.inputs)
            rows.append(row)
            weights -= one.weight
            print(f"{row.parser}: {row.inputs:,} inputs", file=sys.stderr, flush=True)
            _tell(row, given.failures)
    print(fuzzing.table(rows))
    return 1 if any(row.unexpected for row in rows) else 0


def _tell(row: fuzzing.Totals, failures: Path) -> None:
    for bad in row.unexpected:
        print(f"{row.parser}: {bad.what}\n{bad.trace}  {bad.save(failures)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
