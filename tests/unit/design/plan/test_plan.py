import ipaddress

import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from winlab.design.plan import addresses
from winlab.design.plan.lab_name import LAB_NAME
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.errors import UsageError


def test_same_input_same_plan() -> None:
    assert plans.make(plans.TCG).model_dump_json() == plans.make(plans.TCG).model_dump_json()


def test_labs_differ_outside_and_not_inside() -> None:
    one, two = plans.make(plans.TCG, lab="one"), plans.make(plans.TCG, lab="two")
    assert [n.address for n in one.nodes] == [n.address for n in two.nodes]
    for field in ("mac", "uuid", "port", "domain", "floating"):
        assert not {getattr(n, field) for n in one.nodes} & {getattr(n, field) for n in two.nodes}


def test_nothing_is_assigned_twice() -> None:
    made = plans.make(plans.KVM, "5-40-1")
    for field in ("mac", "uuid", "port", "domain", "floating", "address", "name"):
        values = [getattr(n, field) for n in made.nodes]
        assert len(set(values)) == len(values) == 45
    volumes = [v.name for n in made.nodes for v in n.volumes if v.role != "base"]
    assert len(set(volumes)) == len(volumes)
    # the AppArmor profile of libvirt's helper lets it read files with these endings alone
    assert all(v.name.endswith((".qcow2", ".iso")) for n in made.nodes for v in n.volumes)
    outside = {n.floating for n in made.nodes} | {made.network.router_external}
    assert made.host.external_gateway not in outside
    network = ipaddress.IPv4Network(made.network.external_cidr)
    assert all(ipaddress.IPv4Address(a) in network for a in outside)


def test_windows_names_fit() -> None:
    for node in plans.make(plans.KVM, "1-60-1").nodes:
        if node.windows is not None:
            assert len(node.windows.computer_name) <= 15


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["network.cidr=172.31.240.0/24"], "and of the external, 172.31.240.0/20, overlap"),
        (["network.mtu=9000"], "larger than the host's external bridge"),
        (["network.floating_block=5000"], "outside the external network"),
    ],
)
def test_refused(changes: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plans.make(plans.KVM, "1-1-1", *changes)


@pytest.mark.parametrize("lab", ["", "Lab", "1lab", "a_b", "a.b", "-a", "a-", "a--b", "x" * 25, "lab\n", "läb"])
def test_refused_lab_names(lab: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a lab"):
        plans.make(plans.KVM, lab=lab)


def test_chosen_block() -> None:
    made = plans.make(plans.KVM, "1-1-1", "network.floating_block=3")
    assert made.network.router_external == "172.31.240.48"
    assert [n.floating for n in made.nodes] == ["172.31.240.49", "172.31.240.50"]


def test_blocks_of_other_labs_are_left_out() -> None:
    """A large lab needs adjacent ones. Addresses outside the network do not count, nor those of IPv6."""
    cidr = "172.31.240.0/25"  # six blocks
    (named,) = addresses.blocks(cidr, addresses.external_block(cidr, "one", 1, None))
    others = {1, 2, 3, 4, 5, 6} - {named}
    for free in others:
        found = addresses.external_block(cidr, "one", 1, None, {1, 2, 3, 4, 5, 6} - {free})
        assert addresses.blocks(cidr, found) == [free]
    wide = addresses.external_block(cidr, "one", 20, None, {1, 3, 4})
    assert addresses.blocks(cidr, wide) == [5, 6]
    assert addresses.external_block(cidr, "one", 1, 1, {1}) == ["172.31.240.16"], "create reports who has it"
    assert addresses.blocks(cidr, ["10.77.0.1", "fd00::1", "172.31.240.17", ""]) == [1]


@given(st.from_regex(LAB_NAME, fullmatch=True), st.integers(1, 66))
def test_blocks_stay_inside(lab: str, count: int) -> None:
    network = ipaddress.IPv4Network("172.31.240.0/20")
    found = addresses.external_block(str(network), lab, count, None)
    assert len(set(found)) == count
    for address in found:
        offset = int(ipaddress.IPv4Address(address)) - int(network.network_address)
        assert 16 <= offset < network.num_addresses - 16


def test_the_digest_is_the_plans() -> None:
    one = plans.make(plans.KVM)
    assert one.digest == plans.make(plans.KVM).digest
    assert one.digest != plans.make(plans.KVM, "1-1-1", "workers.cpus=3").digest
    # what may change while a lab exists
    assert one.digest == plans.make(plans.TCG).digest
    other = plans.KVM.model_copy(update={"resolvers": ["192.0.2.99"]})
    assert one.digest == plans.make(other).digest


def test_product_keys_are_not_shown() -> None:
    key = "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"
    made = plans.make(plans.KVM, "1-1-1", f"workers.product_key={key}")
    assert key in made.model_dump_json()
    assert key not in made.without_secrets().model_dump_json()
    assert all(key.encode() not in content for content in folder.files(made, expand).values())


@pytest.mark.parametrize("lab", ["host", "external", "base-x"])
def test_names_of_winlabs_own_objects_are_refused(lab: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a lab"):
        plans.make(plans.KVM, lab=lab)
