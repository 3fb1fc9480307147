"""The stand-in as a Windows worker: which scripts it simulates, in which order, and the services."""

from __future__ import annotations

import hashlib
import json
import tarfile
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from workers import FILES, JOIN, KUBELET, PROGRAMS, PROXY, Computer, Worker, digest_of

from winlab_standin.guest import clusterplayers, players, routes, scripts, services, wine, winservices, workerfiles
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.machine import ScriptError
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.releases import Windows
from winlab_standin.guest.shell import Shell, Streams
from winlab_standin.guest.winservices import Unit


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(tmp_path, monkeypatch)


def test_the_whole_way(worker: Worker) -> None:
    assert worker.play("status")["containers_feature"] == "absent"
    assert worker.play("features", features=["Containers"], release="2022") == {"restart": True}
    assert worker.play("status")["restart_pending"] is True
    assert worker.play("status")["features_set"] == ""
    worker.restart()
    assert worker.play("features", features=["Containers"], release="2022") == {"restart": False}
    assert worker.play("status")["features_set"] == "Containers"
    for script, settings in (
        ("containerd", {"config": "version = 3\n"}),
        ("binaries", {}),
        ("kubelet", {"command": KUBELET}),
        ("join", {"configuration": JOIN, "name": "NODE-1"}),
        ("cni", {"files": FILES, "network": None}),
    ):
        assert worker.play(script, **settings).get("changed") is True, script
        assert worker.play(script, **settings).get("changed") is False, f"{script} again"
    found = worker.play("status")
    assert found["kubelet"] == {"service": "running", "command": KUBELET, "joined": True}
    assert found["containerd"]["config_sha256"] == digest_of("version = 3\n")
    assert found["cni"] == {"10-winlab.conflist": digest_of(FILES["10-winlab.conflist"])}
    assert set(found["binaries"]) == {name for name in PROGRAMS if name.startswith("kube")}


def test_variables_of_containerd_come_and_go(worker: Worker) -> None:
    def digest() -> str:
        return str(worker.play("status")["containerd"]["environment_sha256"])

    worker.play("features", features=["Containers"], release="2022")
    worker.restart()
    lines = ["HTTP_PROXY=http://proxy:3128", "NO_PROXY=localhost"]
    assert worker.play("containerd", config="version = 3\n") == {"changed": True}
    assert digest() == ""
    for changed in (True, False):
        assert worker.play("containerd", config="version = 3\n", environment=lines) == {"changed": changed}
    assert digest() == digest_of("\n".join(lines))
    for changed in (True, False):
        assert worker.play("containerd", config="version = 3\n", environment=[]) == {"changed": changed}
    assert digest() == ""


def test_files_of_add_ons_come_and_go(worker: Worker) -> None:
    assert (worker.play("status")["files"], worker.play("status")["registry"]) == ({}, {})
    key, path = r"HKLM\SOFTWARE\motd", r"C:\ProgramData\motd\motd.txt"
    rows = [
        {"key": key, "name": "number", "type": "dword", "data": "0000000a"},
        {"key": key, "name": "text", "type": "string", "data": "a b"},
        {"key": key, "name": "lines", "type": "multistring", "data": "a\nb"},
    ]
    for changed in (True, False):
        assert worker.play("configure", files={path: "hello"}, registry=rows) == {"changed": changed}
    found = worker.play("status")
    assert found["files"] == {path: digest_of("hello")}
    assert found["registry"] == {rf"{key}\{row['name']}": f"{row['type']} {row['data']}" for row in rows}
    assert worker.machine.c("ProgramData/motd/motd.txt").read_text() == "hello"
    assert worker.play("configure", files={}, registry=rows[:1]) == {"changed": True}
    assert not worker.machine.c("ProgramData/motd/motd.txt").exists()
    assert worker.play("status")["registry"] == {rf"{key}\number": "dword 0000000a"}


@pytest.mark.parametrize(
    ("script", "settings", "before", "message"),
    [
        ("configure", {"files": {"x": ""}}, "features", "no absolute path"),
        (
            "configure",
            {"registry": [{"key": "HKLM", "name": "x", "type": "qword"}]},
            "features",
            "has the type 'qword'",
        ),
        ("containerd", {"config": "x"}, "features", "features.ps1 comes first"),
        ("binaries", {}, "containerd", "containerd.ps1 comes first"),
        ("kubelet", {"command": KUBELET}, "containerd", "containerd.ps1 comes first"),
        ("kubelet", {"command": KUBELET}, "binaries", "binaries.ps1 comes first"),
        ("kubelet", {"command": r"C:\k\nosuch.exe"}, "kubelet", "nosuch.exe' is missing"),
        ("join", {"configuration": JOIN, "name": "node-1"}, "kubelet", "kubelet.ps1 comes first"),
        ("join", {"configuration": "kind: Other", "name": "node-1"}, "join", "no JoinConfiguration"),
        ("join", {"configuration": JOIN, "name": "node-2"}, "join", "This is 'node-1', not 'node-2'"),
        ("cni", {"files": {}}, "join", "join.ps1 comes first"),
        ("cni", {"files": {"a.conflist": "{"}}, "cni", "no JSON"),
        ("cni", {"files": {"../a.conflist": "{}"}}, "cni", "no name of a CNI"),
        ("cni", {"files": {}, "network": {"type": "nat"}}, "cni", "not L2Bridge or Overlay"),
        ("proxy", {"command": PROXY, "kubeconfig": "k", "config": "c"}, "join", "join.ps1 comes first"),
        ("proxy", {"command": PROXY, "kubeconfig": "client-key", "config": "c"}, "proxy", "token is expected"),
        ("proxy", {"command": PROXY, "kubeconfig": "k", "config": ""}, "proxy", "settings.config is empty"),
        ("features", {"features": ["Containers"], "release": "2019"}, "features", "not Windows Server 2019"),
        ("features", {"features": [], "release": "2022"}, "features", "no Containers"),
        ("push", {"program": "kubelet.exe"}, "features", "not installed here"),
        ("push", {"program": "kubelet.exe"}, "kubelet", r"no push\kubelet.exe"),
        ("load", {}, "features", "containerd does not run"),
        ("logs", {"lines": 20000}, "features", "settings.lines"),
        ("network", {}, "features", "does not play"),
    ],
)
def test_refusals(worker: Worker, script: str, settings: dict[str, Any], before: str, message: str) -> None:
    worker.up_to(before)
    with pytest.raises(ScriptError) as caught:
        worker.play(script, **settings)
    assert message in str(caught.value)


def test_nothing_before_the_restart(worker: Worker) -> None:
    worker.play("features", features=["Containers"], release="2022")
    with pytest.raises(ScriptError, match="must be restarted"):
        worker.play("containerd", config="x")


def test_a_join_keeps_no_secret(worker: Worker) -> None:
    worker.up_to("join")
    worker.play("join", configuration=JOIN, name="node-1")
    assert not (worker.machine.root / "k/join.yaml").exists()
    assert "[preflight] token <token> is fine" in worker.said
    assert "abcdef" not in (worker.machine.root / clusterplayers.KUBEADM_LOG).read_text()


def test_a_failed_join(worker: Worker) -> None:
    worker.up_to("join")
    worker.programs.answers["kubeadm.exe"] = (1, "")
    with pytest.raises(ScriptError, match="exit code 1"):
        worker.play("join", configuration=JOIN, name="node-1")
    assert not (worker.machine.root / "k/join.yaml").exists()


def test_joined_to_another_cluster(worker: Worker) -> None:
    worker.up_to("cni")
    with pytest.raises(ScriptError, match=r"already, not '10\.0\.0\.2:6443'"):
        worker.play("join", configuration=JOIN.replace("10.0.0.1", "10.0.0.2"), name="node-1")


def test_kubeadm_finds_kubelet_only_if_the_scripts_see_to_it(worker: Worker) -> None:
    worker.up_to("join")
    for name in ("common.ps1", "join.ps1"):
        (worker.machine.cd / "scripts" / name).write_text("# nothing about it\n")
    worker.play("join", configuration=JOIN, name="node-1")
    assert worker.programs.path == ""


def test_the_scripts_do_see_to_it(worker: Worker) -> None:
    assert clusterplayers.search_path(worker.machine) == r"C:\k"


def test_a_network_drops_the_connection_once(worker: Worker) -> None:
    worker.up_to("cni")
    network = {"type": "L2Bridge", "name": "winlab", "subnet": "10.244.1.0/24", "gateway": "10.244.1.1"}
    assert worker.play("cni", files=FILES, network=network)["changed"]
    assert (worker.state / "drop").is_file()
    (worker.state / "drop").unlink()
    assert worker.play("cni", files={}, network=network)["changed"], "the file goes"
    assert not (worker.state / "drop").exists()
    assert worker.play("cni", files={}, network=network) == {"changed": False}


def test_proxy_is_tried_and_simulated(worker: Worker) -> None:
    worker.up_to("proxy")
    settings = {"command": PROXY, "kubeconfig": "k", "config": "c"}
    for refusal in ("unknown flag: --x", "flag provided but not defined: -log-file-size"):
        worker.programs.answers["kube-log-runner.exe"] = (1, refusal)
        with pytest.raises(ScriptError, match=refusal):
            worker.play("proxy", **settings)
    worker.programs.answers["kube-log-runner.exe"] = (1, "Error: Windows kernel is not compatible")
    assert worker.play("proxy", **settings) == {"changed": True, "service": "running"}
    assert worker.programs.calls[-1] == [r"C:\k\kube-log-runner.exe", "C:/k/kube-proxy.exe", "--config=C:/x"]
    assert worker.play("proxy", **settings) == {"changed": False, "service": "running"}


def test_a_proxy_whose_network_was_recreated_is_restarted(worker: Worker) -> None:
    worker.up_to("cni")
    network = {"type": "L2Bridge", "name": "winlab", "subnet": "10.244.1.0/24", "gateway": "10.244.1.1"}
    settings = {"command": PROXY, "kubeconfig": "k", "config": "winkernel:\n  networkName: winlab\n"}
    worker.play("cni", files=FILES, network=network)
    assert worker.play("proxy", **settings)["changed"]
    assert not worker.play("cni", files=FILES, network=network)["changed"]
    assert worker.play("status")["proxy"] == {"service": "running", "command": PROXY, "stale": False}
    worker.play("cni", files=FILES, network={**network, "subnet": "10.244.9.0/24"})
    assert worker.play("status")["proxy"]["stale"]
    assert worker.play("proxy", **settings) == {"changed": True, "service": "running"}
    assert not worker.play("status")["proxy"]["stale"]
    assert worker.play("proxy", **settings) == {"changed": False, "service": "running"}


def test_the_proxy_s_files_are_where_its_command_looks_for_them(worker: Worker) -> None:
    from winlab.design.catalog import versions
    from winlab.design.render import kube_proxy

    worker.up_to("proxy")
    worker.programs.answers["kube-log-runner.exe"] = (1, "Error: Windows kernel is not compatible")
    config = kube_proxy.config(
        versions.get(), node="node-1", address="10.77.0.101", pod_cidr="10.244.0.0/16", network="n"
    )
    worker.play("proxy", command=kube_proxy.command(versions.get()), kubeconfig="k", config=config)
    for path in (kube_proxy.CONFIG, kube_proxy.KUBECONFIG):
        assert (worker.machine.root / path.removeprefix("C:/")).is_file(), path


def test_an_endpoint_of_an_overlay_is_unavailable(worker: Worker) -> None:
    worker.up_to("proxy")
    with pytest.raises(ScriptError, match="no HNS endpoint"):
        worker.play("proxy", command=PROXY, kubeconfig="k", config="c", source_endpoint="Calico_ep")


def test_routes_come_and_go(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(routes, "run", lambda words, check=True: calls.append(words[2:]))
    row = {"to": "10.244.1.0/24", "via": "10.77.0.12"}
    with pytest.raises(ScriptError, match=r"join\.ps1 comes first"):
        worker.play("routes", routes=[row])
    worker.up_to("cni")
    with pytest.raises(ScriptError, match="no IPv4 network"):
        worker.play("routes", routes=[{"to": "10.244.1.1/24", "via": "10.77.0.12"}])
    assert worker.play("routes", routes=[row]) == {"changed": True}
    assert worker.play("routes", routes=[row]) == {"changed": False}
    assert calls == [["replace", "10.244.1.0/24", "via", "10.77.0.12"]]
    routes.restore(worker.machine.config)
    assert len(calls) == 2
    assert worker.play("routes", routes=[]) == {"changed": True}
    assert calls[-1] == ["del", "10.244.1.0/24"]


def test_push_and_back(worker: Worker) -> None:
    worker.up_to("cni")
    (worker.machine.cd / "push").mkdir()
    (worker.machine.cd / "push/kubelet.exe").write_text("another")
    target = worker.machine.root / "k/kubelet.exe"
    assert worker.play("push", program="kubelet.exe")["changed"]
    assert target.read_text() == "another"
    assert worker.programs.calls[-2:] == [["net", "stop", "kubelet"], ["net", "start", "kubelet"]]
    assert not worker.play("binaries")["changed"], "what was pushed stays"
    assert worker.play("push", program="kubelet.exe", restore=True)["changed"]
    assert target.read_text() == "kubelet.exe"
    assert not worker.play("push", program="kubelet.exe", restore=True)["changed"]


def test_a_file_is_checked_by_its_crc32_where_there_is_one(tmp_path: Path, worker: Worker) -> None:
    source, target = tmp_path / "a", tmp_path / "k/a.exe"
    source.write_text("content")
    with pytest.raises(ScriptError, match="checksum differs"):
        workerfiles.install(source, target, workerfiles.Listed("0" * 64, 1))
    assert not target.exists()
    workerfiles.install(source, target, workerfiles.Listed("0" * 64, zlib.crc32(b"content")))
    assert target.read_text() == "content"
    assert workerfiles.digest(target) == "0" * 64  # as payload.json says, under its final name, too


def test_a_damaged_cd(worker: Worker) -> None:
    worker.up_to("binaries")
    (worker.machine.cd / "programs/kubelet.exe").write_text("damaged")
    with pytest.raises(ScriptError, match="checksum differs"):
        worker.play("binaries")
    assert not (worker.machine.root / "k/kubelet.exe").exists()


def test_names_in_an_archive(tmp_path: Path) -> None:
    index = json.dumps({"manifests": [{"annotations": {"io.containerd.image.name": "a/b:1"}}, {}]}).encode()
    for name, members in (("oci.tar", {"index.json": index}), ("old.tar", {"manifest.json": b"[]"})):
        with tarfile.open(tmp_path / name, "w") as archive:
            for member, content in members.items():
                row = tarfile.TarInfo(member)
                row.size = len(content)
                archive.addfile(row, BytesIO(content))
    assert players.archive_images(tmp_path / "oci.tar") == ["a/b:1"]
    assert players.archive_images(tmp_path / "old.tar") == []


# -- which scripts are simulated


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in ("status.ps1", "common.ps1"):
        (folder / name).write_text(name)
    return folder / "status.ps1"


KNOWN = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("status.ps1", "common.ps1")}


def test_recognized(script: Path) -> None:
    assert scripts.recognize(script, r"E:\scripts\status.ps1", KNOWN, {"E": "WINLAB_K8S"}) == "status.ps1"


@pytest.mark.parametrize("changed", ["status.ps1", "common.ps1"])
def test_changed_scripts_are_refused(script: Path, changed: str) -> None:
    (script.parent / changed).write_text("other")
    with pytest.raises(ScriptError, match=f"{changed} : this is not the script"):
        scripts.recognize(script, r"E:\scripts\status.ps1", KNOWN, {"E": "WINLAB_K8S"})


@pytest.mark.parametrize("labels", [{}, {"E": "OTHER"}, {"D": "WINLAB_K8S"}])
def test_other_volumes_are_refused(script: Path, labels: dict[str, str]) -> None:
    with pytest.raises(ScriptError, match="another volume"):
        scripts.recognize(script, r"E:\scripts\status.ps1", KNOWN, labels)


def test_a_missing_file_is_reported_as_powershell_does(tmp_path: Path) -> None:
    made: list[str] = []
    world = Computer(Drives({"C": tmp_path}), Registry(tmp_path / "r.json"))
    shell = Shell(world, COMMANDS)
    code = shell.run(
        r"powershell.exe -NoProfile -ExecutionPolicy Bypass -File D:\scripts\x.ps1", Streams(made.append, made.append)
    )
    assert code == scripts.NO_FILE
    assert "to the -File parameter does not exist" in made[0]


@pytest.mark.parametrize(
    "line", ["-Version 2 -File a.ps1", "-File a.ps1 -Name x", "-File", "-ExecutionPolicy Bypass -Sta -File a.ps1"]
)
def test_other_calls_are_refused(line: str) -> None:
    with pytest.raises(ScriptError):
        scripts.file_of(line.split())


def test_not_a_file_call() -> None:
    assert scripts.file_of(["-NoProfile", "-Command", "hostname"]) is None


@pytest.mark.parametrize("text", ["[1]", "{", '"x"'])
def test_settings_must_be_an_object(text: str) -> None:
    with pytest.raises(ScriptError, match="ConvertFrom-Json"):
        scripts.settings(text)
    assert scripts.settings(" \n") == {}
    assert scripts.settings('\ufeff{"a": 1}') == {"a": 1}


def test_for() -> None:
    made: list[str] = []
    shell = Shell(Computer(Drives({}), Registry(Path("/nonexistent"))), COMMANDS)
    assert shell.run("for %d in (D E) do @if %d==E echo found %d:", Streams(made.append, made.append)) == 0
    assert "".join(made) == "found E:\r\n"
    assert shell.run("for %d in (*.txt) do echo %d", Streams(made.append, made.append)) == 1


# -- services


def test_program_of_a_service() -> None:
    assert Unit("containerd", players.CONTAINERD_COMMAND).program == "containerd.exe"
    assert Unit("kubelet", KUBELET).program == "kube-log-runner.exe"


def test_registry_text() -> None:
    text = winservices.registry_text([Unit("containerd", '"C:\\a b\\c.exe" --x'), Unit("p", "x", pretence=True)])
    assert "[System\\\\ControlSet001\\\\Services\\\\containerd] 1\n" in text
    assert r'"ImagePath"="\"C:\\a b\\c.exe\" --x"' in text
    assert "Services\\\\p]" not in text
    whole = wine.registry("WINE REGISTRY Version 2\n", Windows(), 7, text)
    assert '"BootId"=dword:00000007' in whole
    assert whole.startswith("WINE REGISTRY Version 2\n\n[")


def test_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {
        "1": b"C:\\Program Files\\containerd\\containerd.exe\0--run-service\0",
        "2": b"C:\\k\\kube-log-runner.exe\0--log-file=C:/x\0C:/k/kubelet.exe\0",
        "3": b"C:\\windows\\system32\\services.exe       ",
        "4": b"/usr/bin/python3\0x.exe\0",
        "5": b"",
    }
    for number, line in lines.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_bytes(line)
    running = winservices.Processes(tmp_path)
    assert running() == {"containerd.exe", "kube-log-runner.exe", "services.exe"}
    (tmp_path / "4/cmdline").write_bytes(b"C:\\k\\kubelet.exe")  # what was Wine's loader
    (tmp_path / "2/cmdline").unlink()
    (tmp_path / "2").rmdir()
    assert running() == {"containerd.exe", "kubelet.exe", "services.exe"}
    monkeypatch.setattr(winservices, "SETTLED", 0.0)  # from now on only what is new is read
    (tmp_path / "1/cmdline").write_bytes(b"C:\\k\\other.exe")
    assert running() == {"containerd.exe", "kubelet.exe", "services.exe"}


def test_recovery(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(winservices.time, "sleep", waited.append)
    monkeypatch.setattr(winservices, "write_port", lambda _text: None)
    worker.up_to("cni")
    manager, programs = worker.machine.services, worker.programs
    seen: dict[str, int] = {}
    manager.watch(seen)
    assert seen == {"containerd": 0, "kubelet": 0}
    programs.running.discard("kube-log-runner.exe")
    manager.watch(seen)
    assert waited == [5.0]
    assert "kube-log-runner.exe" in programs.running
    assert seen["kubelet"] == 1
    manager.stop("kubelet")
    manager.watch(seen)
    assert manager.state("kubelet") == "stopped", "it was stopped on purpose"


def test_wine_is_started_again_where_a_killed_kubelet_left_its_pipe(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each new kubelet ends with the same line, and the node is never Ready again."""
    restarts: list[bool] = []
    monkeypatch.setattr(winservices.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(winservices, "write_port", lambda _text: None)
    worker.up_to("cni")
    manager, programs = worker.machine.services, worker.programs

    def restart() -> None:
        restarts.append(True)
        programs.running.clear()

    monkeypatch.setattr(wine, "restart", restart)
    log = worker.machine.root / winservices.KUBELET_LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(
        "x" * winservices.LAST + '"Failed to listen" err="open \\\\.\\pipe\\kubelet-pod-resources: Access denied."\n'
    )
    seen = {"containerd": 0, "kubelet": 0}
    programs.running.discard("kube-log-runner.exe")
    manager.watch(seen)
    assert restarts == [True]
    assert {"containerd.exe", "kube-log-runner.exe"} <= programs.running
    programs.running.discard("kube-log-runner.exe")
    manager.watch(seen)
    assert restarts == [True], "an end for another reason restarts the service only"


def test_the_dependency_starts_first(worker: Worker) -> None:
    worker.up_to("cni")
    worker.programs.running.clear()
    worker.programs.calls.clear()
    worker.machine.services.start_automatic()
    assert worker.programs.calls == [["net", "start", "containerd"], ["net", "start", "kubelet"]]


def test_scripts_that_change_the_machine_take_turns(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller of the first is gone, but not the script: the next one waits, and finds its work done."""
    worker.up_to("join")
    joining, go_on, waiting = threading.Event(), threading.Event(), threading.Event()
    join, ran = worker.programs.join, []

    def slow(words: list[str], tell: Callable[[str], None], path: str = "") -> int:
        ran.append(words)
        joining.set()
        assert go_on.wait(10)
        return join(words, tell, path)

    def said(line: str) -> None:
        if "waiting for a script that an earlier winlab started" in line:
            waiting.set()

    monkeypatch.setattr(wine, "pass_through", slow)
    machine = replace(worker.machine, tell=said)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(worker.play, "join", configuration=JOIN, name="node-1")
        assert joining.wait(10)
        second = pool.submit(scripts.play, "join.ps1", machine, {"configuration": JOIN, "name": "node-1"})
        assert waiting.wait(10)
        assert worker.play("status")["kubelet"]["joined"] is False  # scripts that only read do not wait
        go_on.set()
        assert first.result() == {"joined": True, "changed": True}
        assert second.result() == {"joined": True, "changed": False}
    assert len(ran) == 1


def test_containerd_finds_the_disks_that_it_can_t_make_on_wine(worker: Worker) -> None:
    folder = worker.machine.root / winservices.SCRATCH
    assert not folder.exists()
    worker.up_to("binaries")
    assert {path.name for path in folder.iterdir()} == {"blank-base.vhdx", "blank.vhdx"}


def test_a_kubelet_that_has_not_joined_is_left_alone(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winservices, "write_port", lambda _text: None)
    worker.up_to("join")
    worker.programs.calls.clear()
    worker.machine.services.start_automatic()
    worker.machine.services.watch({"containerd": 0, "kubelet": 0})
    assert worker.programs.calls == []


def test_drop_is_requested_by_a_file(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []

    class Listener:
        def cut(self) -> None:
            dropped.append("cut")

    monkeypatch.setattr(services, "STATE", worker.state)
    made = services.Services(lambda: Shell(worker.machine.world, COMMANDS), worker.machine.config)
    monkeypatch.setattr(made, "listener", Listener())
    monkeypatch.setattr(made, "start_winrm", lambda: dropped.append("back"))
    clock = [100.0]
    monkeypatch.setattr(services.time, "monotonic", lambda: clock[0])
    made.drop_if_asked()
    (worker.state / "drop").write_text("6.0\n")
    made.drop_if_asked()
    made.drop_if_asked()
    assert dropped == ["cut"]
    clock[0] += 7
    made.drop_if_asked()
    made.drop_if_asked()
    assert dropped == ["cut", "back"]
