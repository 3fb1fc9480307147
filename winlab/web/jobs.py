"""What the page's buttons do: verbs of labs, each in its own thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from winlab import Lab
from winlab.errors import Failure, UsageError
from winlab.events import Event, Listener, Note, StepEvent, StepProgress
from winlab.printable import one_line
from winlab.stopping import Stopped

KEPT = 20  # jobs that have ended
ENDING = 2.0  # seconds for all of them to stop: a command has five in all


class Given(BaseModel):
    """What a verb is given. ``nodes``: none: the whole lab. ``snapshot``: empty: the newest, or one made now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[str, ...] = ()
    name: str = ""
    snapshot: str = ""


Verb = Callable[[Lab, Given, Listener, threading.Event], object]
VERBS: dict[str, Verb] = {
    "start": lambda lab, given, tell, stop: lab.start(given.nodes, listener=tell, stop=stop),
    "stop": lambda lab, given, tell, stop: lab.stop(given.nodes, listener=tell, stop=stop),
    "restart": lambda lab, given, tell, stop: lab.restart(given.nodes, listener=tell, stop=stop),
    "suspend": lambda lab, given, tell, stop: lab.suspend(given.nodes, listener=tell, stop=stop),
    "resume": lambda lab, given, tell, stop: lab.resume(given.nodes, listener=tell, stop=stop),
    "snapshot": lambda lab, given, tell, stop: lab.snapshots.save(given.name or None, listener=tell, stop=stop),
    "reset": lambda lab, given, tell, stop: lab.snapshots.reset(given.snapshot or None, listener=tell, stop=stop),
    "clone": lambda lab, given, tell, stop: lab.snapshots.clone(
        [given.name], given.snapshot or None, listener=tell, stop=stop
    ),
}


@dataclass
class Job:
    """A verb that runs or has ended. ``text`` is what it is doing; ``state`` is running, done, failed or stopped."""

    number: int
    lab: str
    verb: str
    text: str = ""
    state: str = "running"
    failures: tuple[dict[str, Any], ...] = field(default=())


class Jobs:
    """The jobs of one server. They stop when it does, and the same verb then resumes."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, lab: Lab, verb: str, given: Given) -> Job:
        """Start a verb.

        :raises UsageError: there is no such verb, or it lacks a name.
        """
        if verb not in VERBS:
            raise UsageError(f"There is no verb '{verb}'.", cure=f"Choose one of: {', '.join(VERBS)}.")
        if verb == "clone" and not given.name:
            raise UsageError("The copy needs a name.")
        job = Job(next(self._numbers), lab.name, verb)
        ended = [one for one in self._jobs if one.state != "running"]
        self._jobs = [one for one in self._jobs if one not in ended[:-KEPT]] + [job]
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(threading.Thread(target=self._run, args=(job, lab, VERBS[verb], given), daemon=True))
        self._threads[-1].start()
        return job

    def documents(self) -> list[dict[str, Any]]:
        """All jobs as JSON objects, the newest first."""
        return [asdict(job) for job in reversed(self._jobs)]

    def stop(self) -> None:
        """Stop those that run, as Ctrl-C stops a command."""
        self._stop.set()
        for thread in self._threads:
            thread.join(ENDING / len(self._threads))

    def _run(self, job: Job, lab: Lab, verb: Verb, given: Given) -> None:
        def tell(event: Event) -> None:
            if isinstance(event, StepEvent):
                text = event.text if isinstance(event, StepProgress) else ""
                job.text = one_line(f"{event.step}: {text}" if text else event.step)
            elif isinstance(event, Note):
                job.text = one_line(event.text)

        try:
            verb(lab, given, tell, self._stop)
            job.state = "done"
        except Stopped:
            job.state = "stopped"
        except Exception as error:
            job.failures = tuple(asdict(one) for one in Failure.each(error))
            job.state = "failed"
