"""Steps that make a golden image: install, prepare, seal, fetch, and remove the machine it was made in.

The machine is in a separate lab, so that an interrupted build is resumed like any lab. Before sysprep begins, a note
in the lab's folder says so; from then on winlab changes nothing else in the machine.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from winlab import data, documents, stopping
from winlab import run as commands
from winlab.adapters import traces
from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import disks, domains, power
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.contract import on_windows
from winlab.design.plan import golden
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Load, Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError, together
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps import again, evidence
from winlab.steps.images import refuse_other_content
from winlab.steps.paused import require_writable_disk
from winlab.steps.states import BINARIES, IMAGE, PAYLOAD_INSERTED, REMOVED, SEALED, UPDATES
from winlab.steps.windows import node as windows_node
from winlab.steps.windows import setup_logs
from winlab.supply.images import cache
from winlab.supply.images import golden as golden_cache

ASK = 15.0  # seconds between two checks of whether sysprep still runs
FAILED = 60.0  # seconds for which sysprep must have ended without success, before this counts as a failure
LATE = 300.0  # seconds after which winlab switches off a generalized Windows that still runs
SILENT_SECONDS = 1800.0  # sysprep writes little for a long time
NOTE = "sealed.json"
RESTARTS = 2  # of a Windows with a pending restart, before sysprep


class _Facts(BaseModel):
    """The note: what was known of Windows when sysprep was about to start, and whether sysprep shut it down."""

    model_config = ConfigDict(strict=True)

    build: str
    evaluation_minutes: int | None  # None: not an evaluation
    rearms: int
    time: float  # seconds since 1970
    finished: bool = False


def _read(note: Path) -> _Facts | None:
    """The note; None if it can't be understood: it is damaged, or from another version of winlab."""
    try:
        return _Facts.model_validate(documents.from_json(note.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def is_sealed(run: Run) -> bool:
    """Whether sysprep has begun in the builder's machine, or was about to when winlab was killed."""
    return (run.folder.path / NOTE).exists()


def is_spoiled(folder: LabFolder, conn: Connection, machine: domains.Named) -> bool:
    """Whether the builder's machine ended while sysprep ran in it: by a crash or with the host, not through sysprep.

    It may be half generalized, so neither sysprep nor anything else can continue in it.
    """
    note = folder.path / NOTE
    if not note.exists() or (state := domains.state(conn, machine)) not in (*domains.OFF, domains.CRASHED, "gone"):
        return False
    if state not in domains.OFF:
        return True
    facts = _read(note)
    if facts is None:  # what is known of its Windows is lost, and an image needs that
        return True
    return not facts.finished and not domains.was_shut_down(conn, machine)


def clone(plan: Plan) -> WindowsNode | None:
    """The first node that is a clone; None if there is none."""
    return next((node for node in plan.windows_nodes() if node.windows.golden), None)


def all_made(
    plan: Plan, hypervisors: Hypervisors, key: str | None = None, but: Collection[str] = (), host: str = ""
) -> bool:
    """Whether all of the plan's Windows machines exist, so that no more clones of a golden image will be made.

    :param key: of a golden image: only its clones count.
    :param host: only the machines on this hypervisor count; empty: all.
    :param but: nodes that are created again, though they exist now.
    """
    nodes = plan.windows_nodes() if key is None else plan.clones(key)
    return all(
        node.name not in but and domains.find(hypervisors.on(node).conn, node) is not None
        for node in nodes
        if host in ("", node.hypervisor)
    )


def steps(run: Run, target: str, key: str, host: Hypervisor) -> list[Step]:
    """The steps from a machine with the programs on it to the golden image in the pool.

    :param run: the builder's.
    :param target: the base volume of the clones.
    :param key: of the golden image.
    :param host: the hypervisor whose pool gets it first.
    """
    (node,) = run.plan.windows_nodes()
    build = _Build(run, node, target, key, host)
    last = UPDATES if node.windows.updates else BINARIES if node.is_member else PAYLOAD_INSERTED
    sealed, image = SEALED(run.lab, node.name), IMAGE(of=target, host=host.name)
    return [
        Step(
            sealed,
            build.seal,
            build.is_off,
            after=[] if is_sealed(run) else [last(run.lab, node.name)],
            usual=120 * min(2.0, run.pace.scale),
        ),
        Step(image, build.fetch, build.is_there, after=[sealed], usual=300, load=Load.CORE),
        Step(REMOVED(run.lab, node.name), build.remove, build.is_gone, after=[image], usual=3),
    ]


def upload_step(run: Run, target: str, key: str, host: Hypervisor, after: Iterable[State] = ()) -> Step:
    """The step that uploads a golden image from the cache to a hypervisor's pool."""

    def work(progress: Progress) -> None:
        image = golden_cache.find(key)
        if image is None:
            raise WinlabError(
                f"The golden image {key} is no longer in the cache.",
                cure="Run the same command again: it makes a new one.",
            )
        if run.sources.check_images is not None:
            run.sources.check_images()
            refuse_other_content(host.pool, target, image.path)
        host.pool.upload_base(target, image.path, progress.say, partial(cache.compare, image.image))

    def done() -> bool:
        if run.sources.check_images is not None and golden_cache.find(key) is not None:
            return False  # the locked image must be compared with the one that the nodes are clones of
        return host.pool.is_complete(target) or all_made(run.plan, run.hypervisors, key, host=host.name)

    return Step(IMAGE(of=target, host=host.name), work, done, after, usual=60)


class _Build:
    def __init__(self, run: Run, node: WindowsNode, target: str, key: str, host: Hypervisor) -> None:
        self.run = run
        self.node = node
        self.target = target
        self.key = key
        self.host, self.goal = run.on(node), host  # of this machine, of its clones
        self.note = run.folder.path / NOTE
        self._ended: float | None = None  # when sysprep was first seen not to run
        self._disk_logs = partial(setup_logs.read, run, node)
        self._is_on = partial(domains.is_running, run.on(node).conn, node)

    def is_off(self) -> bool:
        """Whether sysprep has shut the machine down. This is recorded: libvirt forgets why a machine is off."""
        if not self.note.exists() or domains.state(self.host.conn, self.node) != "off":
            return False
        facts = _read(self.note)
        if facts is None:
            return False
        if not facts.finished:
            if not domains.was_shut_down(self.host.conn, self.node):
                return False
            self.run.folder.write(self.note, facts.model_copy(update={"finished": True}).model_dump_json())
        return True

    def seal(self, progress: Progress) -> None:
        """Have sysprep generalize the machine, and wait until it is off."""
        if domains.state(self.host.conn, self.node) in domains.PAUSED:  # winlab was killed as it read evidence
            require_writable_disk(self.host, self.node)
            power.resume(self.host.conn, self.node)
        with self.run.node(self.node) as there:
            if self.note.exists():
                self._resume(there, progress)
            else:
                self._start_sysprep(there, progress)
            there.disconnect()
            self._await_off(progress)

    def _start_sysprep(self, there: NodeScripts, progress: Progress) -> None:
        """Restart Windows while a restart is pending, because sysprep would refuse to run; then start sysprep.

        The facts are noted before sysprep starts: if winlab is killed right after, the machine is eventually off,
        and its facts could no longer be read.

        :raises GuestError: a restart is still pending after several restarts.
        """
        restarts = 0
        while True:
            facts = again.run(there, self._call(begin=False), progress, self._is_on)
            if not facts.restart:
                self.run.folder.write(self.note, json.dumps({**facts.model_dump(), "time": time.time()}))
                if self._begin(there, progress):
                    return
            if restarts == RESTARTS:
                raise GuestError(
                    f"Windows in '{self.node.name}' still has a restart pending, and sysprep refuses to run.",
                    why=f"It was restarted {RESTARTS} times.",
                    cure="Run the same command again; or leave out what causes the restarts (workers.updates, "
                    f"workers.scripts). 'winlab destroy --lab {self.run.plan.lab}' starts over.",
                )
            restarts += 1
            windows_node.restart(self.run, self.node, there, progress)

    def _begin(self, there: NodeScripts, progress: Progress) -> bool:
        """Start sysprep; False if Windows must be restarted first. If sysprep does not start, the note is removed."""
        try:
            if not there.run(self._call(begin=True), progress.say).restart:
                return True
        except UnreachableError:
            # sysprep may be running, and a second one would corrupt the image. _await_off checks whether it runs
            progress.say("the connection was lost while sysprep started")
            return True
        except GuestError:
            self.note.unlink(missing_ok=True)
            raise
        self.note.unlink(missing_ok=True)
        return False

    def _call(self, *, begin: bool) -> on_windows.Seal:
        text = (data.folder("unattend") / "windows/generalize.xml").read_text(encoding="utf-8")
        return on_windows.Seal(generalize=text, superseded=self.node.windows.updates, begin=begin)

    def _resume(self, there: NodeScripts, progress: Progress) -> None:
        """Start sysprep if the machine runs without it: winlab was killed after the note, and before it started.

        A machine that does not answer, or is off, is already past that point.
        """
        for _ in range(2):  # sysprep may just have ended, and the machine still be on for a moment
            if domains.state(self.host.conn, self.node) != "running":
                return
            try:
                sysprep = there.run(on_windows.Sealed())
            except WinlabError:
                return
            if sysprep.running or sysprep.done or sysprep.errors:
                return
            there.disconnect()
            progress.say("looking whether sysprep runs")
            stopping.sleep(ASK)
        if not self._begin(there, progress):
            self._start_sysprep(there, progress)

    def _await_off(self, progress: Progress) -> None:
        asked = time.monotonic()
        self._ended = None

        def look() -> Met[None] | Waiting:
            nonlocal asked
            state = domains.state(self.host.conn, self.node)
            if state == "off":
                return Met(None)
            if state not in ("running", "shutting down"):
                raise self._interrupted(f"The machine is {state}.", progress)
            if time.monotonic() - asked > ASK:
                asked = time.monotonic()
                self._ask(progress)
            written = domains.written_bytes(self.host.conn, self.node)
            return Waiting("waiting for sysprep to generalize Windows and shut it down", written)

        limit = self.run.pace.silence(SILENT_SECONDS)
        wait.until(look, progress, lambda _: self._stalled(limit, progress), stall=limit)
        if not self.is_off():
            why = "No record says that sysprep shut it down: it was powered off, or libvirt was restarted since."
            raise self._interrupted(why, progress)

    def _interrupted(self, why: str, progress: Progress) -> GuestError:
        error = GuestError(
            f"Generalizing '{self.node.name}' was interrupted.",
            why=why,
            cure="Run the same command again: it makes a new machine, because the old one may be half generalized.",
        )
        evidence.keep(self.run, self.node, self._disk_logs, error, progress)
        return error

    def _stalled(self, limit: float, progress: Progress) -> StalledError:
        error = StalledError(
            f"sysprep in '{self.node.name}' has shown no sign of life for {limit / 60:.0f} min.",
            cure=f"Look at its screen with 'winlab vnc {self.node.name} --lab {self.run.plan.lab}'.",
        )
        evidence.keep(self.run, self.node, self._disk_logs, error, progress)
        return error

    def _ask(self, progress: Progress) -> None:
        """Check that sysprep has not failed; switch off a Windows that it has left running.

        Between sysprep's end and the power-off, Windows still answers; a successful run's log contains errors, too.

        :raises GuestError: it has failed.
        """
        try:
            with self.run.node(self.node) as there:
                sysprep = there.run(on_windows.Sealed())
                ended = self._since_its_end(sysprep.running)
                if sysprep.done and ended > LATE:
                    progress.say("Windows is generalized, and still runs: shutting it down")
                    there.execute(["shutdown.exe", "/s", "/f", "/t", "0"])
        except WinlabError:
            return  # it is shutting down
        if sysprep.done or ended < FAILED:
            return
        self.note.unlink(missing_ok=True)  # so that the same command tries again
        text = "\n".join(sysprep.errors) or f"It has ended; the state of Windows is {sysprep.state}."
        error = GuestError(
            "sysprep could not generalize Windows.",
            why=text,
            cure="Fix the cause and run the same command again; or destroy "
            f"the lab '{self.run.plan.lab}' to start over.",
            evidence=r"C:\Windows\System32\Sysprep\Panther\setuperr.log in "
            f"'winlab exec {self.node.name} --lab {self.run.plan.lab}'",
        )
        evidence.keep(self.run, self.node, self._disk_logs, error, progress, "")
        raise error

    def _since_its_end(self, running: bool) -> float:
        """Seconds since sysprep was first seen not to run."""
        if running:
            self._ended = None
            return 0.0
        now = time.monotonic()
        if self._ended is None:
            self._ended = now
        return now - self._ended

    def is_there(self) -> bool:
        return golden_cache.find(self.key) is not None and self.goal.pool.is_complete(self.target)

    def fetch(self, progress: Progress) -> None:
        """Copy the disk into the cache, compressed, and from there into the pool as a base volume."""
        facts = _read(self.note)
        if facts is None:
            raise self._interrupted(f"What was noted of Windows can't be read: '{self.note}'.", progress)

        def fill(output: Path) -> dict[str, Any]:
            with tempfile.TemporaryDirectory(prefix="winlab-", dir=output.parent) as folder:
                disk = Path(folder) / "disk.qcow2"
                self.host.pool.download_to(
                    disks.live(self.host, self.node).name, disk, lambda part: progress.say("fetching the disk", part)
                )
                progress.say("compressing it")
                options = ["-O", "qcow2", "-c", "-o", "compression_type=zstd"]
                commands.run(["qemu-img", "convert", "-f", "qcow2", *options, disk, output])
            return self._manifest(facts)

        image = golden_cache.keep(self.node, self.key, fill, progress)
        self.goal.pool.upload_base(self.target, image.path, progress.say)

    def _manifest(self, facts: _Facts) -> dict[str, Any]:
        windows = self.node.windows
        minutes, sealed = facts.evaluation_minutes, datetime.fromtimestamp(facts.time, UTC)
        ends = None if minutes is None else (sealed + timedelta(minutes=minutes)).isoformat(timespec="seconds")
        return {
            "build": facts.build,
            "edition": windows.image_name,
            "evaluation_ends": ends,
            "rearms": facts.rearms,
            "firmware": self.node.firmware,
            "bus": self.node.bus,
            "disk_mib": self.node.disk_mib,
            "medium": self.node.volume("base").name,
            **self._programs(),
            "updates": windows.updates,
            "programs": self.run.stock.scripts,
            "inputs": golden.told(self.node, self.run.stock),
        }

    def _programs(self) -> dict[str, str]:
        """The versions of the programs in the image; empty for machines beside the cluster."""
        if not self.node.is_member:
            return {}
        versions = self.run.plan.cluster.versions
        return {"kubernetes": versions.kubernetes, "containerd": versions.containerd}

    def is_gone(self) -> bool:
        return not self.run.machines()

    def remove(self, progress: Progress) -> None:
        """Remove the machine and the rest of its lab except the folder, which is locked."""
        progress.say("its disk is in the cache now")
        problems = traces.remove(self.run.lab, self.run.hypervisors, self.run.overlay, lambda *_: None)
        if problems:
            raise together(problems)
        self.note.unlink(missing_ok=True)
