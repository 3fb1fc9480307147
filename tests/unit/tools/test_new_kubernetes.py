"""The maintainers' command for new releases of Kubernetes: what it reads, which versions it takes, what it writes."""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from known_good import edit, published, wanted
from known_good import modules as asking
from known_good.modules import Go, Module, newest, stable
from winlab import run
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.design.catalog.pins import ModulePin
from winlab.errors import HostError, NotFoundError, TransferError
from winlab.events import Quiet
from winlab.run import CommandError, Result
from winlab.supply.artifacts.build import toolchain

ROOT = Path(__file__).parents[3]
# as in k8s.io/kubernetes v1.37.2
CONSTANTS = """
	// DefaultEtcdVersion indicates the default etcd version that kubeadm uses
	DefaultEtcdVersion = "3.7.0-0"
	// CoreDNSVersion is the version of CoreDNS to be deployed if it is used
	CoreDNSVersion = "v1.14.6"
	// PauseVersion indicates the default pause image version for kubeadm
	PauseVersion = "3.10.2"
	CurrentKubernetesVersion = getSkewedKubernetesVersion(0)
"""
DEPENDENCIES = """dependencies:
  - name: "cni"
    version: 1.9.1
    refPaths:
    - path: cluster/gce/config-common.sh
  - name: "coredns-kubeadm"
    version: 1.14.6
  # CRI Tools
  - name: "crictl"
    version: 1.36.0
  - name: "agnhost"
    version: 2.66.1
"""
# as in github.com/containerd/containerd/v2 v2.4.2
RELEASES = """
| Kubernetes Version | containerd Version               | CRI Version     |
|--------------------|----------------------------------|-----------------|
| 1.35               | 2.2.0+, 2.1.5+, 1.7.28+          | v1              |
| 1.36               | 2.3.0+, 2.2.0+                   | v1              |
| 1.37               | 2.4.0+, 2.3.0+                   | v1              |
"""
KUBERNETES = {wanted.CONSTANTS: CONSTANTS, wanted.DEPENDENCIES: DEPENDENCIES}
CONTAINERD = {wanted.RELEASES: RELEASES, wanted.RUNC: "v1.5.2\n"}


class Recorded:
    """Modules as a proxy listed them; files of the two that are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed = {
            wanted.BUILT["kubernetes"]: ["v1.34.4", "v1.35.4", "v1.36.3", "v1.37.1", "v1.37.2"],
            wanted.CONTAINERD: ["v2.1.9", "v2.2.9", "v2.3.7", "v2.4.1", "v2.4.2"],
            wanted.BUILT["runc"]: ["v1.3.6", "v1.4.3", "v1.5.2"],
            wanted.BUILT["etcd"]: ["v3.6.16", "v3.7.0", "v3.7.3"],
        }
        self.files = {wanted.BUILT["kubernetes"]: KUBERNETES, wanted.CONTAINERD: CONTAINERD}
        self.fetched: list[str] = []

    def versions(self, path: str) -> list[str]:
        return self.listed.get(path, [])

    def download(self, path: str, version: str) -> Module:
        self.fetched.append(f"{path} {version}")
        for name, text in self.files.get(path, {}).items():
            file = self.folder / path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Module(ModulePin(path=path, version=version, sum=f"h1:{'A' * 43}="), self.folder / path)

    def fields(self, kubernetes: Module) -> dict[str, str]:
        return {"KubeletConfiguration": f"of {kubernetes.pin.version}"}


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "modules")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    found = importlib.util.spec_from_file_location("new_kubernetes", ROOT / "tools/new_kubernetes.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """The catalog before 1.37, with the newest of the others in place of 1.36.3: v1.36.2."""
    path = tmp_path / versions.FILE
    lines = (ROOT / "images/kubernetes" / versions.FILE).read_text(encoding="utf-8").splitlines()
    rows = [row for row in edit._items(lines, "combinations") if row.content["kubernetes"].startswith("v1.37.")]
    path.write_text("\n".join(edit._without_unused(edit._without(lines, rows))).replace("1.36.3", "1.36.2") + "\n")
    text = path.read_text()
    path.write_text(text.replace(f'default: "{versions.load().default}"', 'default: "1.36"'))
    return path


@pytest.fixture
def fields(tmp_path: Path) -> Path:
    path = tmp_path / "config-fields.json"
    path.write_text(json.dumps({"1.36": {"a": "b"}, "1.35": {"a": "c"}, "1.34": {"a": "c"}, "1.33": {"a": "d"}}))
    return path


# -- content of the projects' files


def test_versions_are_read_from_the_projects_own_files(recorded: Recorded) -> None:
    known = versions.load().pins
    row, kubernetes = wanted.combination(recorded, "1.37", known)
    assert kubernetes.pin.version == "v1.37.2"
    assert row.by_name == {
        "kubernetes": "v1.37.2",
        "containerd": "2.4.2",
        "runc": "1.5.2",
        "crictl": "1.36.0",
        "cni_plugins": "1.9.1",
        "etcd": "3.7.0-0",
        "coredns": "v1.14.7",  # kubeadm's own is v1.14.6; the catalog has the image of a newer patch
        "pause": "3.10.2",
        "agnhost": "2.66.1",
    }
    assert wanted.combination(recorded, "1.37", known, "2.3")[0].containerd == "2.3.7"
    without = known.model_copy(update={"images": ()})
    assert wanted.combination(recorded, "1.37", without)[0].coredns == "v1.14.6"


def test_a_minor_that_does_not_exist_or_that_containerd_does_not_name(recorded: Recorded) -> None:
    with pytest.raises(NotFoundError, match=r"no release 1\.38 of k8s\.io/kubernetes"):
        wanted.combination(recorded, "1.38", versions.load().pins)
    with pytest.raises(NotFoundError, match=r"containerd does not say yet") as error:
        wanted.supported(RELEASES, "1.38")
    assert "--containerd" in error.value.cure
    assert wanted.supported(RELEASES, "1.35") == "2.2"
    with pytest.raises(NotFoundError):
        wanted.supported(RELEASES, "1.3")


@pytest.mark.parametrize(
    "text", ["", CONSTANTS.replace("DefaultEtcd", "Etcd"), CONSTANTS + '\n\tPauseVersion = "3.11"\n', CONSTANTS.upper()]
)
def test_a_changed_file_is_refused(text: str) -> None:
    with pytest.raises(TransferError, match=r"constants\.go is not as it was"):
        wanted.kubeadm(text)
    with pytest.raises(TransferError, match=r"dependencies\.yaml is not as it was"):
        wanted.tested(DEPENDENCIES.replace("crictl", "critools"))


def test_a_module_without_the_file_or_with_a_huge_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module(ModulePin(path="x.org/y", version="v1.0.0", sum=f"h1:{'A' * 43}="), tmp_path)
    with pytest.raises(TransferError, match=r"x\.org/y v1\.0\.0 has no readable no\.go"):
        module.text("no.go")
    (tmp_path / "big").write_text("xxx")
    monkeypatch.setattr(asking, "LARGEST_FILE", 2)
    with pytest.raises(TransferError, match="too large"):
        module.text("big")


def test_only_releases_count() -> None:
    listed = ["v3.8.0-alpha.0", "v3.7.10", "v3.7.9", "v3.7.0-rc.1", "v3.10.1"]
    assert stable(listed) == ["v3.7.9", "v3.7.10", "v3.10.1"]
    assert newest(stable(listed), "3.7") == "v3.7.10"
    assert newest(stable(listed), "3.1") is None


# -- what is written


def test_a_new_minor_comes_with_its_pins(tool: ModuleType, recorded: Recorded, catalog: Path, fields: Path) -> None:
    before = catalog.read_text()
    assert ", by tools/new_kubernetes.py." not in before, "a comment goes with its rows"
    old = versions.load(catalog)
    row = tool.add(recorded, "1.37", catalog=catalog, fields=fields)
    made = versions.load(catalog)
    assert made.combinations == (row, *old.combinations)
    assert made.default == "1.36"
    for name, system in (("kubelet", "linux"), ("kube-log-runner", "windows")):
        pin = made.pins.program(Program(name, "v1.37.2", system))  # type: ignore[arg-type]
        assert pin is not None
        assert pin.sums_url == f"{pin.url}.sha256"
    assert made.pins.image(ContainerImage("registry.k8s.io/etcd:3.7.0-0", "linux"))
    crictl = made.pins.program(Program("crictl", "1.36.0", "linux"))
    assert crictl is not None
    assert crictl.sha256, "the row that was there before, with its digest"
    assert {module for other in made.combinations for module in wanted.modules_of(other)} <= set(made.pins.module_sums)
    gone = [line for line in difflib.ndiff(before.splitlines(), catalog.read_text().splitlines()) if line[0] == "-"]
    assert gone == [], "all other lines are as they were"
    assert f"# By tools/new_kubernetes.py, {datetime.now(UTC):%Y-%m-%d}." in catalog.read_text()
    held = json.loads(fields.read_text())
    assert list(held) == ["1.37", "1.36", "1.35", "1.34"]
    assert held["1.37"] == {"KubeletConfiguration": "of v1.37.2"}
    assert held["1.36"] == {"a": "b"}


def test_rows_look_like_those_written_manually(
    tool: ModuleType, recorded: Recorded, catalog: Path, fields: Path
) -> None:
    tool.add(recorded, "1.37", catalog=catalog, fields=fields)
    assert (
        "  - name: containerd\n    version: 2.4.2\n    os: windows\n"
        "    url: https://github.com/containerd/containerd/releases/download/v2.4.2/containerd-2.4.2-windows-amd64.tar.gz\n"
        "    sums_url: https://github.com/containerd/containerd/releases/download/v2.4.2/"
        "containerd-2.4.2-windows-amd64.tar.gz.sha256sum\n    member: bin/containerd.exe\n"
    ) in catalog.read_text()


def test_a_newer_patch_takes_the_place_of_the_older_one(
    tool: ModuleType, recorded: Recorded, catalog: Path, fields: Path
) -> None:
    row = tool.add(recorded, "1.36", catalog=catalog, fields=fields)
    assert row.kubernetes == "v1.36.3"
    text = catalog.read_text()
    made = yaml.safe_load(text)
    assert [one["kubernetes"] for one in made["combinations"]] == ["v1.36.3", "v1.35.4", "v1.34.4"]
    # only in comments, which are written manually
    assert not [line for line in text.splitlines() if "1.36.2" in line and not line.strip().startswith("#")]
    assert any(pin["version"] == "2.2.9" for pin in made["pins"]["programs"]), "another combination's"
    assert not any(pin["version"] == "1.4.3" for pin in made["pins"]["programs"]), "runc is 1.5.2 now"
    assert not any(pin["path"].endswith("runc") and pin["version"] == "v1.4.3" for pin in made["pins"]["modules"])
    recorded.listed[wanted.BUILT["kubernetes"]].append("v1.36.4")
    tool.add(recorded, "1.36", catalog=catalog, fields=fields)
    text = catalog.read_text()
    assert text.count("# By tools/new_kubernetes.py") == 1, "the comment is replaced, too"
    assert text.count("v1.36.3, by tools") == 2, "the rows of runc and agnhost stay"
    assert text.count("v1.36.4, by tools") == 2


def test_an_older_patch_is_not_taken(tool: ModuleType, recorded: Recorded, catalog: Path, fields: Path) -> None:
    recorded.listed[wanted.BUILT["kubernetes"]] = ["v1.36.1"]
    before = catalog.read_text()
    with pytest.raises(NotFoundError, match=r"v1\.36\.1, and the catalog has v1\.36\.2"):
        tool.add(recorded, "1.36", catalog=catalog, fields=fields)
    assert catalog.read_text() == before


def test_nothing_is_written_if_a_module_is_missing(
    tool: ModuleType, recorded: Recorded, catalog: Path, fields: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = catalog.read_text(), fields.read_text()

    def fail(kubernetes: Module) -> Any:
        raise TransferError("It does not compile.")

    monkeypatch.setattr(recorded, "fields", fail)
    with pytest.raises(TransferError):
        tool.add(recorded, "1.37", catalog=catalog, fields=fields)
    assert (catalog.read_text(), fields.read_text()) == before


def test_the_report_names_what_is_newer(tool: ModuleType, recorded: Recorded, catalog: Path) -> None:
    lines = tool.report(recorded, catalog)
    first = {line.split()[0]: line.split()[1:] for line in reversed(lines[: lines.index("")])}
    assert first["kubernetes"] == ["v1.36.2", "v1.36.3", "v1.37.2"]
    assert first["containerd"] == ["2.3.7", "v2.3.7", "v2.4.2"]
    assert first["calico"][1:] == ["see", "https://github.com/projectcalico/calico/releases"]
    assert lines[-1] == "Kubernetes 1.37 is new: tools/new_kubernetes.py 1.37"


def test_every_part_of_the_catalog_has_a_place() -> None:
    good = versions.load()
    for row in good.combinations:
        assert list(published.lacking(row, good.pins)) == []
        # what would be written for it is what is there, but for the digests
        for pin in published.lacking(row, good.pins.model_copy(update={"programs": (), "images": ()})).programs:
            held = good.pins.program(pin.artifact)
            assert held is not None
            assert (held.url, held.member) == (pin.url, pin.member)
            assert held.sums_url in (None, pin.sums_url)


# -- Go


def answering(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> list[dict[str, str]]:
    """Go, which answers by its first word; the environments that it had."""
    seen: list[dict[str, str]] = []

    def answer(args: list[str], **more: Any) -> Result:
        seen.append(more["env"])
        found = answers[args[1]]
        if isinstance(found, str):
            raise CommandError(Result(("go",), 1, "", found, 0.1))
        return Result(("go",), 0, json.dumps(found), "", 0.1)

    monkeypatch.setattr(run, "run", answer)
    monkeypatch.setattr(toolchain, "find", lambda needed, progress: toolchain.Go(Path("/go"), "go1.26.8"))
    return seen


VERIFIED = {"GOSUMDB": "sum.golang.org", "GONOSUMDB": ""}


def test_go_lists_and_verifies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = {
        "env": VERIFIED,
        "list": {"Versions": ["v1.0.0-rc.1", "v1.0.0"]},
        "mod": {"Sum": f"h1:{'A' * 43}=", "Dir": str(tmp_path)},
    }
    seen = answering(monkeypatch, answers)
    go = Go(Quiet())
    assert go.versions("x.org/y") == ["v1.0.0"]
    assert go.download("x.org/y", "v1.0.0") == Module(
        ModulePin(path="x.org/y", version="v1.0.0", sum=f"h1:{'A' * 43}="), tmp_path
    )
    assert {one["GOFLAGS"] for one in seen} == {"-mod=mod"}, "the user's own flags, such as -insecure, do not count"


@pytest.mark.parametrize("unsafe", [{"GOSUMDB": "off"}, {"GONOSUMDB": "k8s.io/*"}])
def test_sums_have_to_be_verified(monkeypatch: pytest.MonkeyPatch, unsafe: dict[str, str]) -> None:
    answering(monkeypatch, {"env": VERIFIED | unsafe})
    with pytest.raises(HostError, match="verify"):
        Go(Quiet())


def test_a_proxy_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, {"env": VERIFIED, "list": "i/o timeout", "mod": "SECURITY ERROR"})
    go = Go(Quiet())
    with pytest.raises(TransferError, match=r"versions of the Go module x\.org/y") as error:
        go.versions("x.org/y")
    assert "i/o timeout" in error.value.why
    with pytest.raises(TransferError, match=r"x\.org/y v1 can't be fetched") as error:
        go.download("x.org/y", "v1")
    assert "SECURITY ERROR" in error.value.why


# -- the command


def test_the_command_says_what_is_left_and_which_tests(
    tool: ModuleType,
    recorded: Recorded,
    catalog: Path,
    fields: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tool, "Go", lambda progress: recorded)
    monkeypatch.setattr(tool, "CATALOG", catalog)
    monkeypatch.setattr(tool, "ROOT", catalog.parent)
    monkeypatch.setenv("WINLAB_TEST_MINORS", "")
    added = tool.add
    monkeypatch.setattr(tool, "add", lambda *words: added(*words, catalog=catalog, fields=fields))
    asked: list[list[str]] = []
    monkeypatch.setattr(pytest, "main", lambda words: asked.append(words) or 1)
    assert tool.main(["1.37", "--no-tests"]) == 0
    shown = capsys.readouterr().out
    assert "calico-vxlan: on which Windows it works with Kubernetes 1.37" in shown
    assert "whether it is the default" in shown
    assert "tests/integration/test_rendered_configs.py" in shown
    assert asked == []
    assert tool.main(["1.37"]) == 1
    assert asked[0][-2:] == ["-k", "unit or 1.37"]
    assert os.environ["WINLAB_TEST_MINORS"] == "1.37"
    assert tool.main(["1.99"]) == 2
    assert "no release 1.99" in capsys.readouterr().err


def test_the_tests_that_it_names_exist(tool: ModuleType) -> None:
    assert all((ROOT / path).exists() for path in tool.TESTS)
