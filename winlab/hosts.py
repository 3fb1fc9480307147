"""The front door to a site's hypervisors: added, listed, removed.

As in :mod:`winlab.lab`, methods raise a :class:`winlab.errors.WinlabError`, a *listener* receives events, and *stop*
stops them.
"""

from __future__ import annotations

from winlab.adapters.left import Left
from winlab.events import Listener, ignore
from winlab.operations import drain, forget, registry
from winlab.operations.drain import Drained
from winlab.operations.lab_hosts import HostStatus
from winlab.operations.registry import Listed, Shown
from winlab.site import Site, at_site
from winlab.stopping import Stop

__all__ = ["Drained", "HostStatus", "Hosts", "Left", "Listed", "Shown"]


class Hosts:
    """The hypervisors of a site.

    :param site: by default as the environment says.
    """

    def __init__(self, site: Site | None = None) -> None:
        self.site = site or Site()

    @at_site
    def names(self) -> list[str]:
        """Their names; none of them is asked.

        :raises HostError: the list can't be read.
        """
        return registry.names(self.site)

    @at_site
    def list(self, *, stop: Stop = None) -> list[Listed]:
        """All of them, the first one first; those that don't answer say why.

        :raises HostError: the first one's libvirt does not answer.
        """
        return registry.every(self.site)

    @at_site
    def show(self, name: str, *, stop: Stop = None) -> Shown:
        """One of them.

        :raises NotFoundError: there is none of this name.
        """
        return registry.show(name, self.site)

    @at_site
    def add(self, name: str, uri: str, *, listener: Listener = ignore, stop: Stop = None) -> Listed:
        """Add a host that has joined the site, or read its facts again.

        :param uri: of its libvirt: ``qemu+ssh://user@host/system``.
        :raises UsageError: the name or the URI can't be one; nothing was touched.
        :raises ConflictError: the name or the host is taken, or the host has not joined this site.
        :raises HostError: it can't be reached, or can't carry labs.
        """
        return registry.add(name, uri, self.site, listener)

    @at_site
    def drain(self, name: str, *, undo: bool = False, listener: Listener = ignore, stop: Stop = None) -> Drained:
        """Move all nodes of this user's labs away from one, and have no new ones placed there.

        :param undo: only let it take new nodes again.
        :raises NotFoundError: there is none of this name.
        :raises ConflictError: labs of other users have nodes there; this user's were moved.
        :raises WinlabError: a node can't be moved; the others were.
        """
        return drain.drain(name, self.site, listener, undo=undo)

    @at_site
    def remove(self, name: str, *, force: bool = False, stop: Stop = None) -> None:
        """Remove one from the site; the host itself is not changed.

        :param force: even if it does not answer, or volumes of labs or snapshots are in its pool; they stay there.
        :raises NotFoundError: there is none of this name.
        :raises ConflictError: labs have machines there; or labs or snapshots have volumes.
        :raises HostError: it does not answer, or has no storage pool.
        """
        registry.remove(name, self.site, force=force)

    @at_site
    def forget(self, name: str, *, listener: Listener = ignore, stop: Stop = None) -> None:
        """Forget one that does not answer and never will. What labs have there counts as gone.

        If it comes back and is added again, what labs have there is removed.

        :raises NotFoundError: there is none of this name.
        :raises ConflictError: it answers.
        """
        forget.forget(name, self.site, listener)

    @at_site
    def left(self) -> tuple[Left, ...]:
        """What labs left on hypervisors that did not answer. The next command that changes a lab removes it there.

        :raises HostError: OVN's northbound database does not answer.
        """
        return self.site.left()
