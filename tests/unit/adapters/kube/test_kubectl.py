"""What kubectl is given: no proxy for a lab's own cluster. What it may do: not print endlessly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import certificates
import pytest

from winlab import run
from winlab.adapters.kube import kubeconfig, reduced
from winlab.adapters.kube.kubectl import Kubectl
from winlab.checks import access
from winlab.errors import ClusterError
from winlab.run import Result

FOREIGN = kubeconfig.named("lab", {"server": "https://api.example:6443"}, {"token": "x"})


@pytest.fixture
def own(tmp_path: Path) -> Kubectl:
    identity = reduced.identity(certificates.admin(), "controller-1")
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig.for_lab(identity, "lab", "172.31.240.33:6443", "172.31.240.0/20"))
    return Kubectl(tmp_path / "kubectl", path)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The variables of every kubectl."""
    found: list[dict[str, Any]] = []

    def watched(args: list[Any], **options: Any) -> Result:
        found.append(options["env"])
        return Result((), 0, "", "", 0.0)

    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run, "watched", watched)
    return found


@pytest.mark.parametrize(("variable", "value"), [("", ""), ("NO_PROXY", "a.example,"), ("no_proxy", "a.example,")])
def test_a_labs_own_cluster_is_reached_without_the_users_proxy(
    own: Kubectl, given: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    if variable:
        monkeypatch.setenv(variable, value.rstrip(","))
    own.run("get", "nodes")
    access.in_pod(own, "default", "pod", ["true"])
    wanted = f"{value}172.31.240.0/20,172.31.240.33"
    assert [(env["NO_PROXY"], env["no_proxy"], env["KUBECONFIG"]) for env in given] == [(wanted, wanted, "")] * 2


def test_the_users_own_kubectl_does_so_too(own: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(run, "replace", lambda _words: None)
    own.replace_process(["get", "nodes"])
    assert os.environ["NO_PROXY"] == "172.31.240.0/20,172.31.240.33"


@pytest.mark.parametrize("text", [FOREIGN, "", "]"])
def test_an_external_cluster_is_reached_as_the_user_reaches_it(
    own: Kubectl, given: list[dict[str, Any]], text: str
) -> None:
    own.kubeconfig.write_text(text)
    own.run("get", "nodes")
    assert given == [{"KUBECONFIG": ""}]


def test_an_endless_answer_is_a_failure_of_the_cluster(own: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    def flood(*_args: Any, **_options: Any) -> Result:
        raise run.FloodError("'kubectl get pods' printed more than 256 MiB.")

    monkeypatch.setattr(run, "watched", flood)
    with pytest.raises(ClusterError, match="printed too much") as caught:
        own.run("get", "pods")
    assert "256 MiB" in caught.value.why
