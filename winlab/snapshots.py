"""Records of snapshots: what a snapshot can't keep in the storage pool.

::

    <state>/snapshots/<lab>@<name>.json       0600  the plan, the spec and the credentials of the lab at that time
    <state>/snapshots/<lab>@<name>.held       held while it is saved, exported, imported or deleted

The record is written last, when the snapshot's volumes are complete, and deleted first. The file that a killed command
held stays: by that, the next one knows that volumes without a record are this account's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from winlab import files, locks, settings
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError, WinlabError
from winlab.lab_folder import CURE, changing

NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
SUFFIX = ".json"
MARK = ".held"


class Id(NamedTuple):
    """A snapshot's lab and its own name. People write ``lab@name``."""

    lab: str
    name: str

    def __str__(self) -> str:
        return f"{self.lab}@{self.name}"

    def volume(self, node: str, what: str) -> str:
        """The name of a volume of the snapshot."""
        return f"{self}.{node}.{what}"

    @classmethod
    def parse(cls, text: str, lab: str) -> Id:
        """Read ``LAB@NAME``, or ``NAME`` for a snapshot of *lab*.

        :raises UsageError: it can't be a snapshot's.
        """
        origin, at, name = text.rpartition("@")
        return cls(check_lab_name(origin, own=True) if at else lab, check_name(name))


def check_name(name: str) -> str:
    """Return *name* if it can be a snapshot's.

    :raises UsageError: it can't.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' can't be the name of a snapshot.",
            cure="Use 1 to 32 lower-case letters, digits and hyphens, beginning with a letter: 'ready', 'cni-2'.",
        )
    return name


class Drive(BaseModel):
    """What is in a drive of a saved machine.

    :param kind: ``disk``: the guest writes to it, and the snapshot's volume is an overlay on the frozen disk.
        ``own``: a CD or seed of the lab alone, of which the snapshot has a copy. ``shared``: a CD that labs share; the
        snapshot's volume is an overlay that shows that it is in use.
    :param what: the end of the volume's name in a lab: ``disk.qcow2``.
    :param volume: the snapshot's volume.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["disk", "own", "shared"]
    what: str
    volume: str


class Emulator(BaseModel):
    """What memory can be restored with: it depends on all of this."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accelerator: str
    version: str
    cpu: str  # a digest of the host's processor, as libvirt describes it; empty for an emulated one


class SavedNode(BaseModel):
    """A machine in a snapshot.

    :param drives: by target.
    :param split: whether the memory is a volume of its own. Otherwise the save image is whole. None: no memory was
        saved.
    :param sample: where in the memory a page is that is not empty: by it, a copy is checked before it runs. None:
        copies can't share the memory.
    :param emulator: what its memory can be restored with. None: as the snapshot says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    drives: dict[str, Drive]
    memory_mib: int
    split: bool | None
    sample: int | None
    emulator: Emulator | None = Field(default=None, exclude_if=lambda value: value is None)


class Snapshot(BaseModel):
    """A lab at one instant.

    :param memory: whether its machines ran: their memory was saved.
    :param paused: for how many seconds they were paused.
    :param routes: to pod networks on the lab's router: network to next hop.
    :param automatic: ``winlab clone`` made it, and nothing but its copies needs it.
    :param emulator: what the memory can be restored with, except where a node says otherwise.
    :param plan: of the lab. Its nodes are on the hypervisors whose pools have the snapshot's volumes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    version: Literal[1] = 1
    lab: str
    name: str
    made: datetime
    made_by: str
    memory: bool
    paused: float
    automatic: bool = False
    emulator: Emulator
    nodes: dict[str, SavedNode]
    routes: dict[str, str]
    plan: Plan
    spec: Spec
    roots: tuple[Path, ...]
    credentials: Credentials
    kubeconfig: str | None
    kubectl: Path | None

    @field_serializer("spec")
    def _given(self, spec: Spec) -> dict[str, Any]:
        # only what was set: a pool refuses fields of another system's pools, even with their default values
        return spec.model_dump(mode="json", exclude_unset=True)

    def volume(self, node: str, what: str) -> str:
        """The name of a volume of the snapshot: *what* is ``memory`` or ``state``."""
        return self.id.volume(node, what)

    @property
    def id(self) -> Id:
        """Its lab and its name."""
        return Id(self.lab, self.name)

    def emulator_of(self, node: str) -> Emulator:
        """What the memory of a node can be restored with."""
        return self.nodes[node].emulator or self.emulator

    def restored_spec(self) -> Spec:
        """The spec, with its roots."""
        return self.spec.within(self.roots)


def _folder() -> Path:
    return settings.state_dir() / "snapshots"


def path_of(which: Id) -> Path:
    """The file of a snapshot's record."""
    return _folder() / f"{which}{SUFFIX}"


def write(snapshot: Snapshot) -> None:
    """Record a snapshot, for its owner alone.

    :raises WinlabError: the record can't be written.
    """
    path = path_of(snapshot.id)
    with changing(path):
        files.make_parents(path)
        path.parent.chmod(0o700)
        files.write_atomic(path, snapshot.model_dump_json(indent=1, by_alias=True) + "\n", mode=0o600, durable=True)


def forget(which: Id) -> bool:
    """Delete a snapshot's record; returns whether there was one.

    :raises AccessError: it can't be deleted.
    """
    path = path_of(which)
    with changing(path):
        there = path.exists()
        path.unlink(missing_ok=True)
    return there


@dataclass
class Held:
    """A snapshot that this process works on.

    :param was_killed: an earlier command was killed while it did that, or could not remove what it had made.
    :param stays: this one could not, either: the next one is to know.
    """

    was_killed: bool
    stays: bool = False


@contextmanager
def exclusive(which: Id) -> Iterator[Held]:
    """Hold a snapshot while it is saved, exported, imported or deleted.

    :raises ConflictError: another winlab holds it.
    :raises AccessError: the lock can't be made.
    """
    path = _folder() / f"{which}{MARK}"
    with ExitStack() as stack:
        with changing(path):
            files.make_parents(path)
            # not while it is held, even if its holder ends now
            mark = Held(was_killed=path.exists() and locks.holding(path) is None and path.exists())
            mine = stack.enter_context(locks.attempt(path))
            if mine:
                files.sync(path.parent)
                for half in path.parent.glob(f".{which}{SUFFIX}.*.new"):
                    half.unlink(missing_ok=True)  # a record that was being written
        if not mine:
            raise ConflictError(
                f"Another winlab is saving, exporting, importing or deleting the snapshot '{which}'.",
                why=f"Its process id is {locks.holder(path)}.",
                cure="Wait for it to end, or interrupt it.",
            )
        try:
            yield mark
        finally:
            if not mark.stays:
                path.unlink(missing_ok=True)


def read(which: Id) -> Snapshot:
    """A snapshot's record.

    :raises NotFoundError: this account has no such snapshot.
    :raises AccessError: the record can't be read.
    :raises WinlabError: it is damaged, or of another version of winlab.
    """
    path = path_of(which)
    try:
        return parsed(path.read_bytes(), str(path))
    except FileNotFoundError as error:
        others = ", ".join(str(one) for one in ids() if one.lab == which.lab)
        raise NotFoundError(
            f"There is no snapshot '{which}'.",
            why=f"The lab has: {others}." if others else f"This account has no snapshot of the lab '{which.lab}'.",
            cure=f"'winlab snapshot save {which.name} --lab {which.lab}' makes it; 'winlab snapshot list' shows all.",
        ) from error
    except OSError as error:
        raise AccessError(
            f"The record of the snapshot '{which}' can't be read.", why=str(error), cure=CURE, causes=[error]
        ) from error


def parsed(content: bytes, where: str) -> Snapshot:
    """A record's content.

    :raises WinlabError: it is damaged, or of another version of winlab.
    """
    try:
        return Snapshot.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise WinlabError(
            "The record of a snapshot is damaged, or of another version of winlab.",
            why=f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}",
            cure="Delete the snapshot with 'winlab snapshot delete', and save the lab again.",
            evidence=where,
        ) from error


def ids() -> list[Id]:
    """The snapshots of this account, sorted.

    :raises AccessError: their folder can't be read.
    """
    return sorted(_found(SUFFIX))


def interrupted() -> list[Id]:
    """The snapshots that have no record, but are being made or deleted, or a killed command left something of them.

    :raises AccessError: their folder can't be read.
    """
    return sorted({*_found(MARK)} - {*_found(SUFFIX)})


def _found(suffix: str) -> Iterator[Id]:
    folder = _folder()
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as error:
        raise AccessError(f"'{folder}' can't be read.", why=str(error), cure=CURE, causes=[error]) from error
    for name in names:
        lab, at, rest = name.removesuffix(suffix).rpartition("@")
        if lab and at and name.endswith(suffix):
            with suppress(UsageError):
                yield Id(lab, check_name(rest))
