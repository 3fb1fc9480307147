"""kubeadm in a Linux node: run once, with secrets that are removed, and undone completely."""

from __future__ import annotations

import pytest
from linux_guest import CONFIG, TOKEN, Guest, joins

from winlab_node.node import NodeError


def test_kubeadm_runs_with_a_private_file_that_goes(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    path = guest.root / "run/winlab/kubeadm.yaml"

    def act() -> None:
        seen.append(path.stat().st_mode & 0o777)
        assert guest.do("status", {})["started"]
        joins(guest)
        guest.put("etc/kubernetes/bootstrap-kubelet.conf", TOKEN)

    guest.runner.effects["kubeadm join"] = act
    guest.runner.answers["kubeadm join"] = (0, f"[preflight] Running\nsecret {TOKEN} {'0a' * 32}\n")
    assert guest.do("run-kubeadm", {"arguments": ["join", "--v=1"], "configuration": CONFIG}) == {"changed": True}
    assert seen == [0o600]
    assert not path.exists()
    assert not (guest.root / "etc/kubernetes/bootstrap-kubelet.conf").exists()
    told, log = capsys.readouterr().out, guest.root / "var/log/winlab/kubeadm.log"
    assert "[preflight] Running" in told
    for place in (told, log.read_text()):
        assert TOKEN not in place
        assert "0a" * 32 not in place
    assert log.stat().st_mode & 0o777 == 0o600
    found = guest.do("status", {})
    assert (found["joined"], found["started"]) == (True, False)
    guest.runner.asked.clear()
    assert guest.do("run-kubeadm", {"arguments": ["join"], "configuration": CONFIG}) == {"changed": False}
    assert guest.runner.asked == []


def test_a_node_of_another_cluster_is_refused(guest: Guest) -> None:
    guest.runner.effects["kubeadm join"] = lambda: joins(guest)
    guest.do("run-kubeadm", {"arguments": ["join"], "configuration": CONFIG})
    other = CONFIG.replace("10.77.0.11", "10.77.0.99")
    with pytest.raises(NodeError, match=r"already by 'kubeadm join' 10.77.0.11:6443"):
        guest.do("run-kubeadm", {"arguments": ["join"], "configuration": other})
    with pytest.raises(NodeError, match="already by 'kubeadm join'"):
        guest.do("run-kubeadm", {"arguments": ["init"], "configuration": CONFIG})


def test_a_cluster_that_winlab_did_not_make_is_left_alone(guest: Guest) -> None:
    joins(guest)
    with pytest.raises(NodeError, match="and not by winlab"):
        guest.do("run-kubeadm", {"arguments": ["init"], "configuration": CONFIG})


def test_an_interrupted_kubeadm_needs_a_reset(guest: Guest) -> None:
    guest.runner.answers["kubeadm init"] = (1, "[preflight] no\n")
    with pytest.raises(NodeError, match=r"exit code 1:\n\[preflight\] no"):
        guest.do("run-kubeadm", {"arguments": ["init"], "configuration": CONFIG})
    assert not (guest.root / "run/winlab/kubeadm.yaml").exists()
    with pytest.raises(NodeError, match="'kubeadm reset' comes first"):
        guest.do("run-kubeadm", {"arguments": ["init"], "configuration": CONFIG})
    begun = len(guest.runner.asked)
    guest.do("run-kubeadm", {"arguments": ["reset", "--force"], "configuration": ""})
    asked = [line for line, _ in guest.runner.asked[begun:]]
    assert asked == ["systemctl stop kubelet", "kubeadm reset --force"]  # the kubelet would start etcd again meanwhile
    assert not guest.do("status", {})["started"]


def test_a_reset_leaves_no_data_of_etcd(guest: Guest) -> None:
    """After a power cut etcd's manifest may be empty, by which kubeadm finds the data; init would refuse them."""
    guest.put("var/lib/etcd/member/wal/0.wal", "x")
    guest.put("var/lib/etcd/lock", "x")
    (guest.root / "var/lib/etcd/link").symlink_to(guest.root / "proc")
    guest.do("run-kubeadm", {"arguments": ["reset", "--force"]})
    assert list((guest.root / "var/lib/etcd").iterdir()) == []
    assert (guest.root / "proc/stat").exists()


def test_a_phase_is_not_an_init(guest: Guest) -> None:
    guest.do("run-kubeadm", {"arguments": ["init", "phase", "upload-certs"], "configuration": CONFIG})
    assert not guest.do("status", {})["started"]


def test_a_requested_token_is_returned(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    guest.runner.answers["kubeadm token"] = (0, TOKEN + "\n")
    guest.do("run-kubeadm", {"arguments": ["token", "create"]})
    assert TOKEN in capsys.readouterr().out
    assert TOKEN not in (guest.root / "var/log/winlab/kubeadm.log").read_text()
