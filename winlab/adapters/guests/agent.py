"""What QEMU's guest agent reports about a guest that can't be reached over the network: evidence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from winlab.adapters.guests.base import Input, Sink, discard, patient
from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.guests.systems import command_line, ways
from winlab.adapters.vm import agent
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Named
from winlab.design.contract import on_both
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder
from winlab.printable import printable

MOST = 1 << 20  # characters of one text


class AgentGuest:
    """A guest reached through its agent, for command lines without quotation marks: the agent would escape these."""

    def __init__(self, conn: Connection, machine: Named, tag: Tag) -> None:
        self._conn = conn
        self._machine = machine
        self._tag = tag

    def execute(
        self,
        command: Sequence[str],
        stdout: Sink = discard,
        stderr: Sink = discard,
        stdin: Input = b"",
        waiting: Callable[[], None] = patient,  # noqa: ARG002 - the agent has a limit of its own
    ) -> int:
        """See :class:`winlab.adapters.guests.base.Guest`. The command's output comes when it has ended."""
        line = command_line(self._tag.system, command)
        given = stdin if isinstance(stdin, bytes) else b"".join(stdin)
        code, out, err = agent.execute(self._conn, self._machine, ["cmd.exe", "/c", line], given)
        stdout(out)
        stderr(err)
        return code

    def close(self) -> None:
        """See :class:`winlab.adapters.guests.base.Guest`: there is nothing to close."""


def texts(conn: Connection, machine: Named, tag: Tag, folder: LabFolder, call: on_both.Logs) -> dict[str, str]:
    """What the agent shows of a running guest, by name: why logins fail, and the logs if the payload CD is inserted.

    Empty if the guest has no responding agent.

    :param call: how many lines of which logs.
    """
    own = ways(tag.system)
    if not own.signs or not agent.answers(conn, machine):
        return {}
    told: dict[str, str] = {}
    with NodeScripts(tag, folder, 1.0, partial(AgentGuest, conn, machine, tag)) as there:
        try:
            for name, line in own.signs.items():
                try:
                    told[name] = there.execute([line])
                except UnreachableError:
                    raise
                except GuestError as error:
                    told[name] = str(error)
            if own.place(there.execute):
                told |= there.run(call).logs
        except GuestError as error:
            told["agent"] = str(error)
    return {name: printable(text[-MOST:]) for name, text in told.items()}
