"""The list of hypervisors: what add checks before it records, and what keeps remove from forgetting one."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import commands
import lab_fakes
import pytest
import results
import sites
from pools import MemoryPool

from winlab import Hosts
from winlab.adapters.left import Left
from winlab.adapters.overlay import ovn
from winlab.adapters.registered import Registered
from winlab.adapters.vm import connection, domains
from winlab.cli import complete
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError, WinlabError
from winlab.events import Event, Note
from winlab.host import facts as recorded
from winlab.operations import forget, remains
from winlab.site import Site

URI = "qemu+ssh://ann@host2/system"
FIRST = sites.facts(chassis="c1", recorded=True)
OTHERS = sites.facts(chassis="c2", joined="ann@host9", southbound="ssl:192.0.2.9:6642")
SECOND = sites.facts(chassis="c2", joined="ann@host1", accelerator="tcg", recorded=True)


class World:
    """Hosts by the names in their addresses; the first is at ``test:///default``."""

    def __init__(self) -> None:
        self.nb = sites.Recorder()
        self.facts: dict[str, Any] = {"host2": SECOND}
        self.versions = {"libvirt": "9.0.0", "QEMU": "7.2.22", "libvirt library": "9.0.0"}
        self.theirs = dict(self.versions)
        self.machines: dict[str, list[Any]] = {}
        self.off: set[str] = set()
        self.pools = True
        self.volumes = MemoryPool()

    def connect(self, uri: str, _limit: float | None = None) -> str:
        host = uri.rpartition("@")[2].partition("/")[0]
        if host in self.off:
            raise HostError(f"libvirt at '{uri}' does not answer.", why="No route to host")
        return host

    def pool(self, _conn: str, name: str) -> Any:
        if not self.pools:
            raise HostError(f"There is no usable storage pool '{name}'.", cure="Run setup there.")
        return self.volumes

    def read(self, host: Any) -> Any:
        found = self.facts[str(host).rpartition("@")[2]]
        if isinstance(found, WinlabError):
            raise found
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(connection, "connect", made.connect)
    monkeypatch.setattr(connection, "close", lambda _: None)
    monkeypatch.setattr(connection, "capacity", lambda _: (4, 8192))
    monkeypatch.setattr(connection, "versions", lambda conn: made.theirs if conn == "host2" else made.versions)
    monkeypatch.setattr(domains, "machines", lambda conn, _lab: made.machines.get(conn, []))
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(made.nb))
    monkeypatch.setattr(recorded, "read_facts_of", made.read)
    monkeypatch.setattr(recorded, "read_facts", lambda: FIRST)
    monkeypatch.setattr("winlab.operations.registry.StoragePool", made.pool)
    monkeypatch.setattr("winlab.adapters.vm.others.StoragePool", made.pool)
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "test:///default")
    return made


def hosts() -> Hosts:
    return Hosts(Site())


def test_a_host_that_has_joined_is_recorded_with_its_facts(world: World) -> None:
    told: list[Event] = []
    added = hosts().add("b", URI, listener=told.append)
    assert (added.cpus, added.memory_mib, added.machines, added.answers) == (4, 8192, 0, True)
    record = Registered.parse("b", world.nb.texts["b"])
    assert (record.uri, record.facts) == (URI, SECOND.machine)
    assert not [event for event in told if isinstance(event, Note)]
    assert hosts().names() == [HYPERVISOR, "b"]


def test_a_host_may_know_relays_of_others_beside_the_first_one_s(world: World) -> None:
    """OVN's databases are on three hosts, or will be."""
    relays = f"{SECOND.southbound},ssl:192.0.2.3:6642"
    world.facts["host2"] = SECOND.model_copy(update={"southbound": relays})
    assert hosts().add("b", URI).answers


def test_added_again_its_facts_are_read_again(world: World) -> None:
    hosts().add("b", URI)
    world.facts["host2"] = SECOND.model_copy(update={"accelerator": "kvm"})
    hosts().add("b", URI)
    assert Registered.parse("b", world.nb.texts["b"]).facts.accelerator == "kvm"


@pytest.mark.parametrize(
    ("name", "uri", "error", "says"),
    [
        (HYPERVISOR, URI, UsageError, "first hypervisor"),
        ("B", URI, UsageError, "can't be the name"),
        ("b", "qemu:///system", UsageError, "can't be the address"),
        ("c", URI, ConflictError, "already a hypervisor 'b'"),
        ("b", "qemu+ssh://ann@host3/system", ConflictError, "already a hypervisor 'b'"),
        ("c", "qemu+ssh://bob@host2/system", ConflictError, "already the hypervisor 'b'"),
    ],
)
def test_what_is_taken_or_no_name_is_refused(
    world: World, name: str, uri: str, error: type[WinlabError], says: str
) -> None:
    world.nb.texts["b"] = sites.record("host2", chassis="c2")
    before = dict(world.nb.texts)
    with pytest.raises(error, match=says):
        hosts().add(name, uri)
    assert world.nb.texts == before


@pytest.mark.parametrize(
    ("theirs", "says", "cure"),
    [
        (sites.facts(chassis="c2", southbound=""), "has not joined this site", "host setup --join"),
        (
            OTHERS,
            "has joined the site of 'ann@host9'",
            "host teardown",
        ),
        (HostError("ssh can't connect to 'ann@host2'.", cure="Run 'ssh"), "ssh can't connect", "Run 'ssh"),
    ],
)
def test_a_host_that_is_not_of_this_site_is_refused(world: World, theirs: Any, says: str, cure: str) -> None:
    world.facts["host2"] = theirs
    with pytest.raises(WinlabError, match=says) as caught:
        hosts().add("b", URI)
    assert cure in caught.value.cure
    assert world.nb.texts == {}


def test_a_host_whose_libvirt_can_carry_no_labs_is_refused(world: World) -> None:
    world.off = {"host2"}
    with pytest.raises(HostError, match="does not answer"):
        hosts().add("b", URI)
    world.off, world.pools = set(), False
    with pytest.raises(HostError, match="no usable storage pool"):
        hosts().add("b", URI)
    assert world.nb.texts == {}


def test_other_major_versions_are_noted(world: World) -> None:
    told: list[Event] = []
    world.theirs = {"libvirt": "9.10.0", "QEMU": "10.0.1", "libvirt library": "12.0.0"}
    hosts().add("b", URI, listener=told.append)
    assert [event.text for event in told if isinstance(event, Note)] == [
        f"QEMU is 10.0.1 on 'b', and 7.2.22 on '{HYPERVISOR}'."
    ]


def test_all_are_listed_whether_they_answer_or_not(world: World) -> None:
    world.nb.texts = {"b": sites.record("host2"), "c": sites.record("host3"), "d": "{"}
    world.off = {"host3"}
    world.machines = {"host2": [lab_fakes.machine("node-1"), lab_fakes.machine("node-2")]}
    first, second, third, fourth = hosts().list()
    assert (first.name, first.uri, first.labs) == (HYPERVISOR, "test:///default", ())
    assert (second.name, second.machines, second.labs) == ("b", 2, ("lab",))
    assert (third.name, third.answers, third.cpus) == ("c", False, None)
    assert "No route to host" in third.problem
    assert (fourth.name, fourth.uri, fourth.answers) == ("d", "", False)


def test_one_that_stops_answering_while_it_is_asked_is_listed_as_such(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.nb.texts = {"b": sites.record("host2")}

    def fail(conn: str) -> tuple[int, int]:
        if conn == "host2":
            raise HostError("The connection to libvirt was lost.")
        return 4, 8192

    monkeypatch.setattr(connection, "capacity", fail)
    first, second = hosts().list()
    assert first.answers
    assert second.problem == "The connection to libvirt was lost."


def test_one_is_shown_with_its_facts_and_versions(world: World) -> None:
    world.nb.texts = {"b": sites.record("host2", chassis="c2")}
    shown = hosts().show("b")
    assert shown.facts is not None
    assert (shown.facts.chassis, shown.versions["QEMU"]) == ("c2", "7.2.22")
    assert shown.checked is not None
    world.off = {"host2"}
    shown = hosts().show("b")
    assert (shown.listed.answers, shown.versions) == (False, {})
    assert shown.facts is not None
    assert hosts().show(HYPERVISOR).facts == FIRST.machine
    with pytest.raises(NotFoundError, match="no hypervisor 'x'") as caught:
        hosts().show("x")
    assert caught.value.cure == f"Choose one of: {HYPERVISOR}, b."


def test_one_with_machines_of_labs_is_not_removed(world: World) -> None:
    world.nb.texts = {"b": sites.record("host2")}
    world.machines = {"host2": [lab_fakes.machine("node-1")]}
    for force in (False, True):
        with pytest.raises(ConflictError, match="Labs have machines on the hypervisor 'b': lab"):
            hosts().remove("b", force=force)
    world.machines = {}
    hosts().remove("b")
    assert world.nb.texts == {}
    with pytest.raises(NotFoundError):
        hosts().remove("b")


def test_one_with_volumes_of_labs_or_snapshots_is_removed_only_by_force(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domains, "files", lambda _: set())
    world.nb.texts = {"b": sites.record("host2")}
    world.volumes.put("base-debian.qcow2")
    world.volumes.put("mine.qcow2")
    world.volumes.put("gone.node-1.disk.qcow2", backing="base-debian.qcow2")
    world.volumes.put("old.node-1.disk.qcow2")
    world.volumes.put("old@ready.node-1.disk.qcow2", backing="old.node-1.disk.qcow2")
    with pytest.raises(ConflictError, match="have volumes on the hypervisor 'b': gone, old@ready") as caught:
        hosts().remove("b")
    assert "'winlab destroy --lab gone', 'winlab snapshot delete old@ready'" in caught.value.cure
    assert "winlab hypervisor remove b --force" in caught.value.cure
    assert set(world.nb.texts) == {"b"}
    hosts().remove("b", force=True)
    assert world.nb.texts == {}


def test_one_without_a_pool_is_removed_only_by_force(world: World) -> None:
    world.nb.texts = {"b": sites.record("host2")}
    world.pools = False
    with pytest.raises(HostError, match="can't find out whether labs or snapshots have volumes") as caught:
        hosts().remove("b")
    assert caught.value.cure == "Run setup there. To remove it anyway: winlab hypervisor remove b --force"
    hosts().remove("b", force=True)
    assert world.nb.texts == {}


def test_one_that_does_not_answer_is_removed_only_by_force(world: World) -> None:
    world.nb.texts = {"b": sites.record("host2"), "c": "damaged"}
    world.off = {"host2"}
    for name in ("b", "c"):
        with pytest.raises(HostError, match="can't find out whether labs have machines there") as caught:
            hosts().remove(name)
        assert f"hypervisor forget {name}" in caught.value.cure
        hosts().remove(name, force=True)
    assert world.nb.texts == {}
    removed = forget.known(Site())  # their machines may run
    assert (set(removed), removed["b"]().uri) == ({"b", "c"}, URI)
    with pytest.raises(UsageError):
        hosts().remove(HYPERVISOR, force=True)


def test_what_labs_left_on_one_that_was_removed_goes_when_it_is_back_under_any_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[Left] = []
    monkeypatch.setattr(remains, "_clean", lambda _host, one, _tell: cleaned.append(one) or [])
    for name, chassis in (("old", SECOND.chassis), ("other", "c9"), ("unknown", "")):
        left = Left(hypervisor=name, lab="lab", whole=True, chassis=chassis)
        world.nb.others[left.key] = left.model_dump_json()
    world.nb.others[f"{forget.REMOVED}b"] = sites.record("host2")
    hosts().add("b", URI)
    assert [one.hypervisor for one in cleaned] == ["old"]
    assert [one.hypervisor for one in Site().left()] == ["other", "unknown"]
    assert f"{forget.REMOVED}b" not in world.nb.others


def test_a_site_of_one_host_lists_it_without_ovn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "read_facts", lambda: FIRST.model_copy(update={"southbound": ""}))
    monkeypatch.setattr(ovn, "connect", lambda _: pytest.fail("OVN was asked"))
    assert [one.name for one in hosts().list()] == hosts().names() == [HYPERVISOR]
    with pytest.raises(NotFoundError):
        hosts().show("b")


def test_the_commands(world: World) -> None:
    done = commands.ran("hypervisor", "add", "b", URI)
    assert (done.exit_code, done.stdout) == (0, "The hypervisor 'b' can carry labs: 4 CPUs, 8.0 GiB of memory.\n")
    done = commands.ran("hypervisor", "list")
    assert done.exit_code == 0
    assert [line.split()[:3] for line in done.stdout.splitlines() if "answers" in line] == [
        [HYPERVISOR, "test:///default", "answers"], ["b", URI, "answers"],
    ]  # fmt: skip
    shown = results.item(commands.ran("hypervisor", "show", "b", "-o", "json").stdout)
    assert (shown["name"], shown["facts"]["accelerator"], shown["answers"]) == ("b", "tcg", True)
    world.off = {"host2"}
    done = commands.ran("hypervisor", "list", "-o", "json")
    assert done.exit_code == 20
    assert [one["answers"] for one in results.items(done.stdout)] == [True, False]
    assert commands.ran("hypervisor", "show", "b").exit_code == 20
    assert commands.ran("hypervisor", "remove", "b").exit_code == 4
    assert "is removed" in commands.ran("hypervisor", "remove", "b", "--force").stdout
    assert commands.ran("hypervisor", "show", "b").exit_code == 5
    assert commands.ran("hypervisor", "add", HYPERVISOR, URI).exit_code == 2
    assert "Examples:\n  winlab hypervisor add" in commands.ran("hypervisor", "add", "--help").stdout


def test_names_are_completed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.nb.texts = {"b": sites.record("host2")}
    assert complete.complete_hypervisors() == [HYPERVISOR, "b"]

    def fail(_remote: str) -> None:
        raise HostError("OVN does not answer.")

    monkeypatch.setattr(ovn, "connect", fail)
    assert complete.complete_hypervisors() == []
