"""Injected faults: add, list, clear. What is active is read back from OVN's rows and the domains' metadata.

A fault is recorded before anything is done, and forgotten after everything is undone. A user who is interrupted in
between can therefore run the same command again, and ``clear`` finds everything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.vm import domains, faults, power
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design import fault
from winlab.design.contract import on_both
from winlab.design.fault.base import Fault, InnerFault, MachineFault, Place, SwitchFault
from winlab.engine import wait
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, NotFoundError, OffError, UnreachableError, WinlabError, for_each
from winlab.events import Listener, Note, Progress, Told
from winlab.host import firewall
from winlab.operations import look, room
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.site import Site

FOLLOW = 60.0  # seconds until OVN's controllers must have followed
BOOT = 5  # times the usual time of a start, in which a node that was started must answer
BEGIN: dict[str, Callable[[Connection, domains.Named], None]] = {"off": power.cut_power, "suspended": power.suspend}
END: dict[str, Callable[[Connection, domains.Named], None]] = {"off": power.start, "suspended": power.resume}


def add(lab: str, site: Site, wanted: Fault, tell: Listener) -> Fault:
    """Add a fault to a lab, or change the settings of an active one; returns it.

    :raises NotFoundError: there is no such lab or node.
    :raises UsageError: the fault is not possible on these nodes; nothing was touched.
    :raises HostError: a hypervisor with nodes that it needs does not answer; nothing was touched.
    :raises GuestError: a node does not run, can't be asked, or refuses.
    """
    # a fault's other end may be all other nodes of the lab, and the faults inside a node are applied together
    needed = wanted.nodes if isinstance(wanted, MachineFault) else ()

    def work(under: Underway) -> Fault:
        there = _Work(under.lab)
        there.check(wanted)
        under.one_step(f"fault {wanted.id}", partial(there.add, wanted), usual=5)
        return wanted

    return carry_out(Job(lab, work, must_exist=True, nodes=needed), site, tell)


def active(lab: str, site: Site) -> list[Fault]:
    """The faults of a lab now, by their identifiers; none if there is no such lab."""
    with site.hypervisors() as hosts, site.overlay() as northbound:
        return _active(lab, hosts, northbound)


def clear(lab: str, site: Site, which: str, tell: Listener) -> list[Fault]:
    """Undo faults; returns them. Safe to repeat.

    :param which: an identifier, or a node whose faults are all undone; empty: all.
    :raises NotFoundError: there is no such lab, or nothing of that name has a fault.
    :raises HostError: a machine must resume, and the host's firewall is gone, or there is not enough memory.
    :raises GuestError: a node can't be asked, or refuses; the other nodes' faults are undone.
    """

    def work(under: Underway) -> list[Fault]:
        there = _Work(under.lab)
        with site.overlay() as northbound:
            known = _active(lab, under.hypervisors, northbound)
        chosen = [one for one in known if which in ("", one.id) or which in one.nodes]
        if which and not chosen and which not in there.places:
            raise NotFoundError(
                f"The lab '{lab}' has no fault or node '{which}'.",
                cure=f"Its faults: {', '.join(one.id for one in known)}." if known else "It has no faults.",
            )
        if switched := [there.machines[one.nodes[0]] for one in chosen if isinstance(one, MachineFault)]:
            firewall.require(Told(tell, "firewall"))
            room.require(under.hypervisors, switched)
        if chosen:
            name = f"clear {', '.join(one.id for one in chosen)}"
            under.one_step(name, partial(there.clear, chosen), usual=5 * len(chosen))
        if members := [machine.tag.node for machine in switched if machine.tag.is_member]:
            text = f"This does not wait until nodes are Ready ({', '.join(members)}): 'winlab test readiness' does."
            tell(Note(lab=lab, text=text))
        return chosen

    return carry_out(Job(lab, work, must_exist=True), site, tell)


def report(lab: str, site: Site, hosts: Hypervisors, tell: Listener) -> None:
    """Report for another command that a lab with machines has faults, if it has any. It never fails."""
    what = ""
    with suppress(WinlabError):
        if hosts.machines(lab):
            with site.overlay() as northbound:
                what = ", ".join(one.label for one in _active(lab, hosts, northbound))
    if what:
        text = f"Injected faults are active: {what}. 'winlab fault clear --lab {lab}' ends them."
        tell(Note(lab=lab, text=text))


def forget_over(lab: str, hosts: Hypervisors) -> None:
    """Forget faults of machines that another command has started or resumed; otherwise they would come back one day."""
    for machine in hosts.machines(lab):
        conn = hosts.on(machine).conn
        there = _recorded(conn, machine)
        left = [one for one in there if not isinstance(one, MachineFault) or machine.state == one.state]
        if len(left) < len(there):
            faults.write_records(conn, machine, lab, [one.record() for one in left])


def forget_packets(lab: str, northbound: Northbound) -> None:
    """End a lab's faults between nodes: its machines are put back to a time without any."""
    for text in northbound.fault_records(lab):
        with suppress(ValueError):
            if (one := fault.read(json.loads(text))) is not None:
                northbound.put_fault(lab, one.id, "", ())


def _active(lab: str, hosts: Hypervisors, northbound: Northbound) -> list[Fault]:
    known: dict[str, Fault] = {}
    for text in northbound.fault_records(lab):
        with suppress(ValueError):
            one = fault.read(json.loads(text))
            if isinstance(one, SwitchFault):
                known[one.id] = one
    for machine in hosts.machines(lab):
        for inner in _recorded(hosts.on(machine).conn, machine):
            # a machine that another command started or resumed has this fault no longer
            if isinstance(inner, MachineFault) and machine.state != inner.state:
                continue
            if inner.id not in known or inner.unfinished:  # it may be inside several nodes
                known[inner.id] = inner
    return [known[one] for one in sorted(known)]


def _recorded(conn: Connection, machine: Machine) -> list[Fault]:
    read = (fault.read(record) for record in faults.records(conn, machine))
    return [one for one in read if isinstance(one, InnerFault | MachineFault)]


@dataclass
class _Work:
    """Faults of one lab, under its lock."""

    lab: LabOnSite

    def __post_init__(self) -> None:
        self.machines = {machine.tag.node: machine for machine in look.find(self.lab.name, self.lab.hypervisors)}
        with self.lab.overlay() as northbound:
            routes = northbound.pod_routes(self.lab.name)
        self.places: dict[str, Place] = {}
        for name, machine in self.machines.items():
            mac, port = faults.card(self._conn(machine), machine)
            tag = machine.tag
            pods = tuple(sorted(network for network, hop in routes.items() if hop == tag.address))
            self.places[name] = Place(name, tag.system, mac, port, tag.address, tag.floating, pods)

    def _conn(self, machine: Machine) -> Connection:
        return self.lab.on(machine).conn

    def check(self, wanted: Fault) -> None:
        """Check everything before anything is touched.

        :raises WinlabError: the fault can't be added.
        """
        look.require_known(self.lab.name, wanted.nodes, self.machines)
        wanted.check(self.places)
        if isinstance(wanted, MachineFault):
            machine = self.machines[wanted.nodes[0]]
            if machine.state != wanted.state:
                _require_running(machine)
        elif isinstance(wanted, InnerFault):
            self.lab.folder.credentials()  # raises if this account has none
            for name in wanted.inside(self.places):
                _require_running(self.machines[name])

    def add(self, wanted: Fault, progress: Progress) -> None:
        """Do it."""
        if isinstance(wanted, SwitchFault):
            progress.say("changing the lab's switch in OVN")
            self._put(wanted, remove=False)
        elif isinstance(wanted, MachineFault):
            machine = self.machines[wanted.nodes[0]]
            self._record(machine, [*self._others(machine, wanted), wanted])
            BEGIN[wanted.state](self._conn(machine), machine)
        elif isinstance(wanted, InnerFault):
            for name in wanted.inside(self.places):
                self._add_inside(self.machines[name], wanted, progress)

    def clear(self, chosen: list[Fault], progress: Progress) -> None:
        """Undo these faults: first those of machines, so that the rest can be undone inside them."""
        order = (MachineFault, SwitchFault, InnerFault)
        ordered = [one for kind in order for one in chosen if isinstance(one, kind)]
        for_each(ordered, lambda one: self._clear(one, progress))

    def _clear(self, one: Fault, progress: Progress) -> None:
        progress.say(f"undoing {one.id}")
        if isinstance(one, SwitchFault):
            self._put(one, remove=True)
        else:
            for_each(self.machines.values(), lambda machine: self._clear_in(machine, one, progress))

    def _clear_in(self, machine: Machine, one: Fault, progress: Progress) -> None:
        if one.id not in {other.id for other in _recorded(self._conn(machine), machine)}:
            return
        left = self._others(machine, one)
        if isinstance(one, MachineFault):
            END[one.state](self._conn(machine), machine)
        else:
            self._await_answer(machine, progress)
            with self.lab.scripts(machine) as node:
                self._apply(node, left, progress)
        self._record(machine, left)

    def _others(self, machine: Machine, one: Fault) -> list[Fault]:
        """The records of a machine without a fault, and without those of its state: only one of these can be true."""
        return [
            other
            for other in _recorded(self._conn(machine), machine)
            if other.id != one.id and not isinstance(other, MachineFault)
        ]

    def _record(self, machine: Machine, values: list[Fault]) -> None:
        faults.write_records(self._conn(machine), machine, self.lab.name, [one.record() for one in values])

    def _put(self, one: SwitchFault, *, remove: bool) -> None:
        rules = () if remove else one.rules(self.places)
        with self.lab.overlay() as northbound:
            if not northbound.put_fault(self.lab.name, one.id, json.dumps(one.record(), sort_keys=True), rules):
                raise NotFoundError(
                    f"The lab '{self.lab.name}' has no network.",
                    cure="Run the lab's create command again: it makes it.",
                )
            for host in self.lab.hosts(self.machines.values()):
                northbound.await_followers(FOLLOW, host.facts.chassis)

    def _add_inside(self, machine: Machine, wanted: InnerFault, progress: Progress) -> None:
        before, others = _recorded(self._conn(machine), machine), self._others(machine, wanted)
        with self.lab.scripts(machine) as node:
            node.execute(["hostname"])  # without a login nothing is done, and nothing recorded
            self._record(machine, [*others, wanted.begun()])
            try:
                self._apply(node, [*others, wanted], progress)
            except UnreachableError:
                raise  # it may be done already: it stays recorded
            except WinlabError:
                with suppress(WinlabError):
                    self._apply(node, before, progress)
                self._record(machine, before)
                raise
        self._record(machine, [*others, wanted])

    def _apply(self, node: NodeScripts, values: list[Fault], progress: Progress) -> None:
        """Make exactly these faults active inside a node."""
        call, name = on_both.Faults(now=0), node.tag.node
        for one in values:
            if isinstance(one, InnerFault) and set(one.nodes) <= self.places.keys():
                call = one.done_by(name, self.places, call)
        progress.say(f"changing {name}")
        node.run(replace(call, now=int(time.time())), progress.say)

    def _await_answer(self, machine: Machine, progress: Progress) -> None:
        """Wait until a node that was just started answers.

        :raises GuestError: it does not run, or does not answer in time.
        """
        name = machine.tag.node
        if (state := domains.state(self._conn(machine), machine)) != "running":
            raise GuestError(
                f"'{name}' is {state}: nothing can be undone inside it.",
                cure="Run the lab's create command again, which starts it; then the same command.",
            )

        def ask() -> Met[None] | Waiting:
            try:
                with self.lab.scripts(machine) as node:
                    node.execute(["hostname"])
            except UnreachableError as error:
                return Waiting(f"waiting for {name}: {error.what}")
            return Met(None)

        def give_up(seen: Waiting) -> GuestError:
            return GuestError(
                f"'{name}' does not answer: nothing can be undone inside it.",
                why=seen.says,
                cure="Run the same command again once it answers.",
            )

        scale = self.lab.on(machine).facts.scale
        wait.until(ask, progress, give_up, stall=machine.tag.system.usual_boot * BOOT * scale)


def _require_running(machine: Machine) -> None:
    if machine.state != "running":
        raise OffError(
            f"'{machine.tag.node}' is {machine.state}.",
            cure=f"If that is a fault, 'winlab fault clear {machine.tag.node}' ends it. "
            f"'winlab start {machine.tag.node}' starts and resumes nodes, too.",
        )
