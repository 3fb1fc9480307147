"""The clusters that a host shows: by kubeconfigs, files and containers. Nothing of them is executed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from winlab.adapters.kube import discovery
from winlab.design.clusters import known
from winlab.design.clusters.model import AdminFile
from winlab.errors import HostError


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host without containers, and without files of distributions."""
    monkeypatch.setattr(discovery.shutil, "which", lambda _program: None)
    for kind in known.every():
        monkeypatch.setattr(type(kind), "admin_files", ())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))


def write(path: Path, contexts: dict[str, dict[str, Any]]) -> None:
    rows = [{"name": name, "context": {"cluster": "c", "user": name}} for name in contexts]
    users = [{"name": name, "user": user} for name, user in contexts.items()]
    path.write_text(yaml.safe_dump({"contexts": rows, "users": users, "clusters": [{"name": "c", "cluster": {}}]}))


def test_contexts_show_what_made_their_clusters(tmp_path: Path) -> None:
    names = {
        "kind-mine": "kind", "k3d-mine": "k3s", "default": "k3s", "minikube": "minikube", "microk8s": "microk8s",
        "kubernetes-admin@mine": "kubeadm", "production": "",
    }  # fmt: skip
    write(tmp_path / "config", {name: {"token": "secret"} for name in names})
    found = discovery.find()
    assert {one.name: one.kind for one in found} == names
    assert found[0].use == f"--kubeconfig {tmp_path / 'config'} --context kind-mine"
    assert "secret" not in repr(found)


def test_a_context_that_runs_a_program_is_listed_and_not_used(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    plugin = {"exec": {"command": "/bin/touch", "args": [str(victim)]}}
    write(tmp_path / "config", {"mine": plugin, "other": {"auth-provider": {"name": "gcp"}}, "plain": {"token": "x"}})
    notes = {one.name: one.note for one in discovery.find()}
    assert "has not run it" in notes["mine"]
    assert "has not run it" in notes["other"]
    assert notes["plain"] == ""
    assert not victim.exists()


def test_several_files_are_read_and_odd_ones_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one", {"a": {}})
    write(tmp_path / "two", {"b": {}, "bad\x1b[2J": {}, "x" * 300: {}, "--help": {}})
    (tmp_path / "three").write_text("[1, 2]")
    (tmp_path / "four").write_text("contexts: [7]")
    (tmp_path / "five").write_bytes(b"\xff\xfe")
    (tmp_path / "six").write_text("#" * (discovery.LARGEST + 1))
    files = ("one", "missing", "two", "three", "four", "five", "six")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([*(str(tmp_path / name) for name in files), "/dev/zero", ""]))
    found = discovery.find()
    assert [one.name for one in found if one.name] == ["a", "b"]
    assert [Path(one.where).name for one in found if one.note == "It is not a kubeconfig."] == [
        "three", "four", "five", "six",
    ]  # fmt: skip


def test_files_of_distributions_and_who_may_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k3s.yaml"
    path.write_text("")
    monkeypatch.setattr(type(known.get("k3s")), "admin_files", (AdminFile(str(path), "root"),))
    (found,) = discovery.find()
    assert (found.kind, found.use, found.note) == ("k3s", f"--kubeconfig {path}", "")
    monkeypatch.setattr(discovery.os, "access", lambda *_: False)
    (found,) = discovery.find()
    assert found.note.startswith("It can be read by root")


def test_containers_of_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    answers = {
        "io.x-k8s.kind.cluster": "kind-control-plane\tkind\tcontrol-plane\nkind-worker\tkind\tworker\n",
        "k3d.cluster": "k3d-a-server-0\ta\tserver\nk3d-a-serverlb\ta\tloadbalancer\nx\t$(reboot)\tserver\n",
        "name.minikube.sigs.k8s.io": "minikube\tminikube\t\n",
    }

    def watched(words: list[str], **_: object) -> SimpleNamespace:
        asked.append(words)
        label = next(word for word in words if word.startswith("--filter=label=")).removeprefix("--filter=label=")
        return SimpleNamespace(stdout=answers[label])

    monkeypatch.setattr(
        discovery.shutil, "which", lambda program: f"/usr/bin/{program}" * (program == "docker") or None
    )
    monkeypatch.setattr(discovery.run, "watched", watched)
    found = {one.kind: one for one in discovery.find()}
    assert {kind: one.where for kind, one in found.items()} == {
        "kind": "docker container kind-control-plane",
        "k3s": "docker container k3d-a-server-0",
        "minikube": "docker container minikube",
    }
    assert found["kind"].use == "kind get kubeconfig --internal --name kind"
    assert all(words[:2] == ["/usr/bin/docker", "ps"] for words in asked)


def test_an_engine_that_may_not_be_asked_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(*_: object, **__: object) -> SimpleNamespace:
        raise HostError("permission denied")

    monkeypatch.setattr(discovery.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(discovery.run, "watched", watched)
    assert discovery.find() == []
