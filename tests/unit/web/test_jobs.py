"""The verbs of the page's buttons."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from winlab.errors import GuestError, UsageError
from winlab.events import StepProgress
from winlab.stopping import Stopped
from winlab.web.jobs import VERBS, Given, Job, Jobs


def lab(**methods: Any) -> Any:
    return SimpleNamespace(name="lab", snapshots=SimpleNamespace(**methods), **methods)


def ended(jobs: Jobs, job: Job) -> Job:
    for thread in jobs._threads:
        thread.join()
    return job


def test_what_it_is_doing_and_that_it_is_done() -> None:
    seen: list[Any] = []

    def start(nodes: tuple[str, ...], *, listener: Any, stop: threading.Event) -> None:
        seen.append(nodes)
        listener(StepProgress(step="boot node-1", text="waits for\nssh"))

    jobs = Jobs()
    job = ended(jobs, jobs.begin(lab(start=start), "start", Given(nodes=("node-1",))))
    assert (job.state, job.text, seen) == ("done", "boot node-1: waits for ssh", [("node-1",)])
    assert [one["number"] for one in jobs.documents()] == [1]


def test_a_failure_has_its_cure() -> None:
    def save(name: str | None, **_: Any) -> None:
        raise GuestError(f"No {name}.", cure="Wait.")

    jobs = Jobs()
    job = ended(jobs, jobs.begin(lab(save=save), "snapshot", Given()))
    assert (job.state, job.failures[0]["what"], job.failures[0]["cure"]) == ("failed", "No None.", "Wait.")


def test_they_stop_with_the_server() -> None:
    begun = threading.Event()

    def reset(name: str | None, *, stop: threading.Event, **_: Any) -> None:
        begun.set()
        stop.wait()
        raise Stopped

    jobs = Jobs()
    job = jobs.begin(lab(reset=reset), "reset", Given(snapshot="ready"))
    begun.wait()
    jobs.stop()
    assert ended(jobs, job).state == "stopped"


@pytest.mark.parametrize("verb", ["destroy", "clone"])
def test_an_unknown_verb_and_a_copy_without_a_name_are_refused(verb: str) -> None:
    with pytest.raises(UsageError):
        Jobs().begin(lab(), verb, Given())


def test_only_the_last_ones_are_kept() -> None:
    jobs = Jobs()
    for _ in range(30):
        ended(jobs, jobs.begin(lab(stop=lambda nodes, **_: None), "stop", Given()))
    assert [one["number"] for one in jobs.documents()] == list(range(30, 9, -1))


def test_each_verb_is_a_method_of_the_library() -> None:
    from winlab import Lab, Snapshots

    renamed = {"snapshot": "save"}
    assert all(hasattr(Lab, verb) or hasattr(Snapshots, renamed.get(verb, verb)) for verb in VERBS)
