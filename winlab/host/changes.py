"""The record of what setup changed on the host, so that teardown undoes exactly that.

The record is written before each change. An interrupted setup therefore leaves a record with at most one entry too
many, and teardown tolerates things that no longer exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from winlab import documents, files, locks
from winlab.errors import HostError
from winlab.events import Progress

CHANGES_FILE = Path("/var/lib/winlab/host-changes.yaml")
HEADER = "# Written by 'winlab host setup', for teardown.\n"
LOCK = Path("/run/winlab-host.lock")

Firewall = Literal["docker-user", "forward", "forward-legacy", "ufw", "firewalld"]


class Mode(BaseModel):
    """Owner and mode that a file had before."""

    model_config = ConfigDict(extra="forbid")

    uid: int
    gid: int
    mode: int


class Changes(BaseModel):
    """Everything that setup changed and teardown restores."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    modes: dict[str, Mode] = Field(default_factory=dict, description="path: what it was")
    daemons: dict[str, str] = Field(default_factory=dict, description="started without systemd: name, id of the boot")
    units_enabled: list[str] = Field(default_factory=list)
    units_started: list[str] = Field(default_factory=list)
    bridges: list[str] = Field(default_factory=list)
    ovs_ids: dict[str, str | None] = Field(default_factory=dict, description="external_ids: value before, null if none")
    mapping: bool = False
    ssl: bool = Field(False, description="Open vSwitch has the certificate with which this host joined a site")
    connection: bool = False
    switch: bool = False
    bfd: bool = Field(False, description="OVN's gateways watch each other as often as a site of several hosts needs")
    sysctl: dict[str, str] = Field(default_factory=dict)
    table: bool = False
    firewalls: list[Firewall] = Field(default_factory=list)
    pool: bool = False
    hook: bool = Field(False, description="libvirt has noticed the hook, which is among the files")
    files: list[str] = Field(default_factory=list)
    folders: list[str] = Field(default_factory=list)


@contextmanager
def alone(progress: Progress) -> Iterator[None]:
    """Be the only one who changes this host; wait if another setup or teardown runs, as at boot.

    Each of them reads the record at its beginning, so that a second one would lose the first one's entries.
    """
    os.close(os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600))  # for root alone: others must not be able to hold it
    with locks.held(LOCK, progress, "setting up this host, or undoing that"):
        yield


class Record:
    """The changes, kept on disk."""

    def __init__(self, path: Path = CHANGES_FILE) -> None:
        self.path = path
        self.changes = self._read()

    def _read(self) -> Changes:
        try:
            text = self.path.read_text(encoding="utf-8")
            if not text.startswith(HEADER):
                raise ValueError(f"It does not begin with '{HEADER.strip()}': it is empty, or not what setup wrote.")
            return Changes.model_validate(documents.from_yaml(text) or {})
        except FileNotFoundError:
            return Changes()
        except (OSError, yaml.YAMLError, ValueError) as error:  # pydantic's ValidationError is one, too
            raise HostError(
                f"The record of what winlab changed on this host, '{self.path}', can't be used.",
                why=str(error),
                cure="Repair it manually, or remove it; teardown then does not undo the changes listed in it.",
                causes=[error],
            ) from error

    def save(self) -> None:
        """Write the record, whole or not at all, to the disk: a power cut must not lose what was changed after it.

        :raises HostError: it can't be written.
        """
        words = self.changes.model_dump(exclude_defaults=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            files.write_atomic(self.path, HEADER + yaml.safe_dump(words), mode=0o644, durable=True)
            files.sync(self.path.parent)
        except OSError as error:
            raise HostError(
                f"The record of what winlab changes on this host, '{self.path}', can't be written.",
                why=str(error),
                cure="Free some space, or make the file system writable. Then run the same command again.",
                causes=[error],
            ) from error

    def add(self, field: str, value: str) -> None:
        """Add *value* to the list *field*, once."""
        values: list[str] = getattr(self.changes, field)
        if value not in values:
            setattr(self.changes, field, [*values, value])
            self.save()

    def mark(self, field: str) -> None:
        """Record that setup made *field*."""
        if not getattr(self.changes, field):
            setattr(self.changes, field, True)
            self.save()

    def keep_mode(self, path: Path) -> None:
        """Record the current owner and mode of *path*, unless already recorded."""
        if str(path) not in self.changes.modes:
            was = path.stat()
            self.changes.modes[str(path)] = Mode(uid=was.st_uid, gid=was.st_gid, mode=was.st_mode & 0o7777)
            self.save()

    def remove(self) -> None:
        """Remove the record, because everything has been undone."""
        self.changes = Changes()
        self.path.unlink(missing_ok=True)
