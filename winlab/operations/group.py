"""Several nodes of a lab at once: which, and a command on each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from winlab import stopping
from winlab.adapters.guests.connect import connect
from winlab.adapters.vm.domains import Machine
from winlab.design.system import SystemName
from winlab.errors import NotFoundError, UsageError, WinlabError
from winlab.operations import look, reach, recorded
from winlab.site import Site
from winlab.threads import Threads

NodeSink = Callable[[str, bytes], None]  # takes a node's name and what the node printed
AT_ONCE = 16


@dataclass(frozen=True)
class Ended:
    """How a command ended on a node: its exit code; or ``error``, and the exit code for that."""

    exit_code: int
    error: WinlabError | None = None


def select(lab: str, site: Site, pools: Sequence[str] = (), systems: Sequence[SystemName] = ()) -> list[Machine]:
    """The machines of a lab that are in one of the pools, or run one of the systems; by default all.

    :raises NotFoundError: there is no such lab or pool, or this account has no record of the lab's pools.
    :raises UsageError: there is no such machine.
    """
    with site.hypervisors() as hosts:
        machines = look.find(lab, hosts)
    if not pools and not systems:
        return machines
    of = pools_of(lab, site) if pools else {}
    for pool in pools:
        if pool not in of.values():
            known = ", ".join(sorted({one for one in of.values() if one}))
            raise NotFoundError(f"The lab '{lab}' has no pool '{pool}'.", cure=f"It has: {known}.")
    found = [one for one in machines if of.get(one.tag.node) in pools or one.tag.os in systems]
    if not found:
        raise UsageError(f"No node of the lab '{lab}' is one of these.", cure=f"See 'winlab status --lab {lab}'.")
    return found


def pools_of(lab: str, site: Site) -> dict[str, str]:
    """The pool of each node of a lab; empty for a controller.

    :raises NotFoundError: this account has no record of the lab.
    """
    plans = recorded.standing(site.folder(lab))
    if not plans:
        raise NotFoundError(
            f"This account does not know the pools of the lab '{lab}'.",
            why="They are in the record of the account that made it.",
            cure="Name nodes, or use --all, --linux or --windows.",
        )
    return {node.name: node.pool for plan in plans for node in plan.nodes}


def execute(
    machines: Sequence[Machine], site: Site, command: Sequence[str], stdout: NodeSink, stderr: NodeSink
) -> dict[str, Ended]:
    """Run a command on several nodes at once. A node that fails does not stop the others.

    :param command: its words; a single word is run as a line of the node's shell.
    :param stdout: called from several threads.
    :raises OSError: what a sink raises; all commands are stopped.
    """
    failed = threading.Event()

    def run(machine: Machine) -> Ended:
        node = machine.tag.node
        try:
            look.require_running(machine)
            guest = connect(machine.tag, site.folder(machine.tag.lab))
            return Ended(reach.ended(guest, command, partial(stdout, node), partial(stderr, node)))
        except WinlabError as error:
            return Ended(int(error.exit_code), error)
        except OSError:
            failed.set()
            raise

    running: dict[str, Future[Ended]] = {}
    with stopping.by(failed), Threads(AT_ONCE) as pool:
        for machine in machines:
            running[machine.tag.node] = pool.submit(run, machine)
    errors = [error for one in running.values() if (error := one.exception()) is not None]
    for error in sorted(errors, key=lambda one: not isinstance(one, OSError)):
        raise error
    return {node: one.result() for node, one in running.items()}
