"""push, with drives, nodes and an API server that are played."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import day2_fakes
import pytest
from day2_fakes import PAYLOAD, Api, World, machine

from winlab.design.plan.tags import Tag
from winlab.errors import ClusterError, GuestError, NotFoundError, UnreachableError, UsageError
from winlab.events import Quiet
from winlab.operations import drives, push


def pe(machine_type: int = 0x8664) -> bytes:
    return b"MZ" + b"\0" * 58 + struct.pack("<I", 64) + b"PE\0\0" + struct.pack("<H", machine_type) + b"\0" * 100


ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 11 + struct.pack("<H", 62) + b"\0" * 100
LEASE = [{"spec": {"renewTime": f"2026-11-21T10:00:0{n}.000000Z"}} for n in range(4)]
NODE = {
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.36.3-mine"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
    }
}
NOT_READY = {
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
        "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped"}],
    }
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return day2_fakes.world(monkeypatch)


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    path = tmp_path / "kubelet.exe"
    path.write_bytes(pe())
    return path


def answering(world: World) -> None:
    """Nodes that swap what is on the CD."""

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        assert name == "push"
        if settings["restore"]:
            return {"changed": True, "sha256": "0" * 64}
        content = world.pool.volumes[world.inside[f"winlab-lab-{tag.node}"]][f"push/{settings['program']}"]
        return {"changed": True, "sha256": hashlib.sha256(content).hexdigest()}

    world.script = script


# -- push


def test_push_swaps_and_puts_the_payload_cd_back(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    answering(world)
    api = Api({"get lease": LEASE, "get node": NODE})
    done = push.push(node, str(kubelet), world.drives, api, Quiet())
    assert done == push.Pushed("kubelet.exe", hashlib.sha256(pe()).hexdigest(), True, "v1.36.3-mine")
    assert world.log == ["node-1: lab.node-1.push.iso", "node-1: push", f"node-1: {PAYLOAD['windows']}"]
    assert world.pool.deleted == ["lab.node-1.push.iso"]
    assert sum(line.startswith("get lease") for line, _ in api.asked) >= 3
    assert not (world.state.folder / "drive-node-1").exists()


def test_the_cd_has_program_scripts_and_list(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    seen: dict[str, bytes] = {}

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        seen.update(world.pool.volumes["lab.node-1.push.iso"])
        assert settings == {"program": "kubelet.exe", "restore": False}
        return {"changed": False, "sha256": hashlib.sha256(pe()).hexdigest()}

    world.script = script
    done = push.push(node, str(kubelet), world.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())
    assert not done.changed
    assert seen["push/kubelet.exe"] == pe()
    assert {"scripts/push.ps1", "scripts/common.ps1"} <= set(seen)
    listed = json.loads(seen["payload.json"])
    assert listed["push"] == {"kubelet.exe": {"sha256": hashlib.sha256(pe()).hexdigest()}}
    assert listed["programs"] == {}


@pytest.mark.parametrize("failure", [GuestError("the script failed"), UnreachableError("gone"), KeyboardInterrupt()])
def test_a_failure_leaves_the_payload_cd_in_the_drive(world: World, kubelet: Path, failure: BaseException) -> None:
    node = world.add(machine("node-1"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        raise failure

    world.script = script
    with pytest.raises(type(failure)):
        push.push(node, str(kubelet), world.drives, Api({}), Quiet())
    assert world.inside[node.domain] == PAYLOAD["windows"]
    assert world.pool.deleted == ["lab.node-1.push.iso"]


def test_a_winlab_that_was_killed_is_mended(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    world.inside[node.domain] = "lab.node-1.push.iso"
    world.state.write(world.state.folder / "drive-node-1", PAYLOAD["windows"])
    answering(world)
    push.push(node, str(kubelet), world.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())
    assert world.log[0] == f"node-1: {PAYLOAD['windows']}"
    assert world.inside[node.domain] == PAYLOAD["windows"]


def test_a_node_without_a_payload_cd_is_refused(world: World, kubelet: Path) -> None:
    with pytest.raises(NotFoundError, match="no payload CD"):
        push.push(machine("node-1"), str(kubelet), world.drives, Api({}), Quiet())
    assert world.log == []
    assert world.pool.deleted == []


def test_a_cd_that_windows_does_not_see(world: World, kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = world.add(machine("node-1"))
    monkeypatch.setattr(drives, "TRIES", 2)
    monkeypatch.setattr(world.pool, "upload", lambda name, source: world.pool.volumes.update({name: {}}))
    with pytest.raises(GuestError, match="does not see the CD"):
        push.push(node, str(kubelet), world.drives, Api({}), Quiet())
    assert "node-1: push" not in world.log


def test_another_file_than_was_checked_is_noticed(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    world.script = lambda tag, name, settings: {"changed": True, "sha256": "f" * 64}
    with pytest.raises(GuestError, match="has another kubelet"):
        push.push(node, str(kubelet), world.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())


def test_a_node_that_does_not_come_back(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    answering(world)
    api = Api({"get lease": LEASE[:1], "get node": NOT_READY})
    with pytest.raises(ClusterError, match="did not become Ready") as failed:
        push.push(node, str(kubelet), world.drives, api, Quiet(), scale=0.0)
    assert "NodeStatusUnknown: stopped" in failed.value.why
    assert "--restore" in failed.value.cure
    assert world.inside[node.domain] == PAYLOAD["windows"]


def test_an_old_ready_is_not_believed(world: World, kubelet: Path) -> None:
    """For 40 s after a kubelet ended its node still says Ready."""
    node = world.add(machine("node-1"))
    answering(world)
    with pytest.raises(ClusterError, match="did not become Ready"):
        push.push(node, str(kubelet), world.drives, Api({"get lease": LEASE[:1], "get node": NODE}), Quiet(), scale=0.0)


def test_nothing_is_waited_for_where_no_service_restarts(world: World, tmp_path: Path) -> None:
    node = world.add(machine("controller-1", "linux"))
    (tmp_path / "kubeadm").write_bytes(ELF)
    answering(world)
    api = Api({})
    done = push.push(node, str(tmp_path / "kubeadm"), world.drives, api, Quiet())
    assert (done.program, done.kubelet, api.asked) == ("kubeadm", "", [])


def test_a_node_that_has_not_joined_is_not_waited_for(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1"))
    answering(world)
    assert push.push(node, str(kubelet), world.drives, Api({}), Quiet()).kubelet == ""


def test_restore_changes_no_cd(world: World) -> None:
    node = world.add(machine("node-1"))
    answering(world)
    api = Api({"get lease": LEASE, "get node": NODE})
    done = push.bring_back(node, "kubelet", world.drives, api, Quiet())
    assert (done.program, done.sha256) == ("kubelet.exe", "0" * 64)
    assert world.log == ["node-1: push"]


@pytest.mark.parametrize(
    ("name", "content", "os", "says"),
    [
        ("kubelet.exe", ELF, "windows", "Linux program"),
        ("kubelet.exe", pe(0xAA64), "windows", "arm64"),
        ("kubelet.exe", b"", "windows", "empty"),
        ("kubelet", pe(), "linux", "Windows program"),
        ("kubelet.exe", pe(), "linux", "one of Windows"),
        ("kubelet", ELF, "windows", "one of Linux"),
        ("kubelet-1.36", ELF, "linux", "name tells which"),
        ("kube-proxy", ELF, "linux", "runs in a pod"),
        ("kube-apiserver", ELF, "linux", "winlab load"),
    ],
)
def test_what_cannot_be_pushed(world: World, tmp_path: Path, name: str, content: bytes, os: str, says: str) -> None:
    node = world.add(machine("node-1", os))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        push.push(node, str(tmp_path / name), world.drives, Api({}), Quiet())
    assert says in str(refused.value)
    assert world.log == []


def test_a_file_that_is_not_there(world: World, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        push.push(world.add(machine("node-1")), str(tmp_path / "kubelet.exe"), world.drives, Api({}), Quiet())


def test_a_node_that_is_off(world: World, kubelet: Path) -> None:
    node = world.add(machine("node-1", state="off"))
    with pytest.raises(GuestError, match="is off"):
        push.push(node, str(kubelet), world.drives, Api({}), Quiet())
