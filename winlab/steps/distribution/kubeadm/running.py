"""Runs kubeadm in nodes, again where that is safe."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_linux
from winlab.design.distribution.kubeadm import calls
from winlab.errors import GuestError
from winlab.events import Progress
from winlab.steps import again

T = TypeVar("T")
TRIES = 4  # of kubeadm, while its checks find containerd too slow
# They give it two seconds for each answer: kubeadm's util/runtime/runtime.go, defaultTimeout. Kubernetes 1.36 has a
# second check that queries it. When they fail, kubeadm has changed nothing
CHECK = re.compile(r"\[ERROR [^\]]*\].*")
TOO_LATE = re.compile(r"\[ERROR (CRI|ContainerRuntimeVersion)\].*DeadlineExceeded")


def is_joined(there: NodeScripts) -> bool:
    """Whether a Linux node is a member of the cluster."""
    return there.run(on_linux.LinuxStatus()).joined


def run_kubeadm(
    there: NodeScripts,
    call: calls.RunKubeadm,
    progress: Progress,
    is_on: Callable[[], bool],
    leave: Callable[[], object] = lambda: None,
    prepare: Callable[[], object] = lambda: None,
) -> None:
    """Run kubeadm in a Linux node, and report its output as progress.

    An interrupted earlier attempt is undone first: kubeadm starts over only on a clean node. The same is done if
    kubeadm's checks found containerd too slow; kubeadm is then run again.

    :param is_on: whether the node's machine runs.
    :param leave: undoes what that attempt did outside the node; called before the node is reset.
    :param prepare: gives the clean node what kubeadm is to find there.
    """

    def work() -> None:
        # the attempt may still run in the node: kubeadm does not end with the winlab or the connection that started it
        if there.run(on_linux.LinuxStatus(settled=True), progress.say).started:
            progress.say("an earlier attempt was interrupted: kubeadm reset")
            leave()
            there.run(calls.reset(), progress.say)
        prepare()
        there.run(call, progress.say)

    again.act(there, call.script, progress, lambda: while_late(progress, work), is_on)


def while_late(progress: Progress, kubeadm: Callable[[], T]) -> T:
    """Run kubeadm, at most :data:`TRIES` times as long as its checks say only that containerd answered too late.

    :raises GuestError: it failed.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return kubeadm()
        except GuestError as error:
            failed = CHECK.findall(error.why)
            if attempt == TRIES or not failed or not all(map(TOO_LATE.match, failed)):
                raise
        progress.say(f"containerd answered kubeadm too late: it is run again ({attempt + 1}/{TRIES})")
    raise AssertionError("a loop without an end")
