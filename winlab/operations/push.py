"""Replaces one program on a running node with the user's own build, and restores the original."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from winlab import files
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import pushed
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.pushed import Pushed
from winlab.design import system
from winlab.design.contract import on_both
from winlab.design.distribution.known import DISTRIBUTIONS
from winlab.design.system import SYSTEMS, SystemName
from winlab.engine import wait
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, GuestError, UsageError, logs
from winlab.events import Listener, Progress
from winlab.operations import drives as drive
from winlab.operations import look
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.drives import Drives
from winlab.site import Site
from winlab.steps import again
from winlab.supply.artifacts import executable

PROGRAMS = {
    one.name: tuple(
        dict.fromkeys(one.program_file(name) for made_by in DISTRIBUTIONS for name, _ in made_by.programs(one))
    )
    for one in SYSTEMS
}
IN_PODS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns")
RESTARTS = {name for one in DISTRIBUTIONS for name in one.restarts}  # after these the node reports again
SILENCE = 300.0  # seconds on hardware without news from the node; a kubelet renews its lease every 10 s
POLL = 2.0


@dataclass(frozen=True)
class PushedProgram:
    """What is on the node now: the program's SHA-256, whether it changed, and the kubelet version that it reports."""

    program: str
    sha256: str
    changed: bool
    kubelet: str


def program(binary: str, os: SystemName) -> str:
    """Which program of a node the file *binary* is, by its name.

    :raises UsageError: nodes of this system don't have it; the message says what can be pushed.
    """
    name, title = Path(binary).name, system.get(os).title
    file = system.get(os).program_file(name)
    if file in PROGRAMS[os] and not Path(binary).exists():
        return file  # only the name matters
    if name in PROGRAMS[os]:
        return name
    others = [one.title for one in SYSTEMS if one.name != os and name in PROGRAMS[one.name]]
    if name in IN_PODS:
        raise UsageError(
            f"'{name}' is not a program of a {title} node: it runs in a pod.",
            cure="Build an image with it and load that with 'winlab load'.",
        )
    raise UsageError(
        f"'{name}' is not a program of a {title} node.",
        why=f"It is a program of {' and '.join(others)} nodes."
        if others
        else "The file's name decides which program it is.",
        cure=f"Choose one of: {', '.join(PROGRAMS[os])}.",
    )


def check(binary: Path, os: SystemName) -> str:
    """Check that a file can be pushed to a node of this system; returns its SHA-256.

    :raises UsageError: it can't; nothing was touched.
    """
    try:
        why = executable.problem(binary, os)
        if why is None:
            return files.sha256(binary)
    except OSError as error:
        raise UsageError(f"'{binary}' can't be read.", why=str(error)) from error
    raise UsageError(f"'{binary}' can't be pushed.", why=why, cure=f"Build it with GOOS={os} GOARCH=amd64.")


def to_node(lab: str, site: Site, node: str, binary: str, tell: Listener, *, restore: bool = False) -> PushedProgram:
    """Replace a program on a node with the file *binary*, or restore the original (then *binary* is only its name).

    :raises NotFoundError: there is no such lab or node, or it has no cluster.
    :raises UsageError: the file is not a program of this node; nothing was touched.
    :raises WinlabError: the node or the cluster refused.
    """

    def work(under: Underway) -> PushedProgram:
        machine = look.find_node(lab, node, under.hypervisors)
        if not machine.tag.is_member:
            raise UsageError(
                f"'{node}' is not in the cluster, and has no programs of Kubernetes.",
                cure="Name a node of the cluster: 'winlab status' shows them.",
            )
        kubectl, drives = Kubectl.of(under.folder), Drives(under.lab)
        require(machine, binary, restore=restore)  # before it is a run in the journal
        change = partial(bring_back if restore else push, machine, binary, drives, kubectl)
        return under.one_step(f"push {node}", change, usual=60, node=node)

    return carry_out(Job(lab, work, must_exist=True, nodes=[node]), site, tell)


def require(machine: Machine, binary: str, *, restore: bool) -> tuple[str, str]:
    """Check that a file can be pushed to a node, or that a program of it can be restored, and that the node runs.

    :returns: the program's name, and the file's SHA-256; empty with *restore*.
    :raises UsageError: the file is not a program of this node.
    :raises OffError: the node does not run.
    """
    os = machine.tag.os
    if restore:
        name, digest = program(Path(binary).name, os), ""
    else:
        name, digest = program(binary, os), check(Path(binary), os)
    look.require_running(machine)
    return name, digest


def push(machine: Machine, binary: str, drives: Drives, kubectl: Kubectl, progress: Progress) -> PushedProgram:
    """Replace a node's program with the user's own; the original is kept beside it. Safe to repeat.

    :raises UsageError: the file is not a program of this node; nothing was touched.
    :raises GuestError: the node refused, or does not run.
    :raises ClusterError: the node does not come back with it.
    """
    (name, digest), path = require(machine, binary, restore=False), Path(binary)
    drives.repair(machine)
    place = f"push/{name}"
    listed = {"push": {name: {"sha256": digest}}}
    host = drives.lab.on(machine)
    volume = drives.upload(host, f"{machine.tag.node}.push", {place: path}, listed, progress)
    try:
        with drives.inserted(machine, volume):
            swapped = _swap(machine, drives, name, kubectl, progress, place)
        with drives.login(machine) as node:
            drive.await_gone(node, place, progress)
    finally:
        host.pool.delete(volume)
    if swapped.sha256 != digest:
        raise GuestError(
            f"'{machine.tag.node}' has a different {name} now than the one that was pushed.",
            why=f"'{binary}' has the SHA-256 {digest}, but the node's is {swapped.sha256 or 'unknown'}.",
            cure="Run the same command again, and don't change the file while it runs.",
        )
    return swapped


def bring_back(machine: Machine, binary: str, drives: Drives, kubectl: Kubectl, progress: Progress) -> PushedProgram:
    """Restore the original program that :func:`push` replaced. Safe to repeat.

    :raises WinlabError: as :func:`push`.
    """
    name, _ = require(machine, binary, restore=True)
    drives.repair(machine)
    return _swap(machine, drives, name, kubectl, progress, "")


def _swap(
    machine: Machine, drives: Drives, name: str, kubectl: Kubectl, progress: Progress, place: str
) -> PushedProgram:
    call, runs = on_both.Push(program=name, restore=not place), 0

    def swap() -> on_both.Pushed:
        nonlocal runs
        runs += 1
        return node.run(call, progress.say)

    with drives.login(machine) as node:
        if place:
            drive.await_seen(node, place, progress)
        progress.say(f"replacing {name} on {machine.tag.node}")
        result = again.act(node, call.script, progress, swap, drives.is_on(machine))
    # before the wait: a build with which the node does not become Ready is there, too
    _record(machine, drives.lab, name, result.sha256 if place else "")
    changed = result.changed or runs > 1  # after an interrupted run, the next one finds its work done
    kubelet = ""
    if name.removesuffix(machine.tag.system.program_suffix) in RESTARTS:
        kubelet = _back(machine, kubectl, progress, SILENCE * drives.lab.on(machine).facts.scale, restarted=changed)
    return PushedProgram(name, result.sha256, changed, kubelet)


def _record(machine: Machine, lab: LabOnSite, program: str, sha256: str) -> None:
    """Record which build is in the place of a node's program, for ``status``, ``diff`` and ``repair``.

    :param sha256: empty: the original is there again.
    """
    conn = lab.on(machine).conn
    there = [one for one in pushed.read(conn, machine) if one.program != program]
    if sha256:
        there.append(Pushed(program, sha256, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    pushed.write(conn, machine, machine.tag.lab, there)


def _back(machine: Machine, kubectl: Kubectl, progress: Progress, stall: float, *, restarted: bool) -> str:
    """Wait until the node is Ready by a report from after the swap; returns its kubelet's version.

    A changed lease shows that, so the clocks need not agree. It must change twice: one renewal may have been in flight.
    """
    name = machine.tag.node
    renewals, last, why = 0 if restarted else 2, "", ""
    signs: frozenset[str] = frozenset()

    def look() -> Met[str] | Waiting:
        nonlocal renewals, last, why, signs
        try:
            lease = kubectl.find("lease", name, "--namespace=kube-node-lease")
            if lease is None:
                return Met("")  # it has not joined: nothing to wait for
            renewed = str(lease.get("spec", {}).get("renewTime", ""))
            renewals = min(2, renewals + (bool(last) and renewed != last))
            last = renewed
            node: dict[str, Any] = kubectl.get("node", name)
            if renewals == 2 and diagnose.is_ready(node):
                return Met(str(node["status"].get("nodeInfo", {}).get("kubeletVersion", "")))
            why, signs = diagnose.brief(node) or "its kubelet has not reported since", diagnose.signs(node)
        except ClusterError as error:
            why = error.why or error.what
        return Waiting(f"waiting for {name} to be Ready: {why}", (renewals, signs))

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            f"'{name}' did not become Ready again, and has reported nothing new for {stall:.0f} s.",
            why=why,
            cure=f"'winlab push --restore PROGRAM {name}' restores the original.",
            evidence=logs(name, machine.tag.lab),
        )

    return wait.until(look, progress, give_up, stall=stall, poll=POLL)
