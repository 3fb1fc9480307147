"""A copy's domain is the one that is rendered for a lab that keeps the origin's identity."""

from __future__ import annotations

from pathlib import Path, PurePath

import plans
import pytest
from lxml import etree

from winlab.design import spec
from winlab.design.plan import copied, make, tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import copied_domain, domain

POOL = Path("/pool")


def origin(source: str = "1-1-1") -> Plan:
    wanted = spec.load(source, ())
    return make.make(wanted, "one", plans.KVM, plans.stock(wanted))


def copy_of(saved: str, plan: Plan, node: NodePlan) -> str:
    files = {
        target: POOL / PurePath(file).name.replace("one.", "two.", 1)
        for target, file in copied_domain.drives(saved).items()
        if PurePath(file).name.startswith("one.")
    }
    return copied_domain.domain_xml(saved, plan, node, files=files, pool=POOL, vnc_password="own", uid=1000)


@pytest.mark.parametrize("source", ["1-1-1", "mixed"])
def test_it_is_the_rendered_domain_of_the_copy(source: str) -> None:
    first = origin(source)
    copy = copied.plan_of(first, "two", 7)
    for old, node in zip(first.nodes, copy.nodes, strict=True):
        saved = domain.domain_xml(first, old, "theirs", POOL)
        rendered = etree.fromstring(domain.domain_xml(copy, node, "own", POOL).encode())
        rendered.find(f"metadata/{{{tags.XMLNS}}}{tags.ELEMENT}").set("uid", "1000")
        made = etree.fromstring(copy_of(saved, copy, node).encode())
        assert plain(made) == plain(rendered)
        tag = tags.read(copy_of(saved, copy, node))
        assert tag is not None
        assert (tag.lab, tag.plan, tag.uid) == ("two", copy.digest, 1000)


def test_what_libvirt_chose_for_the_origin_is_left_out_and_what_the_guest_sees_stays() -> None:
    first = origin()
    copy = copied.plan_of(first, "two", 7)
    old, node = first.nodes[0], copy.nodes[0]
    saved = etree.fromstring(domain.domain_xml(first, old, "theirs", POOL).encode())
    saved.set("id", "7")
    os = saved.find("os")
    etree.SubElement(os, "nvram", template="/vars.fd").text = "/nvram/winlab-one.controller-1_VARS.fd"
    disk = saved.find("devices/disk")
    etree.SubElement(disk, "backingStore", type="file")
    etree.SubElement(disk, "address", type="pci", bus="0x03")
    etree.SubElement(saved.find("devices/interface"), "target", dev="vnet3")
    etree.SubElement(saved, "seclabel", type="dynamic")
    pushed = etree.SubElement(saved.find("metadata"), "{urn:winlab:pushed:1}pushed", lab="one")
    pushed.text = "kubelet"
    for kind in ("faults", "protected"):
        etree.SubElement(saved.find("metadata"), f"{{urn:winlab:{kind}:1}}{kind}", lab="one")
    etree.SubElement(saved.find("metadata"), "{urn:winlab:first-boot:1}first-boot", lab="one")
    made = etree.fromstring(copy_of(etree.tostring(saved, encoding="unicode"), copy, node).encode())
    assert made.get("id") is None
    assert (made.find("os/nvram").text, made.find("os/nvram").get("template")) == (None, "/vars.fd")
    assert made.find("devices/disk/backingStore") is None
    assert made.find("devices/disk/address").get("bus") == "0x03"
    assert made.find("devices/interface/target") is None
    assert made.find("devices/interface/mac").get("address") == old.mac
    assert made.find("seclabel") is None
    metadata = made.find("metadata")
    assert metadata.find("{urn:winlab:pushed:1}pushed").get("lab") == "two"
    assert metadata.find("{urn:winlab:faults:1}faults") is None
    assert metadata.find("{urn:winlab:protected:1}protected") is None  # a copy is not protected
    assert not tags.in_first_boot(made)


def test_its_memory_is_private_and_named_for_the_hook() -> None:
    first = origin()
    copy = copied.plan_of(first, "two", 7)
    saved = domain.domain_xml(first, first.nodes[0], "theirs", POOL)
    defined = copy_of(saved, copy, copy.nodes[0])
    volume = "one@ready.controller-1.memory"
    made = etree.fromstring(copied_domain.with_memory(defined, "two", volume).encode())
    assert made.find("memoryBacking/source").get("type") == "file"
    assert made.find("memoryBacking/access").get("mode") == "private"
    element = made.find("metadata/{urn:winlab:memory:1}memory")
    assert dict(element.attrib) == {"lab": "two", "volume": volume}
    again = copied_domain.domain_xml(
        etree.tostring(made, encoding="unicode"), copy, copy.nodes[0], files={}, pool=POOL, vnc_password="own", uid=1000
    )
    assert plain(etree.fromstring(again.encode())) == plain(etree.fromstring(defined.encode()))


def plain(root: etree._Element) -> list[tuple[str, dict[str, str], str]]:
    """Every element with its attributes and text, in order."""
    return [(str(one.tag), dict(one.attrib), (one.text or "").strip()) for one in root.iter()]
