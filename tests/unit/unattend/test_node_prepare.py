"""A Linux node before kubeadm: its files, programs, services and kernel settings, from winlab's CD."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from linux_guest import PROGRAMS, SETTINGS, Guest

from winlab.design.distribution import containerd, kubelet
from winlab.design.distribution.kubeadm import files as kubeadm_files
from winlab_node import __main__ as program
from winlab_node import files, payload
from winlab_node.node import NodeError


def test_prepare_does_it_once(guest: Guest) -> None:
    guest.burn(PROGRAMS, {"bridge": b"a bridge"})
    guest.put("etc/fstab", "UUID=1 / ext4 defaults 0 1\n/dev/vdb none swap sw 0 0\n# /dev/vdc none swap sw 0 0\n")
    guest.put("proc/swaps", "Filename Type\n/dev/vdb partition\n")
    assert guest.do("prepare", SETTINGS) == {"changed": True}
    assert (guest.root / "usr/local/bin/kubelet").read_bytes() == b"kubelet 1"
    assert (guest.root / "usr/local/bin/kubelet").stat().st_mode & 0o777 == 0o755
    assert (guest.root / "opt/cni/bin/bridge").exists()
    assert (guest.root / "proc/sys/net/ipv4/ip_forward").read_text() == "1"
    assert "# winlab: /dev/vdb none swap" in (guest.root / "etc/fstab").read_text()
    assert "\n# /dev/vdc" in (guest.root / "etc/fstab").read_text()
    assert guest.runner.lines("swapoff") == ["swapoff -a"]
    assert guest.runner.lines("mount")[0].endswith(f"{guest.root}/dev/sr1 {guest.cd}")
    assert guest.runner.lines("umount") == [f"umount {guest.cd}"]
    assert guest.runner.lines("systemctl restart") == ["systemctl restart containerd"]
    assert guest.do("status", {})["prepared"]

    guest.put("etc/systemd/system/containerd.service", "")
    guest.put("etc/systemd/system/kubelet.service", "")
    guest.put("proc/swaps", "Filename Type\n")
    guest.runner.answers["systemctl is-active"] = (3, "active\ninactive\n")
    guest.runner.asked.clear()
    assert guest.do("prepare", SETTINGS) == {"changed": False}
    assert not guest.runner.lines("systemctl restart")


def test_a_digest_is_computed_once(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    read: list[Path] = []
    monkeypatch.setattr(files, "digest_of", lambda path: read.append(path) or "other")
    assert guest.do("status", {})["prepared"]
    assert read == []
    guest.put("usr/local/bin/kubelet", b"somebody else's")
    assert not guest.do("status", {})["prepared"]
    assert read


def test_a_different_program_is_refused(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    guest.put("run/winlab/payload/programs/kubelet", b"cut")
    with pytest.raises(NodeError, match=r"'kubelet' on winlab's CD is not what payload\.json says"):
        guest.do("prepare", SETTINGS)
    assert not (guest.root / "usr/local/bin/kubelet").exists()
    assert guest.runner.lines("umount"), "the CD can be taken out"


def test_a_missing_program_is_named(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    (guest.cd / "programs/ctr").unlink()
    with pytest.raises(NodeError, match="'ctr' is missing on winlab's CD"):
        guest.do("prepare", SETTINGS)


def test_a_unit_that_starts_a_program_in_another_folder_is_refused(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    files = {
        "/etc/systemd/system/kubelet.service": {"content": "[Service]\nExecStart=/usr/bin/kubelet\n", "mode": "0644"}
    }
    with pytest.raises(NodeError, match="winlab installs it as '/usr/local/bin/kubelet'"):
        guest.do("prepare", {"files": files, "services": ["kubelet"]})
    assert not (guest.root / "usr/local/bin").exists()


@pytest.mark.parametrize("unit", [kubelet.unit(), kubeadm_files.drop_in(), containerd.unit()])
def test_the_units_start_the_installed_programs(unit: str) -> None:
    assert all(path.startswith("/usr/local/bin/") for path in re.findall(r"^ExecStart=(/\S+)", unit, re.MULTILINE))


@pytest.mark.parametrize("name", ["etc/passwd", "/etc/../x"])
def test_paths_must_be_absolute(guest: Guest, name: str) -> None:
    guest.burn(PROGRAMS, {})
    with pytest.raises(NodeError, match="no absolute path"):
        guest.do("prepare", {"files": {name: {"content": "", "mode": "0644"}}, "services": []})


def test_a_missing_cd_is_reported(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    (guest.root / "dev/sr1").unlink()
    monkeypatch.setattr(payload.time, "sleep", lambda seconds: None)
    with pytest.raises(NodeError, match="WINLAB_K8S"), payload.payload(guest.node(), seconds=0):
        pass


def test_a_mount_of_a_killed_run_is_undone(guest: Guest) -> None:
    guest.put("proc/self/mounts", f"/dev/sr1 {guest.cd} iso9660 ro 0 0\n")
    with payload.payload(guest.node()):
        assert [line.split()[0] for line, _ in guest.runner.asked] == ["umount", "mount"]


def test_a_file_is_on_disk_before_it_has_its_name(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    flush, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("flushed") or flush(handle))  # type: ignore[func-returns-value]
    monkeypatch.setattr(Path, "replace", lambda self, to: order.append("named") or rename(self, to))  # type: ignore[func-returns-value]
    guest.node().write("etc/x", "new")
    assert order == ["flushed", "named"]
    guest.node().keep("done", True)
    assert order[2:] == ["flushed", "named", "flushed"]


def test_a_verb_s_result_is_on_disk_before_it_is_reported(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(program, "verb", lambda name: lambda *_: asked.append(name) or {})
    monkeypatch.setattr(os, "sync", lambda: asked.append("sync"))
    for name in ("routes", "status"):
        assert program.main([name], "{}", guest.node()) == 0
    assert asked == ["routes", "sync", "status"]
