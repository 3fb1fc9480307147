"""A lab is looked at: its nodes, its hypervisors, its logs and its history."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from winlab import operations
from winlab.design.plan.lab_name import check_lab_name
from winlab.errors import WinlabError
from winlab.events import Event, Listener, ignore
from winlab.lab.base import Base
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.adapters.left import Left
    from winlab.adapters.vm.domains import Machine
    from winlab.history.timeline import Timeline, Which
    from winlab.operations.explain import Explained
    from winlab.operations.lab_hosts import HostStatus
    from winlab.operations.logs import NodeDiagnostics
    from winlab.operations.look import LabFacts, NodeStatus
    from winlab.operations.watch import View


class Looking(Base):
    """Nodes, hypervisors, logs and history."""

    @at_site
    def status(self) -> list[NodeStatus]:
        """The nodes as they are now; each running node is asked over a verified login.

        :raises NotFoundError: there is no such lab.
        """
        return operations.look.status(self.name, self.site)

    @at_site
    def about(self) -> LabFacts:
        """What this account has recorded of the lab: Kubernetes' version, CNI profile, age; empty if it has none."""
        return operations.look.about(self.site.folder(self.name))

    @at_site
    def hypervisors(self, nodes: Sequence[NodeStatus], *, ask: bool = True) -> list[HostStatus]:
        """The hypervisors that nodes are on, with their memory; none if all are on the first.

        :param nodes: as :meth:`status` found them.
        :param ask: connect to them, for their memory; otherwise their states are as the nodes' say.
        :raises HostError: the first hypervisor's libvirt does not answer.
        """
        return operations.lab_hosts.of(nodes, self.site, ask=ask)

    @at_site
    def machines(self) -> list[Machine]:
        """The lab's virtual machines with their states, without asking them; empty if there are none."""
        return operations.look.machines(self.name, self.site)

    @at_site
    def graph(self) -> str:
        """Its topology as an SVG picture: networks, router, and the nodes by hypervisor.

        :raises NotFoundError: there is no such lab.
        """
        return operations.graph.svg(self.name, self.site)

    @at_site
    def logs(self, node: str = "", lines: int = 60) -> list[NodeDiagnostics]:
        """Conditions, events and the last lines of the logs of one node, or of all of them.

        :param lines: how many lines of each log, at most 10,000.
        :raises NotFoundError: there is no such lab or node.
        """
        return operations.logs.reports(self.name, self.site, node, lines)

    @at_site
    def events(self, run: Which = "all", *, follow: bool = False) -> Generator[Event, None, None]:
        """The events of the lab's journal: what the commands did that changed it.

        :param run: ``last``, ``all``, or a run's number; the oldest that the journal still has is 1. Events that belong
            to no run are among ``all`` only.
        :param follow: also yield new ones as they come, endlessly.
        :raises NotFoundError: this account has no journal of the lab, or there is no run in it.
        :raises UsageError: there is no such run.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.timeline.events(self.name, self.site, run, follow=follow)

    @at_site
    def timeline(self, run: Which = "last") -> Timeline:
        """When the steps of runs began and ended, and which of them the runs took as long as.

        :param run: as :meth:`events` takes it.
        :raises NotFoundError: this account has no journal of the lab, or there is no run in it.
        :raises UsageError: there is no such run.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.timeline.timeline(self.name, self.site, run)

    @at_site
    def watch(self) -> Generator[View, None, None]:
        """The lab as it is now, again every second, endlessly: its run, who runs it, what each node is doing.

        Nodes are asked in the background, every 30 s. Close the iterator to end that.

        :raises NotFoundError: there is no trace of such a lab.
        """
        return operations.watch.watch(self.name, self.site)

    @at_site
    def support(
        self,
        to: Path | None = None,
        *,
        failed: BaseException | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Path:
        """Write an archive with everything about the lab that helps to find out what went wrong; returns its path.

        Secrets are masked. It needs no lock and changes nothing; what can't be collected is listed in it.

        :param to: the file; by default one in ``support`` in the state folder, which keeps the last ones of each lab.
        :param failed: what failed just before: it goes into the archive, and collecting takes less time.
        :raises NotFoundError: there is nothing of such a lab, and nothing has failed.
        :raises UsageError: no lab can have this name, or *to* can't be written.
        :raises AccessError: the state folder can't be written.
        """
        check_lab_name(self.name, own=True)
        if failed is None:
            operations.look.require_lab(self.name, self.site)
        return operations.support.collect(self.name, self.site, listener, to=to, failed=failed)

    @staticmethod
    def explain(path: Path) -> Explained:
        """The known causes that a log shows, or an archive that :meth:`support` made, wherever it was made.

        Nothing is unpacked or asked; that nothing known shows is an answer, too.

        :param path: a node's serial log, a log of Windows Setup, a bootstrap.log, or an archive (.tar.gz, .tar).
        :raises UsageError: it can't be read, or is none of these.
        """
        return operations.explain.explain_file(path)

    @at_site
    def protected_by(self) -> str | None:
        """The user who protected the lab, as far as hypervisors answer; None: it is not protected."""
        with self.site.hypervisors() as hosts:
            return operations.protect.by(self.name, hosts)

    @at_site
    def left(self) -> tuple[Left, ...]:
        """What it left on hypervisors that did not answer; the next command that changes a lab removes it there.

        What OVN does not say, because it does not answer, is missing.
        """
        with suppress(WinlabError):
            return tuple(one for one in self.site.left() if one.lab == self.name)
        return ()
