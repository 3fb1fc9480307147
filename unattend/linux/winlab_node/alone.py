"""One verb at a time changes the node: the verb of an interrupted winlab may still run when the next one comes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

from winlab_node.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK = "run/winlab/changing"
LOOK = 5.0  # seconds between two checks; a verb that waits reports each, and thus ends if no one listens


@contextlib.contextmanager
def alone(node: Node, verb: str) -> Iterator[None]:
    """Wait until no other verb changes the node, and lock others out. The kernel releases the lock when this ends."""
    path = node.path(LOCK)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                earlier = file.read() or "another verb"
                # not by say(): a verb that waits ends here if no one listens any longer
                print(f"winlab: waiting for {earlier}, which an earlier winlab started here", flush=True)
                time.sleep(LOOK)
        file.truncate(0)
        file.write(f"'{verb}' (process {os.getpid()})")
        file.flush()
        yield
