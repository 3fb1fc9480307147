"""A lab that exists is switched, protected, repaired, damaged and removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from winlab import operations
from winlab.design.plan.lab_name import check_lab_name
from winlab.events import Listener, ignore
from winlab.lab.base import Base
from winlab.site import at_site
from winlab.stopping import Stop

if TYPE_CHECKING:
    from winlab.design.fault import Fault
    from winlab.operations.autostart import Autostart
    from winlab.operations.drift.model import Drift
    from winlab.operations.power import Switched


class Running(Base):
    """What is done to a lab that exists."""

    @at_site
    def stop(
        self, nodes: Sequence[str] = (), *, force: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> list[Switched]:
        """Shut down nodes, workers before controllers; those that are off are skipped.

        :param nodes: their names; none: the whole lab.
        :param force: cut their power instead.
        :raises NotFoundError: there is no such lab or node; nothing was touched.
        :raises StalledError: a node does not shut down.
        """
        self._require_owner()
        return operations.power.stop(self.name, self.site, nodes, listener, force=force)

    @at_site
    def start(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Start nodes that are off, and resume those that are suspended; wait until they answer and are Ready.

        Their clocks are set by the host's.

        :param nodes: their names; none: the whole lab.
        :raises NotFoundError: there is no such lab or node, or it was made from another account; nothing was touched.
        :raises WinlabError: a node can't be started, does not answer, or does not become Ready.
        """
        self._require_owner()
        return operations.power.start(self.name, self.site, nodes, listener)

    @at_site
    def restart(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Shut nodes down, switch them off, and start them, as :meth:`stop` and :meth:`start` do.

        :param nodes: their names; none: the whole lab.
        :raises WinlabError: as those two.
        """
        self._require_owner()
        return operations.power.restart(self.name, self.site, nodes, listener)

    @at_site
    def suspend(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Suspend running nodes in memory.

        :param nodes: their names; none: the whole lab, of which nodes that are off stay off.
        :raises NotFoundError: there is no such lab or node; nothing was touched.
        :raises GuestError: a node that was named is off; nothing was touched.
        """
        self._require_owner()
        return operations.power.suspend(self.name, self.site, nodes, listener)

    @at_site
    def resume(self, nodes: Sequence[str] = (), *, listener: Listener = ignore, stop: Stop = None) -> list[Switched]:
        """Resume nodes that are suspended or paused, set their clocks, wait until they answer and are Ready.

        :param nodes: their names; none: the whole lab, of which nodes that are off stay off.
        :raises NotFoundError: there is no such lab or node, or it was made from another account; nothing was touched.
        :raises GuestError: a node that was named is off; nothing was touched.
        :raises WinlabError: a node can't be resumed, does not answer, or does not become Ready.
        """
        self._require_owner()
        return operations.power.resume(self.name, self.site, nodes, listener)

    @at_site
    def autostart(self, *, wanted: bool) -> Autostart:
        """Have the lab's nodes start with the host, or not.

        :raises NotFoundError: there is no such lab.
        :raises ConflictError: another winlab is changing the lab.
        """
        self._require_owner()
        return operations.autostart.change(self.name, self.site, wanted=wanted)

    @at_site
    def protect(self, *, wanted: bool = True) -> None:
        """Have commands refuse to destroy or reset the lab, or to remove or rebuild its nodes, for every user.

        :param wanted: False: end that.
        :raises NotFoundError: there is no such lab.
        :raises ConflictError: another winlab is changing the lab.
        """
        self._require_owner()
        operations.protect.change(self.name, self.site, wanted=wanted)

    @at_site
    def repair(
        self,
        node: str = "",
        *,
        check: bool = False,
        digests: bool = False,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> list[Drift]:
        """Find what differs from the lab's recorded plan, and repair it; empty if nothing differs.

        :param node: only this node's things, and those of the whole lab; empty: every node's.
        :param check: only look.
        :param digests: also read base volumes whole, and compare their digests.
        :raises NotFoundError: there is no such node, or this account has no record of what the lab was made from.
        :raises ConflictError: the lab was made from another plan, or another winlab is working on it.
        :raises WinlabError: the repair failed; the same call resumes.
        """
        operations.look.require_lab(self.name, self.site)
        if not check:
            self._require_owner()
        return operations.repair.repair(self.name, self.site, listener, node=node, check=check, digests=digests)

    @at_site
    def add_fault(
        self, /, kind: str, *nodes: str, listener: Listener = ignore, stop: Stop = None, **settings: object
    ) -> Fault:
        """Do a fault to a node, or between two: ``lab.add_fault("loss", "node-1", percent=20)``.

        The same fault with other settings replaces the first one. docs/faults.md has all kinds.

        :param settings: of this kind, as the command's flags are called.
        :raises UsageError: there is no such fault, or it can't be done to these nodes; nothing was touched.
        :raises NotFoundError: there is no such lab or node.
        :raises GuestError: a node does not run, can't be asked, or refuses.
        """
        from winlab.design import fault

        self._require_owner()
        return operations.faults.add(self.name, self.site, fault.make(kind, nodes, **settings), listener)

    @at_site
    def faults(self) -> list[Fault]:
        """The faults that are active, no matter who added them.

        :raises NotFoundError: there is no such lab.
        """
        operations.look.require_lab(self.name, self.site)
        return operations.faults.active(self.name, self.site)

    @at_site
    def clear_faults(self, which: str = "", *, listener: Listener = ignore, stop: Stop = None) -> list[Fault]:
        """Undo faults; safe to repeat.

        :param which: a fault's ``id``, or a node's name; by default all.
        :returns: those that were active.
        :raises NotFoundError: there is no such lab, or no fault or node of this name.
        :raises GuestError: a node can't be asked, or refuses; the faults elsewhere are undone.
        """
        self._require_owner()
        return operations.faults.clear(self.name, self.site, which, listener)

    @at_site
    def destroy(self, *, anyone: bool = False, listener: Listener = ignore, stop: Stop = None) -> list[str]:
        """Remove every trace of the lab; safe to repeat. Images are kept.

        What is on a hypervisor that does not answer is remembered: :meth:`left`.

        :param anyone: as in the constructor.
        :returns: what was removed, for display; empty if there was nothing.
        :raises UsageError: no lab can have this name.
        :raises ConflictError: another user made the lab; nothing was touched.
        :raises WinlabError: something can't be removed.
        """
        check_lab_name(self.name, own=True)
        return operations.destroy.destroy(self.name, self.site, listener, anyone=anyone or self.anyone)
