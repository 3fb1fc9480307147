"""The lab ``it-j``, which joins a control plane on this host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import results
from control_plane import ControlPlane
from harness import Golden, Traces, Winlab, traces

LAB = "it-j"


@dataclass(frozen=True)
class Joined:
    """The lab has joined: to what, by which command, what that printed, and the host before."""

    elsewhere: ControlPlane
    command: list[str]
    printed: str
    before: Traces


@contextmanager
def joining(elsewhere: ControlPlane, user: Winlab, golden: Golden, *more: str) -> Iterator[Joined]:
    """Make the control plane and the lab; remove both at the end.

    :param more: words of ``join``. What its check says that root does on this host is done before it.
    """
    try:
        elsewhere.start()
        user.ok("destroy", "--lab", LAB, "--anyone")  # of an earlier run
        before = traces()
        server = f"{elsewhere.address}:{elsewhere.port}"
        words = ["join", "--kubeconfig", str(elsewhere.admin), "--server", server, "--rehearse"]
        # the cluster is on this host, which labs reach only if they say so
        command = [*words, *golden.flags, "--set", "network.reach=all", "--lab", LAB, *more]
        for row in results.item(user(*command, "--check", "--output", "json").stdout)["findings"]:
            if found := re.search("sudo winlab (host route .+)", row["cure"]):
                user.ok(*found[1].split())
        yield Joined(elsewhere, command, user.ok(*command), before)
    finally:
        user("destroy", "--lab", LAB, "--anyone")
        elsewhere.stop()
