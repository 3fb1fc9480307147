"""Prepare this host for labs, undo that, and check what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from winlab import settings
from winlab.design.plan.facts import HostFacts, Way
from winlab.design.spec.model import Spec
from winlab.errors import WinlabError
from winlab.events import Listener, Note, Told
from winlab.host import boot, connect, doctor
from winlab.host import setup as setting_up
from winlab.host import teardown as tearing_down
from winlab.host.doctor import Needs, Requirement, Status
from winlab.host.setup import Wanted
from winlab.host.side_by_side import Cell, SideBySide
from winlab.host.site import admission
from winlab.host.site import recover as recovering
from winlab.operations import carry_out, hosts_doctor, planning
from winlab.site import Site

__all__ = [
    "Cell",
    "SideBySide",
    "admit",
    "attach",
    "compare",
    "diagnose",
    "find_lost",
    "recover",
    "route",
    "setup",
    "teardown",
]


def diagnose(spec: Spec | None, tell: Listener) -> list[Requirement]:
    """Check everything that labs need on this host. Changes nothing; takes a few seconds.

    :param spec: memory, disk and cores are compared with what it needs; None: only report how much there is.
    :raises UsageError: a file that the spec names can't be read.
    """
    if spec is None:
        return doctor.diagnose()
    # no host fact changes what a lab needs, and bad facts must be reported, not fail here
    planned = planning.make(spec, settings.DEFAULT_LAB, HostFacts(), Told(tell, "plan"))
    return doctor.diagnose(Needs.of(planned.plan))


def compare() -> tuple[SideBySide, list[Requirement]]:
    """Compare the hosts of the site; and a check that failed if it is not known which exist. It never fails."""
    try:
        return hosts_doctor.compare(Site()), []
    except WinlabError as error:
        why = "labs may be on other hosts of the site"
        return SideBySide((), ()), [Requirement("other hosts", Status.WARN, error.what, why, error.cure)]


def setup(
    tell: Listener,
    *,
    external_cidr: str | None = None,
    install: bool = False,
    trust_python: bool = False,
    join: str = "",
    tunnel_address: str = "",
) -> HostFacts:
    """Prepare libvirt, Open vSwitch, OVN, the external bridge and NAT; safe to repeat.

    :param external_cidr: the network through which the host reaches labs; by default as before, or winlab's own.
    :param install: install missing packages of the distribution.
    :param trust_python: let root run this winlab at boot, and when others join, even if other users can change it.
    :param join: the ssh address of the first host of a site, which this host then joins as a further hypervisor.
    :param tunnel_address: this host's address for tunnels to the site's other hosts.
    :raises AccessError: this is not root.
    :raises WinlabError: something is missing, or a step failed.
    """
    wanted = Wanted(external_cidr, install, trust_python, join, tunnel_address)
    facts = carry_out.one_step("host setup", partial(setting_up.setup, wanted=wanted), tell, usual=5)
    if said := boot.warning():
        tell(Note(text=said))
    return facts


def teardown(tell: Listener, *, force: bool = False) -> None:
    """Undo everything that :func:`setup` did.

    :param force: even if there are labs.
    :raises AccessError: this is not root.
    :raises WinlabError: there are labs, or something can't be undone.
    """
    carry_out.one_step("host teardown", partial(tearing_down.teardown, force=force), tell, usual=4)


def attach(bridge: str, tell: Listener, *, undo: bool = False) -> None:
    """Let labs be attached to a Linux bridge of this host, or end that.

    :raises AccessError: this is not root.
    :raises WinlabError: there is no such bridge, or this host was not set up.
    """
    carry_out.one_step("host attach", partial(connect.attach, bridge=bridge, undo=undo), tell, usual=2)


def route(lab: str, router: str, networks: Sequence[str], tell: Listener, *, undo: bool = False) -> None:
    """Carry packets between a lab's inner network and its external cluster's networks through this host, or end that.

    :param router: the external address of the lab's router.
    :raises AccessError: this is not root.
    :raises WinlabError: an address is not usable or overlaps another one, or this host was not set up.
    """
    way = None if undo else Way(router=router, networks=tuple(networks))
    carry_out.one_step("host route", partial(connect.route, lab=lab, way=way), tell, usual=2)


def admit(text: str, connection: str, tell: Listener) -> str:
    """Admit another host to this one's site; returns the answer for that host.

    :param text: what it sent.
    :param connection: ``SSH_CONNECTION``.
    :raises AccessError: this is not root.
    :raises WinlabError: the host can't be admitted.
    """
    setting_up.require_root("winlab host admit")
    work = partial(admission.admit, text, connection)
    return carry_out.one_step("host admit", work, tell, usual=2).model_dump_json()


def find_lost(tell: Listener) -> list[str]:
    """The hosts with OVN's databases that do not answer, by address, if the databases need a recovery.

    :raises AccessError: this is not root.
    :raises UsageError: this host has no databases of a cluster.
    :raises ConflictError: they need no recovery.
    """
    setting_up.require_root("winlab hypervisor recover")
    return carry_out.one_step("hypervisor recover", recovering.check, tell, usual=10)


def recover(tell: Listener, source: str = "") -> None:
    """Have OVN's databases on this host alone, after most of the hosts that had them are lost.

    :param source: on the first host: the address of the host where they were recovered, to take them from there.
    :raises AccessError: this is not root.
    :raises WinlabError: they need no recovery, or can't be recovered here.
    """
    setting_up.require_root("winlab hypervisor recover")
    work = partial(recovering.take, source) if source else recovering.recover
    carry_out.one_step("hypervisor recover", work, tell, usual=10)
