"""A site: its hypervisors, their overlay, its facts, and the local folders that labs share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from winlab import lab_folder, settings, stopping
from winlab.adapters.overlay import ovn
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.vm import connection
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.facts import HYPERVISOR, HostFacts
from winlab.errors import UsageError
from winlab.host import facts as recorded
from winlab.lab_folder import LabFolder
from winlab.stopping import Stop


class Site:
    """Where labs live. A site has one hypervisor in this version; only :meth:`hypervisors` knows that.

    :param libvirt: the hypervisor's URI; by default ``WINLAB_LIBVIRT_URI``, else ``qemu:///system``.
    :param northbound: OVN's northbound database, in OVSDB's notation; by default ``WINLAB_OVN_NB``, else the socket
        that ``winlab host setup`` made.
    :param cache: the folder of images and artifacts; by default ``WINLAB_CACHE``, else the user's.
    :param state: the folder of the labs' secrets and journals; by default ``WINLAB_STATE``, else the user's.
    :param pool: the name of the hypervisor's storage pool.
    :param facts: what is known of the host; by default what ``winlab host setup`` recorded.
    """

    def __init__(
        self,
        *,
        libvirt: str | None = None,
        northbound: str | None = None,
        cache: Path | None = None,
        state: Path | None = None,
        pool: str = settings.POOL,
        facts: HostFacts | None = None,
    ) -> None:
        self.places = settings.Places(
            cache=cache or settings.cache_dir(),
            state=state or settings.state_dir(),
            libvirt=libvirt or settings.libvirt_uri(),
            northbound=northbound or settings.northbound(),
        )
        self.pool_name = pool
        self._facts = facts

    @property
    def host_facts(self) -> HostFacts:
        """What is known of the site and of its hypervisor, in one value: what a plan is made for.

        :raises UsageError: the recorded facts can't be read.
        """
        if self._facts is None:
            self._facts = recorded.read_facts()
        return self._facts

    def in_use(self) -> AbstractContextManager[None]:
        """Make the cache and everything else below use this site's places, for the length of a with-block."""
        return settings.use(self.places)

    @contextmanager
    def hypervisors(self) -> Iterator[Hypervisors]:
        """The hypervisors, connected for the length of a with-block.

        :raises AccessError: this user may not use libvirt.
        :raises HostError: libvirt does not answer.
        :raises UsageError: this host has joined the site of another one.
        """
        self._require_first()
        with connection.connected(self.places.libvirt) as conn:
            pool = partial(StoragePool, conn, self.pool_name)
            yield Hypervisors((Hypervisor(HYPERVISOR, conn, pool, lambda: self.host_facts.machine),))

    def _require_first(self) -> None:
        """Check that a libvirt on this host is that of a site's first host: labs' network is made there."""
        if self.places.libvirt != settings.LOCAL_LIBVIRT:
            return
        try:
            first = self.host_facts.joined
        except UsageError:
            return  # who needs the facts reports that
        if first:
            raise UsageError(
                "This host has joined the site of another one, and labs are made from there.",
                why=f"'winlab host setup --join' made it a hypervisor of '{first}'.",
                cure=f"Run the command on '{first}'.",
            )

    @contextmanager
    def storage(self) -> Iterator[Hypervisors]:
        """The hypervisors, after a check that each has its storage pool.

        :raises HostError: libvirt does not answer, or has no such pool.
        """
        with self.hypervisors() as hosts:
            for one in hosts:
                _ = one.pool
            yield hosts

    def overlay(self) -> AbstractContextManager[Northbound]:
        """A connection to OVN's northbound database, for the length of a with-block.

        :raises AccessError: this user may not use it.
        :raises HostError: there is no database.
        """
        return ovn.connect(self.places.northbound)

    def folder(self, lab: str) -> LabFolder:
        """A lab's local folder."""
        with self.in_use():
            return LabFolder(lab)

    def folders(self) -> list[str]:
        """The labs that have a local folder."""
        with self.in_use():
            return lab_folder.labs()


P = ParamSpec("P")
T = TypeVar("T")


class _Sited(Protocol):
    @property
    def site(self) -> Site: ...


S = TypeVar("S", bound=_Sited)


def at_site(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Wrap a method: all layers below use the places of the object's site, and the argument *stop* stops them."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        stop = cast(Stop, kwargs.get("stop"))
        with self.site.in_use(), stopping.by(stop):
            return method(self, *args, **kwargs)

    return call
