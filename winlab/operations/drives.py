"""Puts another CD into a node's payload drive for as long as it is needed, and then the payload CD again.

On Windows the scripts are on the CD, so every inserted CD carries them. The previous CD is noted in the lab's folder:
if winlab is killed in between, the next run uses the note to restore it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import devices, domains
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design.system import SYSTEMS
from winlab.engine import wait
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, NotFoundError
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.supply import payload
from winlab.supply.media import small_iso

SILENCE = 120.0  # seconds in which even an emulated guest sees that its CD was changed; it takes 10 s to answer
POLL = 1.5  # seconds


class _UnnoticedError(Exception):
    """The node does not see that its CD was changed."""


@dataclass(frozen=True)
class Drives:
    """The payload drives of a lab's nodes."""

    lab: LabOnSite

    @property
    def folder(self) -> LabFolder:
        """The lab's folder."""
        return self.lab.folder

    def login(self, machine: Machine) -> NodeScripts:
        """A node, to run scripts in; a context manager that logs out."""
        return self.lab.scripts(machine)

    def is_on(self, machine: Machine) -> Callable[[], bool]:
        """Whether the node's machine runs, each time it is asked."""
        return partial(domains.is_running, self.lab.on(machine).conn, machine)

    def upload(
        self, host: Hypervisor, what: str, files: Mapping[str, Path], listed: Mapping[str, object], progress: Progress
    ) -> str:
        """Make a CD and upload it to a hypervisor's pool as a volume of the lab; returns the volume's name.

        :param what: what the CD is for: ``node-1.push``.
        :param files: by their paths on the CD; winlab's own scripts and the list are added.
        :param listed: what its payload.json says of the files.
        """
        name = f"{self.folder.lab}.{what}.iso"
        listed = {"programs": {}, "cni": {}, "images": {}, **listed}
        text = json.dumps(listed, indent=1, sort_keys=True) + "\n"
        with self.folder.staging() as folder:
            path = folder / "cd.iso"
            progress.say("writing a CD")
            small_iso.write(path, payload.LABEL, {**scripts(), **files, "payload.json": text.encode()})
            progress.say("uploading it to the pool")
            host.pool.upload(name, path)
        return name

    @contextmanager
    def inserted(self, machine: Machine, volume: str) -> Iterator[None]:
        """Keep a CD in a node's drive for the length of a with-block; always restore the previous one afterwards.

        :raises NotFoundError: the node has no payload CD to return to.
        """
        before = self.repair(machine)
        self.folder.write(self._note(machine), before)
        try:
            self._insert(machine, volume)
            yield
        finally:
            self._insert(machine, before)
            self._note(machine).unlink(missing_ok=True)

    def repair(self, machine: Machine) -> str:
        """Make sure that a node's drive has its payload CD, not one left by a killed winlab; returns the CD's volume.

        :raises NotFoundError: it has none.
        """
        now = self.inside(machine)
        if now.startswith(payload.PREFIX):
            return now
        note = self._note(machine)
        volume = note.read_text(encoding="utf-8").strip() if note.exists() else ""
        if not volume or not self.lab.on(machine).pool.exists(volume):
            raise NotFoundError(
                f"'{machine.tag.node}' has no payload CD in its drive.",
                why="It has not been given Kubernetes yet.",
                cure="Run the lab's create command again (without --until guests).",
            )
        self._insert(machine, volume)
        return volume

    def restore(self, machine: Machine) -> None:
        """Put a node's payload CD back if a winlab was killed before it did so, and the CD is still there."""
        if self._note(machine).exists():
            with suppress(NotFoundError):
                self.repair(machine)
                self._note(machine).unlink()

    def inside(self, machine: Machine) -> str:
        """The volume that is in a node's drive now; empty if there is none."""
        target, _ = machine.tag.system.payload_drive
        path = devices.medium(self.lab.on(machine).conn, machine, target)
        return path.name if path is not None else ""

    def _insert(self, machine: Machine, volume: str) -> None:
        target, bus = machine.tag.system.payload_drive
        host = self.lab.on(machine)
        devices.insert(host.conn, machine, target, bus, host.pool.path(volume))

    def _note(self, machine: Machine) -> Path:
        return self.folder.path / f"drive-{machine.tag.node}"


def scripts() -> dict[str, bytes]:
    """winlab's scripts, as they are on every CD."""
    return {name: content for one in SYSTEMS for name, content in payload.scripts(one).items()}


def await_seen(node: NodeScripts, file: str, progress: Progress) -> None:
    """Wait until a node sees the CD that was just inserted, by a file that only this CD has.

    :param file: its path on the CD: ``push/kubelet.exe``.
    :raises GuestError: it does not see it.
    """
    if not _notices(node, file, progress, there=True):
        raise GuestError(
            f"'{node.tag.node}' does not see the CD that winlab inserted.", cure="Run the same command again."
        )


def await_gone(node: NodeScripts, file: str, progress: Progress) -> None:
    """Wait until a node sees that the CD with *file* was removed; otherwise the next script would be looked for on it.

    A node that never sees it is left to the next command, which inserts its own CD.
    """
    _notices(node, file, progress, there=False)


def _notices(node: NodeScripts, file: str, progress: Progress, *, there: bool) -> bool:
    """Wait until a node has noticed that a CD was inserted or removed; False if it does not."""

    def look() -> Met[None] | Waiting:
        if node.sees(file, there=there):
            return Met(None)
        return Waiting(f"waiting for {node.tag.node} to see that its CD was changed")

    try:
        wait.until(look, progress, lambda _: _UnnoticedError(), stall=SILENCE, poll=POLL)
    except _UnnoticedError:
        return False
    return True
