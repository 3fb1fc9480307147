"""Work on what may be hostile, in a child process with limits that the kernel enforces.

The caller names a function of winlab's own. The child has nothing of this process but its module search path: no
variables, no open files, no standard input but the request. The request and the answer are JSON.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from winlab import documents, run
from winlab.errors import WinlabError

_ROOT = str(Path(__file__).resolve().parents[1])
# -I and -S: neither variables, the current folder nor .pth files decide what is imported, only the parent's own path
CHILD = "import sys; sys.path[:] = sys.argv[3:]; from winlab import bounded; bounded.serve(*sys.argv[1:3])"
_SHOWN = 2000  # characters of an error


@dataclass(frozen=True)
class Limits:
    """What a child may take. The child writes no files, and leaves no image of its memory if it crashes.

    ``memory`` is its whole address space in bytes, of which Python itself takes some 30 MiB. ``seconds`` are a
    processor's, ``patience`` is by the clock: a busy host gives a process little of a processor. ``answer`` is in
    bytes of JSON, and ``files`` the number of files that may be open, with the three of every process.
    """

    memory: int
    seconds: int
    patience: float
    answer: int
    files: int = 16


class BoundedError(WinlabError):
    """The work failed or took more than its limits; ``why`` says which."""


def call(function: Callable[..., object], request: Mapping[str, object], limits: Limits) -> Any:
    """Call a function in a child process.

    :param function: one of a module's top level. It starts with that module's imports, so those should be light.
    :param request: its arguments by name, as JSON has them.
    :returns: its result, read from JSON. A child that was taken over may answer anything.
    :raises BoundedError: the function raised an error, or the child exceeded a limit or ended without an answer.
    :raises Stopped: the work was asked to stop.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    path = [*(entry or _ROOT for entry in sys.path), _ROOT]
    words = [sys.executable, "-I", "-S", "-c", CHILD, name, json.dumps(asdict(limits)), *path]
    stdin = json.dumps(request)
    try:
        said = run.watched(words, stdin=stdin, timeout=limits.patience, most=limits.answer, inherit=False)
        answer = documents.from_json(said.stdout)
        if "error" not in answer:
            return answer["result"]
        why = str(answer["error"])[:_SHOWN]
    except run.OverdueError:
        why = f"It did not end within {limits.patience:.0f} s."
    except run.FloodError:
        why = f"Its result has more than {limits.answer >> 20} MiB."
    except run.CommandError as error:
        why = _ended(error.result, limits)
    except (ValueError, LookupError, TypeError) as error:
        why = f"It gave no answer that can be read: {error}"
    raise BoundedError(f"{name} did not succeed.", why=why)


def _ended(result: run.Result, limits: Limits) -> str:
    """Why a child ended before it answered."""
    if result.returncode == -signal.SIGXCPU:
        return f"It took more than {limits.seconds} s of a processor."
    if result.returncode < 0:
        return f"It was ended by a signal: {signal.strsignal(-result.returncode)}."
    last = result.stderr.strip().rpartition("\n")[2]
    return f"It ended with exit code {result.returncode}: {last[:_SHOWN]}"


def serve(name: str, text: str) -> None:
    """Do the work: what the child runs.

    :param name: module and function, with a colon between.
    :param text: the limits, as JSON.
    """
    limits = Limits(**json.loads(text))
    module, _, function = name.partition(":")
    work = getattr(importlib.import_module(module), function)
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 1))  # SIGXCPU, then SIGKILL
    try:
        answer = json.dumps({"result": work(**json.load(sys.stdin))})
    except MemoryError:
        answer = json.dumps({"error": f"It took more than {limits.memory >> 20} MiB of memory."})
    except Exception as error:  # whatever it is, the caller gets it
        answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write(answer)
