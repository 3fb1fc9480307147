"""Work in a child process with limits: its answer, its errors, and what each limit does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import bounded_work
import pytest

from winlab import bounded, stopping

LIMITS = bounded.Limits(memory=256 << 20, seconds=5, patience=60, answer=1 << 20)


def test_the_answer_is_the_function_s_result() -> None:
    request = {"text": "Gr\u00fc\u00dfe\r\n\U0001f600", "rows": [1, 2.5, None, True], "map": {"a": []}}
    assert bounded.call(bounded_work.echo, request, LIMITS) == request


def test_the_child_inherits_nothing_from_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    with (tmp_path / "open").open("w") as file:
        file.flush()
        found = bounded.call(bounded_work.surroundings, {}, LIMITS)
    assert found["variables"].keys() <= {"LC_CTYPE"}  # Python sets that by itself
    assert len(found["files"]) == 4  # the three of every process, and the folder that is listed
    assert found["rest"] == ""


@pytest.mark.parametrize(
    ("function", "request_", "limits", "why"),
    [
        (bounded_work.fail, {"text": "no \x1b[31m"}, {}, "ValueError: no "),
        (bounded_work.fail, {"word": 1}, {}, "TypeError: fail() got an unexpected keyword argument 'word'"),
        (bounded_work.work, {}, {"seconds": 1}, "It took more than 1 s of a processor."),
        (bounded_work.fill, {}, {}, "It took more than 256 MiB of memory."),
        (bounded_work.sleep, {}, {"patience": 1}, "It did not end within 1 s."),
        (bounded_work.repeat, {"count": 2 << 20}, {}, "Its result has more than 1 MiB."),
        (bounded_work.open_many, {"path": "/dev/null"}, {}, "OSError: [Errno 24] Too many open files: '/dev/null'"),
        (bounded_work.abort, {}, {}, "It was ended by a signal: Aborted."),
        (bounded_work.leave, {"code": 0}, {}, "It gave no answer that can be read: "),
        (bounded_work.leave, {"code": 3}, {}, "It ended with exit code 3: "),
        (bounded_work.no_json, {}, {}, "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_a_child_that_fails_or_takes_too_much(
    function: Callable[..., object], request_: dict[str, object], limits: dict[str, float], why: str
) -> None:
    with pytest.raises(bounded.BoundedError, match=f"bounded_work:{function.__name__} did not succeed") as caught:
        bounded.call(function, request_, replace(LIMITS, **limits))
    assert caught.value.why.startswith(why)
    assert "\x1b" not in caught.value.why
    assert len(caught.value.why) < 2100


def test_the_child_writes_no_file(tmp_path: Path) -> None:
    with pytest.raises(bounded.BoundedError) as caught:
        bounded.call(bounded_work.write, {"path": str(tmp_path / "file")}, LIMITS)
    assert "File too large" in caught.value.why
    assert (tmp_path / "file").read_bytes() == b""


def test_an_interrupt_ends_the_child() -> None:
    stop, begun = threading.Event(), time.monotonic()
    threading.Timer(0.5, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        bounded.call(bounded_work.sleep, {}, LIMITS)
    assert time.monotonic() - begun < 30


def test_a_hijacked_child_may_answer_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "[]", "{}", "7", "NaN", "[" * 100_000, '{"result": "\\ud800"}'):
        monkeypatch.setattr(bounded, "CHILD", f"print({text!r})")
        with pytest.raises(bounded.BoundedError) as caught:
            bounded.call(bounded_work.echo, {}, LIMITS)
        assert caught.value.why.startswith("It gave no answer that can be read: ")
    monkeypatch.setattr(bounded, "CHILD", "print('{\"error\": \"' + 'a' * 100000 + '\"}')")
    with pytest.raises(bounded.BoundedError) as caught:
        bounded.call(bounded_work.echo, {}, LIMITS)
    assert len(caught.value.why) == 2000
