"""How checks reach the API server, the nodes, the network from this host, and OVN. Tests use fakes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import httpx

from winlab import run
from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm.domains import Machine
from winlab.checks.model import CheckFailed, said
from winlab.design.contract.call import Call, R
from winlab.design.plan.tags import Tag
from winlab.engine.lab_on_site import LabOnSite
from winlab.errors import HostError, WinlabError
from winlab.operations import absent, look, recorded
from winlab.site import Site

FETCH_SECONDS = 15.0
EXEC_SECONDS = 120.0
REACH_SECONDS = 5.0


class Script(Protocol):
    """Runs winlab's scripts."""

    def __call__(self, tag: Tag, call: Call[R]) -> R:
        """Run a script in a node; returns its result.

        :raises GuestError: the node can't be reached, or the script failed.
        """


@dataclass(frozen=True)
class Access:
    """Ways to reach the parts of a lab. ``scale``: how much slower than on hardware guests run."""

    kubectl: Kubectl
    fetch: Callable[[str], str]  # get a URL from this host; raises CheckFailed
    reaches: Callable[[str, int], bool]  # whether this host can open a TCP connection
    in_pod: Callable[[str, str, list[str]], str]  # run a command in a pod of a namespace; raises CheckFailed
    execute: Callable[[Tag, list[str]], str]  # run a command in a node; raises GuestError
    script: Script
    routes: Callable[[], dict[str, str]]  # OVN's routes to pod networks; raises HostError
    in_programs: bool = False  # the control plane and kube-proxy are in the distribution's own program, not in pods
    idle: Callable[[], dict[str, str]] = dict  # the cluster's nodes that don't run now, with their states
    logout: Callable[[], None] = lambda: None  # end logins to nodes; the next command logs in again
    scale: float = 1.0
    clock: Callable[[], float] = time.monotonic


class Logins:
    """Logins to nodes, one each, which are kept until :meth:`end`."""

    def __init__(self, lab: LabOnSite, machines: Iterable[Machine]) -> None:
        self._lab = lab
        self._machines = {machine.tag.node: machine for machine in machines}
        self._lock = threading.Lock()
        self._nodes: dict[str, tuple[threading.Lock, NodeScripts]] = {}

    def execute(self, tag: Tag, command: list[str]) -> str:
        """Run a command in a node; returns its output.

        :raises GuestError: the node can't be reached, or the command failed.
        """
        with self._login(tag) as node:
            return node.execute(command)

    def script(self, tag: Tag, call: Call[R]) -> R:
        """Run one of winlab's scripts in a node; returns its result.

        :raises GuestError: the node can't be reached, or the script failed.
        """
        with self._login(tag) as node:
            return node.run(call)

    def end(self) -> None:
        """Log out of all nodes."""
        with self._lock:
            known = list(self._nodes.values())
        for lock, node in known:
            with lock:
                node.disconnect()

    @contextmanager
    def _login(self, tag: Tag) -> Iterator[NodeScripts]:
        with self._lock:
            lock, node = self._nodes.setdefault(
                tag.node, (threading.Lock(), self._lab.scripts(self._machines[tag.node]))
            )
        with lock:
            try:
                yield node
            except WinlabError:
                node.disconnect()  # the node may have restarted, which ends sessions in several ways
                raise


def of(lab: str, site: Site) -> tuple[list[Tag], Access]:
    """The nodes of a lab's cluster and the ways to reach it.

    :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
    :raises OffError: none of its controllers runs.
    """
    with site.hypervisors() as hosts:
        absent.require(lab, site, hosts)
        machines, standing = look.find(lab, hosts), LabOnSite.find(lab, site, hosts)
    kubectl = Kubectl.of(standing.folder)
    plans = [plan for plan in recorded.standing(standing.folder) if plan.kubernetes is not None]
    look.require_api(machines)
    logins = Logins(standing, machines)

    def routes() -> dict[str, str]:
        with standing.overlay() as northbound:
            return northbound.pod_routes(lab)

    def idle() -> dict[str, str]:
        with suppress(WinlabError), site.hypervisors() as hosts:
            members = [machine for machine in hosts.machines(lab) if machine.tag.is_member]
            return {machine.tag.node: machine.state for machine in members if machine.state != "running"}
        return {}

    return [machine.tag for machine in machines if machine.tag.is_member], Access(
        kubectl=kubectl,
        fetch=fetch,
        reaches=reaches,
        in_pod=partial(in_pod, kubectl),
        execute=logins.execute,
        script=logins.script,
        logout=logins.end,
        routes=routes,
        in_programs=any(plan.cluster.made and not plan.cluster.distribution.in_pods for plan in plans),
        idle=idle,
        scale=standing.pace.scale,
    )


def in_pod(kubectl: Kubectl, namespace: str, pod: str, command: list[str]) -> str:
    """Run a command in a pod; returns its output.

    :raises CheckFailed: it can't be run, or it fails; the text has its output.
    """
    # kubectl's flags come first: after the command they would belong to the command
    words = ["exec", pod, f"--namespace={namespace}", "--", *command]
    try:
        return kubectl.watch(words, timeout=EXEC_SECONDS)
    except run.CommandError as error:
        raise CheckFailed(said(Exception(error.result.stderr or error.result.stdout))) from error
    except HostError as error:
        raise CheckFailed(f"'{' '.join(command)[:100]}' in {pod} did not end within {EXEC_SECONDS:.0f} s") from error


def fetch(url: str) -> str:
    """The body that a URL of the lab returns.

    :raises CheckFailed: it does not answer, or answers with an error.
    """
    try:
        # ignore any proxy in the user's environment: labs are on this host
        with httpx.Client(timeout=FETCH_SECONDS, trust_env=False) as client:
            return client.get(url).raise_for_status().text
    except httpx.HTTPError as error:
        raise CheckFailed(f"{url}: {said(error) or type(error).__name__}") from error


def reaches(host: str, port: int) -> bool:
    """Whether this host can open a TCP connection to that port."""
    with suppress(OSError), socket.create_connection((host, port), timeout=REACH_SECONDS):
        return True
    return False
