"""Many machines at once. ``python -m bench.many COUNT LAB`` is one reading, in a process of its own for its memory.

The guests halt in their boot sector. Otherwise the boots of the first ones would take the processors that the last ones
are started with, and an emulator would be measured. So a reading ends when all machines run; none of them answers.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.framework import Reading, Readings, measurement
from bench.stage import PREFIX, Stage
from winlab import Event, Lab, Plan, Site, Spec, StepDone, Stopped, run

MANY = f"{PREFIX}many"
COUNTS = (1, 5, 20, 50)
MEMORY = 128  # MiB of each machine
BASE = "base-halted-bench.qcow2"
HALT = b"\xfa\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa"  # cli; hlt; jmp to the hlt; the mark of a boot sector


@measurement(3)
def machines(stage: Stage, times: int) -> Readings:
    """1, 5, 20 and 50 machines of a tiny image, until all of them run."""
    stage.idle()
    with _tiny_image():
        for count in COUNTS:
            for _ in range(times):
                with stage.temporary(MANY):
                    stage.settle()
                    said = run.run([sys.executable, "-m", "bench.many", str(count), MANY]).stdout
                found = json.loads(said)
                yield Reading(f"{count} machines: time per machine", found["seconds"] / count)
                yield Reading(f"{count} machines: winlab's memory", found["memory"], "MB")


@contextmanager
def _tiny_image() -> Iterator[None]:
    """The base volume of the machines, for the length of a block."""
    with Site().storage() as hosts, tempfile.TemporaryDirectory() as folder:
        (pool,) = (host.pool for host in hosts)
        raw, disk = Path(folder, "disk.raw"), Path(folder, "disk.qcow2")
        raw.write_bytes(HALT.ljust(1 << 20, b"\0"))
        run.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk])
        try:
            pool.upload_base(BASE, disk, lambda _text, _part: None)
            yield
        finally:
            for name in pool.names(BASE):
                pool.delete(name)


def tiny(plan: Plan) -> Plan:
    """The plan with machines of little memory, over the tiny image, which boots by BIOS."""
    nodes = []
    for node in plan.nodes:
        base, disk, *rest = node.volumes
        volumes = (base.model_copy(update={"name": BASE}), disk.model_copy(update={"backing": BASE}), *rest)
        small = {"memory_mib": MEMORY, "cpus": 1, "firmware": "bios", "volumes": volumes}
        nodes.append(node.model_copy(update=small))
    return plan.model_copy(update={"nodes": tuple(nodes)})


def start(count: int, name: str) -> dict[str, float]:
    """Start so many machines; returns the seconds until all run, and the most memory of this process in MB."""
    lab, enough, times, begun = Lab(name), threading.Event(), list[float](), time.monotonic()

    def listen(event: Event) -> None:
        if isinstance(event, StepDone) and event.reaches == "started":
            times.append(time.monotonic() - begun)
            if len(times) == count:
                enough.set()  # the guests will never answer

    made = lab.plan(Spec.load(f"0-{count}-1", os="debian-13"))
    try:
        lab.create(dataclasses.replace(made, plan=tiny(made.plan)), until="guests", listener=listen, stop=enough)
    except Stopped:
        if len(times) < count:
            raise
    return {"seconds": times[-1], "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


if __name__ == "__main__":
    print(json.dumps(start(int(sys.argv[1]), sys.argv[2])))
