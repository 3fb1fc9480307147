"""The specs that winlab ships: each is planned and rendered, for real Windows and as a rehearsal."""

from __future__ import annotations

import plans
import pytest

from winlab.design import spec
from winlab.design.catalog import recipes
from winlab.design.plan import make as making
from winlab.design.plan.model import Plan
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.errors import UsageError

CALICO = "first-run-golden"  # the one that asks for a network which nothing simulates


def plan(name: str, *changes: str, rehearse: bool) -> Plan:
    wanted = spec.load(name, changes, rehearse=rehearse)
    return making.make(wanted, "first", plans.KVM, plans.stock(wanted))


@pytest.mark.parametrize("rehearse", [False, True], ids=["windows", "rehearsal"])
@pytest.mark.parametrize("name", spec.names())
def test_a_spec_is_planned_and_rendered(name: str, rehearse: bool) -> None:
    changes = ["network.cni=l3"] if rehearse and name == CALICO else []
    made = plan(name, *changes, rehearse=rehearse)
    nodes = made.windows_nodes()
    assert nodes
    assert all(recipes.get(node.image).stand_in is rehearse for node in nodes)
    files = folder.files(made, expand)
    for node in nodes:
        assert f"{node.name}/domain.xml" in files
    assert bool(made.builders) == any(node.windows.golden for node in nodes)


def test_the_steps_of_the_first_run_match_its_document() -> None:
    """A worker that needs no driver of ours; then one that does; then clones with Calico, which nothing simulates."""
    first, virtio, golden = (plan(f"first-run{one}", rehearse=False) for one in ("", "-virtio", "-golden"))
    (node,), (other,) = first.windows_nodes(), virtio.windows_nodes()
    assert (node.bus, node.nic, node.windows.drivers, node.windows.golden) == ("sata", "e1000e", None, None)
    assert (other.bus, other.nic, other.windows.golden) == ("virtio-scsi", "virtio", None)
    assert len(golden.windows_nodes()) == 2
    assert golden.cluster.profile == "calico-vxlan"
    with pytest.raises(UsageError, match="can't be rehearsed"):
        plan(CALICO, rehearse=True)


@pytest.mark.parametrize("cni", ["host-gw", "flannel-vxlan"])
def test_its_other_networks_take_the_same_golden_image(cni: str) -> None:
    keys = {node.windows.golden for node in plan(CALICO, rehearse=False).windows_nodes()}
    made = plan(CALICO, f"network.cni={cni}", rehearse=False)
    assert {node.windows.golden for node in made.windows_nodes()} == keys
