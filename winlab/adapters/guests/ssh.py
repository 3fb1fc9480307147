"""Guests by ssh. Only the host key that winlab made for the node is accepted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import paramiko

from winlab.adapters.guests.base import Sink, discard
from winlab.adapters.guests.systems import command_line
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder

PORT = 22
logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # otherwise it prints tracebacks of refused connections


class SshGuest:
    """A guest that is reached by ssh."""

    def __init__(self, tag: Tag, folder: LabFolder, timeout: float) -> None:
        self._tag = tag
        self._client = paramiko.SSHClient()
        folder.credentials()  # raises a clear error if this account has none
        self._client.load_host_keys(str(folder.known_hosts))
        self._client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            self._client.connect(
                tag.floating,
                PORT,
                tag.user,
                key_filename=str(folder.ssh_key),
                allow_agent=False,
                look_for_keys=False,
                timeout=timeout,
                banner_timeout=timeout,
                auth_timeout=timeout,
            )
        except paramiko.BadHostKeyException as error:
            raise GuestError(
                f"The ssh server at {tag.floating} is not '{tag.node}'.",
                why="Its host key is not the one that winlab gave to the node.",
                cure="Check that nothing else has that address. If in doubt, destroy and create the lab again.",
            ) from error
        except paramiko.AuthenticationException as error:
            raise GuestError(f"'{tag.node}' refuses the lab's ssh key.", why=str(error)) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise UnreachableError(
                f"'{tag.node}' does not answer ssh at {tag.floating}.",
                why=str(error) or type(error).__name__,
                cure=f"See 'winlab status' and 'winlab serial {tag.node}'.",
            ) from error

    def execute(
        self, command: Sequence[str], stdout: Sink = discard, stderr: Sink = discard, stdin: bytes = b""
    ) -> int:
        """See :class:`winlab.adapters.guests.base.Guest`."""
        try:
            transport = self._client.get_transport()
            assert transport is not None
            channel = transport.open_session()
            channel.exec_command(command_line(self._tag.system, command))
            if stdin:
                channel.sendall(stdin)
            channel.shutdown_write()
            while True:
                while channel.recv_ready():
                    stdout(channel.recv(1 << 15))
                while channel.recv_stderr_ready():
                    stderr(channel.recv_stderr(1 << 15))
                if channel.exit_status_ready() and not channel.recv_ready() and not channel.recv_stderr_ready():
                    break
                channel.status_event.wait(0.02)
            # what arrived after the last check
            while chunk := channel.recv(1 << 15):
                stdout(chunk)
            while chunk := channel.recv_stderr(1 << 15):
                stderr(chunk)
            return channel.recv_exit_status()
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise UnreachableError(
                f"The ssh connection to '{self._tag.node}' was lost.", why=str(error) or type(error).__name__
            ) from error

    def close(self) -> None:
        """See :class:`winlab.adapters.guests.base.Guest`."""
        self._client.close()


def arguments(tag: Tag, folder: LabFolder) -> list[str | Path]:
    """The command line of the host's ssh client for a user's session on this node."""
    return [
        "ssh",
        "-i",
        folder.ssh_key,
        "-o",
        "IdentitiesOnly=yes",
        "-o",
        f'UserKnownHostsFile="{folder.known_hosts}"',  # quoted: ssh splits it at spaces
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "UpdateHostKeys=no",
        f"{tag.user}@{tag.floating}",
    ]
