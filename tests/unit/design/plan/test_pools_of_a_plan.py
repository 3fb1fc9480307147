"""Plans of labs with several pools."""

from __future__ import annotations

from typing import Any

import plans
import pytest

from winlab.design.plan import golden
from winlab.design.plan.addresses import blocks
from winlab.design.plan.model import POOL_LABEL, Plan
from winlab.errors import UsageError

REHEARSALS = "{os: windows-rehearsal}, {name: other, os: windows-rehearsal, disk: 9GiB}, {name: lin, os: debian-13}"


def make(*changes: str, source: str = "mixed", **more: Any) -> Plan:
    return plans.make(plans.KVM, source, *changes, **more)


def addresses(plan: Plan) -> dict[str, str]:
    return {node.name: node.address for node in plan.nodes}


def test_each_pool_has_its_nodes() -> None:
    plan = make("workers.win25.count=2", "workers.win22.cpus=4")
    assert addresses(plan) == {
        "controller-1": "10.77.0.11",
        "win19-1": "10.77.0.101",
        "win22-1": "10.77.0.161",
        "win25-1": "10.77.0.177",
        "win25-2": "10.77.0.178",
        "linux-1": "10.77.0.51",
    }
    assert [node.cpus for node in plan.nodes] == [2, 2, 4, 2, 2, 2]
    assert {node.windows.release for node in plan.windows_nodes()} == {"2019", "2022", "2025"}
    assert plan.pools() == ("win19", "win22", "win25", "linux")
    assert plan.node("controller-1").pool == ""


def test_a_pool_that_grows_moves_no_other() -> None:
    before, after = addresses(make()), addresses(make("workers.win19.count=60", "workers.win22.count=15"))
    assert before.items() <= after.items()
    assert len(after) == 5 + 59 + 14


def test_nothing_is_assigned_twice() -> None:
    plan = make("workers.win19.count=20", "workers.win22.count=15", "workers.linux.count=9")
    nodes = [*plan.nodes, *(node for builder in plan.builders for node in builder.nodes)]
    for field in ("mac", "uuid", "port", "domain", "floating"):
        values = [getattr(node, field) for node in nodes]
        assert len(set(values)) == len(values), field
    routers = [plan.network.router_external, *(one.network.router_external for one in plan.builders)]
    assert len({*routers, *(node.floating for node in nodes)}) == len(routers) + len(nodes)
    assert len(set(addresses(plan).values())) == len(plan.nodes)


def test_each_golden_image_has_one_builder() -> None:
    plan = make("workers.win22.count=3")
    assert len(plan.builders) == len({builder.lab for builder in plan.builders}) == 3
    assert len({builder.network.switch for builder in plan.builders}) == 3
    for builder, name in zip(plan.builders, ("win19-1", "win22-1", "win25-1"), strict=True):
        (machine,) = builder.windows_nodes()
        clone = plan.node(name)
        assert clone.windows is not None
        assert builder.golden == clone.windows.golden
        assert builder.lab == f"golden-{machine.windows.release}-{str(builder.golden)[:8]}"
        assert machine.windows.release == clone.windows.release
    assert [node.name for node in plan.clones(plan.builders[1].golden)] == ["win22-1", "win22-2", "win22-3"]


def test_equal_pools_share_a_golden_image() -> None:
    rows = "{os: windows-rehearsal}, {name: other, os: windows-rehearsal, cpus: 4}"
    assert len(make(f"workers=[{rows}]", source="1-1-1").builders) == 1
    assert len(make(f"workers=[{REHEARSALS}]", source="1-1-1").builders) == 2


def test_builders_with_similar_keys_have_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from winlab.design.plan import golden

    keys = {}

    def key(node: Any, stock: Any) -> str:
        return keys.setdefault(node.disk_mib, f"0123456789{len(keys):06}")

    monkeypatch.setattr(golden, "key", key)
    plan = make(f"workers=[{REHEARSALS}]", source="1-1-1")
    assert [builder.lab for builder in plan.builders] == ["golden-2022-01234567", "golden-2022-012345678"]


def test_a_pool_may_be_installed_by_itself() -> None:
    plan = make("workers.win22.golden=false")
    assert len(plan.builders) == 2
    assert [volume.role for volume in plan.node("win22-1").volumes] == ["base", "disk", "media", "answer"]
    assert plan.node("win25-1").has("media") is False


def test_the_version_rule_holds_for_every_pool() -> None:
    with pytest.raises(UsageError, match=r"Windows Server 2019 .* don't work together"):
        make("kubernetes.version=1.36")
    assert make("kubernetes.version=1.36", "workers.win19.os=windows-2022").cluster.versions.name == "1.36"
    for release, others in (("2019", ()), ("2025", ("workers.win19.os=windows-2022",))):
        with pytest.raises(UsageError, match=f"Windows Server {release} and the CNI profile flannel-vxlan don.t work"):
            make("network.cni=flannel-vxlan", *others)


def test_a_rehearsal_beside_windows_decides_the_profile() -> None:
    plan = make("workers.win25.os=windows-rehearsal")
    assert plan.cluster.profile == "l3"
    with pytest.raises(UsageError, match="can't be rehearsed"):
        make("workers.win25.os=windows-rehearsal", "network.cni=calico-vxlan")


def test_labels_distinguish_pools() -> None:
    plan = make()
    assert plan.labels(plan.node("win22-1")) == {POOL_LABEL: "win22"}
    assert plan.labels(plan.node("controller-1")) == {}
    alone = make(source="1-2-1")
    assert [alone.labels(node) for node in alone.nodes] == [{}, {}, {}]


def test_a_lab_of_one_pool_with_another_name_is_another_lab() -> None:
    one, two = make(source="1-1-1"), make("workers.name=win", source="1-1-1")
    assert [node.name for node in two.nodes] == ["controller-1", "win-1"]
    assert one.digest != two.digest
    assert make("linux_workers.count=1", source="1-1-1").digest != one.digest


def test_a_builder_can_go_to_every_block_that_its_lab_leaves_free() -> None:
    facts = plans.KVM.model_copy(update={"external_cidr": "172.31.240.0/24"})
    plan = plans.make(facts, "1-20-1", "network.floating_block=3")
    (builder,) = plan.builders
    first, *further = golden.elsewhere(plan, builder)
    assert first == builder
    found = [blocks(facts.external_cidr, one.external_addresses) for one in (first, *further)]
    assert sorted(found) == [[number] for number in (1, 2, *range(5, 15))]  # 0 and 15 are unused
    for one in further:
        assert one.lab == builder.lab
        assert one.nodes[0].model_copy(update={"floating": ""}) == builder.nodes[0].model_copy(update={"floating": ""})
        assert one.digest != builder.digest


def test_missing_room_for_builders_is_reported() -> None:
    small = plans.KVM.model_copy(update={"external_cidr": "172.31.240.0/26", "external_gateway": "172.31.240.1"})
    with pytest.raises(UsageError, match="golden images"):
        plans.make(small, "mixed", "network.floating_block=1")
