"""The topology as a picture."""

from __future__ import annotations

from dataclasses import replace

import lab_fakes
import plans
from lxml import etree

from winlab.operations import graph

NS = {"svg": "http://www.w3.org/2000/svg"}


def texts(picture: str) -> list[str]:
    root = etree.fromstring(picture.encode())
    return [str(one.text) for one in root.iterfind(".//svg:text", NS)]


def test_networks_and_nodes_with_their_addresses() -> None:
    network = plans.make(plans.KVM, "1-1-1").network
    shown = texts(graph.draw("lab", [lab_fakes.machine("controller-1", "linux"), lab_fakes.machine("node-1")], network))
    assert f"external network  {network.external_cidr}" in shown
    assert f"lab lab  {network.cidr}, MTU {network.mtu}" in shown
    assert shown.index("controller-1") < shown.index("node-1")
    assert "10.77.0.2  ·  1.2.3.4" in shown


def test_without_a_record_the_networks_have_no_addresses() -> None:
    assert "external network" in texts(graph.draw("lab", [lab_fakes.machine("node-1")], None))


def test_each_hypervisor_has_a_column() -> None:
    there = replace(lab_fakes.machine("node-2", state="off"), hypervisor="big")
    picture = graph.draw("lab", [lab_fakes.machine("node-1"), there], None)
    assert {"big", "hypervisor-1"} <= set(texts(picture))
    boxes = etree.fromstring(picture.encode()).iterfind(f".//svg:rect[@width='{graph.WIDE}']", NS)
    assert len({box.get("x") for box in boxes}) == 2


def test_a_tag_that_holds_markup_stays_text() -> None:
    one = lab_fakes.machine("node-1")
    evil = replace(one, tag=one.tag.model_copy(update={"image": "<script>alert(1)</script>"}))
    picture = graph.draw("lab", [evil], None)
    assert "<script" not in picture
    assert "worker, <script>alert(1)</script>" in texts(picture)
