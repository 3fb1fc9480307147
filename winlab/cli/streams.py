"""The standard streams as bytes, for commands that pass them on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO

from winlab.cli.common import drop_output

BLOCK = 1 << 16


def given() -> Iterator[bytes]:
    """The standard input, as it comes."""
    handle = sys.stdin.fileno()
    while block := os.read(handle, BLOCK):
        yield block


def writer(stream: BinaryIO) -> Callable[[bytes], None]:
    """Writes to a stream at once.

    :raises BrokenPipeError: its reader has closed it; what comes later is discarded.
    """

    def write(chunk: bytes) -> None:
        try:
            stream.write(chunk)
            stream.flush()
        except BrokenPipeError:
            drop_output(stream)
            raise

    return write
