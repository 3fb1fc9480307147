"""A node that is up and can't be reached over the network: winlab reports it, and keeps what its guest agent says."""

from __future__ import annotations

import time

from winlab.adapters.guests.connect import is_heard
from winlab.adapters.vm import agent
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import NodeTransport, Progress, report
from winlab.printable import printable
from winlab.steps import evidence

ASK = 30.0  # seconds from one query to the agent to the next
UP = 300.0  # seconds on hardware that it is up for: WinRM starts minutes after the agent


class Unheard:
    """One wait for a node that does not answer, from its beginning."""

    def __init__(self, run: Run, node: NodePlan, progress: Progress) -> None:
        self._run = run
        self._node = node
        self._tag = tags.of(run.plan, node)
        self._progress = progress
        self._limit = run.pace.silence(UP)
        self._asked = 0.0
        self._up: float | None = None  # when something first showed that it is up
        self._is_told = False

    def look(self, beacon: str) -> None:
        """Report once that the node is up, if something has shown this for a while and the node has not answered.

        :param beacon: what it reported on its serial port during the wait; empty: nothing.
        """
        now = time.monotonic()
        if self._is_told or now - self._asked < ASK:
            return
        self._asked = now
        has_agent = agent.answers(self._run.on(self._node).conn, self._node)
        # a node that answers by ssh is not unreachable: ssh is used if WinRM is more than late
        if is_heard(self._tag) or not (has_agent or beacon):
            self._up = None
            return
        self._up = now if self._up is None else self._up
        if now - self._up >= self._limit:
            self._is_told = True
            self._tell(printable(beacon), has_agent=has_agent)

    def _tell(self, beacon: str, *, has_agent: bool) -> None:
        system, name = self._node.system, self._node.name
        shows = "its guest agent answers" if has_agent else f"its serial port reports: {beacon}"
        text = f"'{name}' is up, but can't be reached over the network: {shows}."
        tried = (system.login, *system.spare_logins)
        sign = "agent" if has_agent else beacon
        report(self._progress, NodeTransport(node=name, text=text, unresponsive=tried, sign=sign))
        if has_agent:
            try:
                evidence.by_agent(self._run, self._node, self._progress)
            except (WinlabError, OSError) as error:  # this is only evidence: the wait continues
                self._progress.say(f"what its guest agent reports can't be kept: {str(error).splitlines()[0]}")
