"""How winlab fails.

::

    WinlabError                what, why, cure, evidence      1
    ├── UsageError             bad flag, spec, file, address  2
    ├── HostError              the host is not fit            4
    ├── NotFoundError          no such lab, node, image       5
    ├── ConflictError          something is in the way        6
    ├── AccessError            not allowed to                 7
    ├── StalledError           no progress any more           8
    ├── GuestError             a guest said no                9
    │   ├── OffError           it does not run: not asked     9
    │   ├── UnreachableError   it does not answer             9
    │   └── SilentError        it says nothing any more       9
    ├── TransferError          download or registry failed   10
    ├── ClusterError           Kubernetes said no            11
    ├── SequenceError          steps don't fit together: bug  1
    └── LabError               several at once     of the first

Every error is a whole sentence that says what happened; ``why`` gives the cause, ``cure`` what the
user can do, ``evidence`` where to look. Nothing below the command line prints or exits. A guest or a mirror may have
written parts of the texts, so all of them are made printable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field
from enum import IntEnum
from typing import Any, Self, TypeVar

from winlab.printable import indented, printable

T = TypeVar("T")


class ExitCode(IntEnum):
    """The exit codes of the command ``winlab`` (docs/exit-codes.md)."""

    OK = 0  # done
    FAILED = 1  # a bug, or an error of no other kind
    USAGE = 2  # bad flag, spec, file or address: nothing was touched
    HOST = 4  # the host is not fit (doctor says so, too)
    NOT_FOUND = 5  # no such lab, node, image or volume
    CONFLICT = 6  # something that is not ours is in the way
    PERMISSION = 7  # not a member of the group, or not root
    STALLED = 8  # no progress for too long
    GUEST = 9  # a guest refused or failed
    TRANSFER = 10  # download or upload failed
    CLUSTER = 11  # Kubernetes refused, or does not become ready; test: a check failed
    PARTLY = 20  # status: some nodes answer; list, hypervisor list, show, destroy: something did not answer
    STOPPED = 21  # status: no node answers
    DIFFERS = 22  # diff, repair --check: there is a difference; repair: one that it can't repair
    CLOSED = 141  # what reads the output has closed the pipe, as for a program that SIGPIPE ended
    INTERRUPTED = 130  # Ctrl-C, SIGTERM or SIGHUP; from Python, the event that stops a call


def logs(node: str, lab: str) -> str:
    """The command that shows a node's logs: evidence."""
    return f"winlab logs {node} --lab {lab}"


class WinlabError(Exception):
    """An error for people: ``what`` happened, ``why``, the ``cure``, and where the ``evidence`` is."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        cure: str = "",
        evidence: str = "",
        causes: Sequence[BaseException] = (),
    ) -> None:
        self.what = printable(what)
        super().__init__(self.what)
        self.why = printable(why)
        self.cure = printable(cure)
        self.evidence = printable(evidence)
        self.causes = tuple(causes)

    def __str__(self) -> str:
        lines = [indented(self.what, 4)]
        lines += [f"  {name}: {indented(text, 4 + len(name))}" for name, text in self.details()]
        return "\n".join(lines)

    def details(self) -> list[tuple[str, str]]:
        """The named parts that are not empty, in the order in which they are shown."""
        parts = [("why", self.why), ("cure", self.cure), ("evidence", self.evidence)]
        return [(name, text) for name, text in parts if text]


class UsageError(WinlabError):
    """Bad input: nothing was touched."""

    exit_code = ExitCode.USAGE


class HostError(WinlabError):
    """The host lacks something."""

    exit_code = ExitCode.HOST


class NotFoundError(WinlabError):
    """There is no such thing."""

    exit_code = ExitCode.NOT_FOUND


class ConflictError(WinlabError):
    """Something that winlab did not make is in the way."""

    exit_code = ExitCode.CONFLICT


class AccessError(WinlabError):
    """Not root, or not a member of the needed group."""

    exit_code = ExitCode.PERMISSION


class StalledError(WinlabError):
    """A wait saw no progress for too long."""

    exit_code = ExitCode.STALLED


class GuestError(WinlabError):
    """A guest refused, or a command in it failed."""

    exit_code = ExitCode.GUEST


class GuestCommandError(GuestError):
    """A command in a guest ended with an exit code other than 0, which is ``code``."""

    def __init__(self, what: str, *, code: int, why: str = "", evidence: str = "") -> None:
        super().__init__(what, why=why, evidence=evidence)
        self.code = code


class OffError(GuestError):
    """A machine does not run, so nothing was asked of its guest."""


class UnreachableError(GuestError):
    """A guest does not answer at all (yet)."""


class SilentError(GuestError):
    """A command in a guest runs, and has been silent for too long."""


class TransferError(WinlabError):
    """A download or upload failed, or brought something other than expected."""

    exit_code = ExitCode.TRANSFER


class ClusterError(WinlabError):
    """Kubernetes refused something, or does not become ready."""

    exit_code = ExitCode.CLUSTER


class SequenceError(WinlabError):
    """The steps don't fit together: a bug in winlab or in an add-on."""


class LabError(ExceptionGroup[Exception], WinlabError):
    """Several things failed at once. The exit code is that of the first error that has one."""

    def __new__(cls, errors: Sequence[Exception]) -> Self:
        """A group of these errors."""
        return super().__new__(cls, f"{len(errors)} things failed.", errors)

    def __init__(self, errors: Sequence[Exception]) -> None:
        WinlabError.__init__(self, f"{len(errors)} things failed.", causes=errors)
        self.exit_code = next((one.exit_code for one in errors if isinstance(one, WinlabError)), ExitCode.FAILED)

    def derive(self, excs: Sequence[Exception], /) -> LabError:  # type: ignore[override]  # a group of groups is none of ours
        """The same kind of group with other errors; Python's ``except*`` needs it."""
        return LabError(excs)

    __str__ = WinlabError.__str__


def together(errors: Sequence[Exception]) -> Exception:
    """One error to raise for all of these: the error itself if there is only one, else a :class:`LabError`."""
    return errors[0] if len(errors) == 1 else LabError(errors)


def for_each(items: Iterable[T], work: Callable[[T], object]) -> None:
    """Do work for each item, even if it failed for another one.

    :raises WinlabError: it failed for one item; for several, all of their errors together.
    """
    problems: list[Exception] = []
    for item in items:
        try:
            work(item)
        except WinlabError as error:
            problems.append(error)
    if problems:
        raise together(problems)


def _field(words: str, default: Any = MISSING) -> Any:
    """A field with its description in docs/events.md."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True)
class Failure:
    """An error as a value."""

    what: str = _field("what happened, a whole sentence")
    why: str = _field("the cause", "")
    cure: str = _field("what to do", "")
    evidence: str = _field("where to look", "")
    exit_code: int = _field("see docs/exit-codes.md", int(ExitCode.FAILED))
    error: str = _field("the error's class, such as `GuestError`, or `KeyError` if it was unexpected", "")
    causes: tuple[Failure, ...] = _field("the errors that caused it", ())

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an error describes, with its causes."""
        name = type(error).__name__
        if not isinstance(error, WinlabError):
            return cls(printable(f"{name}: {error}" if str(error) else name), error=name)
        causes = tuple(cls.of(cause) for cause in error.causes)
        return cls(error.what, error.why, error.cure, error.evidence, int(error.exit_code), name, causes)

    @classmethod
    def each(cls, error: BaseException) -> tuple[Failure, ...]:
        """The failures that an error describes: one, or each one in a group."""
        if isinstance(error, LabError):
            return tuple(cls.of(one) for one in error.exceptions)
        return (cls.of(error),)
