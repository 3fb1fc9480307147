"""Teardown: which services it starts to undo the record, and which it leaves to others."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from winlab import settings
from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, HostError
from winlab.host import changes, daemons, fabric, facts, firewall, labs, storage, teardown
from winlab.host import relay_program as program
from winlab.host.changes import Changes, Record
from winlab.host.site import admission, join, relay
from winlab.run import Result

UNITS = ["libvirtd.socket", "openvswitch-switch.service", "ovn-central.service", "ovn-host.service"]
ALL = ["libvirt", "ovs", "ovn-central", "ovn-host"]
EVERYTHING = Changes(
    units_started=UNITS,
    units_enabled=UNITS,
    pool=True,
    bridges=["br-int", "br-winlab"],
    mapping=True,
    ovs_ids={"ovn-remote": None},
    connection=True,
    switch=True,
)


class FakeHost:
    """A fake host with systemd; only the record is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.record = path
        self.up = set(ALL)
        self.broken: set[str] = set()  # what can't be started
        self.bridges = ["br-int", "br-winlab"]
        self.ids: dict[str, str] = {}  # of others
        self.machines = ""
        self.foreign = False
        self.labs: set[str] = set()
        self.facts = HostFacts()
        self.members: list[str] = []
        self.listed: list[str] = []  # the keys of NB_Global's external_ids
        self.said: list[str] = []
        self.done: list[str] = []
        done = self.done.append
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr(changes, "LOCK", path.with_name("host.lock"))
        monkeypatch.setattr(teardown, "Record", lambda: Record(path))
        monkeypatch.setattr(daemons, "has_systemd", lambda: True)
        monkeypatch.setattr(daemons, "is_up", lambda service: service in self.up)
        monkeypatch.setattr(daemons, "ensure", self.ensure)
        for module in (daemons, teardown):
            monkeypatch.setattr(module, "run", self.systemctl)
        monkeypatch.setattr(facts, "read_facts", lambda: self.facts)
        monkeypatch.setattr(program, "DATABASE", path.with_name("relay.db"))
        monkeypatch.setattr(relay, "AUTHORITY_KEY", path.with_name("authority-key.pem"))
        monkeypatch.setattr(admission, "members", lambda known: self.members if known.southbound else [])
        monkeypatch.setattr(fabric, "sbctl", self.southbound)
        monkeypatch.setattr(join, "undo", lambda _record, known, _progress: done(f"leave {known.joined}"))
        monkeypatch.setattr(labs, "find", lambda **_: self.labs)
        monkeypatch.setattr(labs, "remove", lambda _progress, **_: done("labs"))
        monkeypatch.setattr(labs, "foreign_rows", lambda: self.foreign)
        monkeypatch.setattr(fabric, "bridges", lambda: self.bridges)
        monkeypatch.setattr(fabric, "ovs_ids", lambda: self.ids)
        monkeypatch.setattr(storage, "virsh", lambda *words, **_more: Result(words, 0, self.machines, "", 0.0))
        monkeypatch.setattr(firewall, "undo_forwarding", lambda *_: done("forwarding"))
        monkeypatch.setattr(storage, "undo_pool", lambda _record, _progress: done("pool"))
        monkeypatch.setattr(fabric, "nbctl", self.northbound)
        monkeypatch.setattr(fabric, "undo_rows", lambda _record, _progress: done("rows"))
        monkeypatch.setattr(fabric, "undo_ids", lambda _record: done("ids"))
        monkeypatch.setattr(fabric, "undo_bridges", lambda record, _progress: done(" ".join(record.changes.bridges)))

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append(text)

    def ensure(self, service: str, record: Record, _progress: Any, *, enable: bool) -> None:
        assert not enable
        if service in self.broken:
            raise HostError("No such thing.", cure="Install it.")
        self.done.append(f"start {service}")
        self.up.add(service)
        record.add("units_started", UNITS[ALL.index(service)])

    def systemctl(self, args: Sequence[str], **_more: Any) -> Result:
        assert args[0] == "systemctl"
        self.done.append(" ".join(args[1:]))
        return Result(tuple(args), 0, "", "", 0.0)

    def southbound(self, *words: str, **_more: Any) -> Result:
        self.done.append(" ".join(words))
        return Result(words, 0, "", "", 0.0)

    def northbound(self, *words: str, **_more: Any) -> Result:
        if words[0] == "remove":
            self.done.append(" ".join(words))
        table = {"headings": ["external_ids"], "data": [[["map", [[key, "{}"] for key in self.listed]]]]}
        return Result(words, 0, json.dumps(table), "", 0.0)

    def tear_down(self, changes: Changes, *, force: bool = False) -> list[str]:
        record = Record(self.record)
        record.changes = changes.model_copy(deep=True)
        record.save()
        teardown.teardown(self, force=force)
        assert not self.record.exists()
        return self.done


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHost:
    return FakeHost(monkeypatch, tmp_path / "changes.yaml")


def kept(done: list[str]) -> list[str]:
    """The units that were neither stopped nor disabled."""
    touched = [unit for unit in UNITS if {f"stop {unit}", f"disable {unit}"} & set(done)]
    assert all({f"stop {unit}", f"disable {unit}"} <= set(done) for unit in touched)
    return [unit for unit in UNITS if unit not in touched]


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        (Changes(folders=["/etc/winlab"], sysctl={"/x": "0"}, table=True), []),
        (Changes(pool=True), ["libvirt"]),
        (Changes(bridges=["br-winlab"]), ["ovs"]),
        (Changes(mapping=True), ["ovs"]),
        (Changes(connection=True), ["ovn-central"]),
        (EVERYTHING, ALL),
    ],
)
def test_services_needed_to_undo_a_record(changes: Changes, needed: list[str]) -> None:
    assert teardown.needed(changes) == needed


def test_units_are_stopped_in_order_and_around_the_bridges(host: FakeHost) -> None:
    done = host.tear_down(EVERYTHING)
    stops = [words for words in done if words.startswith(("stop", "br-"))]
    assert stops == [
        "stop ovn-host.service",
        "stop ovn-central.service",
        "br-int br-winlab",  # the controller is gone by now; it would recreate br-int
        "stop openvswitch-switch.service",
        "stop libvirtd.socket",
    ]
    assert kept(done) == []
    assert not [words for words in done if words.startswith("start")]


@pytest.mark.parametrize(
    ("others", "units", "told"),
    [
        ({"machines": "theirs\n"}, ["libvirtd.socket"], "it runs theirs"),
        ({"bridges": ["br-ex", "br-int"]}, ["openvswitch-switch.service"], "it has the bridges br-ex"),
        ({"foreign": True}, ["ovn-central.service"], "not winlab's"),
        ({"foreign": True, "ids": {"ovn-remote": "unix:x"}}, UNITS[1:], "ovn-remote was not set by winlab"),
    ],
)
def test_units_that_others_use_keep_running(
    host: FakeHost, others: dict[str, Any], units: list[str], told: str
) -> None:
    for name, value in others.items():
        setattr(host, name, value)
    assert kept(host.tear_down(EVERYTHING)) == units
    assert any(told in line for line in host.said)


def test_a_controller_of_others_keeps_its_bridge(host: FakeHost) -> None:
    host.foreign, host.ids = True, {"ovn-remote": "unix:x"}
    assert "br-winlab" in host.tear_down(EVERYTHING)


def test_services_that_setup_did_not_start_are_not_mentioned(host: FakeHost) -> None:
    host.machines, host.foreign, host.bridges = "theirs", True, ["br-ex"]
    done = host.tear_down(EVERYTHING.model_copy(update={"units_started": [], "units_enabled": []}))
    assert kept(done) == UNITS
    assert host.said == ["the host is as it was before setup"]


def test_services_that_are_down_are_started_and_stopped_again(host: FakeHost) -> None:
    host.up = set()
    host.bridges = ["br-ex"]  # no one used a switch that was down
    done = host.tear_down(EVERYTHING.model_copy(update={"units_started": [], "units_enabled": []}))
    assert done[:4] == [f"start {service}" for service in ALL]
    assert {"pool", "rows", "ids", "br-int br-winlab"} <= set(done)
    assert {f"stop {unit}" for unit in UNITS} <= set(done)


def test_when_a_service_can_not_be_started_nothing_is_undone(host: FakeHost) -> None:
    host.up, host.broken = {"libvirt"}, {"ovn-central"}
    with pytest.raises(HostError, match="ovn-central does not run") as caught:
        host.tear_down(EVERYTHING)
    assert "Install it." in caught.value.why
    assert str(host.record) in caught.value.cure
    assert Record(host.record).changes == EVERYTHING
    assert host.done == ["start ovs", "stop ovn-central.service", "stop openvswitch-switch.service"]


def test_labs_are_found_even_if_everything_was_down(host: FakeHost) -> None:
    host.up, host.labs = set(), {"demo"}
    with pytest.raises(ConflictError, match="demo"):
        host.tear_down(EVERYTHING)
    assert Record(host.record).changes == EVERYTHING
    assert host.done == [*(f"start {service}" for service in ALL), *(f"stop {unit}" for unit in reversed(UNITS))]
    host.done.clear()
    assert "labs" in host.tear_down(EVERYTHING, force=True)


def test_every_service_has_units_and_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(daemons.SERVICES) == set(daemons.UNITS)
    assert [name for names in daemons.SERVICES.values() for name in names] == list(daemons.DAEMONS)


def test_leaving_forgets_the_daemons_too(tmp_path: Path) -> None:
    record = Record(tmp_path / "changes.yaml")
    record.changes = Changes(daemons={"virtlogd": "b", "libvirtd": "b", "ovs": "b"})
    assert daemons.leave("libvirt", record)
    assert Record(record.path).changes.daemons == {"ovs": "b"}
    assert not daemons.leave("libvirt", record)


@pytest.mark.parametrize("text", ["", "pool: true\n", "# something else\n"])
def test_a_record_without_its_first_line_is_damaged(tmp_path: Path, text: str) -> None:
    """A power cut may leave an empty file: that is not "nothing was changed"."""
    path = tmp_path / "changes.yaml"
    path.write_text(text)
    with pytest.raises(HostError, match="can't be used"):
        Record(path)
    assert path.read_text() == text


def test_a_record_is_on_the_disk_before_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    true = os.fsync

    def fsync(handle: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        true(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    Record(tmp_path / "changes.yaml").mark("pool")
    assert len(synced) == 2
    assert synced[0].startswith(str(tmp_path / ".changes.yaml."))
    assert synced[1] == str(tmp_path)


def test_a_second_setup_or_teardown_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost(monkeypatch, tmp_path / "changes.yaml")
    done: list[str] = []

    def second() -> None:
        teardown.teardown(host)
        done.append("teardown")

    with changes.alone(host):
        thread = threading.Thread(target=second)
        thread.start()
        while not host.said:
            assert thread.is_alive()
            time.sleep(0.01)
        assert not done
        Record(host.record).mark("pool")  # which the second one must see
    thread.join(60)
    assert len(done) == 1
    assert "another winlab" in host.said[0]
    assert "pool" in host.done
    assert changes.LOCK.stat().st_mode & 0o777 == 0o600


def test_files_of_the_user_in_the_pool_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N5: teardown removed each file in the pool's folder."""
    ours = {"lab.node-1.disk.qcow2", "lab.node-1.serial.log.0", "base-debian-13-0.qcow2", "base-x.iso.complete"}
    ours |= {"lab.node-1.disk-2.qcow2", "lab@ready.node-1.memory"}
    theirs = {"lab.node-1.disk-clone.qcow2", "lab.qcow2", "notes.txt"}
    pool = tmp_path / "pool"
    (pool / "base-folder").mkdir(parents=True)
    for name in ours | theirs:
        (pool / name).touch()
    monkeypatch.setattr(settings, "POOL_PATH", pool)
    monkeypatch.setattr(storage, "virsh", lambda *_, **__: None)
    record, said = Record(tmp_path / "changes.yaml"), list[str]()
    record.mark("pool")
    progress = SimpleNamespace(say=lambda text, _=None: said.append(text))
    storage.undo_pool(record, cast(Any, progress))
    assert {path.name for path in pool.iterdir()} == {*theirs, "base-folder"}
    assert sum("left alone" in text for text in said) == 4


def test_the_first_host_of_a_site_stays_while_others_are_in_it(host: FakeHost) -> None:
    host.facts, host.members = HostFacts(chassis="c1", southbound="ssl:198.51.100.1:6642"), ["c2", "c3"]
    with pytest.raises(ConflictError, match="c2, c3") as caught:
        host.tear_down(EVERYTHING)
    assert caught.value.cure
    assert host.done == []


def test_the_relay_and_other_hosts_go_first_if_teardown_is_forced(host: FakeHost) -> None:
    host.facts, host.members = HostFacts(chassis="c1", southbound="ssl:198.51.100.1:6642"), ["c2"]
    unit = "winlab-relay.service"
    relayed = EVERYTHING.model_copy(update={"units_started": [*UNITS, unit], "units_enabled": [*UNITS, unit]})
    done = host.tear_down(relayed, force=True)
    assert done[:3] == [f"stop {unit}", f"disable {unit}", "chassis-del c2"]


def test_the_list_of_hypervisors_goes_and_what_others_have_beside_it_stays(host: FakeHost) -> None:
    host.listed = ["other", "winlab-hypervisor-b", 'winlab-hypervisor-"=']
    done = host.tear_down(EVERYTHING)
    assert done[0] == r'remove NB_Global . external_ids "winlab-hypervisor-\"=" "winlab-hypervisor-b"'
    assert done.index("rows") > 0  # which closes the socket of the group


def test_a_member_that_does_not_know_its_site_is_torn_down_by_force_alone(host: FakeHost) -> None:
    joined = EVERYTHING.model_copy(update={"ssl": True, "switch": False, "connection": False})
    with pytest.raises(HostError, match="which site this host has joined") as caught:
        host.tear_down(joined)
    assert "--force" in caught.value.cure
    assert host.done == []
    assert "leave " in host.tear_down(joined, force=True)


def test_a_host_that_joined_leaves_while_it_still_has_its_certificate(host: FakeHost) -> None:
    host.facts = HostFacts(chassis="c2", joined="ann@h1", southbound="ssl:198.51.100.1:6642")
    done = host.tear_down(EVERYTHING.model_copy(update={"ssl": True, "switch": False, "connection": False}))
    assert done.index("leave ann@h1") < done.index("ids") < done.index("stop ovn-host.service")
