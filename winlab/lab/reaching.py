"""A lab's nodes are reached: one by its name, or several at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from winlab import operations
from winlab.events import Listener, ignore
from winlab.lab.base import Base
from winlab.node import Node
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.adapters.guests.base import Sink
    from winlab.design.system import SystemName
    from winlab.operations.copied import Copied
    from winlab.operations.group import Ended, NodeSink


class Reaching(Base):
    """Nodes, one or several."""

    def node(self, name: str) -> Node:
        """One node. It is not checked here; its methods raise if there is no such node."""
        return Node(self.name, name, self.site)

    @at_site
    def ssh_config(self) -> str:
        """Entries for ``~/.ssh/config``: ssh, scp, rsync and editors know the nodes as ``NODE.LAB``, and verify them.

        :raises NotFoundError: there is no such lab, or this account has no credentials for it.
        """
        return operations.outlets.ssh_config(self.name, self.site)

    @at_site
    def hosts(self) -> str:
        """Lines for ``/etc/hosts``: the addresses by which this host reaches nodes, and their names.

        :raises NotFoundError: there is no such lab.
        """
        return operations.outlets.hosts(self.name, self.site)

    @at_site
    def environment(self) -> dict[str, str]:
        """The variables with which winlab and kubectl use the lab.

        :raises NotFoundError: there is no such lab.
        """
        return operations.outlets.environment(self.name, self.site)

    @at_site
    def inventory(self) -> str:
        """An inventory for Ansible, as YAML: groups by role, system and pool. There is no secret in it.

        :raises NotFoundError: there is no such lab, or this account has no credentials for it.
        """
        return operations.outlets.inventory(self.name, self.site)

    @at_site
    def select(self, *, pools: Sequence[str] = (), systems: Sequence[SystemName] = ()) -> list[str]:
        """The names of the nodes that are in one of the pools, or run ``linux`` or ``windows``; by default all.

        :raises NotFoundError: there is no such lab or pool, or this account has no record of the lab's pools.
        :raises UsageError: there is no such node.
        """
        return [one.tag.node for one in operations.group.select(self.name, self.site, pools, systems)]

    @at_site
    def execute(
        self,
        command: Sequence[str],
        nodes: Sequence[str] = (),
        *,
        stdout: NodeSink,
        stderr: NodeSink,
        stop: Stop = None,
    ) -> dict[str, Ended]:
        """Run a command on several nodes at once; a node that fails does not stop the others.

        :param command: its words; a single word is run as a line of each node's shell.
        :param nodes: by default all.
        :param stdout: called with a node's name and what it printed, from several threads.
        :raises NotFoundError: there is no such lab or node.
        :raises OSError: what *stdout* or *stderr* raises; all commands are stopped.
        """
        with self.site.hypervisors() as hosts:
            machines = operations.look.find_nodes(self.name, nodes, hosts)
        return operations.group.execute(machines, self.site, command, stdout, stderr)

    @at_site
    def copy(
        self,
        sources: Sequence[str],
        target: str,
        *,
        root: bool = False,
        stdin: Iterable[bytes] = (),
        stdout: Sink | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Copied:
        """Copy files and folders, as ``winlab cp`` does: each place is ``NODE:PATH``, or a path of this host.

        :param root: use the rights of root on Linux nodes.
        :param stdin: the bytes of the source ``-``.
        :param stdout: takes the bytes if the target is ``-``.
        :raises UsageError: the places don't go together.
        :raises WinlabError: as :meth:`Node.copy_to`.
        """
        parse = operations.copy.Place.parse
        places = [parse(source) for source in sources]
        return operations.copy.copy(
            self.name, places, parse(target), self.site, listener, root=root, stdin=stdin, stdout=stdout
        )
