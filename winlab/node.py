"""One node of a lab: run commands on it, see its screen, read its serial port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from winlab import operations
from winlab.events import Listener, ignore
from winlab.site import Site, at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.adapters.guests.base import Sink
    from winlab.operations.move import Moved
    from winlab.operations.reach import Screen


@dataclass(frozen=True)
class Executed:
    """The result of a command in a node. Bytes that are not UTF-8 are replaced in the two texts."""

    exit_code: int
    stdout: str
    stderr: str


class Node:
    """One node of a lab. Get one from :meth:`Lab.node`."""

    def __init__(self, lab: str, name: str, site: Site) -> None:
        self.lab = lab
        self.name = name
        self.site = site

    @at_site
    def execute(
        self, command: Sequence[str], *, stdin: bytes = b"", via: Literal["ssh", "winrm"] | None = None
    ) -> Executed:
        """Run a command to its end.

        :param command: its words; a single word is run as a line of the node's shell.
        :param stdin: its whole input.
        :param via: by default WinRM on Windows and ssh on Linux.
        :raises NotFoundError: there is no such lab or node.
        :raises GuestError: the node does not run, or can't be reached.
        """
        out, err = bytearray(), bytearray()
        code = operations.reach.execute(self.lab, self.name, self.site, command, out.extend, err.extend, via, stdin)
        return Executed(code, out.decode(errors="replace"), err.decode(errors="replace"))

    @at_site
    def stream(
        self,
        command: Sequence[str],
        stdout: Sink,
        stderr: Sink,
        *,
        stdin: bytes = b"",
        via: Literal["ssh", "winrm"] | None = None,
    ) -> int:
        """Run a command, hand over its output as it comes, and return its exit code.

        :raises WinlabError: as :meth:`execute`.
        :raises OSError: what a sink raises. The connection is closed, which ends a command that prints.
        """
        return operations.reach.execute(self.lab, self.name, self.site, command, stdout, stderr, via, stdin)

    @at_site
    def move(self, host: str, *, cold: bool = False, listener: Listener = ignore, stop: Stop = None) -> Moved:
        """Move the node to another hypervisor, while it runs if that is possible.

        :param host: the hypervisor's name.
        :param cold: shut the node down for it.
        :raises NotFoundError: there is no such lab or node, or this account has no record of the lab.
        :raises ConflictError: another user made the lab, or its spec or network does not let it; nothing was touched.
        :raises HostError: a hypervisor does not answer or lacks room; nothing was touched.
        :raises WinlabError: the move failed; the node is where it was.
        """
        operations.owner.require(self.lab, self.site)
        return operations.move.move(self.lab, self.name, host, self.site, listener, cold=cold)

    @at_site
    def ssh(self, command: Sequence[str] = ()) -> list[str | Path]:
        """The command line that opens an ssh session on the node. Its host key is already known.

        :param command: what to run in place of a session; ssh joins its words by blanks.
        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        :raises GuestError: the node does not run.
        """
        return [*operations.reach.ssh(self.lab, self.name, self.site), *(["--", *command] if command else [])]

    @at_site
    def screen(self) -> Screen:
        """Where the node's VNC server listens, and its password. ``host`` says on which host, unless it is this one.

        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        """
        return operations.reach.screen(self.lab, self.name, self.site)

    @contextmanager
    def screen_here(self) -> Iterator[Screen]:
        """As :meth:`screen`, but as this host reaches it: from another host by ssh, for the length of a with-block.

        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        :raises HostError: ssh does not connect to the host.
        """
        with self.site.in_use(), operations.reach.screen_here(self.lab, self.name, self.site) as screen:
            yield screen

    def open_viewer(self, screen: Screen) -> str:
        """Open a viewer on what :meth:`screen` returned; without a graphical display, do nothing.

        :returns: what to install, for display, if there is a display and no viewer; otherwise empty.
        """
        return operations.viewer.open_viewer(screen)

    @at_site
    def screenshot(self) -> bytes:
        """The node's screen as PNG.

        :raises NotFoundError: there is no such lab or node.
        """
        return operations.reach.screenshot(self.lab, self.name, self.site)

    @at_site
    def serial_log(self) -> bytes:
        """What the node's serial port has written so far.

        :raises NotFoundError: there is no such lab or node.
        """
        return operations.reach.serial_log(self.lab, self.name, self.site)

    @at_site
    def console(self) -> None:
        """Connect the terminal to the node's serial port until Ctrl-].

        :raises UsageError: there is no terminal.
        :raises NotFoundError: there is no such lab or node.
        """
        operations.reach.console(self.lab, self.name, self.site)
