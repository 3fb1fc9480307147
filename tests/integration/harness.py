"""Helpers of integration tests: the command, the labs, and what a lab could leave behind on the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess  # noqa: TID251 - tests start winlab as people do
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import results
from survive.sample import Sampled
from survive.traces import Traces as Traces
from survive.traces import left as left
from survive.traces import traces as traces

from winlab.design.catalog import recipes
from winlab.supply.images import cache

LAB_A, LAB_B = "it-a", "it-b"
SPEC_A = ("--spec", "1-1-1", "--rehearse")  # and the flags of its add-ons and of the golden image
SPEC_B = ("--spec", "1-0-1", "--until", "guests")


@dataclass(frozen=True)
class Winlab:
    """The command, as some user with some folders."""

    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: str, timeout: float = 2400) -> subprocess.CompletedProcess[str]:
        with subprocess.Popen(
            [*self.prefix, sys.executable, "-X", "faulthandler", "-m", "winlab", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self.env},
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # it prints where each of its threads is
                out, err = process.communicate(timeout=60)  # a program that it started may keep the pipes open
                pytest.fail(f"{args}: still runs after {timeout:.0f} s\n{out}\n{err}", pytrace=False)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def interrupted(self, step: str, *args: str) -> int:
        """Start the command, press Ctrl-C when *step* is done; its exit code."""
        for process, event in self.follow(*args):
            if (event["event"], event.get("step")) == ("StepDone", step):
                process.send_signal(signal.SIGINT)
        return process.returncode

    def follow(self, *args: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
        """Start the command: it, with each of its events as it comes. It has ended when there are no more."""
        reading, writing = os.pipe()
        process = self.start(*args, "--events", f"/dev/fd/{writing}", pass_fds=(writing,))
        os.close(writing)
        with process, os.fdopen(reading) as lines:
            for line in lines:
                yield process, json.loads(line)

    def start(self, *args: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
        """Start the command, whose standard output can be read and which Ctrl-C reaches."""
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "winlab", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **self.env},
            pass_fds=pass_fds,
            # a shell that started the tests in the background makes their children ignore it
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def ok(self, *args: str) -> str:
        done = self(*args)
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def items(self, *args: str) -> list[Any]:
        """The items of a command's result."""
        return results.items(self.ok(*args, "--output", "json"))

    def events(self, *args: str) -> list[dict[str, Any]]:
        """The events of a command."""
        with TemporaryDirectory() as folder:
            Path(folder).chmod(0o777)  # it may run as another user
            file = Path(folder, "events.jsonl")
            self.ok(*args, "--events", str(file))
            return results.events(file)


@dataclass(frozen=True)
class On:
    """The command as some user, for one lab."""

    user: Winlab
    lab: str

    def __call__(self, command: str, *args: str) -> subprocess.CompletedProcess[str]:
        return self.user(command, "--lab", self.lab, *args)


def answering(lab: On) -> list[dict[str, Any]]:
    """The rows of a ``status`` that succeeds, once all nodes answer: a login may time out on a busy machine."""
    for _ in range(10):
        done = lab("status", "--output", "json")
        if all(row["answers"] for row in results.items(done.stdout)):
            break
    return results.items(text(done))


@dataclass(frozen=True)
class Golden:
    """A golden image as the command shows it, the flags that select it, and the file that came into it."""

    row: dict[str, Any]
    flags: tuple[str, ...]
    own: str


@dataclass(frozen=True)
class Second:
    """The lab of a member, and how it was made."""

    lab: On
    before: Traces  # of the host
    seen: frozenset[bytes]  # arguments and environments of processes while it was made
    printed: str  # by the last create
    interrupted: int  # the exit code of the create that got a Ctrl-C
    killed: list[Sampled]  # the creates that were killed
    cut_off: int  # the exit code of the create whose machine was killed in its first boot
    journal: list[Any]  # the lab's events until then
    last: list[Any]  # those of the create after it, which saw it up


@dataclass(frozen=True)
class Labs:
    """Both labs, and how the first was made."""

    a: On
    second: Second
    printed_a: str
    said_a: str  # on the standard error: the progress
    spec_a: tuple[str, ...]  # what the first lab was made with
    caches: tuple[Path, ...]  # what the commands obtained, made and took for them
    seen_a: frozenset[bytes]  # arguments and environments of processes while it was made

    @property
    def b(self) -> On:
        """The second lab."""
        return self.second.lab

    @property
    def seen(self) -> frozenset[bytes]:
        """Those of both."""
        return self.seen_a | self.second.seen


def added(before: Traces, after: Traces, lab: str) -> list[str]:
    """What a lab left on the host; other lanes' objects may go meanwhile."""
    rows = left(before, after, lab)
    return [row for row in rows if row.startswith("+") and (lab in row)]


def text(done: subprocess.CompletedProcess[str]) -> str:
    """The output of a command, which must have succeeded."""
    assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def ask(lab: On, node: str, **commands: str) -> dict[str, str]:
    """A node's output for each command, all in one login: a login alone takes an emulated guest seconds."""
    mark, after = ("echo.& echo == {}& {}", "& ") if node.startswith("node-") else ("echo; echo == {}; {}", "; ")
    line = after.join(mark.format(name, command) for name, command in commands.items())
    parts = ("\n" + text(lab("exec", node, "--", f"{line}{after}{mark.format('end', 'echo')}"))).split("\n== ")
    return {name.strip(): said.strip() for name, _, said in (part.partition("\n") for part in parts[1:])}


def evidence(labs: Labs, node: str) -> str:
    """The status of a node of the first lab, for the message of a failed test."""
    serial = labs.a("serial", node, "--log").stdout[-3000:]
    state = labs.a("status").stdout
    registers = subprocess.run(
        ["virsh", "qemu-monitor-command", f"winlab-{LAB_A}.{node}", "--hmp", "info registers"],
        capture_output=True, text=True, check=False,
    ).stdout[:2000]  # fmt: skip
    flows = subprocess.run(["ovn-sbctl", "show"], capture_output=True, text=True, check=False).stdout
    return f"{state}\n{serial}\n{registers}\n{flows}"


def get(labs: Labs, *words: str) -> Any:
    """The output of ``kubectl get`` in the first lab."""
    return json.loads(text(labs.a("kubectl", "--", "get", *words, "--output=json")))


def nodes(labs: Labs) -> dict[str, Any]:
    """The first lab's nodes, by their names."""
    return {row["metadata"]["name"]: row for row in get(labs, "nodes")["items"]}


def is_ready(node: Any) -> bool:
    """Whether a node's condition Ready is True."""
    return any(row["type"] == "Ready" and row["status"] == "True" for row in node["status"]["conditions"])


def worked(events: list[dict[str, Any]]) -> dict[str, str]:
    """The steps of a command that had something to do, and how they ended, by its events.

    Without those that only check: a busy machine may answer the first query too late, and the second in time.
    """
    kinds = {event["step"]: event["event"] for event in events if event.get("step")}
    looks = ("boot ", "ready ", "cluster DNS")
    return {step: kind for step, kind in kinds.items() if kind != "StepSkipped" and not step.startswith(looks)}


def stand_in_medium(winlab: Winlab) -> Path:
    """The stand-in's ISO in the cache, built if need be."""
    winlab.ok("image", "build", "windows-rehearsal", "--medium")
    image = cache.lookup(recipes.get("windows-rehearsal"))
    assert image is not None
    return image.path
