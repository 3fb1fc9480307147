"""load and logs, with fake drives, nodes and a fake API server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lab_fakes
import pytest
from lab_fakes import PAYLOAD, Api, FakeLab, machine

from winlab import run
from winlab.adapters.guests import agent
from winlab.adapters.vm import domains
from winlab.design.catalog.artifact import ContainerImage
from winlab.design.contract import on_both
from winlab.design.plan.tags import Tag
from winlab.engine import engine
from winlab.errors import GuestError, HostError, NotFoundError, OffError, UnreachableError, UsageError, WinlabError
from winlab.events import Quiet
from winlab.operations import load, logs
from winlab.supply.artifacts.oci import archive
from winlab.supply.artifacts.oci.archive import Blob, Found

NODE = {
    "metadata": {"name": "node-1"},
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.36.3-mine"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
    },
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> FakeLab:
    return lab_fakes.fake_lab(monkeypatch)


# -- load


def found(os: str, architecture: str = "amd64") -> Found:
    blob = Blob("sha256:" + "a" * 64, 1, "x")
    return Found(("docker.io/library/web:1",), os, architecture, blob, (), b"{}", frozenset())


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Found]]:
    """The content of each archive, by its file name; reading and converting are fakes."""
    has: dict[str, list[Found]] = {"web.tar": [found("linux")], "saved.tar": [found("linux")]}

    def convert(path: Path, target: Path, os: str, *, work: Path, reference: str = "") -> ContainerImage:
        assert list(work.iterdir()) == []
        target.write_text(f"{os} {path.name}")
        return ContainerImage(archive.full_name(reference or "web:1"), os)  # type: ignore[arg-type]

    monkeypatch.setattr(archive, "inspect", lambda path: has[path.name])
    monkeypatch.setattr(archive, "convert", convert)
    return has


@pytest.fixture
def web(tmp_path: Path, archives: dict[str, list[Found]]) -> str:
    (tmp_path / "web.tar").touch()
    return str(tmp_path / "web.tar")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def go(lab: FakeLab, images: list[load.Ready], machines: list[Any]) -> None:
    nodes = load.nodes_for(images, machines)
    try:
        engine.run(load.steps(images, nodes, lab.drives), lambda event: None)
    finally:
        load.clean("lab", lab.drives, machines)


def test_an_image_goes_to_every_node_of_its_system(lab: FakeLab, web: str, work: Path) -> None:
    nodes = [lab.add(machine("controller-1", "linux")), lab.add(machine("linux-1", "linux"))]
    other = lab.add(machine("node-1"))
    images = load.prepare(web, work, progress=Quiet())
    digest = hashlib.sha256(b"linux web.tar").hexdigest()
    assert [(one.reference, one.os, one.sha256) for one in images] == [("docker.io/library/web:1", "linux", digest)]
    seen: dict[str, dict[str, bytes]] = {}

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        seen[tag.node] = lab.pool.volumes[lab.inside[f"winlab-lab.{tag.node}"]]
        return {"changed": True}

    lab.script = script
    go(lab, images, [*nodes, other])
    assert set(seen) == {"controller-1", "linux-1"}
    cd = seen["linux-1"]
    assert cd[images[0].file] == b"linux web.tar"
    row = json.loads(cd["payload.json"])["images"][Path(images[0].file).name]
    assert row == {"reference": "docker.io/library/web:1", "sha256": digest}
    assert set(lab.inside.values()) == set(PAYLOAD.values())
    assert lab.pool.deleted == ["lab.load-linux.iso"]


def test_an_image_for_both_systems_goes_to_both(
    lab: FakeLab, archives: dict[str, list[Found]], web: str, work: Path
) -> None:
    archives["web.tar"] = [found("windows"), found("linux"), found("linux", "arm64")]
    nodes = [lab.add(machine("controller-1", "linux")), lab.add(machine("node-1"))]
    images = load.prepare(web, work, progress=Quiet())
    assert [one.os for one in images] == ["linux", "windows"]
    go(lab, images, nodes)
    assert {line for line in lab.log if line.endswith(": load")} == {"controller-1: load", "node-1: load"}


def test_a_failed_node_gets_its_payload_cd_back(lab: FakeLab, web: str, work: Path) -> None:
    node = lab.add(machine("controller-1", "linux"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        raise GuestError("no room")

    lab.script = script
    with pytest.raises(GuestError, match="no room"):
        go(lab, load.prepare(web, work, progress=Quiet()), [node])
    assert lab.inside[node.domain] == PAYLOAD["linux"]
    assert lab.pool.deleted == ["lab.load-linux.iso"]


def test_what_a_killed_load_left_is_restored_by_one_for_the_other_system(
    lab: FakeLab, archives: dict[str, list[Found]], web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CD that is in a drive is never deleted: its machine could not start."""
    archives["web.tar"] = [found("windows")]
    nodes = [
        lab.add(machine("controller-1", "linux")),
        lab.add(machine("linux-1", "linux")),
        lab.add(machine("node-1")),
    ]
    monkeypatch.setattr(load.look, "find", lambda _lab, _conn: nodes)
    monkeypatch.setattr(load, "Drives", lambda *_: lab.drives)
    left = "lab.load-linux.iso"
    for one in nodes[:2]:
        lab.inside[one.domain] = left
    lab.pool.volumes[left] = {}
    lab.folder.write(lab.folder.path / "drive-controller-1", PAYLOAD["linux"])  # linux-1's note is lost
    lab.script = lambda *_: {"changed": True}
    load.to_lab("lab", lab.site, web, lambda _event: None)
    assert lab.inside[nodes[0].domain] == PAYLOAD["linux"]
    assert not (lab.folder.path / "drive-controller-1").exists()
    assert lab.inside[nodes[1].domain] == left
    assert lab.pool.deleted == ["lab.load-windows.iso"]


def test_a_load_whose_connection_was_cut_is_done_again(lab: FakeLab, web: str, work: Path) -> None:
    node = lab.add(machine("controller-1", "linux"))
    failures: list[Exception] = [UnreachableError("gone"), UnreachableError("gone")]

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        assert lab.inside[node.domain] == "lab.load-linux.iso", "the image must still be there"
        if failures:
            raise failures.pop()
        return {"changed": True}

    lab.script = script
    go(lab, load.prepare(web, work, progress=Quiet()), [node])
    assert lab.log.count("controller-1: load") == 3
    assert lab.inside[node.domain] == PAYLOAD["linux"]


def test_a_load_s_known_cause_of_failure_is_named(lab: FakeLab, web: str, work: Path) -> None:
    node = lab.add(machine("controller-1", "linux"))

    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        raise GuestError("'load' failed.", why="Commands run with a filtered token.")

    lab.script = script
    with pytest.raises(GuestError) as failed:
        go(lab, load.prepare(web, work, progress=Quiet()), [node])
    assert "LocalAccountTokenFilterPolicy" in failed.value.why


def test_an_image_that_no_node_could_run(
    lab: FakeLab, archives: dict[str, list[Found]], web: str, work: Path, tmp_path: Path
) -> None:
    archives["web.tar"] = [found("windows")]
    images = load.prepare(web, work, progress=Quiet())
    with pytest.raises(UsageError, match="for Windows, but the lab has no such node"):
        load.nodes_for(images, [machine("controller-1", "linux")])
    archives["web.tar"] = [found("linux", "arm64")]
    with pytest.raises(UsageError, match="not an image for Linux or Windows on amd64") as refused:
        load.prepare(web, tmp_path, progress=Quiet())
    assert "linux/arm64" in refused.value.why


def test_one_node_off_stops_it_before_anything_is_made(lab: FakeLab, web: str, work: Path) -> None:
    images = load.prepare(web, work, progress=Quiet())
    with pytest.raises(GuestError, match="'linux-1' is off"):
        load.nodes_for(images, [machine("controller-1", "linux"), machine("linux-1", "linux", "off")])
    assert lab.log == []


class Engines:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: str) -> None:
        """:param answers: by the engine's name: what it says when it fails, or nothing."""
        self.calls: list[list[str]] = []

        def start(args: list[Any], **more: Any) -> run.Result:
            words = [str(word) for word in args]
            self.calls.append(words)
            if says := answers[words[0]]:
                raise run.CommandError(run.Result(tuple(words), 1, "", says, 0.1))
            Path(words[3]).write_text("saved")
            return run.Result(tuple(words), 0, "", "", 0.1)

        monkeypatch.setattr(run, "find", lambda program: program if program in answers else None)
        monkeypatch.setattr(run, "run", start)


def test_a_name_is_saved_by_the_first_engine_that_has_it(
    monkeypatch: pytest.MonkeyPatch, archives: dict[str, list[Found]], work: Path
) -> None:
    engines = Engines(monkeypatch, docker="Cannot connect to the Docker daemon", podman="")
    images = load.prepare("me/web:2", work, progress=Quiet())
    assert images[0].reference == "docker.io/me/web:2"
    assert engines.calls[1] == ["podman", "save", "--output", str(work / "saved.tar"), "me/web:2"]


def test_an_image_that_no_engine_has(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    Engines(monkeypatch, docker="line\nError response from daemon: reference does not exist")
    with pytest.raises(NotFoundError) as refused:
        load.prepare("web", work, progress=Quiet())
    assert "docker: Error response from daemon: reference does not exist podman is not installed." in refused.value.why


def test_an_option_is_not_an_image(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    engines = Engines(monkeypatch, docker="")
    with pytest.raises(UsageError, match="not the name of an image"):
        load.prepare("--output=/etc/passwd", work, progress=Quiet())
    assert engines.calls == []


@pytest.mark.parametrize("name", ["./web", "web.tar", "/nowhere/web", "web.tar.gz"])
def test_a_file_that_is_missing_is_not_asked_for_at_an_engine(name: str, work: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no file"):
        load.prepare(name, work, progress=Quiet())


@pytest.mark.parametrize(
    ("words", "states", "error"),
    [
        ({"image": "nosuch.tar"}, "running", NotFoundError),
        ({"image": "--output=x"}, "running", UsageError),
        ({"image": "{web}", "name": "No Name"}, "running", UsageError),
        ({"image": "{web}"}, "off", OffError),
    ],
)
def test_what_can_not_be_loaded_begins_no_run(
    lab: FakeLab,
    web: str,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str],
    states: str,
    error: type[WinlabError],
) -> None:
    """ux N9: a typo was a failed run, with an archive for support."""
    there = [machine("controller-1", "linux", states), machine("node-1", state=states)]
    monkeypatch.setattr(load.look, "find", lambda _lab, _conn: there)
    given = {name: word.format(web=web) for name, word in words.items()}
    with pytest.raises(error):
        load.to_lab("lab", lab.site, given.pop("image"), lambda event: pytest.fail(f"{event}"), **given)
    assert not lab.folder.path.exists()


def test_the_name_can_be_another(web: str, work: Path) -> None:
    assert load.prepare(web, work, name="mine:7", progress=Quiet())[0].reference == "docker.io/library/mine:7"


# -- logs


def test_logs_have_conditions_events_and_logs(lab: FakeLab) -> None:
    lab.script = lambda tag, name, settings: {"logs": {"kubelet": f"last {settings['lines']}\n", "containerd": ""}}
    events = {
        "items": [
            {
                "metadata": {"name": "x", "creationTimestamp": "2"},
                "lastTimestamp": "2",
                "type": "Warning",
                "reason": "B",
                "message": "b",
            },
            {
                "metadata": {"name": "x", "creationTimestamp": "1"},
                "eventTime": "1",
                "type": "Normal",
                "reason": "A",
                "message": "a",
            },
        ]
    }
    api = Api({"get node": NODE, "get events": events})
    (report,) = logs.gather([machine("node-1")], lab.standing, api, on_both.Logs(lines=7))
    assert report == logs.NodeDiagnostics(
        "node-1",
        ["Ready=True KubeletReady: ready"],
        ["1 Normal A: a", "2 Warning B: b"],
        {"containerd": "", "kubelet": "last 7"},
        [],
    )
    shown = str(report)
    assert "=== node-1\n--- conditions\n  Ready=True" in shown
    assert "--- kubelet\n  last 7" in shown
    assert "containerd" not in shown


def test_missing_answers_are_reported_and_the_rest_is_shown(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if tag.node == "node-2":
            raise UnreachableError("It does not answer.", why="port closed")
        return {"logs": {"kubelet": "x"}}

    lab.script = script
    api = Api({"get node": HostError("kubectl did not end")})
    monkeypatch.setattr(agent, "texts", lambda *_: {})
    machines = [machine("node-1"), machine("node-2"), machine("node-3", state="off")]
    one, two, three = logs.gather(machines, lab.standing, api, on_both.Logs(lines=5))
    assert one.logs == {"kubelet": "x"}
    assert one.problems == ["The API server: kubectl did not end"]
    assert two.problems[1:] == ["The node: It does not answer. port closed"]
    assert "node-2: logs by a spare way" in lab.log
    assert three.problems[1] == "The node is off."
    assert "!!! The node is off." in str(three)


@pytest.mark.parametrize(
    ("by_ssh", "told", "logs_shown", "how"),
    [
        (True, {}, {"kubelet": "x"}, "by ssh"),
        (False, {"network": "no address"}, {"network": "no address"}, "from its guest agent"),
    ],
)
def test_an_unresponsive_node_is_asked_another_way(
    lab: FakeLab,
    monkeypatch: pytest.MonkeyPatch,
    by_ssh: bool,
    told: dict[str, str],
    logs_shown: dict[str, str],
    how: str,
) -> None:
    def script(tag: Tag, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if by_ssh and lab.log[-1].endswith("by a spare way"):
            return {"logs": {"kubelet": "x"}}
        raise UnreachableError("'node-1' does not answer WinRM.")

    lab.script = script
    monkeypatch.setattr(agent, "texts", lambda *_: told)
    (report,) = logs.gather([machine("node-1")], lab.standing, None, on_both.Logs(lines=5))
    assert report.logs == logs_shown
    assert report.problems == ["The node: 'node-1' does not answer WinRM.", f"What is above came {how}."]


def test_an_api_server_that_is_off_is_not_asked(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """ux N14: it took half a minute of time-outs."""
    api = Api({})
    monkeypatch.setattr(domains, "machines", lambda *_: [machine("controller-1", "linux", "off"), machine("node-1")])
    monkeypatch.setattr(logs.Kubectl, "of", lambda _: api)
    lab.script = lambda tag, name, settings: {"logs": {"kubelet": "x"}}
    controller, worker = logs.reports("lab", lab.site, "", 5)
    off = "The API server of the lab 'lab' does not run: 'controller-1' is off."
    assert (controller.problems, worker.problems) == ([off, "The node is off."], [off])
    assert worker.logs == {"kubelet": "x"}
    assert api.asked == []


def test_a_node_outside_the_cluster_and_a_lab_without_one(lab: FakeLab) -> None:
    lab.script = lambda tag, name, settings: {"logs": {}}
    (report,) = logs.gather(
        [machine("node-1")], lab.standing, Api({"get events": {"items": []}}), on_both.Logs(lines=5)
    )
    assert report.conditions == ["It is not in the cluster."]
    (report,) = logs.gather([machine("node-1")], lab.standing, None, on_both.Logs(lines=5))
    assert (report.conditions, report.problems) == ([], [])
