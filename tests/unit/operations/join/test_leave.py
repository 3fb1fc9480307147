"""Workers leave an external cluster when their lab is destroyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plans
import pytest
from external import REHEARSAL, make, node
from lab_fakes import Api

from winlab import run
from winlab.design.cni.model import HALF
from winlab.design.plan import tags
from winlab.design.render import nodes
from winlab.errors import ClusterError
from winlab.lab_folder import LabFolder
from winlab.operations import join


def came() -> LabFolder:
    """The folder of a lab that came to a cluster."""
    folder = LabFolder("lab")
    folder.write(folder.kubeconfig, "apiVersion: v1")
    folder.kubectl.touch()
    return folder


def leave(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], *changes: str) -> tuple[list[str], str, Api]:
    made = make(REHEARSAL, *changes)
    api = Api(answers)
    monkeypatch.setattr(api, "answers", lambda: "down" not in answers, raising=False)
    monkeypatch.setattr(join, "Kubectl", lambda *_: api)
    removed, left = join.leave(came(), [tags.of(made, one) for one in made.nodes])
    return removed, left, api


def test_the_lab_s_own_nodes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"get node node-1": node(), "get nodes": {"items": []}, "get runtimeclasses": {"items": []}}
    removed, left, api = leave(monkeypatch, answers)
    assert (removed, left) == (["node-1"], "")
    deleted = [line for line, _ in api.asked if line.startswith("delete")]
    assert deleted[0] == "delete node node-1 --ignore-not-found"
    assert [line.split()[1] for line in deleted[1:-1]] == [
        "clusterrolebindings", "serviceaccounts", "certificatesigningrequests",
    ]  # fmt: skip
    assert all("--selector=winlab.internal/node=node-1" in line for line in deleted[1:-1])


def test_the_half_that_winlab_added_goes_with_its_last_windows_node(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"items": [{"metadata": {"name": "of-another-lab"}}]}
    for there, gone in (({"items": []}, True), (others, False)):
        answers = {"get node node-1": node(), "get nodes": there, "get runtimeclasses": {"items": []}}
        _, left, api = leave(monkeypatch, answers)
        assert left == ""
        assert any(line.endswith(f"--selector={HALF}") for line, _ in api.asked if line.startswith("delete")) == gone


@pytest.mark.parametrize(
    ("managers", "others", "gone"),
    [(["winlab"], [], True), (["winlab", "kubectl-edit"], [], False), ([], [], False), (["winlab"], [{}], False)],
)
def test_with_the_last_windows_node_go_runtime_classes_that_are_winlab_s(
    monkeypatch: pytest.MonkeyPatch, managers: list[str], others: list[dict[str, Any]], gone: bool
) -> None:
    fields = [{"manager": name} for name in managers]
    row = {"metadata": {"name": "windows-2022", "managedFields": fields}, "handler": "runhcs-wcow-process"}
    left_there = {"items": [{"metadata": {"name": "theirs"}} for _ in others]}
    answers = {"get node node-1": node(), "get nodes": left_there, "get runtimeclasses": {"items": [row]}}
    removed, left, api = leave(monkeypatch, answers)
    assert (removed, left) == (["node-1"], "")
    assert ("delete runtimeclass windows-2022 --ignore-not-found" in [line for line, _ in api.asked]) == gone


@pytest.mark.parametrize(
    "row",
    [
        node(metadata={"name": "node-1"}),
        node(metadata={"name": "node-1", "labels": {nodes.MACHINE: "another"}}),
        node(status={"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}),
    ],
)
def test_a_node_of_another_lab_stays(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    removed, left, api = leave(monkeypatch, {"get node node-1": row})
    assert removed == []
    assert "'node-1' is not this lab's" in left
    assert not any(line.startswith("delete") for line, _ in api.asked)


def test_missing_nodes_are_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leave(monkeypatch, {"get node node-1": ""})[:2] == ([], "")


def test_an_unreachable_cluster_does_not_keep_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    removed, left, _ = leave(monkeypatch, {"down": True})
    assert removed == []
    assert "kubectl delete node node-1" in left
    assert "--selector='winlab.internal/node in (node-1)'" in left
    removed, left, _ = leave(monkeypatch, {"get node node-1": ClusterError("no", why="forbidden")})
    assert (removed, left) == ([], "Nodes that stay in the cluster: 'node-1': forbidden.")


@pytest.mark.parametrize(
    "answer",
    ["[]", "a: b: c", "x", '{"metadata": {"labels": []}}', '{"metadata": {"name": "node-1", "labels": {"a": 1}}}',
     '{"metadata": {"name": "node-1"}, "status": {"addresses": [{}]}}', '{"metadata": null}'],
)  # fmt: skip
def test_a_cluster_that_says_anything_keeps_no_lab(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    removed, left, api = leave(monkeypatch, {"get node node-1": answer})
    assert removed == []
    assert left.startswith("Nodes that stay in the cluster: 'node-1': ")
    assert not any(line.startswith("delete") for line, _ in api.asked)


def test_a_kubectl_that_cannot_be_started_keeps_no_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_args: object, **_how: object) -> None:
        raise OSError(8, "Exec format error")

    made, folder = make(REHEARSAL), came()
    damaged = tmp_path / "kubectl"
    damaged.write_bytes(b"")
    damaged.chmod(0o755)
    folder.kubectl.unlink(missing_ok=True)
    folder.kubectl.symlink_to(damaged)
    monkeypatch.setattr(run.subprocess, "Popen", refuse)
    removed, left = join.leave(folder, [tags.of(made, one) for one in made.nodes])
    assert removed == []
    assert "kubectl delete node node-1" in left


def test_labs_with_controllers_and_labs_without_a_cluster_ask_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    own = plans.make(plans.TCG, "1-1-1", REHEARSAL)
    assert join.leave(LabFolder("lab"), [tags.of(own, one) for one in own.nodes]) == ([], "")
    assert join.leave(LabFolder("lab"), []) == ([], "")

    made = make(REHEARSAL)
    assert join.leave(LabFolder("lab"), [tags.of(made, one) for one in made.nodes]) == ([], "")


def test_without_the_lab_s_kubectl_the_user_s_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that it lay in may have been cleared."""
    made, folder, seen = make(REHEARSAL), came(), []
    folder.kubectl.unlink()
    folder.kubectl.symlink_to("gone")
    tag = tags.of(made, made.node("node-1"))

    def kubectl(program: Path, _kubeconfig: Path) -> Api:
        seen.append(program)
        api = Api({"get node node-1": node(), "get nodes": {"items": [{"metadata": {"name": "theirs"}}]}})
        monkeypatch.setattr(api, "answers", lambda: True, raising=False)
        return api

    monkeypatch.setattr(join, "Kubectl", kubectl)
    monkeypatch.setattr(join.shutil, "which", lambda _: "/usr/bin/kubectl")
    assert join.leave(folder, [tag]) == (["node-1"], "")
    assert seen == [Path("/usr/bin/kubectl")]
    monkeypatch.setattr(join.shutil, "which", lambda _: None)
    assert "kubectl delete node node-1" in join.leave(folder, [tag])[1]
