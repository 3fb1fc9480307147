"""An interrupt of work ends its threads, too; clean-up still has a few seconds."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from winlab import stopping
from winlab.threads import Threads


def asks_for_ever() -> None:
    while True:
        stopping.check()
        time.sleep(0.01)


def test_an_interrupt_ends_the_threads_of_a_pool() -> None:
    begun = threading.Semaphore(0)

    def work() -> None:
        begun.release()
        asks_for_ever()

    def interrupted() -> None:
        with Threads(2) as pool:
            jobs.extend(pool.submit(work) for _ in range(3))
            for _ in range(2):
                assert begun.acquire(timeout=60)
            raise KeyboardInterrupt

    jobs: list[Future[None]] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [isinstance(job.exception(), stopping.Stopped) for job in jobs[:2]] == [True, True]
    assert jobs[2].cancelled()


def test_stopping_the_outer_work_stops_the_inner() -> None:
    stop = threading.Event()
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), Threads(1) as outer:
        job = outer.submit(lambda: Threads(1).submit(asks_for_ever).result())
        with pytest.raises(stopping.Stopped):
            job.result()
    assert not stopping.asked()


def test_a_call_that_blocks_is_left_alone() -> None:
    stop, over = threading.Event(), threading.Event()
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        stopping.patiently(over.wait)
    over.set()


def test_clean_up_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    stop.set()
    with stopping.by(stop):
        assert stopping.patiently(lambda: time.sleep(0.4) or "cleaned") == "cleaned"
        monkeypatch.setattr(stopping, "CLEAN_UP", 0.2)
        with pytest.raises(stopping.Stopped):
            stopping.patiently(lambda: time.sleep(3))
    with pytest.raises(ZeroDivisionError):
        stopping.patiently(lambda: 1 // 0)


def test_a_call_that_takes_too_long_is_left_alone() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError, match="no answer within 0 s"):
        stopping.patiently(over.wait, limit=0.1)
    over.set()
    assert stopping.patiently(lambda: 7, limit=10) == 7


def test_a_pause_between_two_tries_ends_when_the_work_is_stopped() -> None:
    stop = threading.Event()
    with stopping.by(stop):
        stopping.sleep(0)
        stop.set()
        with pytest.raises(stopping.Stopped):
            stopping.sleep(3600)
