"""What a lab's journal shows: its events, also as they come, and its runs."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager

from winlab import journal
from winlab.design.plan.lab_name import check_lab_name
from winlab.errors import AccessError, NotFoundError
from winlab.events import Event
from winlab.history.runs import History
from winlab.history.timeline import Timeline, Which, chosen
from winlab.journal import Follower
from winlab.lab_folder import CURE, LabFolder
from winlab.site import Site

LOOK = 0.5  # seconds between two looks at a journal that is followed


def timeline(lab: str, site: Site, which: Which) -> Timeline:
    """Runs of the lab.

    :raises NotFoundError: this account has no journal of it, or there is no run in it.
    :raises UsageError: there is no such run.
    """
    folder = _folder(lab, site)
    before = folder.worker()
    with reading(folder):
        history = History(journal.read(folder.journal))
    finish(history, folder.worker() or before)  # it may have begun or ended while the journal was read
    return Timeline(lab, chosen(lab, history.runs, which))


def events(lab: str, site: Site, which: Which, *, follow: bool) -> Generator[Event, None, None]:
    """The events of the lab's journal.

    :param which: of which runs; events that belong to no run are among ``all`` only.
    :param follow: continue with new events; it then never ends.
    :raises NotFoundError: this account has no journal of it, or there is no run in it.
    :raises UsageError: there is no such run.
    """
    folder = _folder(lab, site)
    with reading(folder):
        every = list(journal.read(folder.journal)) if which != "all" else []
    runs = {run.number for run in chosen(lab, History(every).runs, which)} if which != "all" else None
    return _events(folder, runs, follow)


def _events(folder: LabFolder, runs: set[int] | None, follow: bool) -> Generator[Event, None, None]:
    history = History()
    with closing(Follower(folder.journal)) as follower:
        while True:
            restarts = follower.restarts
            with reading(folder):
                news = follower.news()
            if follower.restarts != restarts:
                runs = None  # it belongs to another lab of that name
            yield from (event for event in news if runs is None or history.take(event) in runs)
            if not follow:
                return
            runs = None  # everything from now on is new
            time.sleep(LOOK)


def finish(history: History, worker: int | None) -> None:
    """Distinguish the current run from those that ended without an event.

    :param worker: the process that holds the lab's lock.
    """
    last = history.runs[-1] if history.runs else None
    is_running = last is not None and worker is not None and last.pid in (worker, 0)
    history.finish(last if is_running else None)


@contextmanager
def reading(folder: LabFolder) -> Iterator[None]:
    """Report an :class:`OSError` that reading the journal causes."""
    try:
        yield
    except OSError as error:
        raise AccessError(
            f"The journal of the lab '{folder.lab}' can't be read.", why=str(error), cure=CURE, causes=[error]
        ) from error


def _folder(lab: str, site: Site) -> LabFolder:
    check_lab_name(lab, own=True)
    folder = site.folder(lab)
    try:
        is_there = folder.has(folder.journal) or journal.older(folder.journal).exists()
    except OSError:
        is_there = True  # reading it shows why
    if is_there:
        return folder
    raise NotFoundError(
        f"This account has no journal of a lab '{lab}'.",
        why=f"'{folder.journal}' does not exist. No command has changed such a lab, or another user's did.",
        cure="'winlab list' shows the labs of this host; use the account that made it.",
    )
