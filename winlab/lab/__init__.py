"""The front door: a lab by its name, and everything that can be done with it. The command line uses it, too.

Methods raise a :class:`winlab.errors.WinlabError`; each class has the command's exit code for it.
To see progress, pass a *listener*, which receives events (:mod:`winlab.events`) from any thread. To stop a method, set
the event *stop* from another thread: it raises :class:`winlab.stopping.Stopped`, and the same call resumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from winlab import operations
from winlab.lab.cluster import Cluster
from winlab.lab.external import External
from winlab.lab.looking import Looking
from winlab.lab.making import Making
from winlab.lab.reaching import Reaching
from winlab.lab.running import Running
from winlab.site import Site

if TYPE_CHECKING:
    from winlab.lab_snapshots import Snapshots
    from winlab.operations.look import Overview


class Lab(Making, External, Looking, Reaching, Cluster, Running):
    """A lab, whether it exists yet or not. Nothing is touched before a method is called.

    Methods that change a lab of another user raise :class:`winlab.errors.ConflictError`.

    :param site: where it lives; by default as the environment says.
    :param anyone: change it even if another user made it.
    """

    @staticmethod
    def all(site: Site | None = None) -> list[Lab]:
        """All labs of a site, by name, including those of which only a network or volumes are left.

        :raises HostError: libvirt or OVN does not answer.
        """
        site = site or Site()
        with site.in_use():
            return [Lab(name, site) for name in operations.look.all_labs(site)]

    @staticmethod
    def overview(site: Site | None = None) -> Overview:
        """All labs of a site with their machines, in one look; and what could not be seen.

        :raises HostError: the first hypervisor's libvirt does not answer.
        """
        site = site or Site()
        with site.in_use():
            return operations.look.overview(site)

    @staticmethod
    def known_names(site: Site | None = None) -> list[str]:
        """The names of a site's labs, and of those that left a local folder; never fails."""
        site = site or Site()
        with site.in_use():
            return operations.look.known_names(site)

    @property
    def snapshots(self) -> Snapshots:
        """Its snapshots: saved, put back, copied."""
        from winlab.lab_snapshots import Snapshots

        return Snapshots(self.name, self.site, anyone=self.anyone)
