"""Runs the command ``winlab`` so that it, or another program, is killed the very moment a point comes.

It sees the events that the command writes with ``--events``, nothing else of it: ``wired.py ORDERS.json create ...``
They go to the standard output, in time with the command.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from survive.moments import Point, Watch
from survive.targets import find

LOOK = 0.02  # seconds between two looks at the clock


class _Wire:
    """The file of the command's events, and the kills that its lines lead to."""

    def __init__(self, out: TextIO, orders: dict[str, object]) -> None:
        self._out = out
        self._orders = orders
        self._lock = threading.RLock()
        wanted = [Point(*row) for row in orders["wanted"]]  # type: ignore[attr-defined]
        self._watch = Watch(wanted, orders["usual"], orders["spent"], time.monotonic())  # type: ignore[arg-type]

    def write(self, text: str) -> int:
        """Print it, then check whether a point has come."""
        with self._lock:
            self._out.write(text)
            self._out.flush()
            for line in filter(None, map(str.strip, text.splitlines())):
                if line.startswith("{"):
                    self._fire(self._watch.hear(json.loads(line), time.monotonic()))
            return len(text)

    def look(self) -> None:
        """Look at the clock forever."""
        while True:
            time.sleep(LOOK)
            with self._lock:
                self._fire(self._watch.due(time.monotonic()))

    def _fire(self, point: Point | None) -> None:
        armed = Path(str(self._orders["armed"]))
        if point is None or not armed.exists():
            return
        target = str(self._orders["target"])
        pids = find(target) if target else [os.getpid()]
        if not pids:  # no machine has been started yet
            return
        armed.unlink()
        told = Path(str(self._orders["fired"]))
        with told.open("a") as file:
            file.write(json.dumps({"step": point.step, "moment": point.moment, "time": time.time()}) + "\n")
        for pid in pids:
            os.kill(pid, int(str(self._orders["signal"])))

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    wire = _Wire(sys.stdout, orders)
    sys.argv = ["winlab", *sys.argv[2:], "--events", "the wire"]
    threading.Thread(target=wire.look, daemon=True).start()
    from winlab import files
    from winlab.cli.main import main as winlab

    files.open_named = lambda _: wire  # type: ignore[assignment, return-value]

    winlab()


if __name__ == "__main__":
    main()
