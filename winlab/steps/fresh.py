"""The steps that give a copy of a lab its own credentials, so that those of its origin are refused.

A node can't change all of them at one instant. In the order of the script ``logins``, at each point either the old ones
get in, with certificates of both CAs, or the new ones. If winlab is killed, the copy starts over from the snapshot.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.connect import NAMES, connect
from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_both
from winlab.design.plan import credentials, tags
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import GuestError, UnreachableError, WinlabError
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps import again
from winlab.steps.distribution import known
from winlab.steps.states import ADMINISTRATOR, RENEWED

FRESH, FORMER = "fresh", "former"  # folders in the lab's
SCRIPT = f"scripts/{on_both.Logins.script}.ps1"  # on a Windows node's CD


def prepare(run: Run) -> None:
    """Make the lab's own credentials. Until its nodes have them, the lab's folder has those of its origin.

    :raises WinlabError: they can't be written.
    """
    held, made = run.folder.credentials(), credentials.generate(run.plan)
    forget(run.folder)
    run.folder.within(FRESH).keep_credentials(run.plan, made)
    run.folder.within(FORMER).keep_credentials(run.plan, credentials.former(held, made))
    run.folder.keep_credentials(run.plan, credentials.giving(held, made))


def steps(run: Run, after: Sequence[State], *, cluster: bool) -> Iterator[Step]:
    """The steps that give the cluster and each node its own credentials.

    :param after: the states that must come first.
    :param cluster: whether the lab has its own cluster.
    """
    if cluster:
        yield known.of(run).renew_administrator(run.folder.within(FRESH), after)
        after = [ADMINISTRATOR(run.lab)]
    for node in run.plan.nodes:
        yield _step(run, node, after)


def take(run: Run) -> None:
    """Have the lab use its own credentials from now on.

    :raises WinlabError: they can't be read or written.
    """
    run.folder.take(run.plan, run.folder.within(FRESH))
    forget(run.folder)


def forget(folder: LabFolder) -> None:
    """Remove what an interrupted command left.

    :raises AccessError: it can't be removed.
    """
    for name in (FRESH, FORMER):
        folder.drop(name)


def _step(run: Run, node: NodePlan, after: Sequence[State]) -> Step:
    def work(progress: Progress) -> None:
        _Renewal(run, node, progress).run()

    return Step(RENEWED(run.lab, node.name), work, lambda: False, after, usual=run.pace.usual(5))


class _Renewal:
    """One node that gets new credentials."""

    def __init__(self, run: Run, node: NodePlan, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._tag = tags.of(run.plan, node)
        self._scale = run.on(node).facts.scale
        self._is_on = again.is_on(run, node)
        self._fresh, self._former = run.folder.within(FRESH), run.folder.within(FORMER)

    def run(self) -> None:
        """Give them to the node, and have it refuse the old ones."""
        made, name = self._fresh.credentials(), self._tag.node
        row = made.nodes[name]
        call = on_both.Logins(
            ssh_key=made.ssh_key_public,
            host_key=row.host_key,
            host_key_public=row.host_key_public,
            user=self._tag.user,
            password=made.administrator_password,
            pfx=base64.b64encode(made.pfx(name)).decode() if row.certificate else "",
            pfx_password=row.pfx_password,
        )
        try:
            self._act(self._by_either, call)
        except GuestError:
            # the connection may have been made again in the middle, with credentials that it did not have yet
            if not self._takes_fresh():
                raise
        former = self._former.credentials().ssh_key_public
        self._act(self._by_fresh, replace(call, former=former))
        self._require_refusal()

    def _act(self, log_in: Callable[[], Guest], call: on_both.Logins) -> None:
        with NodeScripts(self._tag, self._run.folder, self._scale, log_in) as there:
            if not there.sees(SCRIPT, there=True):
                raise GuestError(
                    f"The payload CD of '{self._tag.node}' has no script for new credentials.",
                    why="An earlier version of winlab made it.",
                    cure="Make the lab with this version, and save it again; or leave --fresh-credentials out.",
                )
            again.run(there, call, self._progress, self._is_on)

    def _by_fresh(self) -> Guest:
        return connect(self._tag, self._fresh, self._tag.system.login)

    def _by_either(self) -> Guest:
        """A login with the old credentials, or with the new ones if the node refuses those."""
        try:
            return connect(self._tag, self._run.folder, self._tag.system.login)
        except UnreachableError:
            raise
        except GuestError:
            return self._by_fresh()

    def _takes_fresh(self) -> bool:
        try:
            guest = self._by_fresh()
        except GuestError:
            return False
        with suppress(WinlabError):
            guest.close()
        return True

    def _require_refusal(self) -> None:
        """Check that no way into the node takes the old credentials.

        :raises GuestError: one does, or it can't be known.
        """
        usual = self._tag.system.login
        for way in (usual, *self._tag.system.spare_logins):
            self._progress.say(f"the old credentials are tried by {NAMES[way]}")
            try:
                guest = connect(self._tag, self._former, way)
            except UnreachableError:
                if way == usual:
                    raise
                continue  # OpenSSH may be missing
            except GuestError:
                continue
            with suppress(WinlabError):
                guest.close()
            raise GuestError(
                f"'{self._tag.node}' does not refuse the credentials of the lab that it was copied from.",
                why=f"They still log in by {NAMES[way]}.",
                cure="Remove other copies of the lab's key from the lab that is copied, save it again, and copy that.",
            )
