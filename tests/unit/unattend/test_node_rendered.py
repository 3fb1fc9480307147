"""The files that winlab renders for a Linux node: compared, restored, and followed by restarts."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd

import pytest
from linux_guest import FILES, PROGRAMS, SETTINGS, Guest, joins

from winlab_node import kernel
from winlab_node.node import Node, NodeError

CONFIG = "/etc/containerd/config.toml"
DROP_IN = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
OWNER = f"{pwd.getpwuid(os.getuid()).pw_name}:{grp.getgrgid(os.getgid()).gr_name}"
MORE = {
    "files": {
        **FILES,
        DROP_IN: {"content": "[Service]\n", "mode": "0644"},
        "/etc/motd": {"content": "x", "mode": "0600"},
    },
    "services": SETTINGS["services"],
}


@pytest.fixture
def prepared(guest: Guest) -> Guest:
    """A node that winlab has prepared, and that is a member."""
    guest.burn(PROGRAMS, {})
    guest.do("prepare", MORE)
    joins(guest)
    guest.put("etc/systemd/system/containerd.service", "")
    guest.put("etc/systemd/system/kubelet.service", "")
    guest.runner.answers["systemctl is-active"] = (0, "active\nactive\n")
    guest.runner.asked.clear()
    return guest


def test_status_has_the_files_asked_for(prepared: Guest) -> None:
    found = prepared.do("status", {"files": [*MORE["files"], "/etc/none"]})
    assert found["files"].keys() == MORE["files"].keys()
    digest = hashlib.sha256(b"version = 3\n").hexdigest()
    assert found["files"][CONFIG] == {"sha256": digest, "mode": "0644", "owner": OWNER}
    assert found["files"]["/etc/motd"]["mode"] == "0600"
    assert (found["left_over"], found["differing"], found["prepared"]) == ([], [], True)


@pytest.mark.parametrize(
    ("path", "restarted"),
    [(CONFIG, ["containerd"]), (DROP_IN, ["kubelet"]), ("/etc/motd", [])],
)
def test_a_changed_file_is_restored_and_only_its_readers_are_restarted(
    prepared: Guest, capsys: pytest.CaptureFixture[str], path: str, restarted: list[str]
) -> None:
    prepared.put(path.lstrip("/"), "# by hand\n")
    assert prepared.do("prepare", MORE) == {"changed": True}
    assert (prepared.root / path.lstrip("/")).read_text() == MORE["files"][path]["content"]
    assert prepared.runner.lines("systemctl restart") == [f"systemctl restart {name}" for name in restarted]
    assert f"{path} differs: it is written again" in capsys.readouterr().out
    assert prepared.do("prepare", MORE) == {"changed": False}


def test_a_changed_mode_is_restored(prepared: Guest) -> None:
    (prepared.root / "etc/motd").chmod(0o644)
    assert prepared.do("status", {"files": ["/etc/motd"]})["files"]["/etc/motd"]["mode"] == "0644"
    assert prepared.do("prepare", MORE) == {"changed": True}
    assert (prepared.root / "etc/motd").stat().st_mode & 0o777 == 0o600


def test_a_file_has_the_owner_that_is_asked_for(prepared: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _file, user, group: given.append((user, group)))
    files = {**MORE["files"], "/etc/other": {"content": "", "mode": "0640", "owner": OWNER}}
    prepared.do("prepare", {**MORE, "files": files})
    assert given == [(os.getuid(), os.getgid())]
    files["/etc/other"] = {**files["/etc/other"], "owner": "nobody-here:root"}
    with pytest.raises(NodeError, match="is to belong to 'nobody-here:root'"):
        prepared.do("prepare", {**MORE, "files": files})


def test_files_that_are_no_longer_given_are_removed(prepared: Guest) -> None:
    assert prepared.do("status", {"files": list(FILES)})["left_over"] == ["/etc/motd", DROP_IN]
    assert prepared.do("prepare", SETTINGS) == {"changed": True}
    assert not (prepared.root / "etc/motd").exists()
    assert prepared.do("status", {"files": list(FILES)})["left_over"] == []
    prepared.put("etc/motd", "somebody else's")
    assert prepared.do("prepare", SETTINGS) == {"changed": False}


def test_a_service_is_restarted_also_after_an_interruption(prepared: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared.put(CONFIG.lstrip("/"), "# by hand\n")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr("winlab_node.prepare._services", stop)
        with pytest.raises(KeyboardInterrupt):
            prepared.do("prepare", MORE)
    assert (prepared.root / CONFIG.lstrip("/")).read_text() == "version = 3\n"
    assert not prepared.do("status", {})["prepared"]
    prepared.do("prepare", MORE)
    assert prepared.runner.lines("systemctl restart") == ["systemctl restart containerd"]
    assert prepared.do("status", {})["prepared"]


def test_changed_kernel_settings_are_named_and_restored(prepared: Guest) -> None:
    prepared.put("etc/sysctl.d/90-winlab.conf", "net.ipv4.ip_forward = 0\n")
    prepared.put("proc/sys/net/ipv4/ip_forward", "0\n")
    prepared.put("proc/swaps", "Filename Type\n/dev/vdb partition\n")
    assert prepared.do("status", {})["differing"] == [
        "/etc/sysctl.d/90-winlab.conf",
        "sysctl net.ipv4.ip_forward",
        "swap",
    ]
    prepared.do("prepare", MORE)
    prepared.put("proc/swaps", "Filename Type\n")
    assert prepared.do("status", {})["differing"] == []


def test_a_node_whose_kernel_lacks_a_module_is_not_asked(guest: Guest) -> None:
    (guest.root / "sys/module/overlay").rmdir()
    assert "module overlay" in kernel.differing(Node(guest.root, guest.runner))
    assert guest.runner.asked == []
    guest.put("proc/sys/kernel/osrelease", "6.1\n")
    guest.put("lib/modules/6.1/modules.builtin", "kernel/fs/overlayfs/overlay.ko\n")
    assert "module overlay" not in kernel.differing(Node(guest.root, guest.runner)), "it is part of the kernel"
