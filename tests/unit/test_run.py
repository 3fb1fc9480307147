"""The environment and input of programs that winlab starts."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - stands in for a process
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from winlab import run, stopping


def test_programs_use_the_same_search_path_as_winlab(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def remember(words: list[str], **options: Any) -> Process:
        seen.update(options["env"], words=words)
        return Process(echo)

    monkeypatch.setattr(subprocess, "Popen", remember)
    monkeypatch.setattr(run.shutil, "which", lambda program, path: f"{path.split(':')[-1]}/{program}")
    monkeypatch.setenv("PATH", "/home/me/bin")
    run.run(["mke2fs"], env={"TMPDIR": "/work"})
    assert seen["words"] == ["/sbin/mke2fs"]
    assert seen["PATH"] == "/home/me/bin:/usr/local/sbin:/usr/sbin:/sbin"
    assert (seen["TMPDIR"], seen["LC_ALL"]) == ("/work", "C.UTF-8")
    run.run(["mke2fs"], env={"PATH": "/only"})
    assert seen["PATH"] == "/only"


class Process:
    """A process that prints what ``play`` writes to its two streams."""

    def __init__(self, play: Callable[[Process], None]) -> None:
        self.stdin, self.stdout, self.stderr = (self._pipe(end) for end in (1, 0, 0))
        self.ended = threading.Event()
        self.killed = self.asked = self.stubborn = False
        self.heard = b""
        self.code = 0
        self._play = play
        threading.Thread(target=self._run, daemon=True).start()

    def _pipe(self, end: int) -> Any:
        both = os.pipe()
        self.__dict__.setdefault("inside", []).append(os.fdopen(both[1 - end], "rb" if end else "wb", buffering=0))
        return os.fdopen(both[end], "wb" if end else "rb", buffering=0)

    def _run(self) -> None:
        with suppress(OSError, ValueError):
            self._play(self)
        for stream in self.inside[1:]:
            stream.close()
        self.ended.set()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_args: object) -> None:
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def wait(self, timeout: float) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired([], timeout)
        return self.code

    def kill(self) -> None:
        self.killed = True
        self.ended.set()

    def terminate(self) -> None:
        self.asked = True
        if not self.stubborn:
            self.kill()


Started = Callable[[Callable[[Process], None]], list[Process]]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Started:
    def prepare(play: Callable[[Process], None]) -> list[Process]:
        made: list[Process] = []

        def popen(_words: list[str], **_options: Any) -> Process:
            made.append(Process(play))
            return made[-1]

        monkeypatch.setattr(subprocess, "Popen", popen)
        monkeypatch.setattr(run.shutil, "which", lambda program, path: f"/bin/{program}")
        return made

    return prepare


def echo(process: Process) -> None:
    while piece := process.inside[0].read(1 << 16):
        process.inside[1].write(piece)
    process.inside[2].write(b"a warning")


def flood(process: Process) -> None:
    while not process.killed:
        process.inside[1].write(b"x" * 4096)


def hang(process: Process) -> None:
    while not process.killed:
        time.sleep(0.01)


def test_a_watched_command_gets_its_input_and_gives_its_output(starts: Started) -> None:
    starts(echo)
    done = run.watched(["kubectl", "apply"], stdin="ä" * 100_000)
    assert (done.stdout, done.stderr) == ("ä" * 100_000, "a warning")


def test_a_watched_command_that_fails(starts: Started) -> None:
    def fail(process: Process) -> None:
        process.inside[2].write(b"no")
        process.code = 3

    starts(fail)
    with pytest.raises(run.CommandError, match="exit code 3") as caught:
        run.watched(["kubectl"])
    assert caught.value.why == "no"
    assert run.head(["ntfscat"], 10, 5) is None


def test_a_command_that_prints_endlessly_is_ended(starts: Started) -> None:
    made = starts(flood)
    with pytest.raises(run.FloodError, match="printed more than 1 MiB"):
        run.watched(["kubectl", "get", "pods"], most=1 << 20)
    assert run.head(["ntfscat"], 10_000, 5) == b"x" * 10_000
    assert [process.killed for process in made] == [True, True]


def test_a_command_that_hangs_is_ended(starts: Started) -> None:
    made = starts(hang)
    with pytest.raises(run.OverdueError, match="did not end within"):
        run.watched(["kubectl"], timeout=0.1)
    assert made[0].killed


def test_an_interrupt_ends_kubectl_within_seconds(starts: Started) -> None:
    made, stop, begun = starts(hang), threading.Event(), time.monotonic()
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        run.watched(["kubectl", "get", "nodes"], timeout=60)
    assert made[0].killed
    assert time.monotonic() - begun < 5


def test_an_interrupt_ends_any_program_within_seconds(starts: Started) -> None:
    """SIGTERM reaches winlab alone; Ctrl-C in a terminal reaches the program, too."""
    made, stop, begun = starts(hang), threading.Event(), time.monotonic()
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        run.run(["qemu-img", "convert"])
    assert made[0].killed
    assert time.monotonic() - begun < 5


def test_an_interrupt_ends_a_silent_build_and_lets_it_clean_up(starts: Started) -> None:
    made, stop = starts(hang), threading.Event()
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        run.stream(["go", "build"], lambda _: None)
    assert made[0].asked


def test_a_build_that_ignores_signals_is_ended(starts: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(process: Process) -> None:
        process.stubborn = True
        hang(process)

    made, stop = starts(stubborn), threading.Event()
    monkeypatch.setattr(stopping, "CLEAN_UP", 0.2)
    threading.Timer(0.1, stop.set).start()
    with stopping.by(stop), pytest.raises(stopping.Stopped):
        run.stream(["go", "build"], lambda _: None)
    assert made[0].killed


def test_lines_arrive_as_they_are_printed(starts: Started) -> None:
    def build(process: Process) -> None:
        for piece in (b"one\ntw", b"o\r", b"\nthree \xc3", b"\xa4\r50 %\n", b"four"):
            process.inside[1].write(piece)
            time.sleep(0.01)

    starts(build)
    heard: list[str] = []
    assert run.stream(["go", "build"], heard.append).stdout == "one\ntwo\nthree ä\n50 %\nfour"
    assert heard == ["one", "two", "three ä", "50 %", "four"]


def test_a_long_command_that_fails_shows_its_last_lines(starts: Started) -> None:
    def fail(process: Process) -> None:
        process.inside[1].write(b"no space\n")
        process.code = 2

    starts(fail)
    with pytest.raises(run.CommandError, match="exit code 2") as caught:
        run.stream(["go", "build"], lambda _: None)
    assert caught.value.why == "no space"


def test_a_program_gets_no_input_and_all_its_output_is_read(starts: Started) -> None:
    def talk(process: Process) -> None:
        assert process.inside[0].read() == b""
        process.inside[1].write(b"one\r\ntwo\n")
        process.inside[2].write(b"hm")
        process.code = 1

    starts(talk)
    done = run.run(["virsh", "list"], check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "one\ntwo\n", "hm")
    starts(hang)
    with pytest.raises(run.OverdueError, match="did not end within") as caught:
        run.run(["virsh", "uri"], timeout=0.1, cure="Start libvirt.")
    assert caught.value.cure == "Start libvirt."


@pytest.mark.parametrize(
    "call",
    [
        lambda: run.run(["sh"]),
        lambda: run.watched(["sh"]),
        lambda: run.head(["sh"], 1, 1),
        lambda: run.stream(["sh"], print),
        lambda: run.start(["sh"]),
    ],
)
def test_a_program_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    def refuse(*_args: object, **_how: object) -> None:
        raise OSError(8, "Exec format error")

    monkeypatch.setattr(run.subprocess, "Popen", refuse)
    with pytest.raises(run.DamagedError, match="can't be started") as caught:
        call()
    assert caught.value.why == "Exec format error"
    assert caught.value.cure
