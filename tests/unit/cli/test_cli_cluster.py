"""kubeconfig, kubectl, push, load, logs and lock on the command line, as far as they touch nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import plans
import pytest
import results
import yaml
from commands import run as winlab

from winlab import Lab, Spec, run
from winlab.adapters.kube import kubeconfig
from winlab.design.catalog.artifact import Artifact, Obtained
from winlab.errors import UsageError
from winlab.host import facts
from winlab.lab_folder import LabFolder
from winlab.operations import load, lock, logs, push
from winlab.operations.logs import NodeDiagnostics
from winlab.operations.push import PushedProgram
from winlab.steps.sources import Supply


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(facts, "read_facts", lambda: plans.TCG)


@pytest.fixture
def folder(tmp_path: Path) -> LabFolder:
    made = LabFolder("lab")
    made.write(made.kubeconfig, kubeconfig.named("lab", {"server": "https://192.0.2.1:6443"}, {"token": "x"}))
    (tmp_path / "kubectl").touch()
    made.kubectl.symlink_to(tmp_path / "kubectl")
    return made


def test_kubeconfig_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: LabFolder, tmp_path: Path
) -> None:
    assert winlab(monkeypatch, "kubeconfig") == 0
    assert yaml.safe_load(capsys.readouterr().out)["current-context"] == "winlab-lab"
    assert not (tmp_path / "config").exists()


def test_kubeconfig_is_merged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: LabFolder, tmp_path: Path
) -> None:
    assert winlab(monkeypatch, "kubeconfig", "--merge") == 0
    assert "kubectl --context winlab-lab get nodes" in capsys.readouterr().out
    assert "current-context" not in yaml.safe_load((tmp_path / "config").read_text())
    assert winlab(monkeypatch, "kubeconfig", "--merge", "--use") == 0
    assert yaml.safe_load((tmp_path / "config").read_text())["current-context"] == "winlab-lab"


def test_winlab_kubectl_runs_the_kubectl_of_the_lab(monkeypatch: pytest.MonkeyPatch, folder: LabFolder) -> None:
    became: list[list[Any]] = []

    def replace(args: list[Any]) -> None:
        became.append(args)
        raise SystemExit(0)

    monkeypatch.setattr(run, "replace", replace)
    assert winlab(monkeypatch, "kubectl", "--lab", "lab", "--", "get", "nodes", "-o", "wide", "--lab", "x") == 0
    assert winlab(monkeypatch, "kubectl", "get", "pods", "-A") == 0
    assert became == [
        [folder.kubectl, "get", "nodes", "-o", "wide", "--lab", "x"],
        [folder.kubectl, "get", "pods", "-A"],
    ]
    assert os.environ["KUBECONFIG"] == str(folder.kubeconfig)


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["kubeconfig", "--lab", "other"], 5, "has no kubeconfig"),
        (["kubeconfig", "--use"], 2, "--use needs --merge"),
        (["kubectl", "--lab", "other", "--", "get", "nodes"], 5, "has no cluster"),
        (["logs", "--lines", "0"], 2, "between 1 and"),
        (["lock", "--check"], 5, "There is no 'winlab.lock'"),
        (["lock", "--spec", "9-9-9"], 2, "not valid"),
        (["lock", "--source", "thin-air"], 2, "thin-air"),
        (["push"], 2, "binary"),
    ],
)
def test_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], args: list[str], code: int, says: str
) -> None:
    assert winlab(monkeypatch, *args) == code
    assert says.lower() in capsys.readouterr().err.lower()


def test_push_says_what_is_installed_now(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def swap(lab: str, site: Any, node: str, binary: str, progress: Any, *, restore: bool) -> PushedProgram:
        asked.append((lab, node, binary, restore))
        return PushedProgram("kubelet.exe", "a" * 64, not restore, "v1.36.3-mine")

    monkeypatch.setattr(push, "to_node", swap)
    assert winlab(monkeypatch, "push", "out/kubelet.exe", "node-1") == 0
    shown = capsys.readouterr().out
    assert f"'node-1' has your kubelet.exe: SHA-256 {'a' * 64}." in shown
    assert "Ready, with the kubelet v1.36.3-mine" in shown
    assert winlab(monkeypatch, "push", "kubelet", "node-1", "--restore", "--output", "json") == 0
    assert results.item(capsys.readouterr().out)["changed"] is False
    assert asked == [("lab", "node-1", "out/kubelet.exe", False), ("lab", "node-1", "kubelet", True)]


def test_load_says_where_the_image_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        load, "to_lab", lambda lab, site, image, tell, *, name: {f"{image}:{name}": ["linux-1", "node-1"]}
    )
    assert winlab(monkeypatch, "load", "web", "--name", "7") == 0
    assert "web:7 is on linux-1, node-1." in capsys.readouterr().out


def test_logs_as_text_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def reports(lab: str, site: Any, node: str, lines: int) -> list[NodeDiagnostics]:
        asked.append((lab, node, lines))
        return [NodeDiagnostics("node-1", ["Ready=True"], [], {"kubelet": "text"}, [])]

    monkeypatch.setattr(logs, "reports", reports)
    assert winlab(monkeypatch, "logs") == 0
    assert "--- kubelet\n  text" in capsys.readouterr().out
    assert winlab(monkeypatch, "logs", "node-1", "-n", "5", "-o", "json") == 0
    assert results.item(capsys.readouterr().out)["logs"] == {"kubelet": "text"}
    assert asked == [("lab", "", 60), ("lab", "node-1", 5)]


class Source:
    name = "build"

    def __init__(self) -> None:
        self.digest = "a" * 64

    def obtain_all(self, artifacts: list[Artifact], progress: object) -> list[Obtained]:
        return [Obtained(artifact, Path("/x"), self.digest, 1, "build") for artifact in artifacts]


@pytest.mark.parametrize(
    "words",
    [("lock", "--spec", "1-1-2"), ("bundle", "create", "--spec", "1-1-2"), ("image", "build", "windows-2022")],
)
def test_what_makes_no_machines_of_the_lab_is_planned_without_them(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def plan(self: Lab, spec: Spec, *, machines: bool = True, **_: object) -> NoReturn:
        asked.append(machines)
        raise UsageError("This is enough.")

    monkeypatch.setattr(Lab, "plan", plan)
    assert winlab(monkeypatch, *words) == 2
    assert asked == [False]


def test_lock_writes_renews_and_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = Source()
    monkeypatch.setattr(lock, "choose", lambda plan, origin, runs: (Supply(source), "build: why."))  # type: ignore[arg-type]
    spec = tmp_path / "spec.yaml"
    spec.write_text("workers: {count: 1}\n")
    args = ("lock", "--spec", str(spec), "--rehearse")
    built: list[str] = []
    monkeypatch.setattr(lock.cache, "obtain", lambda recipe, _: built.append(recipe.name))
    assert winlab(monkeypatch, *args) == 0
    assert built == ["debian-13", "windows-rehearsal"]  # only then their packages are known
    path = tmp_path / "winlab.lock"
    assert f"'{path}' is written" in capsys.readouterr().out
    assert winlab(monkeypatch, *args) == 0
    assert "is as it was" in capsys.readouterr().out
    assert winlab(monkeypatch, *args, "--check") == 0
    source.digest = "b" * 64
    before = path.read_bytes()
    assert winlab(monkeypatch, *args, "--check") == 6
    assert "The program kubelet.exe (windows) has the SHA-256 " + "b" * 64 in capsys.readouterr().err
    assert path.read_bytes() == before
    assert winlab(monkeypatch, *args) == 0
    assert "The program kubelet.exe (windows) has the SHA-256 " + "b" * 64 in capsys.readouterr().out
    assert winlab(monkeypatch, *args, "--check") == 0
