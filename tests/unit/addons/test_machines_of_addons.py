"""Machines that add-ons request: in the spec, in the plan, in rendered files, and refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import plans
import pytest
import yaml
from distributions import Distribution, install_motd
from pydantic import ValidationError

from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.model import POOL_LABEL, Plan
from winlab.design.render import folder, nodes
from winlab.design.render.templates import expand
from winlab.design.spec.model import Spec
from winlab.errors import UsageError
from winlab.operations import export_iso
from winlab.supply.images import stock

pytestmark = pytest.mark.usefixtures("fresh_registry", "motd")
LINUX = "workers.os=debian-13"

OTHER = """\
from winlab.addons.api import Addon, AddonSettings, Pool
class Other(Addon):
    name = "other"
    summary = "another one"
    def machines(self, settings):
        return {wish}
ADDON = Other()
"""


@pytest.fixture
def motd(distribution: partial[Distribution]) -> None:
    install_motd(distribution)


def install_other(make: partial[Distribution], wish: str) -> None:
    """An add-on 'other' that requests these pools."""
    files = {"winlab_other.py": OTHER.replace("{wish}", wish)}
    make("winlab-other", "0.1", files, {"winlab.addons": {"other": "winlab_other:ADDON"}})


def on(machines: int, **more: str) -> str:
    return f"addons.motd={{text: hello, machines: {machines}{''.join(f', {key}: {one}' for key, one in more.items())}}}"


def make(*changes: str, source: str = "1-1-1") -> Plan:
    return plans.make(plans.KVM, source, *changes)


def addresses(plan: Plan) -> dict[str, str]:
    return {node.name: node.address for node in plan.nodes}


def refused(*changes: str, source: str = "1-1-1", rehearse: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        spec.load(source, changes, rehearse=rehearse)
    assert caught.value.cure
    return f"{caught.value.what} {caught.value.why} {caught.value.cure}"


# --- the plan


def test_they_are_workers_of_a_pool_of_that_name() -> None:
    plan = make(on(2))
    node = plan.node("motd-2")
    assert addresses(plan) == {
        "controller-1": "10.77.0.11",
        "node-1": "10.77.0.101",
        "motd-1": "10.77.0.161",
        "motd-2": "10.77.0.162",
    }
    assert (node.role, node.pool, node.os, node.image, node.cpus, node.memory_mib) == (
        *("worker", "motd", "linux", "debian-13", 1, 1024),
    )
    assert plan.addons[0].pools == ("motd",)
    assert plan == make(on(2))
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan


def test_the_digits_of_a_shorthand_count_the_specs_own_machines() -> None:
    plan = make(on(3), LINUX, source="3-2-1")
    assert [(node.role, node.pool) for node in plan.nodes] == [
        *[("controller", "")] * 3,
        *[("worker", "node")] * 2,
        *[("worker", "motd")] * 3,
    ]
    assert len({node.floating for node in plan.nodes}) == 8


def test_they_can_be_the_only_workers_and_still_have_their_label() -> None:
    plan = make(on(1), source="1-0-1")
    assert plan.labels(plan.node("motd-1")) == {POOL_LABEL: "motd"}
    assert plan.labels(plan.node("controller-1")) == {}
    assert nodes.member(plan, plan.node("controller-1")).taints is None  # kubeadm's own: pods run on the workers
    beside = make(on(1))
    assert {node.name: beside.labels(node) for node in beside.nodes if node.role == "worker"} == {
        "node-1": {POOL_LABEL: "node"},
        "motd-1": {POOL_LABEL: "motd"},
    }


def test_a_lab_without_them_is_unchanged() -> None:
    plan, without = make(on(0), LINUX), make(LINUX)
    assert plan.nodes == without.nodes
    assert plan.labels(plan.node("node-1")) == {}


def test_another_number_of_them_makes_another_lab() -> None:
    assert len({make(on(number)).digest for number in range(3)}) == 3


def test_nodes_identify_a_lab_and_not_which_pools_are_an_add_ons() -> None:
    """So labs that were made before add-ons could request machines are still recognized."""
    plan = make(on(1))
    (row,) = plan.addons
    assert plan.model_copy(update={"addons": (row.model_copy(update={"pools": ()}),)}).digest == plan.digest


def test_they_move_no_machine_and_no_pool_that_grows_moves_them(distribution: partial[Distribution]) -> None:
    install_other(distribution, "[Pool(name='a', os='debian-13', count=2), Pool(name='b', os='debian-13')]")
    alone = addresses(make(source="mixed"))
    before = addresses(make(on(1), "addons.other={}", source="mixed"))
    after = addresses(make(on(15), "addons.other={}", "workers.count=4", source="mixed"))
    assert alone.items() <= before.items() <= after.items()
    assert len(before) == len(alone) + 4
    assert len(set(after.values())) == len(after)


def test_an_add_on_sees_its_machines() -> None:
    with pytest.raises(UsageError, match="can't have these add-ons: motd") as error:
        make(LINUX, on(1, loud="true", system="windows-2022"))
    assert error.value.why == "Windows nodes can't be loud."


# --- what is obtained and rendered


def test_the_stock_includes_their_images() -> None:
    wanted = spec.load("1-1-1", [LINUX, on(1, system="ubuntu-24.04")])
    taken = stock.take(wanted)
    assert set(taken.images) == {"debian-13", "ubuntu-24.04"}
    plan = making.make(wanted, "lab", plans.KVM, taken)
    assert plan.node("motd-1").volume("base").name == f"base-ubuntu-24.04-{taken.images['ubuntu-24.04'][:16]}.qcow2"


def test_windows_machines_are_clones_of_a_golden_image() -> None:
    plan = make(LINUX, on(2, system="windows-2025"))
    assert [node.name for node in plan.clones()] == ["motd-1", "motd-2"]
    assert len(plan.builders) == 1
    assert plan.cluster.profile == "calico-vxlan"


def test_they_are_rendered_like_other_nodes() -> None:
    plan = make(on(1))
    files = folder.files(plan, expand)
    assert "<memory unit='MiB'>1024</memory>" in files["motd-1/domain.xml"].decode().replace('"', "'")
    joined = files["motd-1/kubernetes/kubeadm.yaml"].decode()
    assert f"{POOL_LABEL}=motd" in joined
    assert "motd-1" in files["network.json"].decode()
    objects = {one["kind"]: one for one in yaml.safe_load_all(files["cluster/addons/motd.yaml"])}
    assert (
        objects["DaemonSet"]["spec"]["template"]["spec"]["nodeSelector"]
        == nodes.member(plan, plan.node("motd-1")).labels
    )
    assert "DaemonSet" not in folder.files(make(on(0)), expand)["cluster/addons/motd.yaml"].decode()


def test_an_exported_iso_has_no_machines_of_add_ons() -> None:
    wanted = spec.load("1-1-1", [on(1)])
    alone = export_iso.make(wanted, "alone", lambda _: None)
    assert [node.name for node in alone.plan.nodes] == ["alone"]
    assert alone.plan.addons == ()


# --- the spec


def test_they_are_not_fields_of_the_spec() -> None:
    made = spec.load("1-1-1", [on(1)])
    assert [pool.name for pool in made.pools] == ["node", "motd"]
    assert [pool["name"] for pool in made.model_dump(mode="json")["workers"]] == ["node"]
    assert Spec.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            ["workers.name=motd"],
            "can't have a pool called 'motd': the spec has such a pool; give that one another name",
        ),
        (["network.cidr=10.77.0.0/25"], "too small for 1 nodes called 'motd' of the add-on 'motd'"),
        ([on(16)], "the pool 'motd' of the add-on 'motd' can have 15 nodes at most"),
        ([on(61)], "the add-on 'motd' requests machines that can't be: count: Input should be less than or equal to"),
        ([on(1, system="minix")], "the add-on 'motd' requests machines that can't be: os: there is no image 'minix'"),
    ],
)
def test_bad_requests_are_refused_and_name_the_add_on(changes: list[str], says: str) -> None:
    assert says in refused(on(1), *changes)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (
            "[Pool(name='motd')]",
            "addons.other: the add-on 'other' can't have a pool called 'motd': the add-on 'motd' has",
        ),
        ("[Pool(name='a'), Pool(name='a')]", "it requests two such pools"),
        ("[Pool(name='linux', os='debian-13')]", "that is what linux_workers are called"),
        ("[Pool(name='Big')]", "addons.other: the add-on 'other' requests machines that can't be: name: nodes can't"),
        ("[{'name': 'a'}]", "{'name': 'a'} is not a winlab.addons.api.Pool"),
    ],
)
def test_requests_of_two_add_ons_have_to_fit_together(
    distribution: partial[Distribution], wish: str, says: str
) -> None:
    install_other(distribution, wish)
    assert says in refused(on(1), "addons.other={}")


def test_the_line_of_the_add_on_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("workers: {name: motd}\naddons:\n  motd: {text: hello, machines: 1}\n")
    assert f"'{path}', line 3: addons.motd: the add-on 'motd' can't have a pool" in refused(source=str(path))
    with pytest.raises(ValidationError, match="the spec has such a pool"):
        Spec.model_validate(yaml.safe_load(path.read_text()))


def test_a_small_network_suffices_without_machines() -> None:
    assert [node.name for node in make(on(0), LINUX, "network.cidr=10.77.0.0/25").nodes] == ["controller-1", "node-1"]


def test_a_rehearsal_gets_no_real_windows() -> None:
    assert "'motd' can't be rehearsed" in refused(on(1, system="windows-2022"), rehearse=True)
    for system in ("windows-rehearsal", "debian-13"):
        assert spec.load("1-1-1", [on(1, system=system)], rehearse=True).pools[1].os == system
