"""Values that a thread keeps up to date."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from winlab.errors import HostError
from winlab.web import latest
from winlab.web.latest import Latest


def test_the_newest_value_and_one_reader_for_all() -> None:
    go, begun = threading.Semaphore(0), []

    def values() -> Generator[int, None, None]:
        begun.append(1)
        for number in range(3):
            yield number
            go.acquire()

    made = Latest(values)
    assert [made.get(), made.get()] == [0, 0]
    go.release()
    while made.get() != 1:
        pass
    assert begun == [1]
    go.release(2)


def test_an_error_is_raised_once_and_then_it_starts_again() -> None:
    answers = [HostError("libvirt does not answer."), KeyError("a bug"), None]

    def values() -> Generator[str, None, None]:
        if error := answers.pop(0):
            raise error
        yield "fine"

    made = Latest(values)
    with pytest.raises(HostError):
        made.get()
    with pytest.raises(KeyError):
        made.get()
    assert made.get() == "fine"


def test_it_ends_when_no_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "UNUSED", 0.0)
    ended = threading.Event()

    def values() -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    assert Latest(values).get() == 1
    assert ended.wait(60)
