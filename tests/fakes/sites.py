"""Sites of fakes: hypervisors with any connections and pools, and any overlay; nothing is connected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

from winlab.adapters.registered import PREFIX, Registered
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts
from winlab.engine.lab_on_site import LabOnSite
from winlab.errors import HostError
from winlab.site import Site

LOCAL = "qemu:///system"


def idle(uri: str = LOCAL, **more: Any) -> Any:
    """A connection to a libvirt without domains; *more* is what a test knows of it."""
    return SimpleNamespace(listAllDomains=list, getURI=lambda: uri, **more)


def hypervisor(
    conn: Any = None, pool: Any = None, *, name: str = HYPERVISOR, facts: MachineFacts | None = None
) -> Hypervisor:
    """A hypervisor on hardware's pace, unless *facts* say otherwise."""
    return Hypervisor(name, conn, lambda: pool, lambda: facts or MachineFacts())


class FakeSite(Site):
    """A site of these hypervisors, whose overlay is the one given."""

    def __init__(self, *hypervisors: Hypervisor, overlay: Any = None) -> None:
        super().__init__(facts=HostFacts())
        self.each = Hypervisors(hypervisors or (hypervisor(),))
        self.northbound = overlay

    @contextmanager
    def hypervisors(self, limit: float = 0) -> Iterator[Hypervisors]:
        yield self.each

    def overlay(self) -> AbstractContextManager[Any]:
        if self.northbound is None:
            raise HostError("This test has no overlay.")
        return nullcontext(self.northbound)


def lab(name: str = "lab", *hypervisors: Hypervisor, overlay: Any = None) -> LabOnSite:
    """A lab on such a site."""
    site = FakeSite(*hypervisors, overlay=overlay)
    return LabOnSite.find(name, site, site.each)


def facts(**changes: Any) -> HostFacts:
    """The facts of a host of a site with several."""
    return HostFacts(**{"tunnel_mtu": 1442, "southbound": "ssl:192.0.2.1:6642", **changes})


def record(host: str = "host2", **facts: Any) -> str:
    """What OVN's database has of another hypervisor."""
    return Registered(uri=f"qemu+ssh://ann@{host}/system", facts=MachineFacts(**facts)).model_dump_json()


def registered(host: str = "host2", **facts: Any) -> Callable[[], Registered]:
    """What a site gives for such a record."""
    return lambda: Registered.parse("name", record(host, **facts))


class Recorder:
    """OVN's northbound database, as far as it has the list of hypervisors; what else is recorded is in ``others``."""

    def __init__(self, **texts: str) -> None:
        self.texts = {name.replace("_", "-"): text for name, text in texts.items()}
        self.others: dict[str, str] = {}
        self.takes_none: set[str] = set()
        self.gateways: dict[str, list[str]] = {}

    def gateways_on(self, chassis: str) -> list[str]:
        return self.gateways.get(chassis, [])

    def hypervisors(self) -> dict[str, str]:
        return dict(self.texts)

    def drained(self) -> frozenset[str]:
        return frozenset(self.takes_none)

    def set_drained(self, name: str, *, wanted: bool) -> None:
        (self.takes_none.add if wanted else self.takes_none.discard)(name)

    def put_hypervisor(self, name: str, text: str | None) -> None:
        if text is None:
            del self.texts[name]
        else:
            self.texts[name] = text

    def records(self, prefix: str) -> dict[str, str]:
        return {key: text for key, text in self.others.items() if key.startswith(prefix)}

    def record(self, texts: Mapping[str, str | None]) -> None:
        for key, text in texts.items():
            name = key.removeprefix(PREFIX)
            where, name = (self.others, key) if "/" in key else (self.texts, name)
            where.pop(name, None)
            if text is not None:
                where[name] = text
