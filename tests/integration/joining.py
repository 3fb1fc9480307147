"""The lab ``it-j``, which joins a control plane on this host, made in the background."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from control_plane import PORT, ControlPlane
from harness import Golden, Traces, Winlab, traces

from winlab.host.facts import read_facts

LAB = "it-j"


@dataclass(frozen=True)
class Joined:
    """The lab has joined: to what, by which command, what that printed, and the host before."""

    elsewhere: ControlPlane
    command: list[str]
    printed: str
    before: Traces


class Joining:
    """Starts to make the control plane and the lab.

    :param folder: for the control plane's files.
    """

    def __init__(self, folder: Path, user: Winlab, golden: Golden) -> None:
        self._folder = folder
        self._user = user
        self._golden = golden
        self._elsewhere: ControlPlane | None = None
        self._pool = ThreadPoolExecutor(1)
        self._made = self._pool.submit(self._make)

    def wait(self) -> Joined:
        """Until it has joined; raises what kept it from that."""
        return self._made.result()

    def remove(self) -> None:
        """Destroy the lab, and then the control plane, which has to forget the node."""
        self._pool.shutdown()
        try:
            self._user("destroy", "--lab", LAB, "--anyone")
        finally:
            if self._elsewhere:
                self._elsewhere.stop()

    def _make(self) -> Joined:
        self._elsewhere = elsewhere = ControlPlane(self._folder, read_facts().external_gateway)
        elsewhere.start()
        self._user.ok("destroy", "--lab", LAB, "--anyone")  # of an earlier run
        before = traces()
        server = f"{elsewhere.address}:{PORT}"
        words = ["join", "--kubeconfig", str(elsewhere.admin), "--server", server, "--rehearse"]
        # the cluster is on this host, which labs reach only if they say so
        command = [*words, *self._golden.flags, "--set", "network.reach=all", "--lab", LAB]
        return Joined(elsewhere, command, self._user.ok(*command), before)
