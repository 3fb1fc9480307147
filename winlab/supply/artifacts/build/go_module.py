"""Builds programs from published Go modules, as their projects build them: same pinned versions, same stamps.

A published module can't be built alone elsewhere: a module of our own must require it and repeat the pins of its
go.mod. This code writes that module from the published module's go.mod.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from winlab import run
from winlab.design import system
from winlab.design.system import SystemName
from winlab.errors import HostError, TransferError, UsageError, WinlabError
from winlab.events import Progress
from winlab.supply.artifacts import store
from winlab.supply.artifacts.build import toolchain
from winlab.supply.artifacts.build.toolchain import Go
from winlab.supply.download import check_space

KUBERNETES = "k8s.io/kubernetes"
SPACE = 1_500_000_000  # bytes that the biggest build takes in its work folder and for linking

T = TypeVar("T")


@dataclass(frozen=True)
class GoModule:
    """A module and its version (``v1.36.3``); *source* is a local checkout of it to build instead.

    ``sum`` is its pinned sum (``h1:...``); empty: only Go's checksum database verifies it.
    """

    path: str
    version: str
    source: Path | None = None
    sum: str = ""

    def __str__(self) -> str:
        return f"{self.source or self.path} {self.version}"


@dataclass(frozen=True)
class Target:
    """What to compile from a module: packages by import path, for which system, and how."""

    packages: tuple[str, ...]
    os: SystemName
    tags: tuple[str, ...] = ()
    cgo: bool = False  # also linked statically


def program(package: str) -> str:
    """How ``go build`` names the program of *package*: by its last non-version element (cmd/go, help build)."""
    path = PurePosixPath(package)
    return path.parent.name if re.fullmatch(r"v[0-9]+", path.name) else path.name


def wrapper(gomod: Mapping[str, Any], version: str) -> str:
    """A go.mod that requires the module of *gomod* (the answer of ``go mod edit -json``) with all that it pins.

    Replacements by other modules are repeated; those by local folders stand for modules that are published with the
    release. Kubernetes publishes v1.36.3's "staging" modules as v0.36.3
    (https://github.com/kubernetes/kubernetes/blob/master/staging/README.md); others (etcd) already require them in the
    release's own version. Modules that are never published (sample-*, with version 0.0.0) are left out.
    """
    path = gomod["Module"]["Path"]
    pins = {item["Path"]: item["Version"] for item in gomod.get("Require") or []}
    replaced: dict[str, str] = {}
    for item in gomod.get("Replace") or []:
        old, new = item["Old"]["Path"], item["New"]
        if new.get("Version"):
            replaced[old] = f"{new['Path']} {new['Version']}"
        elif path == KUBERNETES and "/sample-" not in old:
            pins[old] = "v0." + version.partition(".")[2]
            replaced[old] = f"{old} {pins[old]}"
    lines = ["module winlab.invalid/build", "", f"go {gomod.get('Go') or '1.21'}", "", f"require {path} {version}"]
    lines += [f"require {name} {pin}" for name, pin in sorted(pins.items()) if pin != "v0.0.0"]
    lines += [f"replace {old} => {new}" for old, new in sorted(replaced.items())]
    lines += [f"exclude {item['Path']} {item['Version']}" for item in gomod.get("Exclude") or []]
    return "\n".join(lines) + "\n"


def compile_all(
    module: GoModule,
    target: Target,
    stamps: Callable[[str], Mapping[str, str]],
    work: Path,
    progress: Progress,
) -> tuple[dict[str, Path], Go]:
    """Compile *target*'s packages in one run of ``go build``. Returns programs by package, and the Go that was used.

    :param stamps: returns the values of variables to set (``-X``), given the release's time (RFC 3339, UTC).
    :param work: an empty folder.
    :raises TransferError: modules can't be fetched.
    :raises UsageError: the local checkout is not one of this module.
    :raises HostError: no Go, compiler, library or space.
    :raises CommandError: it does not compile; the compiler's last lines are shown.
    """
    if target.cgo:
        check_c(target.tags)
    check_space(work, SPACE)
    out = work / "out"
    out.mkdir()
    if module.source is not None:
        check_source(module)
        where, mode, published, needed = module.source, "-buildvcs=false", "1970-01-01T00:00:00Z", "1.21"
    else:
        where, mode = work / "module", "-mod=mod"
        where.mkdir()
        published, needed = prepare(module, where, progress)
    flags = ["-s", "-w", *(["-extldflags", "-static"] if target.cgo else [])]
    flags += [f"-X {name}={value}" for name, value in stamps(published).items()]
    command = ["build", "-v", "-trimpath", "-buildvcs=false", f"-ldflags={' '.join(flags)}"]
    command += [f"-tags={','.join(target.tags)}"] if target.tags else []
    environment = {**_environment(mode, own=module.source is None), "GOOS": target.os, "GOARCH": "amd64"}
    environment |= {"GOAMD64": "v1", "CGO_ENABLED": "1" if target.cgo else "0"}
    say = _Teller(module, target, progress)

    def build(go: Go) -> Go:
        # Low priority, as guests boot at the same time; and whatever ends winlab, even kill -9, ends the build, too.
        words = ["setpriv", "--pdeathsig=TERM", "nice", "-n", "10", str(go.program), *command, f"-o={out}/"]
        run.stream([*words, *target.packages], say.line, env=environment, cwd=where)
        return go

    progress.say(f"compiling {module} for {target.os}")
    go = _with_go(build, progress, needed)
    file = system.get(target.os).program_file
    return {package: out / file(program(package)) for package in target.packages}, go


def check_source(module: GoModule) -> None:
    """Check that the local checkout is one of the module.

    :raises UsageError: it is not.
    """
    assert module.source is not None
    try:
        text = (module.source / "go.mod").read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"'{module.source}' is not a checkout of {module.path}.",
            why=f"Its go.mod can't be read: {error.strerror}.",
            cure="Give the top folder of a checkout.",
        ) from error
    match = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    if match is None or match[1] != module.path:
        raise UsageError(
            f"'{module.source}' is not a checkout of {module.path}.",
            why=f"Its go.mod names the module {match[1]}." if match else "Its go.mod names no module.",
            cure="Give the top folder of a checkout.",
        )


def check_published(module: GoModule) -> None:
    """Check that a suitable Go is available, and that the proxy (or Go's cache) has the module's version. Quick.

    :raises HostError: there is no Go.
    :raises TransferError: the version is not available.
    """
    toolchain.require("1.21")
    go = next(iter(toolchain.here()), None)
    if module.source is not None or go is None:  # finding out which Go is needed takes a Go
        return
    command = [str(go.program), "list", "-m", "-json", f"{module.path}@{module.version}"]
    with store.workspace() as folder:
        try:
            environment = _environment("-mod=mod", own=True)
            answer = run.run(command, env=environment, cwd=folder, timeout=toolchain.PROBE_SECONDS).stdout
        except WinlabError as error:
            why = _reason(error.result) if isinstance(error, run.CommandError) else error.what
            raise _unpublished(module, why, error) from error
    toolchain.require(str(json.loads(answer).get("GoVersion") or "1.21"))


def check_c(tags: tuple[str, ...]) -> None:
    """Check that C code, which only runc has, can be compiled and linked statically with what these tags need.

    :raises HostError: it can't; the cure names the packages.
    """
    cure = (
        "Debian: apt-get install gcc libc6-dev libseccomp-dev pkg-config."
        " Fedora: dnf install gcc glibc-static libseccomp-devel libseccomp-static pkgconf-pkg-config."
    )
    missing = [name for name in ("gcc", "pkg-config") if run.find(name) is None]
    if not missing:
        libraries = ["libc.a", *(["libseccomp.a"] if "seccomp" in tags else [])]
        for library in libraries:
            # gcc prints a path if it finds the file, otherwise the bare name
            if "/" not in run.run(["gcc", f"-print-file-name={library}"]).stdout:
                missing.append(library)
    if missing:
        raise HostError(
            "runc can't be built here.",
            why=f"It needs statically linked C code, and there is no {', no '.join(missing)}.",
            cure=cure,
        )


def _environment(flags: str, *, own: bool) -> dict[str, str]:
    """Go's variables. The user's GOFLAGS are dropped, as they would change the build; proxies and caches are kept."""
    return {**toolchain.LOCAL, "GO111MODULE": "on", "GOFLAGS": flags, **({"GOWORK": "off"} if own else {})}


def _with_go(action: Callable[[Go], T], progress: Progress, needed: str = "1.21") -> T:
    """Do it with the first toolchain that is new enough, according to Go itself."""
    while True:
        go = toolchain.find(needed, progress)
        try:
            return action(go)
        except run.CommandError as error:
            newer = re.findall(r"requires go >= (\d[\w.]*)", error.result.stdout + error.result.stderr)
            wanted = max(newer, key=toolchain.parse, default="")
            if toolchain.parse(wanted) <= go.version:
                raise
            needed = wanted


def prepare(module: GoModule, folder: Path, progress: Progress) -> tuple[str, str]:
    """Fetch the module and write the go.mod that requires it. Returns the release's time and the required Go.

    :raises TransferError: it can't be fetched, or is not the pinned one.
    """
    progress.say(f"fetching {module}")
    environment = _environment("-mod=mod", own=True)

    def download(go: Go) -> tuple[Go, dict[str, Any]]:
        command = [str(go.program), "mod", "download", "-json", f"{module.path}@{module.version}"]
        return go, json.loads(run.run(command, env=environment, cwd=folder).stdout)

    try:
        go, answer = _with_go(download, progress)
    except run.CommandError as error:
        raise _unpublished(module, _reason(error.result), error) from error
    if module.sum not in ("", answer["Sum"]):
        raise TransferError(
            f"The Go module {module.path} {module.version} is not the one that is pinned.",
            why=f"Its sum is {answer['Sum']}, not {module.sum}.",
            cure="Another module proxy may have the published one (GOPROXY), after 'go clean -modcache'.",
        )
    edit = run.run([str(go.program), "mod", "edit", "-json", str(answer["GoMod"])], env=environment, cwd=folder)
    gomod = json.loads(edit.stdout)
    (folder / "go.mod").write_text(wrapper(gomod, module.version), encoding="utf-8")
    released = json.loads(Path(answer["Info"]).read_text(encoding="utf-8"))["Time"]
    return str(released), str(gomod.get("Go") or "1.21")


def _unpublished(module: GoModule, why: str, error: WinlabError) -> TransferError:
    return TransferError(
        f"The Go module {module.path} {module.version} can't be fetched.",
        why=why,
        cure="Does that version exist? Is Go's module proxy reachable (GOPROXY sets another; so do http_proxy and"
        " https_proxy)?",
        causes=[error],
    )


def _reason(result: run.Result) -> str:
    """The error from ``go mod download -json``."""
    try:
        return str(json.loads(result.stdout)["Error"])
    except (ValueError, KeyError, TypeError):
        return (result.stderr or result.stdout).strip()


class _Teller:
    """Turns what ``go build -v`` prints into progress."""

    def __init__(self, module: GoModule, target: Target, progress: Progress) -> None:
        self._what = f"{module} ({target.os})"
        self._progress = progress
        self._compiled = 0

    def line(self, line: str) -> None:
        """Take one line: ``go: downloading MODULE VERSION``, or the import path of a package."""
        if line.startswith("go: "):
            self._progress.say(f"{self._what}: {line[4:]}")
        elif re.fullmatch(r"[\w./~+-]+", line):
            self._compiled += 1
            self._progress.say(f"{self._what}: compiling {line} ({self._compiled})")
