"""A site: its hypervisors, their overlay, its facts, and the local folders that labs share."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from winlab import lab_folder, settings, stopping
from winlab.adapters.left import LEFT, Left
from winlab.adapters.overlay import ovn
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.registered import Registered
from winlab.adapters.remote import Remote
from winlab.adapters.vm import connection, others
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Silent
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.facts import HYPERVISOR, HostFacts
from winlab.errors import HostError, UsageError, WinlabError
from winlab.host import facts as recorded
from winlab.lab_folder import LabFolder
from winlab.stopping import Stop

READING = 20.0  # seconds for the list of hypervisors: commands that need no OVN must not wait for one that hangs
REST = 30.0  # seconds until a hypervisor that did not answer is asked again


class Site:
    """Where labs live: the first hypervisor, and others that ``winlab hypervisor add`` recorded.

    :param libvirt: the first hypervisor's URI; by default ``WINLAB_LIBVIRT_URI``, else ``qemu:///system``.
    :param northbound: OVN's northbound database, in OVSDB's notation; by default ``WINLAB_OVN_NB``, else the socket
        that ``winlab host setup`` made on the first hypervisor, which is reached by ssh if libvirt is.
    :param cache: the folder of images and artifacts; by default ``WINLAB_CACHE``, else the user's.
    :param state: the folder of the labs' secrets and journals; by default ``WINLAB_STATE``, else the user's.
    :param pool: the name of the hypervisors' storage pools.
    :param facts: what is known of the first host; by default what ``winlab host setup`` recorded there.
    """

    silent: tuple[Silent, ...] = ()  # the hypervisors that did not answer when they were last needed

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
            northbound=northbound or self._default_northbound(libvirt or settings.libvirt_uri()),
        )
        self.pool_name = pool
        self._facts = facts
        self._resting: dict[str, tuple[float, Silent]] = {}

    @staticmethod
    def _default_northbound(libvirt: str) -> str:
        """As the environment says; the socket of winlab is the first hypervisor's, which may be another host."""
        named, there = settings.northbound(), Remote.of(libvirt)
        return named if there is None or named != settings.NORTHBOUND else there.url(settings.NB_SOCKET)

    @property
    def host_facts(self) -> HostFacts:
        """What is known of the site and of its first hypervisor, in one value: what a plan is made for.

        :raises UsageError: the recorded facts can't be read.
        :raises HostError: the first hypervisor is another host, and ssh does not connect to it.
        """
        if self._facts is None:
            there = Remote.of(self.places.libvirt)
            self._facts = recorded.read_facts() if there is None else recorded.read_facts_of(there)
        return self._facts

    def in_use(self) -> AbstractContextManager[None]:
        """Make the cache and everything else below use this site's places, for the length of a with-block."""
        return settings.use(self.places)

    @contextmanager
    def hypervisors(self, limit: float = connection.OPENING) -> Iterator[Hypervisors]:
        """The hypervisors, connected for the length of a with-block. Only the first one must answer.

        :param limit: seconds in which each of the others must be connected.
        :raises AccessError: this user may not use libvirt.
        :raises HostError: the first one's libvirt does not answer.
        :raises UsageError: this host has joined the site of another one.
        """
        self._require_first()
        with connection.connected(self.places.libvirt) as conn, ExitStack() as opened:
            pool = partial(StoragePool, conn, self.pool_name)
            first = Hypervisor(HYPERVISOR, conn, pool, lambda: self.host_facts.machine)
            rest = self._others(opened, limit)
            self.silent = tuple(one for one in rest if isinstance(one, Silent))
            yield Hypervisors((first, *(one for one in rest if isinstance(one, Hypervisor))), self.silent)

    @contextmanager
    def storage(self) -> Iterator[Hypervisors]:
        """The hypervisors, after a check that each has its storage pool. Others without one count as silent.

        :raises HostError: the first one's libvirt does not answer, or has no such pool.
        """
        with self.hypervisors() as hosts:
            _ = hosts.each[0].pool
            lacking = []
            for one in hosts.each[1:]:
                try:
                    _ = one.pool
                except WinlabError as error:
                    lacking.append(Silent(one.name, error))
            self.silent = (*hosts.silent, *lacking)
            names = [one.name for one in lacking]
            yield Hypervisors(tuple(one for one in hosts if one.name not in names), self.silent)

    def _others(self, opened: ExitStack, limit: float) -> list[Hypervisor | Silent]:
        """The hypervisors besides the first, connected until *opened* ends.

        One that did not answer is not asked again for a while: each try takes seconds.
        """
        try:
            facts = self.host_facts
        except WinlabError:
            facts = None  # who needs them reports that
        if facts is not None and not facts.southbound:
            return []  # so a site with one host needs no OVN for this
        try:
            records, remains = self._records()
        except WinlabError as error:
            return [Silent("", error)]
        now = time.monotonic()
        resting = {name: one for name, (since, one) in self._resting.items() if now - since < REST and name in records}
        asked = {name: read for name, read in records.items() if name not in resting}
        found = [
            replace(one, left=tuple(what for what in remains if what.hypervisor == one.name))
            if isinstance(one, Hypervisor)
            else one
            for one in others.connect(asked, self.pool_name, opened, limit)
        ]
        since = time.monotonic()
        self._resting.update({one.name: (since, one) for one in found if isinstance(one, Silent)})
        return [*found, *resting.values()]

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
                "This host has joined the site of another one, and labs are created from there.",
                why=f"'winlab host setup --join' made it a hypervisor of '{first}'.",
                cure=f"Run the command on '{first}', or set WINLAB_LIBVIRT_URI=qemu+ssh://USER@HOST/system for it.",
            )

    def remote(self, name: str) -> Remote | None:
        """The host of a hypervisor, for ssh; None: it is this one.

        :raises HostError: the list of hypervisors can't be read.
        :raises WinlabError: what is recorded of it can't be used.
        """
        return Remote.of(self.places.libvirt) if name == HYPERVISOR else self.registered()[name]().remote

    def registered(self) -> dict[str, Callable[[], Registered]]:
        """The hypervisors that are recorded besides the first, by name; each raises WinlabError if it can't be used.

        :raises AccessError: this user may not use OVN's northbound database.
        :raises HostError: it does not answer.
        """

        return self._records()[0]

    def left(self) -> tuple[Left, ...]:
        """What labs left on hypervisors that did not answer; nothing on a site with one host.

        :raises AccessError: this user may not use OVN's northbound database.
        :raises HostError: it does not answer.
        """
        return self._records()[1] if self.host_facts.southbound else ()

    def _records(self) -> tuple[dict[str, Callable[[], Registered]], tuple[Left, ...]]:
        def read() -> tuple[dict[str, str], dict[str, str]]:
            with self.overlay() as northbound:
                return northbound.hypervisors(), northbound.records(LEFT)

        try:
            texts, rest = stopping.patiently(read, limit=READING)
        except TimeoutError as error:
            raise HostError(
                "The OVN northbound database does not answer.", why=str(error), cure="Run 'sudo winlab host setup'."
            ) from error
        records: dict[str, Callable[[], Registered]] = {
            name: partial(Registered.parse, name, text) for name, text in texts.items()
        }
        return records, tuple(found for key, text in rest.items() if (found := Left.parse(key, text)) is not None)

    def drained(self) -> frozenset[str]:
        """The names of the hypervisors that take no new nodes.

        :raises HostError: OVN's database does not answer.
        """
        if not self.host_facts.southbound:
            return frozenset()
        with self.overlay() as northbound:
            return northbound.drained()

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
