"""The CNI files and the pod routes of a Linux node."""

from __future__ import annotations

import json

import pytest
from linux_guest import Guest, sha

from winlab_node.node import NodeError


def test_cni_removes_only_its_own(guest: Guest) -> None:
    theirs = guest.put("etc/cni/net.d/05-theirs.conf", "{}")
    assert guest.do("cni", {"files": {"10-a.conflist": "{}", "20-b.conflist": "{}"}}) == {"changed": True}
    assert guest.do("cni", {"files": {"20-b.conflist": "{}"}}) == {"changed": True}
    assert [path.name for path in sorted(theirs.parent.iterdir())] == ["05-theirs.conf", "20-b.conflist"]
    assert guest.do("cni", {"files": {"20-b.conflist": "{}"}}) == {"changed": False}
    assert guest.do("status", {})["cni"]["20-b.conflist"] == sha(b"{}")


@pytest.mark.parametrize(("name", "content"), [("../x.conf", "{}"), ("a.txt", "{}"), ("a.conf", "{")])
def test_odd_cni_files_are_refused(guest: Guest, name: str, content: str) -> None:
    with pytest.raises(NodeError, match="is no"):
        guest.do("cni", {"files": {name: content}})
    assert not (guest.root / "etc/cni").exists()


def test_routes_are_replaced_and_stale_ones_go(guest: Guest) -> None:
    shown = [{"dst": "10.244.1.0/24", "gateway": "10.77.0.12"}, {"dst": "10.244.9.0/24", "gateway": "10.77.0.19"}]
    guest.runner.answers["ip -4 -json"] = (0, json.dumps(shown))
    wanted = [{"to": "10.244.1.0/24", "via": "10.77.0.12"}, {"to": "10.244.2.0/24", "via": "10.77.0.13"}]
    assert guest.do("routes", {"routes": wanted}) == {"changed": True}
    batch = next(words for line, words in guest.runner.asked if line == "ip -batch -").splitlines()
    assert batch[0] == "route del 10.244.9.0/24 proto 171"
    assert "route replace 10.244.2.0/24 via 10.77.0.13 proto 171" in batch
    assert "route del" not in (guest.root / "var/lib/winlab/routes").read_text()
    assert guest.runner.lines("systemctl enable") == ["systemctl enable winlab-routes.service"]
    guest.runner.answers["ip -4 -json"] = (0, json.dumps([{"dst": r["to"], "gateway": r["via"]} for r in wanted]))
    guest.runner.asked.clear()
    assert guest.do("routes", {"routes": wanted}) == {"changed": False}
    assert len(guest.runner.asked) == 1


def test_odd_routes_are_refused(guest: Guest) -> None:
    with pytest.raises(NodeError, match=r"settings\.routes"):
        guest.do("routes", {"routes": [{"to": "10.244.1.0/24; reboot", "via": "10.77.0.12"}]})
    assert guest.runner.asked == []
