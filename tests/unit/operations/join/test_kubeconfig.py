"""The kubeconfig of an external cluster: one context of it is taken, and the cluster is read with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from external import CLUSTER, REHEARSAL

from winlab import account
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import spec
from winlab.design.plan.existing import ForeignCluster
from winlab.errors import ClusterError, UsageError
from winlab.events import Event, Note, Quiet
from winlab.lab_folder import LabFolder
from winlab.operations import join
from winlab.site import Site
from winlab.steps.sources import Origin


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text("ca")
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "x"}},
                    {"name": "two", "context": {"cluster": "c", "user": "plug-in"}},
                    {"name": "broken", "context": {"cluster": "none", "user": "u"}},
                    {"name": "lost", "context": {"cluster": "lost", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://h/path", "certificate-authority": "ca.crt"}},
                    {"name": "lost", "cluster": {"server": "https://h", "certificate-authority": "no.crt"}},
                ],
                "users": [
                    {"name": "u", "user": {"token": "secret"}},
                    {"name": "plug-in", "user": {"exec": {"command": "./bin/login"}, "tokenFile": "t"}},
                ],
                "current-context": "one",
            }
        )
    )
    return path


def test_one_context_with_all_that_it_needs(config: Path, tmp_path: Path) -> None:
    made = yaml.safe_load(join.chosen(config, "", "lab"))
    assert made["current-context"] == "winlab-lab"
    assert made["clusters"] == [
        {"name": "winlab-lab", "cluster": {"server": "https://h/path", "certificate-authority-data": "Y2E="}}
    ]
    assert made["users"] == [{"name": "winlab-lab", "user": {"token": "secret"}}]
    (user,) = yaml.safe_load(join.chosen(config, "two", "lab"))["users"]
    assert user["user"] == {"exec": {"command": str(tmp_path / "bin/login")}, "tokenFile": str(tmp_path / "t")}


def test_files_that_are_not_kubeconfigs(config: Path, tmp_path: Path) -> None:
    for context_name, says in (("three", "no context 'three'"), ("broken", "can't be used"), ("lost", "no.crt")):
        with pytest.raises(UsageError) as caught:
            join.chosen(config, context_name, "lab")
        assert says in str(caught.value)
        assert "secret" not in str(caught.value)
    for text in ("", "[]", "contexts: 1", "{", "contexts: [1]"):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(UsageError, match="not a readable kubeconfig"):
            join.chosen(tmp_path / "bad", "", "lab")
    with pytest.raises(UsageError, match="not a readable kubeconfig"):
        join.chosen(tmp_path / "missing", "", "lab")


@pytest.mark.parametrize(("name", "context"), [("1", ""), ("1", "1"), ("1.5", ""), ("true", "true"), ("'1'", "")])
def test_names_that_are_numbers_are_texts(name: str, context: str, tmp_path: Path) -> None:
    """F30: as kubectl reads them."""
    (tmp_path / "config").write_text(
        f"contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        f"clusters: [{{name: {name}, cluster: {{server: https://h}}}}]\n"
        f"users: [{{name: {name}, user: {{token: x}}}}]\n"
        f"current-context: {name}\n"
    )
    made = yaml.safe_load(join.chosen(tmp_path / "config", context, "lab"))
    assert made["users"] == [{"name": "winlab-lab", "user": {"token": "x"}}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("contexts: [{name: a, context: {cluster: a}}]", "The field 'user' is missing."),
        ("contexts: [{name: a}]", "The field 'context' is missing."),
        ("contexts: [{name: a, context: {cluster: a, user: b}}]\nusers: null", "It has no user 'b'."),
        ("contexts: [{name: a, context: []}]", "A field of it is not the mapping, list or text that kubectl expects"),
        ("contexts: 3", "A field of it is not the mapping, list or text that kubectl expects there."),
        ("contexts: null", ""),
    ],
)
def test_errors_in_a_kubeconfig_are_reported_without_names_of_python(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"{text}\nclusters: [{{name: a, cluster: {{}}}}]\ncurrent-context: a\n")
    with pytest.raises(UsageError) as caught:
        join.chosen(tmp_path / "config", "", "lab")
    assert caught.value.why.startswith(why)
    assert "Error" not in str(caught.value) + caught.value.why + caught.value.cure


def test_a_program_that_a_kubeconfig_names_is_noted_before_it_runs(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N18."""
    seen: list[Event] = []

    def look_at(*_: object) -> ForeignCluster:
        assert len(notes()) == 1
        raise ClusterError("enough")

    def notes() -> list[Note]:
        return [one for one in seen if isinstance(one, Note)]

    monkeypatch.setattr(join, "look_at", look_at)
    monkeypatch.setattr(account.os, "geteuid", lambda: 0)
    with pytest.raises(ClusterError, match="enough"):
        join.plan(spec.load("1-1-1", [REHEARSAL]), "lab", Site(), seen.append, config, context="two")
    (note,) = notes()
    assert note.text == f"kubectl runs '{config.parent}/bin/login' as root, because the kubeconfig names it."
    assert join.runs(join.chosen(config, "one", "lab")) == ""


def test_looking_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Path] = []

    def read(kubectl: Kubectl, server: str, own: str, *, attached: bool) -> ForeignCluster:
        assert kubectl.kubeconfig.read_text() == config
        assert own == "192.0.2.9:6443"
        assert kubectl.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert kubectl.kubeconfig.parent.parent == folder.path
        seen.append(kubectl.kubeconfig)
        return replace(CLUSTER, server=server)

    monkeypatch.setattr(join.existing, "read", read)
    monkeypatch.setattr(join.shutil, "which", lambda _name: "/usr/bin/kubectl")
    folder = LabFolder("lab")
    config = yaml.safe_dump({"clusters": [{"cluster": {"server": "https://192.0.2.9:6443"}}]})
    found = join.look_at(folder, config, "https://x:1", spec.load("1-1-1"), Origin(), Quiet())
    assert found.server == "https://x:1"
    assert not seen[0].exists()
    assert not folder.path.exists()


def test_kubectl_comes_from_the_source_if_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(versions: Any, _origin: Origin, _progress: object) -> Path:
        asked.append(versions.kubernetes)
        return Path("/fetched/kubectl")

    monkeypatch.setattr(join.shutil, "which", lambda _name: None)
    monkeypatch.setattr(join.sources, "fetch_kubectl", fetch)
    monkeypatch.setattr(join.existing, "read", lambda kubectl, *_, **__: kubectl.program)
    made = spec.load("1-1-1", ["kubernetes.version=1.35"])
    behind = yaml.safe_dump({"clusters": [{"cluster": {"server": "https://proxy/k8s/clusters/a"}}]})
    assert join.own_server(behind) == ""
    assert join.look_at(LabFolder("lab"), behind, "", made, Origin(), Quiet()) == Path("/fetched/kubectl")
    assert asked == ["v1.35.4"]
