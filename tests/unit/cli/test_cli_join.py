"""``winlab join`` on the command line, as far as it touches nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import external
import plans
import pytest
import results
import yaml

from winlab.adapters.kube import discovery
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.clusters.model import Finding
from winlab.engine.run import Sources
from winlab.host import facts, routes
from winlab.operations import clusters, look, making
from winlab.operations import join as joining
from winlab.operations.making import Making
from winlab.steps.sources import Origin


class Made:
    """The arguments of the making, if it was called."""

    def __init__(self) -> None:
        self.plan: Any = None
        self.options: dict[str, Any] = {}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    told = Made()

    def prepare(verb: str, proposal: Any, _site: object, _tell: object, **options: Any) -> Making:
        told.plan, told.options = proposal.plan, {"verb": verb, **options}
        return Making(verb, proposal, "cluster", Origin(), Sources())

    monkeypatch.setattr(facts, "read_facts", lambda: plans.TCG)
    monkeypatch.setattr(joining, "look_at", lambda *_args: external.CLUSTER)
    monkeypatch.setattr(joining.endpoint, "connect", lambda *_args: False)
    monkeypatch.setattr(look, "machines", lambda _lab, _site: [])
    monkeypatch.setattr(making, "prepare", prepare)
    monkeypatch.setattr(joining, "carry_out", lambda *_: None)
    kubectl = SimpleNamespace(run=lambda *_words: "win-1 Ready\n")
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _state: kubectl))
    return told


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    rows = {
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.10:6443"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(rows))
    return path


def join(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    return commands.run(monkeypatch, "join", *args)


def test_create_gets_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Made, config: Path
) -> None:
    args = ["--kubeconfig", str(config), "--rehearse", "--workers", "2", "--prefix", "win", "--lab", "mine"]
    assert join(monkeypatch, *args, "--source", "build", "--kubelet", "/mine/kubelet.exe") == 0
    assert [node.name for node in made.plan.nodes] == ["win-1", "win-2"]
    assert made.plan.lab == "mine"
    assert made.options["origin"].kind == "build"
    assert made.options["origin"].own == (("kubelet", Path("/mine/kubelet.exe")),)
    assert (made.options["verb"], made.options["until"]) == ("join", "cluster")
    assert yaml.safe_load(made.options["admin"])["users"][0]["user"] == {"token": "secret"}
    captured = capsys.readouterr()
    assert "win-1 Ready" in captured.out
    assert "no logs from these nodes" in captured.out + captured.err
    assert "secret" not in captured.out + captured.err


def test_an_attachment_is_planned_and_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Made, config: Path
) -> None:
    args = ("--kubeconfig", str(config), "--rehearse", "--attachment", "routed")
    monkeypatch.setattr(routes, "trouble", lambda *_: "There is no route")
    assert join(monkeypatch, *args) == 2
    assert "sudo winlab host route 10.77.0.0/24 --via" in capsys.readouterr().err
    monkeypatch.setattr(routes, "trouble", lambda *_: "")
    assert join(monkeypatch, *args) == 0
    assert made.plan.network.mode == "routed"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--lab", "No"], "can't be the name of a lab"),
        (["--prefix", "Win"], "can't be called"),
        (["--set", "controllers.count=3"], "external cluster decides that"),
        (["--context", "two"], "no context 'two'"),
        (["--workers", "0"], "without workers"),
        (["--os", "debian-13"], "simulates Windows"),
    ],
)
def test_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    made: Made,
    config: Path,
    args: list[str],
    says: str,
) -> None:
    assert join(monkeypatch, "--kubeconfig", str(config), "--rehearse", *args) == 2
    assert says in capsys.readouterr().err
    assert made.plan is None


def test_objections_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Made, config: Path
) -> None:
    monkeypatch.setattr(joining, "look_at", lambda *_args: replace(external.CLUSTER, nodes=("node-1",)))
    assert join(monkeypatch, "--kubeconfig", str(config), "--rehearse") == 2
    assert "same names: node-1" in capsys.readouterr().err
    assert made.plan is None


# -- which clusters there are, and what one needs

ROWS = (
    Finding("distribution", "ok", "k3s, v1.36.1+k3s1, 1 nodes."),
    Finding("logs and exec", "change", "They need a tunnel.", "Disable it."),
)


@pytest.mark.parametrize("refused", [False, True])
def test_check_shows_the_verdict_and_makes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Made, config: Path, refused: bool
) -> None:
    rows = (*ROWS, Finding("pod network", "refused", "kindnet.", "Take another.")) if refused else ROWS
    monkeypatch.setattr(clusters, "check", lambda *_args, **_more: clusters.ClusterVerdict("k3s", "v1.36.1+k3s1", rows))
    args = ["--check", "--rehearse", "--kubeconfig", str(config)]
    assert join(monkeypatch, *args) == (2 if refused else 0)
    printed = capsys.readouterr().out
    assert "Disable it." in printed
    assert ("can't join" in printed) == refused
    assert join(monkeypatch, *args, "--output", "json") == (2 if refused else 0)
    found = results.item(capsys.readouterr().out)
    assert (found["name"], found["refused"]) == ("k3s", refused)
    assert found["findings"][1] == {
        "about": "logs and exec", "level": "change", "says": "They need a tunnel.", "cure": "Disable it.",
    }  # fmt: skip
    assert made.plan is None


def test_without_a_kubeconfig_the_clusters_of_this_host_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], made: Made
) -> None:
    one = discovery.Candidate("kind-mine", "kind", "/home/me/.kube/config", "--context kind-mine")
    monkeypatch.setattr(discovery, "find", lambda: [one])
    assert join(monkeypatch) == 0
    printed = capsys.readouterr().out
    assert "--context kind-mine" in printed
    assert "kind needs: a cluster made with disableDefaultCNI" in printed
    assert join(monkeypatch, "--output", "json") == 0
    found = results.item(capsys.readouterr().out)
    assert (found["name"], found["distribution"]) == ("kind-mine", "kind")
    monkeypatch.setattr(discovery, "find", list)
    assert join(monkeypatch) == 0
    assert "shows no cluster" in capsys.readouterr().out
    assert made.plan is None
