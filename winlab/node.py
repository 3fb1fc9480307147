"""One node of a lab: run commands on it, see its screen, read its serial port."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from winlab import operations
from winlab.events import Listener, ignore
from winlab.site import Site, at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.adapters.guests.base import Input, Sink
    from winlab.adapters.vm.console import Port
    from winlab.design.system import SystemName
    from winlab.operations.copied import Copied
    from winlab.operations.forward import Forward
    from winlab.operations.move import Moved
    from winlab.operations.outlets import Login
    from winlab.operations.reach import Desktop, Screen


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

    @property
    @at_site
    def system(self) -> SystemName:
        """What the node runs: ``linux`` or ``windows``.

        :raises NotFoundError: there is no such lab or node.
        """
        return operations.reach.machine(self.lab, self.name, self.site).tag.os

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
        stdin: Input = b"",
        via: Literal["ssh", "winrm"] | None = None,
    ) -> int:
        """Run a command, hand over its output as it comes, and return its exit code.

        :param stdin: its whole input, or an iterator of pieces that come while it runs.
        :raises WinlabError: as :meth:`execute`.
        :raises OSError: what a sink raises. The connection is closed, which ends a command that prints.
        """
        return operations.reach.execute(self.lab, self.name, self.site, command, stdout, stderr, via, stdin)

    @at_site
    def copy_to(
        self,
        sources: Sequence[str | Path],
        target: str,
        *,
        root: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Copied:
        """Copy files and folders of this host to the node. A call that was interrupted resumes if it is repeated.

        :param target: a path there, ``C:/k/`` or ``/srv``; what is relative is in the home folder. A folder gets the
            sources; one with ``/`` at its end is made.
        :param root: use the rights of root, on Linux.
        :raises NotFoundError: there is no such lab, node or file.
        :raises UsageError: a file of this host can't be read, or the node can't have one of this name.
        :raises GuestError: the node does not run, can't be reached, or refuses.
        """
        here = [operations.copy.Place("", str(source)) for source in sources]
        return operations.copy.copy(
            self.lab, here, operations.copy.Place(self.name, target), self.site, listener, root=root
        )

    @at_site
    def copy_from(
        self,
        sources: Sequence[str],
        target: str | Path,
        *,
        root: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Copied:
        """Copy files and folders of the node to this host, as :meth:`copy_to`.

        :param sources: paths there; ``*``, ``?`` and ``[...]`` are wildcards.
        :raises WinlabError: as :meth:`copy_to`.
        """
        there = [operations.copy.Place(self.name, source) for source in sources]
        return operations.copy.copy(
            self.lab, there, operations.copy.Place("", str(target)), self.site, listener, root=root
        )

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
    def ssh(self, command: Sequence[str] = (), *, tty: bool = False) -> list[str | Path]:
        """The command line that opens an ssh session on the node. Its host key is already known.

        :param command: what to run instead of a session; a single word is a line of the node's shell.
        :param tty: run the command at a terminal.
        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        :raises GuestError: the node does not run.
        """
        return operations.reach.ssh(self.lab, self.name, self.site, command, *(["-t"] if tty else []))

    @at_site
    def login(self) -> Login:
        """The node's user, and its password or key.

        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        """
        operations.reach.machine(self.lab, self.name, self.site)
        return next(one for one in operations.outlets.logins(self.lab, self.site) if one.node == self.name)

    @contextmanager
    def forwarded(self, *ports: str) -> Iterator[tuple[list[Forward], Callable[[], str | None]]]:
        """Ports of the node as ports of this host's loopback, by ssh, for the length of a with-block.

        The with-block gets the ports, and a function: None while ssh runs, then its errors.

        :param ports: ``[LOCAL:]REMOTE`` each; without LOCAL the same port, 0 is any free one.
        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        :raises UsageError: a port is malformed, or can't be used here.
        :raises GuestError: the node does not run.
        :raises HostError: ssh does not connect.
        """
        wanted = [operations.forward.Forward.parse(port) for port in ports]
        with self.site.in_use(), operations.forward.forwarded(self.lab, self.name, self.site, wanted) as made:
            yield made

    @at_site
    def log(
        self,
        unit: str,
        sink: Sink,
        *,
        lines: int = 60,
        since: str = "",
        follow: bool = False,
        stop: Stop = None,
    ) -> None:
        """Pass on the last lines of one log, and with *follow* what is added to it, until *stop* is set.

        :param unit: of systemd on Linux; on Windows kubelet, containerd, kube-proxy, network and others, or a file.
        :param since: only lines of the last ``10m`` or so, on Linux; replaces *lines*.
        :raises NotFoundError: there is no such lab, node or log.
        :raises UsageError: the node can't be asked this.
        :raises GuestError: the node does not run, can't be reached, or refuses.
        :raises OSError: what *sink* raises.
        """
        ago = operations.follow.seconds(since) if since else None
        operations.follow.log(self.lab, self.name, self.site, unit, sink, lines=lines, since=ago, follow=follow)

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

    @contextmanager
    def serial(self) -> Iterator[Port]:
        """The node's serial port, to read and write, for the length of a with-block.

        :raises NotFoundError: there is no such lab or node.
        :raises OffError: the node is off.
        :raises WinlabError: someone else is connected to the port.
        """
        with self.site.in_use(), operations.reach.serial(self.lab, self.name, self.site) as port:
            yield port

    @at_site
    def desktop(self) -> Desktop:
        """Where the Remote Desktop of a Windows node is, and who may log in there.

        :raises UsageError: the node runs Linux.
        :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
        :raises OffError: the node does not run.
        """
        return operations.reach.desktop(self.lab, self.name, self.site)

    def open_viewer(self, screen: Screen) -> str:
        """Open a viewer on what :meth:`screen` returned; without a graphical display, do nothing.

        :returns: what to install, for display, if there is a display and no viewer; otherwise empty.
        """
        return operations.viewer.open_viewer(screen)

    @at_site
    def open_desktop(self, desktop: Desktop) -> str:
        """Open a client on what :meth:`desktop` returned; without a graphical display, do nothing. It asks for the
        password.

        :returns: what to install, for display, if there is a display and no client; otherwise empty.
        """
        folder = self.site.folder(self.lab)
        folder.write(file := folder.path / f"{self.name}.rdp", desktop.file())
        return operations.viewer.open_desktop(file)

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
