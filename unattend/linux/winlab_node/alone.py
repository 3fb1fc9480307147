"""One verb at a time changes the node: what an interrupted winlab started may still run when the next one comes."""

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
LOOK = 5.0  # seconds between two looks; whoever waits says so each time, and so ends if nobody listens any more


@contextlib.contextmanager
def alone(node: Node, verb: str) -> Iterator[None]:
    """Wait until no other verb changes the node, and keep others from it. The kernel lets go of it when this ends."""
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
                # not by say(): whoever waits ends here if nobody listens any more
                print(f"winlab: waiting for {earlier}, which an earlier winlab started here", flush=True)
                time.sleep(LOOK)
        file.truncate(0)
        file.write(f"'{verb}' (process {os.getpid()})")
        file.flush()
        yield
