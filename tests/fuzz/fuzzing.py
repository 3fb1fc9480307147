"""Feeds parsers with corrupt inputs, within bounds of memory and time, each parser in a process of its own.

An input is made from a seed of the run and its number alone. It may be accepted, or refused by a ``WinlabError`` that
says why or what to do. Anything else is *unexpected*: another exception, more memory or time than allowed, an end of
the process. A started program and a connection are such outcomes, too (tests/unit/guard.py).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import random
import resource
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import guard
import mutation

from winlab.cli.main import explain
from winlab.errors import Failure, LabError, WinlabError

MEMORY = 512 << 20  # bytes that one parser may take on top of what Python has
SECONDS = 5.0  # of a processor for one input
LONGEST = 4 << 20  # bytes of an input
HANGS = 60.0  # seconds in which the process must say something
CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Parser:
    """A parser under test: *feed* gives it an input, in an empty folder.

    ``weight`` is its share of the inputs: a parser that takes long for each gets fewer.
    """

    name: str
    feed: Callable[[bytes, Path], object]
    seeds: Callable[[], Iterable[bytes]]
    mutators: Sequence[mutation.Mutator]
    weight: float = 1.0


PARSERS: dict[str, Parser] = {}


def parser(
    name: str, seeds: Callable[[], Iterable[bytes]], mutators: Sequence[mutation.Mutator], weight: float = 1.0
) -> Callable[[Callable[[bytes, Path], object]], Callable[[bytes, Path], object]]:
    """Register a parser."""

    def register(feed: Callable[[bytes, Path], object]) -> Callable[[bytes, Path], object]:
        assert name not in PARSERS, name
        PARSERS[name] = Parser(name, feed, seeds, mutators, weight)
        return feed

    return register


@dataclass
class Unexpected:
    """An input that had another outcome than the two allowed ones."""

    parser: str
    what: str
    content: bytes
    trace: str = ""

    def save(self, folder: Path) -> Path:
        """Keep the input where ``make fuzz REPLAY=FILE`` takes it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.parser}.{hashlib.sha256(self.content).hexdigest()[:12]}"
        path.write_bytes(self.content)
        return path


@dataclass
class Totals:
    """What was seen of one parser: inputs, how many were refused, the most time (s) and memory (MiB)."""

    parser: str
    inputs: int = 0
    refused: int = 0
    slowest: float = 0.0
    memory: float = 0.0
    unexpected: list[Unexpected] = field(default_factory=list)


class TooSlowError(BaseException):
    """Not an Exception, so that nothing swallows it."""


def _alarm(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def make(parser: Parser, seeds: Sequence[bytes], seed: str, number: int) -> bytes:
    """The input with this number; the first ones are the valid ones."""
    if number < len(seeds):
        return seeds[number]
    rng = random.Random(f"{seed} {parser.name} {number}")
    content = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutator = rng.choice(parser.mutators)
        try:
            content = mutator(rng, content)[:LONGEST]
        except (Exception, TooSlowError):  # earlier changes corrupted it too much for this one
            content = mutation.flip(rng, content)
    return content


def judge(parser: Parser, content: bytes, folder: Path) -> tuple[str, str, bool]:
    """What was unexpected about this input (empty: nothing), the traceback, and whether it was refused."""
    folder.mkdir()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        parser.feed(content, folder)
    except WinlabError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return (*_documented(error), True)
    except TooSlowError:
        return f"took more than {SECONDS:.0f} s", traceback.format_exc(limit=-8), False
    except (Exception, guard.TouchedTheWorld) as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        text = traceback.format_exc(limit=-12)
        return f"{type(error).__name__} in {_place(error)}", text, False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(folder, ignore_errors=True)
    return "", "", False


def _documented(error: WinlabError) -> tuple[str, str]:
    """The problem of an error; and its traceback."""
    problems = (
        [one for one in error.exceptions if not isinstance(one, WinlabError)] if isinstance(error, LabError) else []
    )
    try:
        explain(error).encode()
        json.dumps(repr(Failure.of(error)))
    except Exception as other:
        problems.append(other)
    if problems:
        return f"an error that can't be told: {problems[0]!r}", traceback.format_exc(limit=-12)
    if not (error.why or error.cure or isinstance(error, LabError)):
        return f"an error without why and cure: {error.what[:80]}", traceback.format_exc(limit=-6)
    return "", ""


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/winlab/" in frame.filename] or list(frames)
    return f"{Path(own[-1].filename).name}:{own[-1].name}"


def run(parser: Parser, seed: str, *, seconds: float, inputs: int = 1 << 40, keep: int = 5) -> Totals:
    """Feed a parser until the time or the number of inputs is over; at most *keep* unexpected ones are kept."""
    totals = Totals(parser.name)
    seen: set[str] = set()
    begin, until = 0, time.monotonic() + seconds
    while begin < inputs and (begin == 0 or time.monotonic() < until) and len(seen) < keep:
        begin = _one_process(parser, seed, begin, inputs, until, totals, seen, keep)
    return totals


def _one_process(
    parser: Parser, seed: str, begin: int, inputs: int, until: float, totals: Totals, seen: set[str], keep: int
) -> int:
    """Feed it in a child until that ends; the number of the next input."""
    shared = mmap.mmap(-1, LONGEST + 16)  # number and content of the input that it has now
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        with os.fdopen(into, "w") as pipe:
            try:
                code = _child(parser, seed, begin, inputs, until, shared, pipe, keep)
            except BaseException as error:
                print(f"{parser.name}: {type(error).__name__} {_place(error)}", file=sys.stderr, flush=True)
                code = 1
        os._exit(code)
    os.close(into)
    ended = _listen(parser, out, pid, totals, seen)
    _, status = os.waitpid(pid, 0)
    reached, size = struct.unpack("<QQ", shared[:16])
    if not ended:
        content = shared[16 : 16 + size]
        what = f"the process ended with {os.waitstatus_to_exitcode(status)} (memory, or no sign for {HANGS:.0f} s)"
        totals.unexpected.append(Unexpected(parser.name, what, content))
        seen.add(what)
    return reached + 1


def _listen(parser: Parser, out: int, pid: int, totals: Totals, seen: set[str]) -> bool:
    """Read the child's reports; return whether it ended by itself."""
    ended = False
    rest = b""
    while True:
        ready, _, _ = select.select([out], [], [], HANGS)
        if not ready:
            os.kill(pid, signal.SIGKILL)
            break
        piece = os.read(out, 1 << 16)
        if not piece:
            break
        rest += piece
        *whole, rest = rest.split(b"\n")
        for line in whole:
            row = json.loads(line)
            if "what" in row:
                if row["what"] not in seen:
                    seen.add(row["what"])
                    totals.unexpected.append(
                        Unexpected(parser.name, row["what"], bytes.fromhex(row["content"]), row["trace"])
                    )
            totals.inputs += row.get("inputs", 0)
            totals.refused += row.get("refused", 0)
            totals.slowest = max(totals.slowest, row.get("slowest", 0.0))
            totals.memory = max(totals.memory, row.get("memory", 0.0))
            ended = ended or row.get("ended", False)
    os.close(out)
    return ended


def confine(folder: Path) -> None:
    """This process writes only below *folder*, starts nothing, connects to nothing, and is limited in time."""
    for name in [name for name in os.environ if name.startswith("WINLAB_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update(
        HOME=str(folder),
        NETRC=str(folder / "netrc"),
        WINLAB_CACHE=str(folder / "cache"),
        WINLAB_STATE=str(folder / "state"),
        WINLAB_LIBVIRT_URI="none:///",
    )
    tempfile.tempdir = str(folder)
    guard.base = folder
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, _alarm)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _child(
    parser: Parser, seed: str, begin: int, inputs: int, until: float, shared: mmap.mmap, pipe: object, keep: int
) -> int:
    def tell(**row: object) -> None:
        print(json.dumps(row), file=pipe, flush=True)  # type: ignore[call-overload]

    with tempfile.TemporaryDirectory(prefix="winlab-fuzz-") as name:
        folder = Path(name).resolve()
        (folder / "own").mkdir()
        confine(folder)
        seeds = list(parser.seeds())
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = time.monotonic()
        count = refused = bad = 0
        slowest = 0.0
        number = begin
        while number < inputs and (number < len(seeds) or time.monotonic() < until) and bad < keep:
            content = make(parser, seeds, seed, number)
            shared[: 16 + len(content)] = struct.pack("<QQ", number, len(content)) + content
            began = time.process_time()
            what, trace, said_no = judge(parser, content, folder / "work")
            slowest = max(slowest, time.process_time() - began)
            count, refused, number = count + 1, refused + said_no, number + 1
            if what:
                bad += 1
                tell(what=what, content=content.hex(), trace=trace)
            if number - begin <= len(seeds) and said_no and number <= len(seeds):
                tell(what="a valid input is refused", content=content.hex(), trace="")
            if time.monotonic() - told > 1:
                told = time.monotonic()
                tell(inputs=count, refused=refused, slowest=slowest)
                count = refused = 0
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024
        tell(inputs=count, refused=refused, slowest=slowest, memory=memory, ended=True)
        guard.base = None
    return 0


def replay(parser: Parser, content: bytes) -> Totals:
    """Feed one input, in a process of its own."""
    one = Parser(parser.name, parser.feed, lambda: [content], parser.mutators)
    totals = run(one, "", seconds=0, inputs=1)
    totals.unexpected = [bad for bad in totals.unexpected if bad.what != "a valid input is refused"]
    return totals


def table(rows: Iterable[Totals]) -> str:
    """The totals as a table in Markdown."""
    lines = [
        "| parser | inputs | refused | unexpected | slowest, s | memory, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    every = sorted(rows, key=lambda row: row.parser)
    for row in every:
        lines.append(
            f"| {row.parser} | {row.inputs:,} | {row.refused:,} | {len(row.unexpected)} | {row.slowest:.2f} | {row.memory:.0f} |"
        )
    count, bad = sum(row.inputs for row in every), sum(len(row.unexpected) for row in every)
    refused = sum(row.refused for row in every)
    lines.append(
        f"| all {len(every)} | {count:,} | {refused:,} | {bad} | {max(r.slowest for r in every):.2f} | {max(r.memory for r in every):.0f} |"
    )
    return "\n".join(lines)


def main_seed() -> str:
    """The seed of a run without one: the date, so that it can be repeated."""
    return time.strftime("%Y-%m-%d", time.gmtime())


__all__ = ["PARSERS", "Parser", "Totals", "Unexpected", "main_seed", "make", "parser", "replay", "run", "sys", "table"]
