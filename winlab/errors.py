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
    │   └── UnreachableError   it does not answer             9
    ├── TransferError          download or registry failed   10
    └── ClusterError           Kubernetes said no            11

Every error is a whole sentence that says what happened; ``why`` gives the cause, ``cure`` what the
person can do, ``evidence`` where to look. Nothing below the command line prints or exits.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


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
    PARTLY = 20  # status: some nodes answer, some don't
    STOPPED = 21  # status: no node answers
    INTERRUPTED = 130  # Ctrl-C


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
        super().__init__(what)
        self.what = what
        self.why = why
        self.cure = cure
        self.evidence = evidence
        self.causes = tuple(causes)

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {name}: {text}" for name, text in self.details()]
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


class UnreachableError(GuestError):
    """A guest does not answer at all (yet)."""


class TransferError(WinlabError):
    """A download or upload failed, or brought something else than it should."""

    exit_code = ExitCode.TRANSFER


class ClusterError(WinlabError):
    """Kubernetes refused something, or does not become ready."""

    exit_code = ExitCode.CLUSTER
