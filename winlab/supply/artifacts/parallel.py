"""Obtains several artifacts at once, so that waiting for one server does not delay the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait

from winlab import stopping
from winlab.design.catalog.artifact import Artifact, Obtained
from winlab.events import Progress
from winlab.stopping import Stopped
from winlab.threads import Threads

AT_ONCE = 3


class _Voice:
    """Reports what one of several jobs does, with the overall fraction."""

    def __init__(self, progress: Progress, done: Callable[[], float]) -> None:
        self._progress = progress
        self._done = done

    def say(self, text: str, fraction: float | None = None) -> None:  # noqa: ARG002 - of this one alone
        stopping.check()
        self._progress.say(text, self._done())


def obtain(
    artifacts: Sequence[Artifact],
    one: Callable[[Artifact, Progress], Obtained],
    together: Callable[[Artifact], object],
    progress: Progress,
) -> list[Obtained]:
    """Call *one* for each artifact, a few at once, and return the results in the order of *artifacts*.

    :param together: artifacts with the same value come in one file: they are obtained one after the other.
    :raises WinlabError: the first failure; the others are stopped.
    """
    groups: dict[object, list[Artifact]] = {}
    for artifact in dict.fromkeys(artifacts):
        groups.setdefault(together(artifact), []).append(artifact)
    stop = threading.Event()
    obtained: dict[Artifact, Obtained] = {}
    voice = _Voice(progress, lambda: len(obtained) / len(artifacts))

    def job(group: list[Artifact]) -> None:
        with stopping.by(stop):
            for artifact in group:
                stopping.check()
                obtained[artifact] = one(artifact, voice)

    with Threads(AT_ONCE) as pool:
        jobs = [pool.submit(job, group) for group in groups.values()]
        try:
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # only now: without a failure all are done anyway
            for waiting in jobs:
                waiting.cancel()
    failures = [error for job_done in done if (error := job_done.exception())]
    if failures:
        raise next((error for error in failures if not isinstance(error, Stopped)), failures[0])
    return [obtained[artifact] for artifact in artifacts]
