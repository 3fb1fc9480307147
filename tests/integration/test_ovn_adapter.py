"""The adapter to OVN's northbound database, on a real ovsdb-server of the tests' own: no root, no host set-up."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - starts the database, reads and damages it by hand
import threading
from collections.abc import Iterator
from pathlib import Path

import plans
import pytest
from ovn_database import LIMIT, SCHEMA, Database, _packages, make, program, serving  # noqa: F401 - a fixture, too

from winlab import account
from winlab.adapters.overlay import ovn, southbound
from winlab.adapters.overlay.ovn import Northbound
from winlab.design import spec
from winlab.design.fault.base import SwitchRule
from winlab.design.plan import addresses
from winlab.design.plan import make as making
from winlab.design.render.topology import Topology, topology
from winlab.errors import ConflictError, HostError
from winlab.events import Quiet
from winlab.host import fabric
from winlab.host.site import admission


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database with the external switch of a host that was set up."""
    with serving(tmp_path, SCHEMA) as remote:
        found = Database(remote)
        found.nbctl("ls-add", plans.make(plans.KVM, "1-0-1").network.external_switch)
        yield found


@pytest.fixture
def northbound(database: Database) -> Iterator[Northbound]:
    with ovn.connect(database.remote) as found:
        yield found


@pytest.mark.parametrize("source", ["1-0-1", "3-0-1"])  # three controllers have load balancers
def test_a_topology_applied_twice_exists_once(database: Database, northbound: Northbound, source: str) -> None:
    plan = make("a", source)
    northbound.apply(topology(plan))
    first = database.contents()
    northbound.apply(topology(plan))
    assert database.contents() == first
    assert northbound.has(topology(plan))
    assert northbound.labs() == {"a"}


def test_the_rows_match_the_topology(database: Database, northbound: Northbound) -> None:
    top = topology(make("a", "3-0-1"))
    northbound.apply(top)
    contents = database.contents()
    switch = next(row for row in contents["Logical_Switch"] if row["name"] == top.switch)
    assert {port["name"] for port in switch["ports"]} == {port.name for port in top.ports}
    assert dict(switch["other_config"]) == top.switch_config
    (router,) = contents["Logical_Router"]
    assert {(nat["type"], nat["external_ip"], nat["logical_ip"]) for nat in router["nat"]} == {
        (nat.type, nat.external, nat.logical) for nat in top.nats
    }
    assert {(row["priority"], row["match"], row["action"]) for row in router["policies"]} == {
        (policy.priority, policy.match, policy.action) for policy in top.policies
    }
    security = {port["name"]: port["port_security"] for port in switch["ports"]}
    assert security == {port.name: port.security or [] for port in top.ports}
    hops = {route["ip_prefix"]: route["nexthop"] for route in router["static_routes"]}
    assert hops == {"0.0.0.0/0": top.default_route, **dict.fromkeys(top.discarded, "discard")}
    assert {row["name"] for row in router["load_balancer"]} == {one.name for one in top.balancers}
    (chassis,) = contents["Gateway_Chassis"]
    assert chassis["chassis_name"] == top.chassis
    external = next(row for row in contents["Logical_Switch"] if row["name"] == top.external_switch)
    assert {port["name"] for port in external["ports"]} == {top.external_port.name, *top.claims}


def test_every_row_carries_the_lab_s_tag(database: Database, northbound: Northbound) -> None:
    plan = make("a", "3-0-1")
    before = database.tables()
    northbound.apply(topology(plan))
    new = {
        (name, uuid): dict(row["external_ids"][1])
        for name, table in database.tables().items()
        for uuid, row in table.items()
        if uuid not in before[name]
    }
    assert len(new) > 20
    for row, ids in new.items():
        assert (ids.get("winlab"), ids.get("winlab-plan")) == ("a", plan.digest), row
    for table in ("Logical_Switch_Port", "NAT"):
        nodes = [ids["winlab-node"] for ids in database.tags(table) if "winlab-node" in ids]
        assert sorted(nodes) == sorted(node.name for node in plan.nodes)


def test_a_lab_s_switch_keeps_the_name_of_its_creator(
    database: Database, northbound: Northbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan decides it, so it is not a difference; a switch of an earlier version has none."""
    plan = make("a")
    assert northbound.lab_owner("a") is None
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    northbound.apply(topology(plan))
    assert northbound.lab_owner("a") == 1234567
    monkeypatch.setattr(account, "uid", lambda: 7654321)
    database.nbctl("set", "Logical_Switch", plan.network.switch, "external_ids:winlab-plan=another")
    with ovn.connect(database.remote) as later:
        assert not later.has(topology(plan))
        later.apply(topology(plan))
        assert later.has(topology(plan))
        assert later.lab_owner("a") == 1234567
    database.nbctl("remove", "Logical_Switch", plan.network.switch, "external_ids", "winlab-uid")
    with ovn.connect(database.remote) as later:
        assert later.has(topology(plan))
        assert later.lab_owner("a") is None


def test_drift_is_repaired(database: Database, northbound: Northbound) -> None:
    plan = make("a", "3-0-1")
    northbound.apply(topology(plan))
    whole = database.contents()
    node, net = plan.nodes[0], plan.network
    damages = (
        ("lsp-del", node.port),
        ("lsp-del", f"{net.external_switch}-to-a"),
        ("lr-nat-del", net.router, "dnat_and_snat", node.floating),
        ("lr-route-del", net.router, "0.0.0.0/0"),
        ("--all", "destroy", "DHCP_Options"),
        ("--all", "destroy", "DNS"),
        ("lb-del", f"{net.router}-api-inside"),
        ("lr-del", net.router),
        ("ls-del", net.switch),
        ("clear", "Logical_Router_Port", f"{net.router}-outside", "gateway_chassis"),
        ("set", "Logical_Switch_Port", node.port, "addresses=unknown"),
        ("set", "Logical_Switch_Port", node.port, "dhcpv4_options=[]"),
        ("set", "Logical_Router", net.router, "external_ids:winlab-plan=another"),
        (
            *("--id=@other", "create", "DNS", "external_ids:winlab=a", "--"),
            *("set", "Logical_Switch", net.switch, "dns_records=@other"),
        ),
        ("lsp-add", net.external_switch, "stray", "--", "set", "Logical_Switch_Port", "stray", "external_ids:winlab=a"),
    )
    for damage in damages:
        database.nbctl(*damage)
        assert database.contents() != whole, damage
        with ovn.connect(database.remote) as later:  # as the next command would
            assert not later.has(topology(plan)), damage
            assert later.differences(topology(plan)), damage
            later.apply(topology(plan))
            assert later.has(topology(plan)), damage
            assert later.differences(topology(plan)) == [], damage
        assert database.contents() == whole, damage


def test_only_differing_rows_are_changed(database: Database, northbound: Northbound) -> None:
    """Every row but those that were damaged is the same row as before: machines use them meanwhile."""
    plan = make("a", "3-0-1")
    northbound.apply(topology(plan))
    net, (first, second, *_) = plan.network, plan.nodes
    before = database.tables()
    for damage in (
        ("lr-nat-del", net.router, "dnat_and_snat", first.floating),
        ("set", "Logical_Switch_Port", second.port, "addresses=unknown"),
        ("lr-route-add", net.router, "198.51.100.0/24", "10.42.0.9"),  # not created by winlab
        ("lsp-add", net.switch, "stray"),
        ("lsp-add", net.external_switch, "theirs"),
    ):
        database.nbctl(*damage)
    with ovn.connect(database.remote) as later:
        told = {(one.what, one.expected, one.actual, one.foreign) for one in later.differences(topology(plan))}
        assert told == {
            (f"NAT dnat_and_snat {first.floating} {first.address}", "there", "", False),
            (
                f"Logical_Switch_Port {second.port}: addresses",
                f"{second.mac} {second.address}",
                "unknown",
                False,
            ),
            ("Logical_Router_Static_Route 198.51.100.0/24", "", "there", True),
            ("Logical_Switch_Port stray", "", "there", True),
        }
        later.apply(topology(plan))
        assert later.has(topology(plan))
        assert {one.what.split()[-1] for one in later.differences(topology(plan))} == {"198.51.100.0/24", "stray"}
    after = database.tables()
    for table, rows in before.items():
        gone = rows.keys() - after[table].keys()
        assert len(gone) == (table == "NAT"), table
    assert "theirs" in database.nbctl("lsp-list", net.external_switch)


@pytest.mark.parametrize(("reached", "follows"), [(0, False), (10**6, True)])
def test_a_hypervisor_that_is_switched_off_delays_no_one(
    database: Database, northbound: Northbound, monkeypatch: pytest.MonkeyPatch, reached: int, follows: bool
) -> None:
    """``hv_cfg`` stays behind forever; what counts is the host's own chassis, which the southbound database knows."""
    monkeypatch.setattr(ovn, "ASK", 0.0)
    monkeypatch.setattr(ovn.southbound, "progress", lambda chassis: reached if chassis == "own" else -1)
    database.nbctl("set", "NB_Global", ".", "sb_cfg=1000000")
    if follows:
        northbound.await_followers(LIMIT, "own")
    else:
        with pytest.raises(HostError, match="controller"):
            northbound.await_followers(0.2, "own")
    with pytest.raises(HostError, match="controller"):
        northbound.await_followers(0.2)


def test_each_chassis_says_how_far_it_is(tmp_path: Path) -> None:
    with serving(tmp_path, SCHEMA.with_name("ovn-sb.ovsschema")) as remote:
        for name, number in (("own", 7), ("off", 3)):
            row = {"op": "insert", "table": "Chassis_Private", "row": {"name": name, "nb_cfg": number}}
            words = [program("ovsdb-client"), "transact", remote, json.dumps(["OVN_Southbound", row])]
            subprocess.run(words, check=True, capture_output=True)
        assert [southbound.read(remote, name) for name in ("own", "off", "none")] == [7, 3, southbound.UNKNOWN]
    assert southbound.read(f"unix:{tmp_path}/none", "own") == southbound.UNKNOWN


def test_a_recreated_external_switch_gets_the_ports_of_labs_again(database: Database, northbound: Northbound) -> None:
    plan = make("a")
    northbound.apply(topology(plan))
    database.nbctl("ls-del", plan.network.external_switch, "--", "ls-add", plan.network.external_switch)
    with ovn.connect(database.remote) as later:
        assert not later.has(topology(plan))
        later.apply(topology(plan))
        assert later.has(topology(plan))


def test_a_repaired_network_keeps_the_routes_to_its_pods(database: Database, northbound: Northbound) -> None:
    plan, routes = make("a"), {"10.244.0.0/24": "10.42.0.11"}
    northbound.apply(topology(plan))
    northbound.set_pod_routes("a", routes)
    assert northbound.has(topology(plan))
    database.nbctl("lsp-del", plan.nodes[0].port)
    with ovn.connect(database.remote) as later:
        assert not later.has(topology(plan))
        later.apply(topology(plan))
        assert later.pod_routes("a") == routes
        later.apply(topology(make("a", "3-0-1")))
        assert later.pod_routes("a") == routes, "the step that sets them takes those away whose node is gone"


def test_rows_of_faults_stay_when_a_network_is_repaired(database: Database, northbound: Northbound) -> None:
    plan = make("a")
    northbound.apply(topology(plan))
    other = make("b")
    northbound.apply(topology(other))
    whole = database.contents()
    drop, limit = SwitchRule('outport == "x"'), SwitchRule('inport == "x"', "from-lport", 10_000)
    assert northbound.put_fault("a", "partition.x", "one", [drop, limit])
    assert northbound.put_fault("a", "bandwidth.x", "two", [limit])
    assert northbound.put_fault("a", "bandwidth.x", "three", [limit])
    faulty = database.contents()
    assert (len(faulty["ACL"]), len(faulty["QoS"])) == (1, 2)
    assert (northbound.fault_records("a"), northbound.fault_records("b")) == (["one", "three"], [])
    assert northbound.has(topology(plan))
    database.nbctl("lsp-del", plan.nodes[0].port)
    with ovn.connect(database.remote) as later:
        later.apply(topology(plan))
        assert later.has(topology(plan))
        assert database.contents() == faulty
        assert later.put_fault("a", "partition.x", "", [])
        assert later.fault_records("a") == ["three"]
        assert later.put_fault("a", "bandwidth.x", "", [])
        assert database.contents() == whole
        later.put_fault("b", "partition.x", "four", [drop])
        later.remove("b")
        assert "ACL" not in database.contents()
        assert not later.put_fault("b", "partition.x", "four", [drop])


@pytest.mark.parametrize("follows", [(), ("sb_cfg",), ("sb_cfg", "hv_cfg")])
def test_daemons_that_do_not_follow_are_reported(
    database: Database, northbound: Northbound, follows: tuple[str, ...]
) -> None:
    """This database has none; the test simulates them."""
    number = int(database.nbctl("get", "NB_Global", ".", "nb_cfg")) + 1
    for column in follows:
        database.nbctl("set", "NB_Global", ".", f"{column}={number}")
    if "hv_cfg" in follows:
        northbound.await_followers(LIMIT)
        return
    who = "controller" if follows else "northd"
    with pytest.raises(HostError, match=f"{who}.* not follow") as caught:
        northbound.await_followers(0.2)
    assert "winlab host setup" in caught.value.cure


def test_another_plan_replaces_the_first(database: Database, northbound: Northbound) -> None:
    northbound.apply(topology(make("a", "1-0-1")))
    small = database.contents()
    northbound.apply(topology(make("a", "3-0-1")))
    assert northbound.has(topology(make("a", "3-0-1")))
    assert not northbound.has(topology(make("a", "1-0-1")))
    northbound.apply(topology(make("a", "1-0-1")))
    assert database.contents() == small


def test_a_removed_lab_leaves_nothing(database: Database, northbound: Northbound) -> None:
    before = database.contents()
    northbound.apply(topology(make("a", "3-0-1")))
    northbound.set_pod_routes("a", {"10.244.1.0/24": "10.42.0.11"})
    assert northbound.remove("a")
    assert database.contents() == before
    assert not northbound.remove("a")
    assert not northbound.has(topology(make("a", "3-0-1")))
    assert northbound.labs() == set()


def test_pod_routes_are_replaced_and_leave_the_others_alone(database: Database, northbound: Northbound) -> None:
    northbound.apply(topology(make("a")))
    bare = database.contents()
    first = {"10.244.0.0/24": "10.42.0.11", "10.244.1.0/24": "10.42.0.12"}
    northbound.set_pod_routes("a", first)
    assert northbound.pod_routes("a") == first
    northbound.set_pod_routes("a", {"10.244.1.0/24": "10.42.0.13"})
    assert northbound.pod_routes("a") == {"10.244.1.0/24": "10.42.0.13"}
    assert {"winlab": "a", "winlab-plan": make("a").digest, "winlab-pod-route": "true"} in database.tags(
        "Logical_Router_Static_Route"
    )
    northbound.set_pod_routes("a", {})
    assert northbound.pod_routes("a") == {}
    assert database.contents() == bare


def test_two_labs_exist_side_by_side(database: Database, northbound: Northbound) -> None:
    northbound.apply(topology(make("a", "3-0-1")))
    alone = database.contents()
    northbound.apply(topology(make("b", "3-0-1")))
    northbound.set_pod_routes("b", {"10.244.0.0/24": "10.42.0.11"})
    both = database.contents()
    assert northbound.labs() == {"a", "b"}
    assert northbound.pod_routes("a") == {}

    northbound.apply(topology(make("a", "3-0-1")))
    assert database.contents() == both
    northbound.set_pod_routes("a", {})
    assert northbound.pod_routes("b") == {"10.244.0.0/24": "10.42.0.11"}
    assert northbound.remove("b")
    assert database.contents() == alone


def test_external_addresses_of_another_lab_are_refused(database: Database, northbound: Northbound) -> None:
    northbound.apply(topology(make("a", "1-0-1", "network.floating_block=7")))
    before = database.contents()
    with pytest.raises(ConflictError, match="The lab 'a' already has the external address"):
        northbound.apply(topology(make("b", "1-0-1", "network.floating_block=7")))
    assert database.contents() == before


def test_of_two_labs_that_take_a_block_at_the_same_time_one_gets_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read before either writes."""
    plans_ = [make(lab, "1-0-1", "network.floating_block=7") for lab in ("a", "b")]
    with ovn.connect(database.remote) as first, ovn.connect(database.remote) as second:
        look, looked = Northbound.holder, []

        def holder(self: Northbound, topology: Topology) -> tuple[str, str] | None:
            looked.append(topology.external_ids["winlab"])
            return None if len(looked) < 3 else look(self, topology)

        monkeypatch.setattr(Northbound, "holder", holder)
        first.apply(topology(plans_[0]))
        before = database.contents()
        with pytest.raises(ConflictError, match=r"The lab '(a|another one)' already has .*172\.31|block-7") as caught:
            second.apply(topology(plans_[1]))
        assert "network.floating_block" in caught.value.cure
        assert looked[:2] == ["a", "b"]
    assert database.contents() == before


def test_a_large_lab_claims_all_its_blocks(database: Database, northbound: Northbound) -> None:
    northbound.apply(topology(make("a", "1-20-1", "network.floating_block=7", "workers.os=debian-13")))
    claims = {name for row in database.tables()["Logical_Switch_Port"].values() if "-block-" in (name := row["name"])}
    assert claims == {"winlab-external-block-7", "winlab-external-block-8"}
    other = topology(make("b", "1-0-1", "network.floating_block=8"))
    holder = northbound.holder(other)
    assert holder is not None
    assert holder[0] == "a"
    free = make("b", "1-0-1", "network.floating_block=9")
    assert northbound.holder(topology(free)) is None
    assert addresses.blocks(free.network.external_cidr, northbound.taken("b")) == [7, 8]
    assert northbound.taken("a") == set()


def test_a_host_without_external_switch_is_reported(database: Database) -> None:
    """The refusal comes in the middle of the transaction; nothing of it stays."""
    plan = make("a")
    with ovn.connect(database.remote) as northbound:
        northbound.apply(topology(plan))
    database.nbctl("ls-del", plan.network.external_switch)
    before = database.contents()
    with ovn.connect(database.remote) as later, pytest.raises(HostError, match=plan.network.external_switch):
        later.apply(topology(plan))
    assert database.contents() == before


def test_a_connection_ends_and_the_next_is_its_own(database: Database) -> None:
    """Two connections at a time as well: ovsdbapp shares one among all that are made of a class."""
    before = threading.active_count()
    with ovn.connect(database.remote) as first, ovn.connect(database.remote) as second:
        second.apply(topology(make("a")))
        assert first.remove("a") or second.remove("a")
    assert threading.active_count() == before
    with ovn.connect(database.remote) as third:
        assert third.labs() == set()
    assert threading.active_count() == before


def test_a_missing_database_is_reported(tmp_path: Path, database: Database) -> None:
    with pytest.raises(HostError, match="no OVN northbound socket"), ovn.connect(f"unix:{tmp_path}/none"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(HostError, match="does not answer"), ovn.connect(f"unix:{tmp_path}/file"):
        pass


def test_a_lab_that_grows_and_shrinks_keeps_the_rows_that_stay(database: Database, northbound: Northbound) -> None:
    """A recreated router or switch would cut the connections of running guests."""
    old = plans.make(plans.KVM, "3-1-1", "linux_workers.count=1")
    wanted = spec.load("3-2-1", ["linux_workers.count=1"])
    new = making.make(wanted, "lab", plans.KVM, plans.stock(wanted), None, [old])
    northbound.apply(topology(old))
    northbound.set_pod_routes("lab", {"10.244.1.0/24": "10.77.0.101"})
    before, contents = database.tables(), database.contents()
    northbound.apply(topology(new))
    after = database.tables()
    assert northbound.has(topology(new))
    kinds = [name for name in before if name not in ("NB_Global", "Connection")]
    anew = {name for name in kinds if set(before[name]) - set(after[name])}
    assert anew == {"Logical_Router_Policy"}, "but those that name the nodes' addresses, rows stay"
    more = {name: len(set(after[name]) - set(before[name])) for name in kinds}
    assert {name: count for name, count in more.items() if count} == {
        "Logical_Switch_Port": 1,
        "NAT": 1,
        "Logical_Router_Policy": 2,
    }
    assert northbound.pod_routes("lab") == {"10.244.1.0/24": "10.77.0.101"}
    assert {tag["winlab-plan"] for tag in database.tags("Logical_Router_Static_Route")} == {new.digest}
    northbound.apply(topology(old))
    assert database.contents() == contents


def test_hypervisors_are_recorded_beside_what_others_have_there(database: Database, northbound: Northbound) -> None:
    database.nbctl("set", "NB_Global", ".", "external_ids:other=kept", "external_ids:winlab-hypervisor-Odd=x")
    northbound.put_hypervisor("b", '{"uri": "first"}')
    northbound.put_hypervisor("c", "{}")
    northbound.put_hypervisor("b", '{"uri": "second", "words": "a \\"b\\", c=d"}')
    with ovn.connect(database.remote) as other:
        assert other.hypervisors() == {"b": '{"uri": "second", "words": "a \\"b\\", c=d"}', "c": "{}"}
        other.put_hypervisor("c", None)
        other.put_hypervisor("c", None)
    assert database.nbctl("get", "NB_Global", ".", "external_ids:other") == "kept"
    with ovn.connect(database.remote) as other:
        assert list(other.hypervisors()) == ["b"]


def test_teardown_removes_the_list_of_hypervisors_alone(
    database: Database, northbound: Northbound, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fabric, "NB", database.remote)
    admission.forget_hypervisors(Quiet())  # there is none
    northbound.put_hypervisor("b", "{}")
    odd = ("NB_Global", ".", "external_ids", r'"winlab-hypervisor-a \"b\"=c"=x', "other=kept")
    database.nbctl("add", *odd)
    admission.forget_hypervisors(Quiet())
    (ids,) = database.tags("NB_Global")
    assert "other" in ids
    assert not [key for key in ids if "hypervisor" in key]


def test_two_users_record_hypervisors_at_the_same_time(database: Database) -> None:
    def put(name: str) -> None:
        with ovn.connect(database.remote) as own:
            own.put_hypervisor(name, "{}")

    names = ["a", "b", "c", "d"]
    threads = [threading.Thread(target=put, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    with ovn.connect(database.remote) as own:
        assert list(own.hypervisors()) == names
