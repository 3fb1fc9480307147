"""What winlab does inside Linux nodes: the package winlab_node, run on a tree of its own."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import runpy
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from winlab import data
from winlab.adapters.guests import node_program
from winlab.design.contract import Call
from winlab.design.render import containerd, kubelet
from winlab_node import __main__ as program
from winlab_node import alone, files, kernel, payload, prepare
from winlab_node.node import Node, NodeError

CONFIG = "kind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    apiServerEndpoint: 10.77.0.11:6443\n"
TOKEN = "abcdef.0123456789abcdef"


class Runner:
    """Answers instead of processes, by a command's beginning; keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, tuple[int, str]] = {}
        self.effects: dict[str, Callable[[], None]] = {}

    def __call__(
        self, command: list[str], words: str = "", heard: Callable[[str], None] | None = None
    ) -> tuple[int, str]:
        line = " ".join([Path(command[0]).name, *command[1:]])
        self.asked.append((line, words))
        for start, effect in self.effects.items():
            if line.startswith(start):
                effect()
        code, output = next((a for start, a in self.answers.items() if line.startswith(start)), (0, ""))
        for one in output.splitlines():
            if heard is not None:
                heard(one)
        return code, output

    def lines(self, start: str) -> list[str]:
        return [line for line, _ in self.asked if line.startswith(start)]


class Guest:
    """A tree like a guest's, with a payload CD in a drive."""

    def __init__(self, root: Path) -> None:
        self.root, self.runner = root, Runner()
        for name, content in {
            "proc/stat": "cpu 1\nbtime 1763733600\n",
            "proc/sys/kernel/random/boot_id": "b1\n",
            "proc/swaps": "Filename Type\n",
            "proc/self/mounts": "",
            **{"proc/sys/" + key.replace(".", "/"): "0\n" for key in kernel.SYSCTLS},
        }.items():
            self.put(name, content)
        for name in kernel.MODULES:
            (root / "sys/module" / name).mkdir(parents=True)
        (root / "sys/block/sr0").mkdir(parents=True)
        (root / "sys/block/sr1").mkdir(parents=True)
        self.put("dev/sr0", _disc(b"cidata"))
        self.put("dev/sr1", _disc(b"WINLAB_K8S"))
        self.cd = root / "run/winlab/payload"
        self.runner.answers["systemctl is-active"] = (3, "inactive\ninactive\n")

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def burn(self, programs: dict[str, bytes], plugins: dict[str, bytes]) -> None:
        rows = {}
        for part, given in (("programs", programs), ("cni", plugins)):
            rows[part] = {name: {"version": "v1", "sha256": _sha(content)} for name, content in given.items()}
            for name, content in given.items():
                self.put(f"run/winlab/payload/{part}/{name}", content)
        self.put("run/winlab/payload/payload.json", json.dumps({**rows, "images": {}}))

    def node(self) -> Node:
        return Node(self.root, self.runner)

    def do(self, verb: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Run a verb; what is asked and what it tells are as agreed."""
        (call,) = (one for one in Call.__subclasses__() if one.script == verb and "linux" in one.on)
        assert settings.keys() <= call.known("linux")
        told = program.verb(verb)(self.node(), settings)
        call.result.model_validate(told)
        return told


def _disc(label: bytes) -> bytes:
    return bytes(16 * 2048) + (b"\x01CD001\x01\x00" + bytes(32) + label.ljust(32)).ljust(2048, b"\0")


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    monkeypatch.setattr(prepare, "_await_socket", lambda node: None)
    monkeypatch.setattr(os, "sync", lambda: None)
    return Guest(tmp_path)


def archive(path: Path, images: dict[str, str]) -> Path:
    rows = [{"digest": digest, "annotations": {"io.containerd.image.name": name}} for name, digest in images.items()]
    content = json.dumps({"manifests": rows}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("index.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return path


FILES = {"/etc/containerd/config.toml": {"content": "version = 3\n", "mode": "0644"}}
SETTINGS = {"files": FILES, "services": ["containerd", "kubelet"]}
PROGRAMS = {"kubelet": b"kubelet 1", "kubeadm": b"kubeadm 1", "containerd": b"containerd", "ctr": b"ctr"}


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


def test_a_digest_is_taken_once(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    read: list[Path] = []
    monkeypatch.setattr(files, "digest_of", lambda path: read.append(path) or "other")
    assert guest.do("status", {})["prepared"]
    assert read == []
    guest.put("usr/local/bin/kubelet", b"somebody else's")
    assert not guest.do("status", {})["prepared"]
    assert read


def test_a_program_that_is_another_is_refused(guest: Guest) -> None:
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


def test_a_unit_that_starts_a_program_elsewhere_is_refused(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    files = {
        "/etc/systemd/system/kubelet.service": {"content": "[Service]\nExecStart=/usr/bin/kubelet\n", "mode": "0644"}
    }
    with pytest.raises(NodeError, match="winlab installs it as '/usr/local/bin/kubelet'"):
        guest.do("prepare", {"files": files, "services": ["kubelet"]})
    assert not (guest.root / "usr/local/bin").exists()


@pytest.mark.parametrize("unit", [kubelet.unit(), kubelet.drop_in(), containerd.unit()])
def test_the_host_s_units_start_what_is_installed(unit: str) -> None:
    assert all(path.startswith("/usr/local/bin/") for path in re.findall(r"^ExecStart=(/\S+)", unit, re.MULTILINE))


@pytest.mark.parametrize("name", ["etc/passwd", "/etc/../x"])
def test_paths_must_be_absolute(guest: Guest, name: str) -> None:
    guest.burn(PROGRAMS, {})
    with pytest.raises(NodeError, match="no absolute path"):
        guest.do("prepare", {"files": {name: {"content": "", "mode": "0644"}}, "services": []})


def test_without_a_cd_it_says_so(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    (guest.root / "dev/sr1").unlink()
    monkeypatch.setattr(payload.time, "sleep", lambda seconds: None)
    with pytest.raises(NodeError, match="WINLAB_K8S"), payload.payload(guest.node(), seconds=0):
        pass


def test_a_mount_of_a_killed_run_is_undone(guest: Guest) -> None:
    guest.put("proc/self/mounts", f"/dev/sr1 {guest.cd} iso9660 ro 0 0\n")
    with payload.payload(guest.node()):
        assert [line.split()[0] for line, _ in guest.runner.asked] == ["umount", "mount"]


def test_images_that_are_there_are_not_imported(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    archive(guest.cd / "images/coredns.tar", {"registry.k8s.io/coredns/coredns:v1.14.7": "sha256:bb"})
    listed = (
        "time=now level=warning msg=old\nREF TYPE DIGEST SIZE\nregistry.k8s.io/pause:3.10.2 t sha256:aa 1\n"
        "registry.k8s.io/coredns/coredns:v1.14.7 t sha256:cc 1\n"
    )
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, listed)
    assert guest.do("load", {}) == {"changed": True}
    imported = guest.runner.lines("ctr -n k8s.io images import")
    assert len(imported) == 1
    assert imported[0].endswith("/coredns.tar")
    assert "--label io.cri-containerd.pinned=pinned" in imported[0]


LEASES = "ctr -n k8s.io leases"
LISTED = (
    "REF TYPE DIGEST SIZE\nregistry.k8s.io/pause:3.10.2 t sha256:aa 1\nsha256:0123 t sha256:aa 1\n"
    "example.org/own:1 t sha256:ff 1\n"
)


def test_an_import_is_noted_until_it_is_on_disk(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    noted: list[Any] = []
    guest.runner.effects["ctr -n k8s.io images import"] = lambda: noted.append(guest.node().note("importing", {}))
    guest.do("load", {})
    assert noted == [{"boot": "b1", "digests": ["sha256:aa"]}]
    assert guest.node().note("importing", None) == {}


def test_images_that_a_power_cut_left_half_unpacked_are_imported_anew(guest: Guest) -> None:
    """Their names are in containerd's database, also those by the CRI plug-in; a lease would keep what is unpacked."""
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.node().keep("importing", {"boot": "b0", "digests": ["sha256:aa"]})
    ls = "ctr -n k8s.io images ls"
    guest.runner.answers |= {ls: (0, LISTED), f"{LEASES} ls -q": (0, "1763-abc\n")}
    guest.runner.effects["ctr -n k8s.io images rm"] = lambda: guest.runner.answers.update({ls: (0, "REF\n")})
    assert guest.do("load", {}) == {"changed": True}
    assert guest.runner.lines(f"{LEASES} rm") == [f"{LEASES} rm 1763-abc"]
    removed = guest.runner.lines("ctr -n k8s.io images rm")
    assert removed == ["ctr -n k8s.io images rm --sync registry.k8s.io/pause:3.10.2 sha256:0123"]
    assert len(guest.runner.lines("ctr -n k8s.io images import")) == 1


def test_images_of_this_boot_stay_and_may_still_not_be_on_disk(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    archive(guest.cd / "images/own.tar", {"example.org/own:1": "sha256:ee"})
    guest.node().keep("importing", {"boot": "b1", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    noted: list[Any] = []
    guest.runner.effects["ctr -n k8s.io images import"] = lambda: noted.append(guest.node().note("importing", {}))
    guest.do("load", {})
    assert noted == [{"boot": "b1", "digests": ["sha256:aa", "sha256:ee"]}]
    assert not guest.runner.lines("ctr -n k8s.io images rm")


def test_a_note_of_images_that_are_all_there_goes(guest: Guest) -> None:
    """Else the next start would take them for half unpacked."""
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.node().keep("importing", {"boot": "b1", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    assert guest.do("load", {}) == {"changed": False}
    assert guest.node().note("importing", None) == {}


def test_a_cd_without_images_clears_up_after_one_with_images(guest: Guest) -> None:
    guest.node().keep("importing", {"boot": "b0", "digests": ["sha256:aa"]})
    guest.runner.answers["ctr -n k8s.io images ls"] = (0, LISTED)
    for _ in range(2):
        assert guest.do("load", {}) == {"changed": False}
    assert len(guest.runner.lines("ctr -n k8s.io images rm")) == 1


def test_a_file_is_on_disk_before_it_has_its_name(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    flush, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("flushed") or flush(handle))  # type: ignore[func-returns-value]
    monkeypatch.setattr(Path, "replace", lambda self, to: order.append("named") or rename(self, to))  # type: ignore[func-returns-value]
    guest.node().write("etc/x", "new")
    assert order == ["flushed", "named"]
    guest.node().keep("done", True)
    assert order[2:] == ["flushed", "named", "flushed"]


def test_what_a_verb_says_is_done_is_on_disk(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(program, "verb", lambda name: lambda *_: asked.append(name) or {})
    monkeypatch.setattr(os, "sync", lambda: asked.append("sync"))
    for name in ("routes", "status"):
        assert program.main([name], "{}", guest.node()) == 0
    assert asked == ["routes", "sync", "status"]


def test_an_image_that_containerd_refuses_is_named(guest: Guest) -> None:
    archive(guest.cd / "images/pause.tar", {"registry.k8s.io/pause:3.10.2": "sha256:aa"})
    guest.runner.answers["ctr -n k8s.io images import"] = (1, "ctr: content digest not found\n")
    with pytest.raises(NodeError, match=r"'pause\.tar' from winlab's CD: .*digest not found"):
        guest.do("load", {})
    assert guest.runner.lines("umount")


def test_a_file_that_is_no_archive_is_named(guest: Guest) -> None:
    guest.put("run/winlab/payload/images/odd.tar", b"no tar")
    with pytest.raises(NodeError, match=r"'odd\.tar' is no archive"):
        guest.do("load", {})


def joins(guest: Guest) -> None:
    guest.put("etc/kubernetes/kubelet.conf", "")
    guest.put("var/lib/kubelet/pki/kubelet-client-current.pem", "")


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


def test_an_interrupted_kubeadm_wants_a_reset(guest: Guest) -> None:
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


def test_a_phase_is_no_init(guest: Guest) -> None:
    guest.do("run-kubeadm", {"arguments": ["init", "phase", "upload-certs"], "configuration": CONFIG})
    assert not guest.do("status", {})["started"]


def test_who_asks_for_a_token_gets_it(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    guest.runner.answers["kubeadm token"] = (0, TOKEN + "\n")
    guest.do("run-kubeadm", {"arguments": ["token", "create"]})
    assert TOKEN in capsys.readouterr().out
    assert TOKEN not in (guest.root / "var/log/winlab/kubeadm.log").read_text()


def test_cni_removes_only_its_own(guest: Guest) -> None:
    theirs = guest.put("etc/cni/net.d/05-theirs.conf", "{}")
    assert guest.do("cni", {"files": {"10-a.conflist": "{}", "20-b.conflist": "{}"}}) == {"changed": True}
    assert guest.do("cni", {"files": {"20-b.conflist": "{}"}}) == {"changed": True}
    assert [path.name for path in sorted(theirs.parent.iterdir())] == ["05-theirs.conf", "20-b.conflist"]
    assert guest.do("cni", {"files": {"20-b.conflist": "{}"}}) == {"changed": False}
    assert guest.do("status", {})["cni"]["20-b.conflist"] == _sha(b"{}")


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


def test_what_changes_the_node_waits_for_what_still_does(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A create was killed while kubeadm ran here; the next one looks, and must not begin a second join."""
    waits: list[float] = []
    order: list[str] = []
    earlier = alone.alone(guest.node(), "run-kubeadm")

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        assert order == []
        if len(waits) == 2:
            guest.node().keep("kubeadm", {"state": "done"})
            earlier.__exit__(None, None, None)

    monkeypatch.setattr(alone.time, "sleep", sleep)
    monkeypatch.setattr(program, "verb", lambda name: lambda *_: order.append(name) or {})
    earlier.__enter__()
    guest.node().keep("kubeadm", {"state": "begun"})
    assert program.main(["logs"], "", guest.node()) == 0  # looking does not wait
    order.clear()
    assert program.main(["run-kubeadm"], "", guest.node()) == 0
    assert waits == [alone.LOOK] * 2
    assert order == ["run-kubeadm"]
    assert capsys.readouterr().out.count(f"waiting for 'run-kubeadm' (process {os.getpid()})") == 2


def test_a_settled_status_is_that_after_the_change(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = alone.alone(guest.node(), "run-kubeadm")
    guest.node().keep("kubeadm", {"state": "begun"})

    def sleep(_: float) -> None:
        guest.node().keep("kubeadm", {"state": "done"})
        earlier.__exit__(None, None, None)

    monkeypatch.setattr(alone.time, "sleep", sleep)
    earlier.__enter__()
    assert guest.do("status", {})["started"]
    assert not guest.do("status", {"settled": True})["started"]


@contextmanager
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The standard output of a script whose winlab was killed: a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    pipe = os.fdopen(writer, "w")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        yield
    with suppress(BrokenPipeError):  # what was not written yet
        pipe.close()


def test_what_was_begun_ends_well_though_nobody_listens(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubeadm's init takes minutes; otherwise it would end with its first line after the kill, to be done once more."""
    guest.burn(PROGRAMS, {})
    with nobody_listens(monkeypatch):
        guest.do("prepare", SETTINGS)
        assert program.main(["status"], "", guest.node()) == 0
    assert guest.do("status", {})["prepared"]


def test_what_waits_does_not_wait_for_ever_though_nobody_listens(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun nothing, and a third winlab would have to wait for it."""
    with alone.alone(guest.node(), "prepare"), nobody_listens(monkeypatch):
        assert program.main(["run-kubeadm"], "", guest.node()) == 1


def test_push_and_back(guest: Guest) -> None:
    guest.burn(PROGRAMS, {})
    guest.do("prepare", SETTINGS)
    guest.put("run/winlab/payload/push/kubelet", b"my own")
    kept = guest.root / "usr/local/bin/kubelet.winlab-original"
    assert guest.do("push", {"program": "kubelet", "restore": False}) == {"changed": True, "sha256": _sha(b"my own")}
    assert kept.read_bytes() == b"kubelet 1"
    assert guest.runner.lines("systemctl restart kubelet")
    assert guest.do("push", {"program": "kubelet"})["changed"] is False
    guest.do("prepare", SETTINGS)  # what was pushed stays
    found = guest.do("status", {})
    assert (found["programs"]["kubelet"], found["pushed"]) == (_sha(b"my own"), ["kubelet"])
    assert found["prepared"]
    assert guest.do("push", {"program": "kubelet", "restore": True})["sha256"] == _sha(b"kubelet 1")
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


def test_status_of_a_fresh_guest(guest: Guest) -> None:
    found = guest.do("status", {})
    assert found["boot_time"] == "2025-11-21T14:00:00Z"
    assert found["boot_id"] == "b1"
    assert (found["programs"], found["prepared"], found["joined"], found["started"]) == ({}, False, False, False)
    assert found["containerd"] == {"service": "absent"}


def test_logs(guest: Guest) -> None:
    guest.runner.answers["journalctl"] = (0, "one\ntwo\n")
    guest.put("var/log/winlab/kubeadm.log", "a\nb\nc\n")
    found = guest.do("logs", {"lines": 2})["logs"]
    assert (found["kubelet"], found["kubeadm"]) == ("one\ntwo\n", "b\nc")
    with pytest.raises(NodeError, match="between 1 and 10000"):
        guest.do("logs", {"lines": 0})


def test_the_result_is_the_last_line(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["cni"], json.dumps({"files": {"10-a.conf": "{}"}}), guest.node()) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"changed": True}


@pytest.mark.parametrize(
    ("arguments", "settings", "match"),
    [
        (["dance"], "{}", "usage: node.pyz"),
        ([], "{}", "usage: node.pyz"),
        (["cni"], "{", "no JSON"),
        (["cni"], "[]", "no JSON object"),
        (["cni"], "{}", "'files' is missing"),
        (["run-kubeadm"], '{"arguments": []}', "list of words"),
    ],
)
def test_bad_calls_end_with_a_message(
    guest: Guest, capsys: pytest.CaptureFixture[str], arguments: list[str], settings: str, match: str
) -> None:
    assert program.main(arguments, settings, guest.node()) == 1
    said = capsys.readouterr()
    assert match in said.err
    assert said.out == ""


PACKAGE = data.folder("unattend") / "linux/winlab_node"


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_it_runs_on_the_oldest_python_of_the_guests(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 10))  # Ubuntu 22.04
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported <= sys.stdlib_module_names | {"winlab_node"}
    assert len(source.splitlines()) < 250


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one file that winlab sends, to be run as if the package were nowhere else."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "winlab_node"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "winlab_node").exists()])
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    path = tmp_path / "node.pyz"
    path.write_bytes(node_program.build())
    yield path
    for name in [name for name in sys.modules if name.partition(".")[0] == "winlab_node"]:
        del sys.modules[name]  # those of the file; the others come back


@pytest.mark.parametrize(
    ("verb", "loaded"),
    [
        ("dance", {"node"}),
        ("cni", {"node", "cni", "alone"}),
        ("routes", {"node", "network", "alone"}),
        ("run-kubeadm", {"node", "state", "kubeadm", "alone"}),
    ],
)
def test_one_file_runs_and_loads_what_a_verb_needs(
    sent: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, loaded: set[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(sent), verb])
    lock, true = Path("/", alone.LOCK), Path.open  # it runs on this host's own tree
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setattr(Path, "open", lambda path, mode: true(sent.with_name("lock") if path == lock else path, mode))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(sent), run_name="__main__")
    assert ended.value.code == 1
    assert ("usage" if verb == "dance" else "is missing in the settings") in capsys.readouterr().err
    found = {name: module for name, module in sys.modules.items() if name.startswith("winlab_node.")}
    assert {name.partition(".")[2] for name in found} == {"__main__", *loaded}
    assert all(str(module.__file__).startswith(str(sent)) for module in found.values())


def test_every_verb_is_in_the_one_file(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(sent))
    from winlab_node import __main__ as unpacked

    assert str(unpacked.__file__).startswith(str(sent))
    assert all(callable(unpacked.verb(name)) for name in unpacked.VERBS)


def test_the_one_file_depends_on_the_sources_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = node_program.build()
    copied = tmp_path / "unattend/linux/winlab_node"
    (copied / "__pycache__").mkdir(parents=True)
    (copied / "__pycache__/node.cpython-311.pyc").write_bytes(b"compiled")
    for path in PACKAGE.glob("*.py"):
        (copied / path.name).write_bytes(path.read_bytes())
        os.utime(copied / path.name, (1, 1))
    monkeypatch.setattr(data, "folder", lambda name: tmp_path / name)
    assert node_program.build() == first
    (copied / "node.py").write_text("# another\n")
    assert node_program.build() != first
    assert b"# another\n" in node_program.build(), "nothing is compressed"
