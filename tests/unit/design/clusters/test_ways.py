"""The rows of the verdict on how a lab and a cluster's nodes reach each other, and on networks that need that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from winlab.design.clusters import known, networks, ways
from winlab.design.clusters.model import Ends, Reach, Seen, SeenNode

NAT = Ends("10.77.0.0/24")
ROUTED = replace(NAT, attachment="routed", command="sudo winlab host route")
ATTACHED = replace(NAT, attachment="attached", bridge="br-1", command="Run 'sudo winlab host attach br-1'.")
KUBELET, SILENT = Reach("192.0.2.5:10250"), Reach("192.0.2.6:10250", "timed out")


@pytest.mark.parametrize(
    ("ends", "level", "says", "cure"),
    [
        (NAT, "change", "no logs and no exec", "--attachment routed"),
        (replace(NAT, bridge="br-1"), "change", "no logs and no exec", "--attachment attached"),
        (ROUTED, "change", "carries packets", "ip route add 10.77.0.0/24 via ADDRESS"),
        (replace(ROUTED, trouble="No route"), "refused", "No route.", "On this host: sudo winlab host route"),
        (replace(ROUTED, bridge="br-1"), "change", "Docker drops", "allow-direct-routing"),
        (ATTACHED, "ok", "on the bridge br-1", ""),
        (replace(ATTACHED, trouble="Not joined"), "refused", "Not joined.", "sudo winlab host attach br-1"),
    ],
)
def test_the_way_to_the_workers(ends: Ends, level: str, says: str, cure: str) -> None:
    (row,) = [row for row in ways.findings(ends) if row.about == ways.BACK]
    assert (row.level, says in row.says, cure in row.cure) == (level, True, True), row


def test_the_way_to_the_nodes() -> None:
    rows = ways.findings(replace(ROUTED, kubelets=[KUBELET]))
    assert [(row.about, row.level) for row in rows] == [(ways.OUT, "ok"), (ways.BACK, "change")]
    first, *_ = ways.findings(replace(ATTACHED, kubelets=[KUBELET, SILENT]))
    assert (first.level, first.says) == ("change", "192.0.2.6:10250: timed out.")
    assert [row.about for row in ways.findings(NAT)] == [ways.BACK]


KINDNET = Seen("v1.36.1", daemon_sets={"kindnet": "kube-system"})
HOST_GW = Seen("v1.36.1+k3s1", (SeenNode("a", annotations={networks.BACKEND: "host-gw"}),))


@pytest.mark.parametrize(("seen", "level"), [(KINDNET, "refused"), (HOST_GW, "change")])
def test_networks_of_one_link_need_attached_workers(seen: Seen, level: str) -> None:
    kind = known.of(seen)
    found = networks.finding(seen, kind)
    assert (found.level, "--attachment attached" in found.cure) == (level, True)
    assert networks.finding(seen, kind, "attached").level == "ok"


def test_a_mixture_of_backends_is_not_host_gw() -> None:
    assert not networks.is_host_gw([{networks.BACKEND: "host-gw"}, {networks.BACKEND: "vxlan"}])
    assert not networks.is_host_gw([{}])


VXLAN = {networks.BACKEND: "vxlan", networks.DATA: '{"VNI": 4096}'}


def test_what_winlab_added_is_not_the_cluster_s_own() -> None:
    seen = Seen("v1.36.1+k3s1", (SeenNode("a", annotations=VXLAN),), daemon_sets={"winlab-flannel": "kube-system"})
    assert networks.is_in_agents(seen)
    assert networks.overlays(seen) == {("vxlan", 4096)}
    assert networks.on_windows(replace(seen, profile="flannel-vxlan")) == ()
    theirs = replace(seen, profile="flannel-vxlan", daemon_sets={"kube-flannel-ds-windows": "kube-flannel"})
    assert networks.on_windows(theirs) == ("kube-flannel-ds-windows",)
    adds = "winlab adds the Windows half"
    assert adds not in networks.finding(theirs, known.of(theirs)).says
    assert (
        adds in networks.finding(replace(theirs, daemon_sets={"kube-flannel-ds": "kube-system"}), known.of(seen)).says
    )
    assert not networks.is_in_agents(theirs)
