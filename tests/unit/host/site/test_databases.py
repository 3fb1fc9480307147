"""OVN's databases on three hosts: who has them, what their servers say, and what doctor makes of it."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from winlab.design.plan.facts import HostFacts
from winlab.errors import ConflictError, UsageError
from winlab.events import Quiet
from winlab.host import databases_program as program
from winlab.host.check import Status
from winlab.host.databases_program import DATABASES, NORTHBOUND, SOUTHBOUND
from winlab.host.site import certificates, checks_databases, databases, raft, recover
from winlab.host.site.messages import Candidate
from winlab.run import Result

# as Open vSwitch 3.1 prints it
LEADER = """\
f248
Name: OVN_Southbound
Cluster ID: e438 (e438ccfe-e5f9-4815-90c9-c941a98697a9)
Address: ssl:198.51.100.1:6644
Status: cluster member
Role: leader
Term: 2
Leader: self
Vote: self

Log: [2, 6]
Connections: <-13b0 ->13b0 <-fb69 ->fb69
Servers:
    f248 (f248 at ssl:198.51.100.1:6644) (self) next_index=3 match_index=95
    13b0 (13b0 at ssl:198.51.100.2:6644) next_index=95 match_index=94 last msg 989 ms ago
    fb69 (fb69 at ssl:198.51.100.3:6644) next_index=5 match_index=4 last msg 985 ms ago
"""
FOLLOWER = """\
Role: follower
Leader: f248
Servers:
    f248 (f248 at ssl:198.51.100.1:6644) last msg 1258 ms ago
    13b0 (13b0 at ssl:198.51.100.2:6644) (self)
    fb69 (fb69 at ssl:198.51.100.3:6644) last msg 1263 ms ago
"""
WAITING = """\
Status: joining cluster
Role: follower
Leader: unknown
Servers:
"""
ALL = ("198.51.100.1", "198.51.100.2", "198.51.100.3")
FIRST = HostFacts(chassis="c1", southbound="ssl:198.51.100.1:6642", recorded=True)
ASKED = Candidate(request=certificates.make_request("c", certificates.make_key()), address="198.51.100.3")


def test_what_a_server_says_of_its_cluster_is_understood() -> None:
    assert raft.parse_status(LEADER) == raft.Status(ALL, ALL[0], (ALL[2],))
    assert raft.parse_status(FOLLOWER) == raft.Status(ALL, ALL[0])
    assert raft.parse_status(FOLLOWER.replace("Leader: f248", "Leader: unknown")) == raft.Status(ALL)
    assert raft.parse_status(WAITING) == raft.Status(())


@pytest.mark.parametrize(
    ("had", "others", "chassis", "chosen"),
    [
        ({}, [], "c3", {}),  # the second host of a site
        ({}, ["c2"], "c2", {}),  # it joins again
        ({}, ["c2"], "c3", {"c1", "c3"}),
        ({"c1", "c3"}, ["c2", "c3"], "c2", {"c1", "c2", "c3"}),
        ({"c1", "c2", "c3"}, ["c2", "c3"], "c4", {"c1", "c2", "c3"}),
        ({"c1", "c2", "c3"}, ["c2"], "c4", {"c1", "c2", "c4"}),  # the third has left
        ({"c1", "c2", "c3"}, ["c2"], "c2", {}),
    ],
)
def test_the_first_three_hosts_that_ask_have_the_databases(
    had: set[str], others: list[str], chassis: str, chosen: set[str]
) -> None:
    known = FIRST.model_copy(update={"databases": {name: f"198.51.100.{name[1]}" for name in had}})
    assert set(databases.choose(known, others, [], chassis, ASKED)) == set(chosen)


def test_a_host_stays_in_a_cluster_that_lost_its_third(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft, "are_here", lambda: True)
    monkeypatch.setattr(raft, "status", lambda _one: raft.Status(ALL, ALL[0]))
    known = FIRST.model_copy(update={"databases": dict(zip(("c1", "c2", "c3"), ALL, strict=True))})
    assert set(databases.choose(known, ["c2"], [], "c2", ASKED)) == {"c1", "c2"}


@pytest.mark.parametrize(
    ("listed", "members", "chosen"),
    [
        (["c3"], ALL, {"c1", "c2", "c3"}),  # it was shut down in order
        ([], ALL, {"c1", "c2", "c4"}),  # it was forgotten
        (["c3"], ALL[:2], {"c1", "c2", "c4"}),  # its teardown left the cluster
    ],
)
def test_a_host_that_is_shut_down_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch, listed: list[str], members: tuple[str, ...], chosen: set[str]
) -> None:
    monkeypatch.setattr(raft, "are_here", lambda: True)
    monkeypatch.setattr(raft, "status", lambda _one: raft.Status(members, ALL[0]))
    known = FIRST.model_copy(update={"databases": dict(zip(("c1", "c2", "c3"), ALL, strict=True))})
    assert set(databases.choose(known, ["c2"], listed, "c4", ASKED)) == chosen


def test_a_lost_host_leaves_the_cluster_when_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(databases, "run", lambda words, **_: said.append(" ".join(words[-2:])))
    monkeypatch.setattr(raft, "status", lambda _one: raft.Status((*ALL, "198.51.100.4"), ALL[0]))
    monkeypatch.setattr(raft, "listens", lambda address: address != ALL[2])
    known = FIRST.model_copy(update={"databases": {"c1": ALL[0], "c2": ALL[1], "c4": "198.51.100.4"}})
    databases._drop_lost(known)
    assert said == [f"{one.name} ssl:{ALL[2]}:{one.raft}" for one in DATABASES]


def test_a_host_of_an_earlier_winlab_gets_none() -> None:
    assert databases.choose(FIRST, ["c2"], [], "c3", None) == {}


def test_the_hosts_with_the_databases_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(databases.fabric, "sbctl", lambda *words: said.extend(words))
    hosts = {"c1": ALL[0], "4ace547d-bd9d": ALL[1]}
    databases.publish(FIRST.model_copy(update={"databases": hosts}))
    assert databases.parse_hosts(said[-1].split(":", 1)[1].split("=", 1)[1].strip('"')) == hosts
    assert databases.parse_hosts("") == {}
    for wrong in ("c1", "c1=h1", "c1=1.2.3.4=5", "-x=192.0.2.1", "a=192.0.2.1,b=192.0.2.1,c=192.0.2.1,d=192.0.2.1"):
        with pytest.raises(ValueError, match=r".*"):
            databases.parse_hosts(wrong)


@pytest.mark.parametrize(
    ("text", "relays"),
    [
        ("c1=198.51.100.1,c2=198.51.100.2", "ssl:198.51.100.1:6642,ssl:198.51.100.2:6642"),
        ("", "ssl:198.51.100.1:6642"),
        ("nonsense", "ssl:198.51.100.1:6642"),
    ],
)
def test_a_host_without_databases_learns_where_the_relays_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, relays: str
) -> None:
    monkeypatch.setattr(program, "PROGRAM", tmp_path / "missing")
    monkeypatch.setattr(databases, "run", lambda words, **_: Result(tuple(words), 0, f'"{text}"\n', "", 0.0))
    known = FIRST.model_copy(update={"chassis": "c4", "joined": "h1"})
    assert databases.refresh(known) == known.model_copy(update={"southbound": relays})


def test_the_servers_have_the_files_and_sockets_of_ovn_ctl_and_their_own_certificates() -> None:
    text = program.text(ALL[1])
    for one in DATABASES:
        assert f"pssl:{one.port}:{ALL[1]}" in text
        assert f"/run/ovn/ovn{one.short}_db.sock" in text
        assert f"{one.file} ;;" in text
    assert "/etc/winlab/tls/databases-key.pem" in text
    assert "/tls/key.pem" not in text  # a host's own certificate opens nothing here
    said = program.northd_text([ALL[0], ALL[2]])
    assert f"--ovnnb-db=ssl:{ALL[0]}:6641,ssl:{ALL[2]}:6641,unix:/run/ovn/ovnnb_db.sock" in said
    assert f"--ovnsb-db=ssl:{ALL[0]}:6645,ssl:{ALL[2]}:6645,unix:/run/ovn/ovnsb_db.sock" in said
    assert f"{program.PROGRAM} nb\n" in program.drop_in_text("nb")


@pytest.mark.parametrize(
    ("found", "lost", "ends", "state", "says"),
    [
        (raft.Status(ALL, ALL[0]), set(), False, Status.OK, "the leader is 198.51.100.1"),
        (raft.Status(ALL, ALL[0]), set(), True, Status.WARN, "ends soon"),
        (raft.Status(ALL, ALL[0]), {ALL[2]}, False, Status.WARN, "can't be reached: 198.51.100.3"),
        (raft.Status(ALL, ALL[0], (ALL[2],)), set(), False, Status.WARN, "behind: 198.51.100.3"),
        (raft.Status(ALL[:2], ALL[0]), set(), False, Status.WARN, "on 2 hosts"),
        (raft.Status(ALL[:1], ALL[0]), set(), False, Status.WARN, "have left"),
        (raft.Status(ALL), {ALL[1], ALL[2]}, False, Status.FAIL, "no leader"),
        (raft.Status(()), set(), False, Status.WARN, "waits"),
        (None, set(), False, Status.FAIL, "does not run"),
    ],
)
def test_doctor_says_what_is_wrong_and_what_to_do(
    found: raft.Status | None, lost: set[str], ends: bool, state: Status, says: str
) -> None:
    said = checks_databases.judge(NORTHBOUND, found, lost, "ann@h1", ends=ends)
    assert (said.state, says in said.detail) == (state, True)
    assert bool(said.cure) == (state is not Status.OK)


def test_doctor_names_the_hosts_that_could_have_the_databases() -> None:
    said = checks_databases.judge_one(["c2", "c3"], {"c1": ALL[0], "c3": ALL[2]})
    assert said.state is Status.WARN
    assert "on c2." in said.cure


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A host in a cluster; each test says what its servers know, and whom it reaches."""

    it = SimpleNamespace(found=raft.Status(ALL), reached={ALL[0]}, here=True)
    monkeypatch.setattr(raft, "are_here", lambda: it.here)
    monkeypatch.setattr(raft, "cluster_of", lambda _one: "e438")
    monkeypatch.setattr(raft, "status", lambda _one: it.found)
    monkeypatch.setattr(raft, "listens", lambda address: address in it.reached)
    monkeypatch.setattr(raft, "is_usable", lambda _seconds: True)
    monkeypatch.setattr(raft, "is_clustered", lambda _one: True)
    monkeypatch.setattr(recover.daemons, "ensure", lambda *_: None)
    monkeypatch.setattr(recover.facts, "read_facts", lambda: FIRST)
    return it


def test_databases_are_recovered_only_if_two_of_three_hosts_are_lost(member: Any) -> None:
    assert recover.check(Quiet()) == [ALL[1], ALL[2]]
    member.reached = {ALL[0], ALL[1]}
    with pytest.raises(ConflictError, match="can be reached"):
        recover.check(Quiet())
    member.found = raft.Status(ALL, ALL[0])
    with pytest.raises(ConflictError, match="need no recovery"):
        recover.check(Quiet())
    member.here = False
    with pytest.raises(UsageError, match="no databases to recover"):
        recover.check(Quiet())


def test_a_recovery_that_was_interrupted_between_the_databases_is_finished(
    member: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft, "cluster_of", lambda one: "e438" if one is SOUTHBOUND else "")
    monkeypatch.setattr(raft, "status", lambda one: member.found if one is SOUTHBOUND else None)
    assert recover.check(Quiet()) == [ALL[1], ALL[2]]


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Disk:
    """A host's databases and programs, and its facts. A recovery is killed before the call of *dies*."""

    known: HostFacts
    clustered: set[str] = field(default_factory=lambda: {"nb", "sb"})
    here: bool = True
    done: list[str] = field(default_factory=list)
    dies: str = ""

    def call(self, name: str) -> None:
        if name == self.dies:
            raise Killed
        self.done.append(name)


STEPS = ("write_facts", "_replace nb", "_replace sb", "_remove_programs", "ensure ovn-central", "reset", "publish")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Disk:
    it = Disk(FIRST.model_copy(update={"databases": dict(zip(("c1", "c2", "c3"), ALL, strict=True))}))

    def file(one: Any) -> Path:
        path = tmp_path / f"{one.short}.db"
        path.touch()
        return path

    def replace(path: Path, _fresh: Path, why: str) -> None:
        it.call(f"_replace {path.stem}")
        databases.kept(path, why).touch()
        it.clustered.discard(path.stem)

    def remove_programs() -> None:
        it.call("_remove_programs")
        it.here = False

    def write_facts(known: HostFacts) -> None:
        it.call("write_facts")
        it.known = known

    monkeypatch.setattr(program.Database, "file", property(file))
    monkeypatch.setattr(raft, "are_here", lambda: it.here)
    monkeypatch.setattr(raft, "is_clustered", lambda one: one.short in it.clustered)
    monkeypatch.setattr(raft, "cluster_of", lambda one: "e438" if one.short in it.clustered else "")
    monkeypatch.setattr(raft, "status", lambda one: raft.Status(ALL) if one.short in it.clustered else None)
    monkeypatch.setattr(raft, "listens", lambda address: address == ALL[0])
    monkeypatch.setattr(raft, "is_usable", lambda *_: "sb" not in it.clustered)
    monkeypatch.setattr(recover, "alone", lambda _: nullcontext())
    monkeypatch.setattr(recover, "Record", lambda: None)
    monkeypatch.setattr(recover.facts, "read_facts", lambda: it.known)
    monkeypatch.setattr(recover.facts, "write_facts", write_facts)
    monkeypatch.setattr(recover, "run", lambda *_, **__: it.call("reset"))
    monkeypatch.setattr(recover.daemons, "ensure", lambda service, *_: it.call(f"ensure {service}"))
    monkeypatch.setattr(recover.daemons, "halted", lambda *_: nullcontext())
    monkeypatch.setattr(databases, "run", lambda *_, **__: None)
    monkeypatch.setattr(databases, "_replace", replace)
    monkeypatch.setattr(databases, "_remove_programs", remove_programs)
    monkeypatch.setattr(databases, "write_programs", lambda *_: None)
    monkeypatch.setattr(databases, "publish", lambda _: it.call("publish"))
    return it


@pytest.mark.parametrize("joined", ["", "ann@h1"])
@pytest.mark.parametrize("dies", STEPS)
def test_a_recovery_that_was_killed_is_finished_by_the_same_command(disk: Disk, dies: str, joined: str) -> None:
    disk.known = disk.known.model_copy(update={"joined": joined})
    disk.dies = dies
    with suppress(Killed):  # a host that joined keeps its programs
        recover.recover(Quiet())
    disk.dies = ""
    recover.recover(Quiet())
    assert disk.done[-1] == "publish"
    assert (disk.clustered, disk.here) == (set(), bool(joined))
    assert disk.known.databases == ({"c1": ALL[0]} if joined else {})


def test_a_first_host_whose_databases_wait_for_a_cluster_is_not_recovered(disk: Disk) -> None:
    recover.recover(Quiet())
    disk.known = disk.known.model_copy(update={"databases": {"c1": ALL[0], "c2": ALL[1]}})  # the second one waits
    with pytest.raises(UsageError, match="no databases to recover"):
        recover.recover(Quiet())


def test_recovered_databases_are_not_set_aside_for_older_ones(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.known = disk.known.model_copy(update={"joined": "ann@h1"})
    recover.recover(Quiet())
    with pytest.raises(ConflictError, match="recovered on this host") as caught:
        databases.refuse_recovered(disk.known, {"nb": "e438", "sb": "e439"})
    assert f"recover --from {ALL[0]}'" in caught.value.cure
    databases.refuse_recovered(disk.known, {"nb": "", "sb": ""})  # the first host has taken them
    monkeypatch.setattr(databases, "run", lambda words, **_: Result(tuple(words), 0, f'"c1={ALL[0]}"', "", 0.0))
    assert databases.refresh(disk.known) is disk.known  # the first host's relay may run


@pytest.mark.parametrize("model", ["standalone", "clustered"])
@pytest.mark.parametrize("killed", [False, True])
def test_the_first_host_takes_databases_only_from_a_host_that_recovered_them(
    monkeypatch: pytest.MonkeyPatch, model: str, killed: bool
) -> None:
    taken: list[Any] = []

    def run(words: list[str], **_: Any) -> Result:
        said = json.dumps([{"rows": [{"model": model}]}]) if "query" in words else "rows"
        return Result(tuple(words), 0, said, "", 0.0)

    monkeypatch.setattr(recover, "run", run)
    monkeypatch.setattr(recover, "alone", lambda _: nullcontext())
    monkeypatch.setattr(recover, "Record", lambda: None)
    known = FIRST.model_copy(update={"databases": {"c1": ALL[0], "c2": ALL[1]}})
    written: list[HostFacts] = []
    monkeypatch.setattr(recover.facts, "read_facts", lambda: known)
    monkeypatch.setattr(recover.facts, "write_facts", written.append)
    monkeypatch.setattr(recover.daemons, "ensure", lambda *_: None)
    monkeypatch.setattr(recover.relay, "ensure", lambda *_: None)
    monkeypatch.setattr(raft, "are_here", lambda: not killed)  # by an attempt that was killed before it wrote the facts
    monkeypatch.setattr(databases, "bring_back", lambda *_, texts: taken.extend(texts.values()))
    if model == "standalone":
        recover.take(ALL[1], Quiet())
        assert (taken, written) == (["rows", "rows"], [FIRST])
        return
    with pytest.raises(ConflictError, match="were not recovered"):
        recover.take(ALL[1], Quiet())
    assert taken == []


def test_a_cluster_that_was_made_of_one_database_is_made_of_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    kept = tmp_path / "sb.db.cluster"  # a copy of an earlier cluster
    kept.write_text("rows")
    monkeypatch.setattr(program.Database, "file", property(lambda one: tmp_path / f"{one.short}.db"))
    monkeypatch.setattr(raft, "are_here", lambda: False)
    monkeypatch.setattr(raft, "listens", lambda _address: True)
    monkeypatch.setattr(raft, "is_clustered", lambda one: one is NORTHBOUND)
    monkeypatch.setattr(databases, "run", lambda words, **_: made.append(words[-2]))
    monkeypatch.setattr(databases.daemons, "halted", lambda *_: nullcontext())
    monkeypatch.setattr(databases.daemons, "wait_until", lambda *_: True)
    monkeypatch.setattr(databases.ovn_sockets, "ensure_folder", lambda *_: 0)
    for name in ("renew", "write_programs", "publish", "_replace"):
        monkeypatch.setattr(databases, name, lambda *_: None)
    known = FIRST.model_copy(update={"databases": dict(zip(("c1", "c2", "c3"), ALL, strict=True))})
    assert databases.form(known, cast(Any, None), Quiet()) == known
    assert (made, kept.read_text()) == ([str(SOUTHBOUND.file)], "rows")


@pytest.mark.parametrize("clustered", [True, False])
def test_recovered_databases_are_kept_when_a_host_is_to_have_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clustered: bool
) -> None:
    monkeypatch.setattr(program.Database, "file", property(lambda one: tmp_path / f"{one.short}.db"))
    monkeypatch.setattr(databases.relay_program, "DATABASE", tmp_path / "relay.db")
    monkeypatch.setattr(raft, "are_here", lambda: True)
    monkeypatch.setattr(raft, "is_clustered", lambda _one: clustered)
    monkeypatch.setattr(databases, "_remove_programs", lambda: None)
    monkeypatch.setattr(databases.daemons, "stop", lambda *_: None)
    monkeypatch.setattr(databases.daemons, "halt", lambda *_: None)
    monkeypatch.setattr(databases.daemons, "is_ours", lambda *_: True)
    for one in DATABASES:
        one.file.write_text("rows")
    databases.drop(cast(Any, None), Quiet())
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        [] if clustered else ["nb.db.recovered", "sb.db.recovered"]
    )


def test_the_ports_of_databases_and_relays_differ() -> None:
    ports = [NORTHBOUND.port, NORTHBOUND.raft, SOUTHBOUND.port, SOUTHBOUND.raft, 6642]
    assert len(set(ports)) == len(ports)
