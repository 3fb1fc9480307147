"""push, with fake drives, nodes and a fake API server."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lab_fakes
import pytest
import sites
from lab_fakes import PAYLOAD, Api, FakeLab, machine

from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.tags import Tag
from winlab.errors import ClusterError, GuestError, NotFoundError, OffError, UnreachableError, UsageError, WinlabError
from winlab.events import Quiet
from winlab.operations import drives, push


def pe(machine_type: int = 0x8664) -> bytes:
    return b"MZ" + b"\0" * 58 + struct.pack("<I", 64) + b"PE\0\0" + struct.pack("<H", machine_type) + b"\0" * 100


ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 11 + struct.pack("<H", 62) + b"\0" * 100
LEASE = [{"metadata": {"name": "node-1"}, "spec": {"renewTime": f"2026-11-21T10:00:0{n}.000000Z"}} for n in range(4)]
NODE = {
    "metadata": {"name": "node-1"},
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.36.3-mine"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
    },
}
NOT_READY = {
    "metadata": {"name": "node-1"},
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.36.3"},
        "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped"}],
    },
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    return lab_fakes.fake_lab(monkeypatch)


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    path = tmp_path / "kubelet.exe"
    path.write_bytes(pe())
    return path


def answering(lab: FakeLab) -> None:
    """Nodes that swap what is on the CD."""

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        assert name == "push"
        if settings["restore"]:
            return {"changed": True, "sha256": "0" * 64}
        content = lab.pool.volumes[lab.inside[f"winlab-lab.{tag.node}"]][f"push/{settings['program']}"]
        return {"changed": True, "sha256": hashlib.sha256(content).hexdigest()}

    lab.script = script


class Hurried(MachineFacts):
    @property
    def scale(self) -> float:
        return 0.0


def impatient(lab: FakeLab) -> drives.Drives:
    """Drives of nodes that are not waited for."""
    return drives.Drives(sites.lab("lab", sites.hypervisor(pool=lab.pool, facts=Hurried())))


# -- push


def test_push_swaps_and_puts_the_payload_cd_back(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    answering(lab)
    api = Api({"get lease": LEASE, "get node": NODE})
    done = push.push(node, str(kubelet), lab.drives, api, Quiet())
    assert done == push.PushedProgram("kubelet.exe", hashlib.sha256(pe()).hexdigest(), True, "v1.36.3-mine")
    assert lab.log == ["node-1: lab.node-1.push.iso", "node-1: push", f"node-1: {PAYLOAD['windows']}"]
    assert lab.pool.deleted == ["lab.node-1.push.iso"]
    assert sum(line.startswith("get lease") for line, _ in api.asked) >= 3
    assert not (lab.folder.path / "drive-node-1").exists()


def test_a_pushed_program_is_recorded_until_it_is_restored(lab: FakeLab, kubelet: Path) -> None:
    """ux N8: diff said that the lab is as planned."""
    node = lab.add(machine("node-1"))
    answering(lab)

    def api() -> Api:
        return Api({"get lease": LEASE, "get node": NODE})

    push.push(node, str(kubelet), lab.drives, api(), Quiet())
    push.push(node, str(kubelet), lab.drives, api(), Quiet())
    (own,) = lab.pushed[node.domain]
    assert (own.program, own.sha256) == ("kubelet.exe", hashlib.sha256(pe()).hexdigest())
    assert str(own).startswith(f"kubelet.exe is your own build ({own.sha256[:12]}...), pushed at 20")
    push.bring_back(node, "kube-proxy.exe", lab.drives, api(), Quiet())
    assert lab.pushed[node.domain] == [own]
    push.bring_back(node, "kubelet.exe", lab.drives, api(), Quiet())
    assert lab.pushed[node.domain] == []


def test_a_pushed_program_with_which_the_node_is_not_ready_is_recorded(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    answering(lab)
    with pytest.raises(ClusterError):
        push.push(node, str(kubelet), impatient(lab), Api({"get lease": LEASE, "get node": NOT_READY}), Quiet())
    assert [one.program for one in lab.pushed[node.domain]] == ["kubelet.exe"]


def test_the_cd_has_program_scripts_and_list(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    seen: dict[str, bytes] = {}

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        seen.update(lab.pool.volumes["lab.node-1.push.iso"])
        assert settings == {"program": "kubelet.exe", "restore": False}
        return {"changed": False, "sha256": hashlib.sha256(pe()).hexdigest()}

    lab.script = script
    done = push.push(node, str(kubelet), lab.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())
    assert not done.changed
    assert seen["push/kubelet.exe"] == pe()
    assert {"scripts/push.ps1", "scripts/common.ps1"} <= set(seen)
    listed = json.loads(seen["payload.json"])
    assert listed["push"] == {"kubelet.exe": {"sha256": hashlib.sha256(pe()).hexdigest()}}
    assert listed["programs"] == {}


@pytest.mark.parametrize("failure", [GuestError("the script failed"), UnreachableError("gone"), KeyboardInterrupt()])
def test_a_failure_leaves_the_payload_cd_in_the_drive(lab: FakeLab, kubelet: Path, failure: BaseException) -> None:
    node = lab.add(machine("node-1"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        raise failure

    lab.script = script
    with pytest.raises(type(failure)):
        push.push(node, str(kubelet), lab.drives, Api({}), Quiet())
    assert lab.inside[node.domain] == PAYLOAD["windows"]
    assert lab.pool.deleted == ["lab.node-1.push.iso"]


def test_a_swap_whose_connection_was_cut_is_done_again(lab: FakeLab, kubelet: Path) -> None:
    """The second run finds done what the first did: the node counts as changed, and must report again."""
    node = lab.add(machine("node-1"))
    answering(lab)
    once = lab.script

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if lab.log.count("node-1: push") == 1:
            raise UnreachableError("gone")
        return {**once(tag, name, settings), "changed": False}

    lab.script = script
    api = Api({"get lease": LEASE, "get node": NODE})
    done = push.push(node, str(kubelet), lab.drives, api, Quiet())
    assert done.changed
    assert sum(line.startswith("get lease") for line, _ in api.asked) >= 3
    cd, payload = "node-1: lab.node-1.push.iso", f"node-1: {PAYLOAD['windows']}"
    assert lab.log == [cd, "node-1: push", "node-1: disconnected", "node-1: push", payload]


def test_a_machine_that_was_switched_off_is_not_waited_for(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        lab.runs = False
        raise UnreachableError("gone")

    lab.script = script
    with pytest.raises(UnreachableError, match="gone"):
        push.push(node, str(kubelet), lab.drives, Api({}), Quiet())
    assert lab.log.count("node-1: push") == 1


def test_a_failure_s_known_cause_is_named(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        raise GuestError("'push' failed in 'node-1'.", why="Commands run with a filtered token.")

    lab.script = script
    with pytest.raises(GuestError) as failed:
        push.push(node, str(kubelet), lab.drives, Api({}), Quiet())
    assert "LocalAccountTokenFilterPolicy" in failed.value.why


def test_recovers_after_being_killed(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    lab.inside[node.domain] = "lab.node-1.push.iso"
    lab.folder.write(lab.folder.path / "drive-node-1", PAYLOAD["windows"])
    answering(lab)
    push.push(node, str(kubelet), lab.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())
    assert lab.log[0] == f"node-1: {PAYLOAD['windows']}"
    assert lab.inside[node.domain] == PAYLOAD["windows"]


def test_a_node_without_a_payload_cd_is_refused(lab: FakeLab, kubelet: Path) -> None:
    with pytest.raises(NotFoundError, match="no payload CD"):
        push.push(machine("node-1"), str(kubelet), lab.drives, Api({}), Quiet())
    assert lab.log == []
    assert lab.pool.deleted == []


def test_a_cd_that_windows_does_not_see(lab: FakeLab, kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = lab.add(machine("node-1"))
    monkeypatch.setattr(drives, "SILENCE", 0.0)
    monkeypatch.setattr(lab.pool, "upload", lambda name, source: lab.pool.volumes.update({name: {}}))
    with pytest.raises(GuestError, match="does not see the CD"):
        push.push(node, str(kubelet), lab.drives, Api({}), Quiet())
    assert "node-1: push" not in lab.log


def test_a_node_that_reports_another_file_is_noticed(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    lab.script = lambda tag, name, settings: {"changed": True, "sha256": "f" * 64}
    with pytest.raises(GuestError, match="has a different kubelet"):
        push.push(node, str(kubelet), lab.drives, Api({"get lease": LEASE, "get node": NODE}), Quiet())


def test_a_node_that_does_not_come_back(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    answering(lab)
    api = Api({"get lease": LEASE[:1], "get node": NOT_READY})
    with pytest.raises(ClusterError, match="did not become Ready") as failed:
        push.push(node, str(kubelet), impatient(lab), api, Quiet())
    assert "NodeStatusUnknown: stopped" in failed.value.why
    assert "--restore" in failed.value.cure
    assert lab.inside[node.domain] == PAYLOAD["windows"]


def test_an_old_ready_is_not_trusted(lab: FakeLab, kubelet: Path) -> None:
    """For 40 s after a kubelet ended its node still says Ready."""
    node = lab.add(machine("node-1"))
    answering(lab)
    with pytest.raises(ClusterError, match="did not become Ready"):
        push.push(node, str(kubelet), impatient(lab), Api({"get lease": LEASE[:1], "get node": NODE}), Quiet())


def test_nothing_is_waited_for_where_no_service_restarts(lab: FakeLab, tmp_path: Path) -> None:
    node = lab.add(machine("controller-1", "linux"))
    (tmp_path / "kubeadm").write_bytes(ELF)
    answering(lab)
    api = Api({})
    done = push.push(node, str(tmp_path / "kubeadm"), lab.drives, api, Quiet())
    assert (done.program, done.kubelet, api.asked) == ("kubeadm", "", [])


def test_a_node_that_has_not_joined_is_not_waited_for(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1"))
    answering(lab)
    assert push.push(node, str(kubelet), lab.drives, Api({}), Quiet()).kubelet == ""


def test_restore_changes_no_cd(lab: FakeLab) -> None:
    node = lab.add(machine("node-1"))
    answering(lab)
    api = Api({"get lease": LEASE, "get node": NODE})
    done = push.bring_back(node, "kubelet", lab.drives, api, Quiet())
    assert (done.program, done.sha256) == ("kubelet.exe", "0" * 64)
    assert lab.log == ["node-1: push"]


@pytest.mark.parametrize(
    ("name", "content", "os", "says"),
    [
        ("kubelet.exe", ELF, "windows", "Linux program"),
        ("kubelet.exe", pe(0xAA64), "windows", "arm64"),
        ("kubelet.exe", b"", "windows", "empty"),
        ("kubelet", pe(), "linux", "Windows program"),
        ("kubelet.exe", pe(), "linux", "program of Windows nodes"),
        ("kubelet", ELF, "windows", "program of Linux nodes"),
        ("kubelet-1.36", ELF, "linux", "name decides which"),
        ("kube-proxy", ELF, "linux", "runs in a pod"),
        ("kube-apiserver", ELF, "linux", "winlab load"),
    ],
)
def test_files_that_cannot_be_pushed(
    lab: FakeLab, tmp_path: Path, name: str, content: bytes, os: str, says: str
) -> None:
    node = lab.add(machine("node-1", os))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError) as refused:
        push.push(node, str(tmp_path / name), lab.drives, Api({}), Quiet())
    assert says in str(refused.value)
    assert lab.log == []


def test_a_missing_file(lab: FakeLab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        push.push(lab.add(machine("node-1")), str(tmp_path / "kubelet.exe"), lab.drives, Api({}), Quiet())


def test_a_node_that_is_off(lab: FakeLab, kubelet: Path) -> None:
    node = lab.add(machine("node-1", state="off"))
    with pytest.raises(GuestError, match="is off"):
        push.push(node, str(kubelet), lab.drives, Api({}), Quiet())


@pytest.mark.parametrize(
    ("binary", "state", "restore", "error"),
    [
        ("x", "running", False, UsageError),
        ("kubelet.exe", "running", False, UsageError),  # no such file
        ("x", "running", True, UsageError),
        ("{kubelet}", "off", False, OffError),
        ("kubelet.exe", "suspended", True, OffError),
    ],
)
def test_what_can_not_be_pushed_is_not_a_run_in_the_journal(
    lab: FakeLab,
    kubelet: Path,
    monkeypatch: pytest.MonkeyPatch,
    binary: str,
    state: str,
    restore: bool,
    error: type[WinlabError],
) -> None:
    """ux N9."""
    monkeypatch.setattr(push.look, "find", lambda *_: [machine("node-1", state=state)])
    monkeypatch.setattr(push.Kubectl, "of", lambda _: Api({}))
    with pytest.raises(error):
        push.to_node(
            "lab",
            lab.site,
            "node-1",
            binary.format(kubelet=kubelet),
            lambda event: pytest.fail(f"{event}"),
            restore=restore,
        )
    assert not lab.folder.path.exists()
