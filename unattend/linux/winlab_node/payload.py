"""The payload CD."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LABEL = b"WINLAB_K8S"


@contextlib.contextmanager
def payload(node: Node, seconds: float = 40.0) -> Iterator[Path]:
    """The payload CD, mounted only while it is used: a mounted CD can't be ejected.

    :raises NodeError: there is no such CD, even after *seconds*.
    """
    place = node.path("run/winlab/payload")
    place.mkdir(parents=True, exist_ok=True)
    if f" {place} " in node.path("proc/self/mounts").read_text():
        node.call("umount", "-l", str(place))  # an earlier run was killed; its children may still read there
    end = time.monotonic() + seconds
    while (device := drive(node)) is None:
        if time.monotonic() > end:
            raise NodeError("No drive has winlab's payload CD (label WINLAB_K8S).")
        time.sleep(1)
    node.call("mount", "-t", "iso9660", "-o", "ro,nosuid,nodev", str(device), str(place))
    try:
        yield place
    finally:
        node.call("umount", str(place), fine=(0, 32))  # 32: another run has done it


def drive(node: Node) -> Path | None:
    """The drive with the payload CD, by the label in its primary volume descriptor: udev may be late."""
    for block in sorted(node.path("sys/block").glob("sr*")):
        device = node.path("dev") / block.name
        with contextlib.suppress(OSError), device.open("rb", buffering=0) as disc:  # an empty drive raises OSError
            disc.seek(16 * 2048)
            sector = disc.read(2048)
            if sector[1:6] == b"CD001" and sector[40:72].rstrip(b" \0") == LABEL:
                return device
    return None
