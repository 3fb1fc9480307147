"""Many hosts: ``python -m bench.scale HOSTS LABS`` is one reading, in a process of its own for its memory.

Everything is what winlab does for labs on so many hosts, up to OVN's databases: plans with their placement, and the
rows of their networks. There are no guests. The databases and northd are of its own, in a temporary folder. The hosts
are only rows in the southbound database, to which all ports are bound: what their controllers do is not measured.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import processes
from bench.framework import Reading, Readings, measurement
from bench.stage import Stage
from winlab import Plan, Spec, WinlabError, run, settings
from winlab.adapters.overlay import ovn
from winlab.design.plan.facts import HostFacts, MachineFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.make import make
from winlab.design.render.topology import topology
from winlab.supply.images import stock

SIZES = ((1, 1), (20, 10), (50, 45))  # hosts, labs
NODES = 20  # of a lab: three controllers, the rest Linux workers
USED = 5  # hosts that a lab uses, if there are so many
BLOCKS = 2  # of 16 external addresses that a lab of that size takes
SUBNET = "172.31.240.0/20"  # holds 127 such labs
GIB = 1024  # MiB
SCHEMAS = Path("/usr/share/ovn")
LIMIT = 60.0  # seconds until a database serves


@measurement(3)
def many_hosts(stage: Stage, times: int) -> Readings:
    """1 host, 20 and 50, with 20 nodes, 200 and 900: plans, OVN's rows, northd, memory."""
    stage.idle()
    for hosts, labs in SIZES:
        for _ in range(times):
            said = run.run([sys.executable, "-m", "bench.scale", str(hosts), str(labs)], timeout=3600).stdout
            for what, value, unit in json.loads(said):
                yield Reading(f"{hosts} host{'s' * (hosts > 1)}, {labs * NODES} nodes: {what}", value, unit)


class Databases:
    """OVN's databases and northd, which run for the length of a block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.north, self.south = f"unix:{folder}/nb.sock", f"unix:{folder}/sb.sock"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start them, and end them after the block."""
        with ExitStack() as stack:
            for name in ("nb", "sb"):
                run.run(["ovsdb-tool", "create", self.folder / f"{name}.db", SCHEMAS / f"ovn-{name}.ovsschema"])
                socket = self.folder / f"{name}.sock"
                words = ("ovsdb-server", f"--remote=punix:{socket}", f"{self.folder}/{name}.db")
                self._start(stack, name, words, socket.exists)
            run.run(["ovn-nbctl", f"--db={self.north}", "init"])
            run.run(["ovn-sbctl", f"--db={self.south}", "init"])
            words = ("ovn-northd", f"--ovnnb-db={self.north}", f"--ovnsb-db={self.south}")
            self._start(stack, "northd", words, self._control("northd").exists)
            yield

    def _start(self, stack: ExitStack, name: str, words: tuple[str, ...], ready: Callable[[], bool]) -> None:
        own = [f"--unixctl={self._control(name)}", f"--pidfile={self.folder}/{name}.pid", "--no-chdir"]
        ended, end = stack.enter_context(run.beside([*words, *own])), time.monotonic() + LIMIT
        while not ready():
            if (said := ended()) is not None or time.monotonic() > end:
                raise WinlabError(f"{words[0]} does not start.", why=said or "It does not answer.")
            time.sleep(0.05)

    def _control(self, name: str) -> Path:
        return self.folder / f"{name}.ctl"

    def process(self, name: str) -> Path:
        """Its folder in /proc."""
        return Path("/proc", (self.folder / f"{name}.pid").read_text(encoding="ascii").strip())

    def nbctl(self, *words: str) -> None:
        """Run ovn-nbctl."""
        run.run(["ovn-nbctl", f"--db={self.north}", *words], timeout=600)

    def sbctl(self, *words: str) -> str:
        """What ovn-sbctl prints."""
        return run.run(["ovn-sbctl", f"--db={self.south}", *words], timeout=600).stdout

    def followed(self) -> None:
        """Wait until northd has written everything to the southbound database."""
        self.nbctl("--timeout=600", "--wait=sb", "sync")

    def again(self) -> None:
        """Have northd compute everything again, as after its start."""
        run.run(["ovn-appctl", "-t", self._control("northd"), "inc-engine/recompute"])
        self.followed()

    def used(self) -> float:
        """The processor time of northd so far, in seconds."""
        return processes.seconds([self.process("northd")])


def chassis(hosts: int) -> list[str]:
    """The names of the hosts in OVN."""
    return [f"chassis-{number}" for number in range(1, hosts + 1)]


def plans(hosts: int, labs: int) -> Iterator[tuple[Plan, float]]:
    """The labs' plans, each on what the labs before it left free, and the processor time of each in seconds."""
    facts = HostFacts(recorded=True, accelerator="kvm", datapath="system", chassis="chassis-1", tunnel_mtu=1442,
                      resolvers=["192.0.2.53"], external_cidr=SUBNET)  # fmt: skip
    free = {f"hypervisor-{number}": 256 * GIB for number in range(1, hosts + 1)}
    named = dict(zip(free, chassis(hosts), strict=True))
    for number in range(labs):
        found = tuple(
            HostStock(name=name, facts=MachineFacts(chassis=named[name]), memory_mib=256 * GIB, free_mib=left, cores=64,
                      pool_free=4 << 40)
            for name, left in free.items()
        )  # fmt: skip
        block = f"network.floating_block={1 + BLOCKS * number}"
        spec = Spec.load(f"3-{NODES - 3}-{min(hosts, USED)}", [block], os="debian-13", environment={})
        there = stock.take(spec).model_copy(update={"hypervisors": found})
        begun = time.process_time()
        plan = make(spec, f"bench-{number}", facts, there)
        yield plan, time.process_time() - begun
        for node in plan.nodes:
            free[node.hypervisor] -= node.memory_mib


def measure(hosts: int, labs: int, databases: Databases) -> Iterator[tuple[str, float, str]]:
    """The values of one reading: what, how much, unit."""
    for number, name in enumerate(chassis(hosts)):
        databases.sbctl("chassis-add", name, "geneve", f"192.0.2.{number + 1}")
    switch = settings.EXTERNAL_SWITCH
    databases.nbctl("ls-add", switch, "--", "lsp-add", switch, "net", "--", "lsp-set-type", "net", "localnet")
    made = list(plans(hosts, labs))
    yield "plan of a lab, processor time", statistics.median(seconds for _, seconds in made) * 1000, "ms"
    tops = [topology(plan) for plan, _ in made]
    *before, last = tops
    with ovn.connect(databases.north) as northbound:
        for top in before:
            northbound.apply(top)
        databases.followed()
        used = databases.used()
        yield from _timed("network of the last lab, one transaction", lambda: northbound.apply(last))
        databases.followed()
        yield "northd's processor time for it", databases.used() - used, "s"
    binds: list[str] = []
    for (plan, _), top in zip(made, tops, strict=True):
        for node, port in zip(plan.nodes, top.ports[1:], strict=True):  # the first one is the router's
            binds += ["--", "lsp-bind", port.name, plan.hosts[node.hypervisor].chassis]
    databases.sbctl(*binds[1:])
    databases.followed()
    with ExitStack() as stack:
        opened: list[ovn.Northbound] = []
        yield from _timed(
            "connect, as each command does",
            lambda: opened.append(stack.enter_context(ovn.connect(databases.north))),
        )
        (northbound,) = opened
        yield from _timed("compare a lab's rows with its plan", lambda: northbound.differences(last))
        used = databases.used()
        databases.again()
        yield "northd computes everything, processor time", databases.used() - used, "s"
        flows = databases.sbctl("--bare", "--columns=_uuid", "list", "Logical_Flow").split()
        yield "logical flows", len(flows), ""
        for name, what in (("nb", "northbound server"), ("sb", "southbound server"), ("northd", "northd")):
            yield f"memory of {what}", processes.memory([databases.process(name)]), "MB"
        yield from _timed("removal of a lab, one transaction", lambda: northbound.remove(made[-1][0].lab))
    yield "winlab's memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, "MB"


def _timed(what: str, work: Callable[[], object]) -> Iterator[tuple[str, float, str]]:
    """How long some work takes, and winlab's part of it: processor time is the same on a host that is busy."""
    begun, own = time.monotonic(), time.process_time()
    work()
    took, own = time.monotonic() - begun, time.process_time() - own
    yield what, took, "s"
    yield f"{what}: winlab's processor time", own, "s"


def main(hosts: int, labs: int) -> list[Any]:
    """One reading, with databases of its own."""
    with tempfile.TemporaryDirectory(prefix="winlab-") as folder:
        databases = Databases(Path(folder))
        with databases.running():
            return list(measure(hosts, labs, databases))


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
