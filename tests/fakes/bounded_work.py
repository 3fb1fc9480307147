"""Functions that a child of winlab/bounded.py is asked to call."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def echo(**request: object) -> object:
    return request


def surroundings() -> object:
    return {"variables": dict(os.environ), "files": os.listdir("/proc/self/fd"), "rest": sys.stdin.read()}  # noqa: PTH208


def fail(text: str) -> object:
    raise ValueError(text)


def work() -> object:
    while True:
        pass


def fill() -> object:
    return "a" * (1 << 30)


def sleep() -> object:
    time.sleep(600)
    return None


def repeat(count: int) -> object:
    return "a" * count


def write(path: str) -> object:
    return Path(path).write_text("a")


def open_many(path: str) -> object:
    return len([open(path) for _ in range(100)])  # noqa: PTH123


def abort() -> object:
    os.abort()


def leave(code: int) -> object:
    sys.exit(code)


def no_json() -> object:
    return {1, 2}
