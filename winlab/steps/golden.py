"""Steps that make a golden image: install, prepare, seal, fetch, and remove the machine it was made in.

The machine stands in a lab of its own, so that an interrupted build is carried on like any lab. Once sysprep has begun,
nothing is done to the machine any more: its state says so.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from winlab import data, run
from winlab.adapters import traces
from winlab.adapters.guests import contract
from winlab.adapters.guests.scripts import Node
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import domains
from winlab.design.catalog import recipes
from winlab.design.plan import golden
from winlab.design.plan.model import NodePlan, WindowsNode
from winlab.engine.engine import Step
from winlab.engine.stall import Life
from winlab.errors import GuestError, StalledError, WinlabError
from winlab.events import Progress
from winlab.steps import Context, boot, evidence, images, known_failures, linux_nodes, machines, windows_nodes
from winlab.supply.images import golden as golden_cache

POLL = 3.0
ASK = 15.0  # seconds between two questions to a machine that is being generalized
SILENT_SECONDS = 1800.0  # generalizing writes little for long
SEALED = "sealed.json"
RESTARTS = 2  # of a Windows in which something waits for one, before sysprep


def is_sealed(context: Context) -> bool:
    """Whether sysprep has begun in the builder's machine."""
    return (context.state.folder / SEALED).exists()


def steps(context: Context, insert: Step, target: str, key: str) -> list[Step]:
    """All steps of a build.

    :param context: the builder's.
    :param insert: the step that gives the machine the payload CD.
    :param target: the base volume that clones stand on.
    :param key: of the golden image.
    """
    (node,) = context.plan.windows_nodes()
    build = _Build(context, node, target, key)
    if is_sealed(context):
        made: list[Step] = []
        before: tuple[str, ...] = ()
    else:
        made = _machine(context, node, insert)
        before = (made[-1].name,)
    sealed = Step(f"seal {node.name}", build.seal, build.is_off, before, usual=120 * min(2.0, context.scale))
    fetched = Step(images.name(target), build.fetch, build.is_there, (sealed.name,), usual=300)
    return [*made, sealed, fetched, Step(f"remove {node.name}", build.remove, build.is_gone, (fetched.name,), usual=3)]


def _machine(context: Context, node: NodePlan, insert: Step) -> list[Step]:
    """From nothing to a machine that is ready to be sealed."""
    found = [
        *machines.steps(context, node),
        boot.step(context, node, recipes.get(node.image).usual_boot_seconds),
        machines.detach_step(context, node),
        insert,
    ]
    features, containerd, binaries = windows_nodes.steps(context, node)[:3]
    assert node.windows is not None
    if not node.windows.updates:
        return [*found, features, containerd, binaries]
    return [*found, features, containerd, binaries, windows_nodes.updates_step(context, node, binaries.name)]


def upload_step(context: Context, target: str, key: str) -> Step:
    """The step that brings a golden image of the cache into the pool."""

    def work(progress: Progress) -> None:
        image = golden_cache.find(key)
        if image is None:
            raise WinlabError(f"The golden image {key} is gone.", cure="Run the same command again: it makes it anew.")
        context.pool.upload_base(target, image.path, progress.say)

    return Step(images.name(target), work, lambda: context.pool.is_complete(target), usual=60)


class _Build:
    def __init__(self, context: Context, node: WindowsNode, target: str, key: str) -> None:
        self.context = context
        self.node = node
        self.target = target
        self.key = key
        self.note = context.state.folder / SEALED

    def is_off(self) -> bool:
        """Whether sysprep has switched the machine off. That is written down: libvirt forgets why a machine is off."""
        if not self.note.exists() or domains.state(self.context.conn, self.node.domain) != "off":
            return False
        facts = self._facts()
        if not facts.get("finished"):
            if not domains.was_shut_down(self.context.conn, self.node.domain):
                return False
            self.context.state.write(self.note, json.dumps({**facts, "finished": True}))
        return True

    def _facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.note.read_text(encoding="utf-8"))
        return found

    def seal(self, progress: Progress) -> None:
        """Have sysprep generalize the machine, and wait until it is off."""
        with linux_nodes.connected(self.context, self.node) as there:
            if not self.note.exists():
                found = self._start_sysprep(there, progress)
                self.context.state.write(self.note, json.dumps({**found.model_dump(), "time": time.time()}))
            there.disconnect()
            self._await_off(progress)

    def _start_sysprep(self, there: Node, progress: Progress) -> contract.Sealing:
        """Restart Windows while something waits for that, since sysprep refuses then; start sysprep.

        :raises GuestError: something waits for a restart again and again.
        """
        text = (data.folder("unattend") / "windows/generalize.xml").read_text(encoding="utf-8")
        call = contract.Seal(generalize=text, superseded=self.node.windows.updates)
        restarts = 0
        while (found := there.run(call, progress.say)).restart:
            if restarts == RESTARTS:
                raise GuestError(
                    f"Something in '{self.node.name}' waits for a restart again and again, and sysprep refuses then.",
                    why=f"It was restarted {RESTARTS} times.",
                    cure="Run the same command again; or leave out what wants the restarts (workers.updates, "
                    f"workers.scripts). 'winlab destroy --lab {self.context.plan.lab}' begins anew.",
                )
            restarts += 1
            windows_nodes.restart(self.context, self.node, there, progress)
        return found

    def _await_off(self, progress: Progress) -> None:
        life = Life(SILENT_SECONDS * max(1.0, self.context.scale / 2))
        asked = time.monotonic()
        while (state := domains.state(self.context.conn, self.node.domain)) != "off":
            progress.say("waiting for sysprep to generalize Windows and to switch it off")
            if state not in ("running", "shutting down"):
                raise self._interrupted(f"The machine is {state}.", progress)
            if life.has_stopped(domains.written_bytes(self.context.conn, self.node.domain)):
                raise self._stalled(life.limit, progress)
            if time.monotonic() - asked > ASK:
                asked = time.monotonic()
                self._ask(progress)
            time.sleep(POLL)
        if not self.is_off():
            why = "Nothing tells that sysprep switched it off: it lost its power, or libvirt was started anew since."
            raise self._interrupted(why, progress)

    def _interrupted(self, why: str, progress: Progress) -> GuestError:
        error = GuestError(
            f"Generalizing '{self.node.name}' was interrupted.",
            why=why,
            cure=f"Run 'winlab destroy --lab {self.context.plan.lab}' and the same command again.",
        )
        evidence.keep(self.context, self.node, error, progress)
        return error

    def _stalled(self, limit: float, progress: Progress) -> StalledError:
        folder, logs = evidence.collect(self.context, self.node, progress)
        trap = known_failures.recognise(logs)
        look = f"Look at its screen with 'winlab vnc {self.node.name} --lab {self.context.plan.lab}'."
        return StalledError(
            f"sysprep in '{self.node.name}' shows no sign of life since {limit / 60:.0f} min.",
            why=trap.why if trap else "",
            cure=f"{trap.cure} {look}" if trap else look,
            evidence=str(folder),
        )

    def _ask(self, progress: Progress) -> None:
        """See that sysprep has not given up.

        :raises GuestError: it has.
        """
        try:
            with linux_nodes.connected(self.context, self.node) as there:
                found = there.run(contract.Sealed())
        except WinlabError:
            return  # it is going down
        if found.running or not found.errors:
            return
        self.note.unlink(missing_ok=True)  # so that the same command tries again
        text = "\n".join(found.errors)
        trap = known_failures.recognise(text)
        error = GuestError(
            "sysprep could not generalize Windows.",
            why=text,
            cure=trap.cure
            if trap
            else "Mend the cause and run the same command again; or destroy "
            f"the lab '{self.context.plan.lab}', so that it begins anew.",
            evidence=r"C:\Windows\System32\Sysprep\Panther\setuperr.log in "
            f"'winlab exec {self.node.name} --lab {self.context.plan.lab}'",
        )
        evidence.keep(self.context, self.node, error, progress)
        raise error

    def is_there(self) -> bool:
        return golden_cache.find(self.key) is not None and self.context.pool.is_complete(self.target)

    def fetch(self, progress: Progress) -> None:
        """Bring the disk into the cache, compressed, and from there into the pool as a base volume."""
        facts = self._facts()

        def fill(output: Path) -> dict[str, Any]:
            with tempfile.TemporaryDirectory(prefix="winlab-", dir=output.parent) as folder:
                disk = Path(folder) / "disk.qcow2"
                self.context.pool.download_to(
                    self.node.volume("disk").name, disk, lambda part: progress.say("fetching the disk", part)
                )
                progress.say("compressing it")
                options = ["-O", "qcow2", "-c", "-o", "compression_type=zstd"]
                run.run(["qemu-img", "convert", "-f", "qcow2", *options, disk, output])
            return self._manifest(facts)

        image = golden_cache.keep(self.node, self.key, fill, progress)
        self.context.pool.upload_base(self.target, image.path, progress.say)

    def _manifest(self, facts: dict[str, Any]) -> dict[str, Any]:
        windows = self.node.windows
        minutes, sealed = facts["evaluation_minutes"], datetime.fromtimestamp(facts["time"], UTC)
        ends = None if minutes is None else (sealed + timedelta(minutes=minutes)).isoformat(timespec="seconds")
        return {
            "build": facts["build"],
            "edition": windows.image_name,
            "evaluation_ends": ends,
            "rearms": facts["rearms"],
            "firmware": self.node.firmware,
            "bus": self.node.bus,
            "disk_mib": self.node.disk_mib,
            "medium": self.node.volume("base").name,
            "kubernetes": self.context.plan.cluster.versions.kubernetes,
            "containerd": self.context.plan.cluster.versions.containerd,
            "updates": windows.updates,
            "programs": self.context.stock.scripts,
            "inputs": golden.told(self.node, self.context.stock),
        }

    def is_gone(self) -> bool:
        return not domains.machines(self.context.conn, self.context.plan.lab)

    def remove(self, progress: Progress) -> None:
        """Remove the machine and all of its lab but the folder, which is locked."""
        progress.say("its disk is in the cache now")
        problems = traces.remove(
            self.context.plan.lab, self.context.conn, ovn.connect, lambda: self.context.pool, lambda *_: None
        )
        if problems:
            problems[0].causes = tuple(problems[1:])
            raise problems[0]
        self.note.unlink(missing_ok=True)
