"""A developer's own program in a Linux node, and the lab's again."""

from __future__ import annotations

import os

import pytest
from linux_guest import PROGRAMS, SETTINGS, Guest, sha

from winlab_node.node import NodeError


def test_push_and_back(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    guest.put("run/winlab/payload/push/kubelet", b"my own")
    kept = guest.root / "usr/local/bin/kubelet.winlab-original"
    assert guest.do("push", {"program": "kubelet", "restore": False}) == {"changed": True, "sha256": sha(b"my own")}
    assert kept.read_bytes() == b"kubelet 1"
    assert guest.runner.lines("systemctl restart kubelet")
    assert guest.do("push", {"program": "kubelet"})["changed"] is False
    guest.do("prepare", SETTINGS)  # what was pushed stays
    found = guest.do("status", {})
    assert (found["programs"]["kubelet"], found["pushed"]) == (sha(b"my own"), ["kubelet"])
    assert found["prepared"]
    assert guest.do("push", {"program": "kubelet", "restore": True})["sha256"] == sha(b"kubelet 1")
    assert guest.do("push", {"program": "kubelet", "restore": True})["changed"] is False
    assert not kept.exists()


def test_a_push_that_was_killed_has_pushed_nothing(guest: Guest) -> None:
    """Between giving the original a second name and installing the new program."""
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    kubelet = guest.root / "usr/local/bin/kubelet"
    kept = kubelet.with_name("kubelet.winlab-original")
    os.link(kubelet, kept)
    found = guest.do("status", {})
    assert found["pushed"] == []
    assert guest.do("push", {"program": "kubelet", "restore": True})["changed"] is False
    assert not kept.exists()
    os.link(kubelet, kept)
    guest.burn({**PROGRAMS, "kubelet": b"kubelet 2"}, {})
    guest.do("prepare", SETTINGS)  # an update replaces it
    assert kubelet.read_bytes() == b"kubelet 2"
    assert guest.do("status", {})["pushed"] == []
    os.link(kubelet, kept)
    guest.put("run/winlab/payload/push/kubelet", b"my own")
    guest.do("push", {"program": "kubelet", "restore": False})
    assert kept.read_bytes() == b"kubelet 2"
    assert guest.do("status", {})["pushed"] == ["kubelet"]


@pytest.mark.parametrize(("name", "match"), [("../sh", "no name"), ("helm", "nothing to swap"), ("ctr", "no push/ctr")])
def test_odd_pushes_are_refused(guest: Guest, name: str, match: str) -> None:
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    with pytest.raises(NodeError, match=match):
        guest.do("push", {"program": name})


@pytest.mark.parametrize(("runs", "other"), [("k3s", "kubelet"), ("kubelet", "k3s")])
def test_only_the_program_that_the_node_runs_is_swapped(guest: Guest, runs: str, other: str) -> None:
    guest.burn({**PROGRAMS, "k3s": b"k3s 1"}, {})
    unit = {"content": f"[Service]\nExecStart=/usr/local/bin/{runs} x\n", "mode": "0644"}
    files = {**SETTINGS["files"], "/etc/systemd/system/kubelet.service": unit}  # type: ignore[dict-item]
    guest.do("prepare", {**SETTINGS, "files": files})
    for name in (runs, other):
        guest.put(f"run/winlab/payload/push/{name}", b"my own")
    with pytest.raises(NodeError, match=f"does not run '{other}': its service runs '/usr/local/bin/{runs}'"):
        guest.do("push", {"program": other, "restore": False})
    guest.runner.asked.clear()
    assert guest.do("push", {"program": runs, "restore": False})["changed"]
    assert guest.runner.lines("systemctl") == ["systemctl restart kubelet"]
