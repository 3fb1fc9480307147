"""The result of a check of the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.errors import WinlabError

SETUP = "Run 'sudo winlab host setup'."


class Status(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # labs work, but slower or not all of them
    FAIL = "fail"  # labs won't work


@dataclass(frozen=True)
class Requirement:
    """One thing that labs need: its state, what was found, why it matters, and the cure if it is not fine."""

    name: str
    state: Status
    detail: str
    why: str
    cure: str = ""


@dataclass(frozen=True)
class Needs:
    """What a plan needs on this host: memory in MiB, disk in GiB, virtual processors."""

    memory_mib: int = 0
    disk_gib: int = 0
    vcpus: int = 0

    @classmethod
    def of(cls, plan: Plan) -> Needs:
        """The total needs of all nodes of a plan."""
        return cls(
            memory_mib=sum(node.memory_mib for node in plan.nodes),
            disk_gib=sum(node.disk_mib for node in plan.nodes) // 1024,
            vcpus=sum(node.cpus for node in plan.nodes),
        )


@dataclass
class Host:
    """What the checks share: the facts, the plan's needs, and results that several of them use."""

    facts: HostFacts = field(default_factory=HostFacts)
    needs: Needs | None = None


CheckFunction = Callable[[Host], list[Requirement]]


def named(name: str, why: str) -> Callable[[Callable[[Host], list[Requirement]]], CheckFunction]:
    """Make a check that can't break the others: any exception becomes its own failure."""

    def wrap(function: Callable[[Host], list[Requirement]]) -> CheckFunction:
        @functools.wraps(function)
        def guarded(host: Host) -> list[Requirement]:
            try:
                return function(host)
            except WinlabError as error:
                return [Requirement(name, Status.FAIL, error.what, error.why or why, error.cure or SETUP)]
            except PermissionError as error:
                said = f"can't be checked: you may not read '{error.filename}'"
                return [Requirement(name, Status.WARN, said, why, "Run 'sudo winlab doctor' to see it.")]
            except Exception as error:
                said = f"The check itself failed: {type(error).__name__}: {error}"
                return [Requirement(name, Status.FAIL, said, why, "Report this; it is a bug in winlab.")]

        return guarded

    return wrap
