"""Reach one node: run a command, open ssh, look at its screen, read or join its serial port."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from winlab import loopback
from winlab.adapters.guests.base import Guest, Input, Sink
from winlab.adapters.guests.connect import connect
from winlab.adapters.guests.ssh_command import arguments
from winlab.adapters.guests.systems import command_line, ways
from winlab.adapters.remote import Remote, forwarded_port
from winlab.adapters.vm import console as consoles
from winlab.adapters.vm import display, domains
from winlab.adapters.vm.domains import Machine
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.tags import Tag
from winlab.design.render.domain import serial_log as log_volume
from winlab.errors import UsageError
from winlab.lab_folder import LabFolder
from winlab.operations import look
from winlab.site import Site

RDP = 3389  # the port of Remote Desktop


@dataclass(frozen=True)
class Screen:
    """Where a node's VNC server listens, and its password.

    :param host: whose address it is, as for ssh; empty: this host's.
    """

    address: str
    port: int
    password: str
    host: str = ""


@dataclass(frozen=True)
class Desktop:
    """Where a node's Remote Desktop is, and who may log in there. The password is not in :meth:`file`."""

    address: str
    port: int
    user: str
    password: str

    def file(self) -> str:
        """A ``.rdp`` file, which all clients read.

        Source: "Supported RDP properties", learn.microsoft.com. Windows makes itself the certificate that it shows,
        so a client can't verify it: 0 is to connect without a warning, 2 with one.
        """
        return (
            f"full address:s:{self.address}:{self.port}\r\nusername:s:{self.user}\r\n"
            "prompt for credentials:i:1\r\nauthentication level:i:2\r\nredirectclipboard:i:1\r\n"
            "dynamic resolution:i:1\r\n"
        )


def login(lab: str, node: str, site: Site, via: str | None = None) -> Guest:
    """Log in to a node of a lab.

    :param via: ``ssh`` or ``winrm``; by default WinRM on Windows and ssh on Linux.
    :raises NotFoundError: there is no such lab or node.
    :raises GuestError: the node does not run, or can't be reached.
    """
    return _login(machine(lab, node, site), site, via)


def _login(machine: Machine, site: Site, via: str | None) -> Guest:
    look.require_running(machine)
    return connect(machine.tag, site.folder(machine.tag.lab), via)


def execute(
    lab: str,
    node: str,
    site: Site,
    command: Sequence[str],
    stdout: Sink,
    stderr: Sink,
    via: str | None = None,
    stdin: Input = b"",
) -> int:
    """Run a command on a node, pass on its output as it comes, and return its exit code.

    :param command: its words; a single word is run as a shell line.
    :param stdin: its whole input, or pieces that come while it runs.
    :raises WinlabError: as :func:`login`.
    :raises OSError: the output can't be written; the connection is closed, which ends a command that prints.
    """
    return ended(login(lab, node, site, via), command, stdout, stderr, stdin)


def ended(guest: Guest, command: Sequence[str], stdout: Sink, stderr: Sink, stdin: Input = b"") -> int:
    """Run a command in a guest as :func:`execute`, and close the connection."""
    try:
        return guest.execute(command, _apart(stdout), _apart(stderr), stdin)
    except _OutputError as failed:
        raise failed.error from None
    finally:
        guest.close()


class _OutputError(Exception):
    """The caller's own error, which a guest's connection must not take for its own."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _apart(sink: Sink) -> Sink:
    def pass_on(chunk: bytes) -> None:
        try:
            sink(chunk)
        except OSError as error:
            raise _OutputError(error) from error

    return pass_on


def ssh(lab: str, node: str, site: Site, command: Sequence[str] = (), *more: str) -> list[str | Path]:
    """The command line that opens an ssh session on a node. Its host key is already known.

    If the site is another host's, it goes through that host: only hosts of the site reach nodes.

    :param command: what to run there, instead of a shell.
    :param more: more options of ssh, such as ``-t``: run it at a terminal.
    :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
    :raises GuestError: the node does not run.
    """
    there, folder = machine(lab, node, site), site.folder(lab)
    look.require_running(there)
    folder.credentials()  # raises if this account has none
    return session(there.tag, folder, site, command, *more)


def session(tag: Tag, folder: LabFolder, site: Site, command: Sequence[str] = (), *more: str) -> list[str | Path]:
    """As :func:`ssh`, for a node that is known."""
    through = site.remote(HYPERVISOR)
    options = () if through is None else ("-o", f"ProxyCommand={shlex.join(through.words('-W', '%h:%p'))}")
    words = arguments(tag, folder, *options, *more)
    if not command:
        return words
    line = ways(tag.system).by_ssh(command_line(tag.system, command))
    return [*words[:-1], "--", words[-1], line]  # ssh would take a line with a dash for an option


def screen(lab: str, node: str, site: Site) -> Screen:
    """Where to reach a node's screen.

    :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
    :raises WinlabError: the node does not run.
    """
    return _screen(lab, node, site)[0]


@contextmanager
def screen_here(lab: str, node: str, site: Site) -> Iterator[Screen]:
    """A node's screen as this host reaches it: one of another host comes by ssh, for the length of a with-block.

    Its ``host`` still says where it is.

    :raises HostError: ssh does not connect.
    :raises WinlabError: as :func:`screen`.
    """
    found, there = _screen(lab, node, site)
    if there is None:
        yield found
        return
    with forwarded_port(there, found.port) as port:
        yield replace(found, address=loopback.ADDRESS, port=port)


def _screen(lab: str, node: str, site: Site) -> tuple[Screen, Remote | None]:
    with site.hypervisors() as hosts:
        machine = look.find_node(lab, node, hosts)
        address, port = display.vnc(hosts.on(machine).conn, machine)
    there = site.remote(machine.hypervisor)
    password = site.folder(lab).credentials().nodes[node].vnc_password
    return Screen(address, port, password, "" if there is None else str(there)), there


def screenshot(lab: str, node: str, site: Site) -> bytes:
    """A node's screen as PNG.

    :raises NotFoundError: there is no such lab or node.
    :raises OffError: the node is off.
    """
    with site.hypervisors() as hosts:
        machine = look.find_node(lab, node, hosts)
        if machine.state in domains.OFF:  # a crashed or paused one has a screen
            look.require_running(machine)
        return display.screenshot(hosts.on(machine).conn, machine)


def serial_log(lab: str, node: str, site: Site) -> bytes:
    """What a node's serial port has written so far.

    :raises NotFoundError: there is no such lab or node.
    """
    with site.storage() as hosts:
        pool = hosts.on(look.find_node(lab, node, hosts)).pool
        pool.refresh()
        return pool.download(log_volume(lab, node))


@contextmanager
def serial(lab: str, node: str, site: Site) -> Iterator[consoles.Port]:
    """A node's serial port, for the length of a with-block.

    :raises NotFoundError: there is no such lab or node.
    :raises OffError: the node is off.
    :raises WinlabError: someone else is connected to it.
    """
    with site.hypervisors() as hosts:
        machine = look.find_node(lab, node, hosts)
        if machine.state in domains.OFF:
            look.require_running(machine)
        with consoles.opened(hosts.on(machine).conn, machine) as port:
            yield port


def desktop(lab: str, node: str, site: Site) -> Desktop:
    """Where a Windows node's Remote Desktop is, and who may log in.

    :raises UsageError: the node runs Linux.
    :raises NotFoundError: there is no such lab or node, or this account has no credentials for it.
    :raises OffError: the node does not run.
    """
    target = machine(lab, node, site)
    if not target.tag.system.remote_desktop:
        raise UsageError(
            f"'{node}' runs {target.tag.os}, which has no Remote Desktop.",
            cure=f"'winlab vnc {node}' shows its screen, 'winlab ssh {node}' opens a shell.",
        )
    look.require_running(target)
    password = site.folder(lab).credentials().administrator_password
    return Desktop(target.tag.floating, RDP, target.tag.user, password)


def console(lab: str, node: str, site: Site) -> None:
    """Connect the terminal to a node's serial port until Ctrl-].

    :raises NotFoundError: there is no such lab or node.
    :raises UsageError: there is no terminal.
    """
    with site.hypervisors() as hosts:
        machine = look.find_node(lab, node, hosts)
        consoles.join(hosts.on(machine).conn, machine)


def machine(lab: str, node: str, site: Site) -> Machine:
    """One machine of a lab.

    :raises NotFoundError: there is no such lab or node.
    """
    with site.hypervisors() as hosts:
        return look.find_node(lab, node, hosts)
