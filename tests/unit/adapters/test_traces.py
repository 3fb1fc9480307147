"""What a lab has on the hypervisor and in the overlay, and its removal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from lab_fakes import machine

from winlab.adapters import traces
from winlab.adapters.vm import domains
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.errors import HostError, WinlabError


class Pool:
    def __init__(self, *names: str) -> None:
        self.volumes = list(names)
        self.over: dict[str, str] = {}

    def refresh(self) -> None:
        pass

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.volumes if name.startswith(prefix))

    def backings(self) -> dict[str, Path]:
        return {name: Path("/pool") / base for name, base in self.over.items() if name in self.volumes}

    def delete(self, name: str) -> bool:
        self.volumes.remove(name)
        return True


class Northbound:
    def __init__(self, *labs: str) -> None:
        self.there = set(labs)

    def labs(self) -> set[str]:
        return self.there

    def remove(self, lab: str) -> bool:
        found = lab in self.there
        self.there.discard(lab)
        return found


class Host:
    """A hypervisor with a pool, and an overlay. ``broken`` names what does not answer."""

    def __init__(self) -> None:
        self.machines = [machine("controller-1", "linux"), machine("node-1")]
        self.pool = Pool("lab.node-1.disk.qcow2", "lab2.node-1.disk.qcow2", "base-debian-13.qcow2")
        self.northbound = Northbound("lab", "lab3")
        self.broken: set[str] = set()
        self.gone: list[str] = []
        self.left: list[str] = []
        self.has_copy = False
        self.held: set[str] = set()  # files of other domains

    @contextmanager
    def overlay(self) -> Iterator[Any]:
        if "overlay" in self.broken:
            raise HostError("no OVN")
        yield self.northbound

    @property
    def hosts(self) -> Hypervisors:
        return Hypervisors((Hypervisor(HYPERVISOR, cast(Any, None), self.storage, MachineFacts),))

    def storage(self) -> Any:
        if "pool" in self.broken:
            raise HostError("no pool")
        return self.pool

    def remove(self, lab: str) -> list[WinlabError]:
        return traces.remove(
            lab,
            self.hosts,
            self.overlay,
            lambda kind, name: self.gone.append(f"{kind} {name}"),
            lambda kind, name, why: self.left.append(f"{kind} {name}: {why}"),
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()

    def remove(_conn: object, gone: domains.Machine) -> bool:
        if "machine" in made.broken:
            raise WinlabError("it does not go")
        made.machines = [one for one in made.machines if one != gone]
        return True

    monkeypatch.setattr(
        domains, "machines", lambda _conn, lab=None: [one for one in made.machines if lab in (None, one.tag.lab)]
    )
    monkeypatch.setattr(domains, "remove", remove)
    monkeypatch.setattr(domains, "files", lambda _conn: made.held)
    monkeypatch.setattr(domains, "copies", lambda _conn, lab: [f"my-{lab}"] if made.has_copy else [])
    return made


ALL = ["domain winlab-lab.controller-1", "domain winlab-lab.node-1", "network winlab-lab"]


def test_a_lab_is_removed_and_the_rest_stays(host: Host) -> None:
    assert host.remove("lab") == []
    assert host.gone == [*ALL, "volume lab.node-1.disk.qcow2"]
    assert host.pool.volumes == ["lab2.node-1.disk.qcow2", "base-debian-13.qcow2"]
    assert host.northbound.there == {"lab3"}
    host.gone.clear()
    assert host.remove("lab") == []
    assert host.gone == []


def test_what_a_user_made_of_a_lab_stays(host: Host) -> None:
    """N5: a clone and its disk were removed, and so was each volume whose name began as a lab's."""
    theirs = ["lab.node-1.disk-clone.qcow2", "lab.qcow2", "lab.my.backup.of.monday.raw", "lab.node-1.serial.log.bak"]
    host.pool.volumes += [*theirs, "lab.node-1.serial.log.0", "lab.load-windows.iso"]
    host.has_copy = True
    assert host.remove("lab") == []
    made = ["lab.load-windows.iso", "lab.node-1.disk.qcow2", "lab.node-1.serial.log.0"]
    assert host.gone == [*ALL, *(f"volume {name}" for name in made)]
    left = ["domain my-lab", *(f"volume {name}" for name in sorted(theirs))]
    assert host.left == [f"{one}: winlab did not make it" for one in left]
    assert host.pool.volumes == ["lab2.node-1.disk.qcow2", "base-debian-13.qcow2", *theirs]


def test_without_ovn_the_volumes_are_still_removed(host: Host) -> None:
    host.broken = {"overlay"}
    (problem,) = host.remove("lab")
    assert problem.what == "no OVN"
    assert host.gone == [*ALL[:2], "volume lab.node-1.disk.qcow2"]


def test_without_a_pool_the_network_is_still_removed(host: Host) -> None:
    host.broken = {"overlay", "pool"}
    assert [problem.what for problem in host.remove("lab")] == ["no OVN", "no pool"]
    host.broken = {"pool"}
    assert [problem.what for problem in host.remove("lab")] == ["no pool"]
    assert host.gone == ALL


def test_the_disks_of_a_machine_that_does_not_go_stay(host: Host) -> None:
    host.broken = {"machine"}
    with pytest.raises(WinlabError, match="does not go"):
        host.remove("lab")
    assert host.gone == []


def test_a_lab_is_known_by_any_of_its_traces(host: Host) -> None:
    found = traces.labs(host.hosts, host.overlay)
    assert {lab: len(machines) for lab, machines in found.items()} == {"lab": 2, "lab2": 0, "lab3": 0}


def test_disks_that_something_else_depends_on_stay(host: Host) -> None:
    """A user's overlay on a lab's disk would break, as a copy of the lab would."""
    base, mine, in_use = "lab.node-1.disk.qcow2", "lab.node-1.disk-mine.qcow2", "lab.node-1.store.qcow2"
    host.pool.volumes += ["lab.node-1.disk-2.qcow2", mine, in_use, "lab.node-1.seed.iso"]
    host.pool.over = {"lab.node-1.disk-2.qcow2": base, mine: base, base: "base-debian-13.qcow2"}
    host.held = {f"/elsewhere/{in_use}"}  # by a link
    assert host.remove("lab") == []
    assert host.gone == [*ALL, "volume lab.node-1.disk-2.qcow2", "volume lab.node-1.seed.iso"]
    assert host.left == [
        f"volume {mine}: winlab did not make it",
        f"volume {base}: needed by '{mine}'",
        f"volume {in_use}: a machine has it",
    ]
    assert "lab" not in traces.labs(host.hosts, host.overlay)
    host.held.clear()
    host.pool.volumes.remove(mine)
    assert "lab" in traces.labs(host.hosts, host.overlay)
    assert host.remove("lab") == []
    assert host.gone[-2:] == [f"volume {base}", f"volume {in_use}"]


def test_disks_of_a_snapshot_stay_and_its_name_is_the_reason(host: Host) -> None:
    base, middle, saved = "lab.node-1.disk.qcow2", "lab.node-1.disk-2.qcow2", "lab@ready.node-1.disk.qcow2"
    host.pool.volumes += [middle, saved]
    host.pool.over = {saved: middle, middle: base}
    assert host.remove("lab") == []
    assert host.left == [f"volume {one}: needed by 'lab@ready'" for one in (middle, base)]


def test_the_last_copy_of_a_lab_takes_the_disks_under_it_with_it(host: Host) -> None:
    base, copied = "lab.node-1.disk.qcow2", "lab2.node-1.disk.qcow2"
    host.pool.over = {copied: base, base: "base-debian-13.qcow2"}
    assert host.remove("lab") == []
    assert host.gone == ALL
    host.gone.clear()
    assert host.remove("lab2") == []
    assert host.gone == [f"volume {base}", f"volume {copied}"]
    assert host.pool.volumes == ["base-debian-13.qcow2"]
