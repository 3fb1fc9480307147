"""Every output that a user can name goes through one door: files are replaced, streams written to, the rest refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import commands
import plans
import pytest
import typer

from winlab import Lab, Node, Site, files
from winlab.adapters.kube import kubeconfig
from winlab.checks.report import Report
from winlab.cli import main, watch
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.operations import export_iso, lock_file, look, render, support_sources
from winlab.operations.reach import Desktop
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.images import library

NOTHING: Any = None
CONFIG = """\
clusters: [{name: winlab-lab, cluster: {}}]
users: [{name: winlab-lab, user: {}}]
contexts: [{name: winlab-lab, context: {cluster: winlab-lab}}]
"""


@dataclass(frozen=True)
class Output:
    """An output that a user names: how it is written, and whether it may be a stream."""

    write: Callable[[Path], object]
    stream: bool


def of_node(*words: str) -> None:
    done = commands.ran(*words)
    if done.exit_code:
        assert done.exit_code == 2
        raise UsageError(done.stderr)


def lock(path: Path) -> None:
    lock_file.write(path, lock_file.collect(plans.make(plans.KVM, "1-0-1"), [], spec="1-0-1"))


def events(path: Path) -> None:
    with files.open_named(path) as file:
        file.write("x\n")


OUTPUTS = {
    "--events": Output(events, True),
    "bundle create --to": Output(lambda path: bundle.write(path, [], {}, Quiet()), False),
    "image export --to": Output(lambda path: library.export(NOTHING, path, Quiet()), False),
    "iso build --to": Output(lambda path: export_iso.export(NOTHING, path, Site(), print), False),
    "kubeconfig --merge": Output(lambda path: kubeconfig.merge(path, CONFIG, "lab", use=False), False),
    "lock --file": Output(lock, False),
    "plan --render": Output(lambda path: render.write(NOTHING, path.parent), True),
    "rdp --file": Output(lambda path: of_node("rdp", "node-1", "--file", str(path)), True),
    "screenshot file": Output(lambda path: of_node("screenshot", "node-1", str(path)), True),
    "snapshot export path": Output(lambda path: Lab("lab").snapshots.export("ready", path), False),
    "support --to": Output(lambda path: Lab("lab").support(path), True),
    "test readiness --junit": Output(lambda path: Report("smoke", "lab", (), 0, 0).write_junit(path), True),
    "test smoke --junit": Output(lambda path: Report("smoke", "lab", (), 0, 0).write_junit(path), True),
    "timeline --html": Output(lambda path: watch._write(path, "x"), True),
    "timeline --trace": Output(lambda path: watch._write(path, "x"), True),
}


@pytest.fixture(autouse=True)
def content(monkeypatch: pytest.MonkeyPatch) -> None:
    """What there is to write."""
    monkeypatch.setattr(Node, "screenshot", lambda _: b"PNG")
    monkeypatch.setattr(Node, "desktop", lambda _: Desktop("192.0.2.1", 3389, "user", "password"))
    monkeypatch.setattr(support_sources, "shared", lambda site: [])
    monkeypatch.setattr(support_sources, "_northbound", lambda lab, site: {})
    monkeypatch.setattr(look, "machines", lambda lab, site: [])


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe: where to read, and where to write."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def outputs(group: Any, *words: str) -> Iterator[str]:
    """The parameters of all commands that name a file to write, by their help."""
    for one in group.params:
        name = one.opts[0]
        if "writ" in (one.help or "").lower() and not getattr(one, "is_flag", False):
            yield name if name == "--events" else " ".join((*words, name))  # all commands have that
    for name, command in getattr(group, "commands", {}).items():
        yield from outputs(command, *words, name)


def test_every_output_of_the_command_line_is_tried_here() -> None:
    found = set(outputs(typer.main.get_command(main.app)))
    assert found == set(OUTPUTS) - {"kubeconfig --merge", "lock --file"}  # the one is a flag, the other has a default


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "link to a stream"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_not_a_file_is_refused_by_name(
    name: str, kind: str, pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N1, F1: a file replaced /dev/null, with the cluster's key, or the link /dev/stdout."""
    path = tmp_path / "out.tar"
    monkeypatch.setattr(render.rendered, "files", lambda *_: {path.name: "x"})
    if kind == "pipe":
        os.mkfifo(path)
    else:
        target = "/dev/null" if kind == "link to a device" else f"/proc/self/fd/{pipe[1]}"
        path.symlink_to(os.path.relpath(target, tmp_path))  # an absolute one is outside of what a test may touch
    before = path.lstat()
    with pytest.raises(UsageError, match=r"not a regular file; nothing was written"):
        OUTPUTS[name].write(path)
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert [one.name for one in tmp_path.iterdir() if one != path] == []
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1)


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "plan --render"])  # it names a folder
def test_a_stream_is_written_to_or_refused(name: str, pipe: tuple[int, int]) -> None:
    path = Path(f"/dev/fd/{pipe[1]}")
    if OUTPUTS[name].stream:
        OUTPUTS[name].write(path)
        assert os.read(pipe[0], 1 << 20)
    else:
        with pytest.raises(UsageError, match="not a regular file"):
            OUTPUTS[name].write(path)
    os.fstat(pipe[1])  # it is still open


@pytest.mark.parametrize(
    ("path", "is_stream"),
    [
        *(("-", True), ("/dev/stdout", True), ("/dev/./stderr", True), ("/dev/fd/1", True), ("/proc/self/fd/1", True)),
        *(("x", False), ("/dev/null", False), ("/dev/fd/x", False), ("/dev/fd/-", False), ("a/-", False), ("/", False)),
    ],
)
def test_streams_are_known_by_their_names(path: str, is_stream: bool) -> None:
    assert files.is_stream(Path(path)) == is_stream


def test_an_archive_on_the_standard_output_comes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "support", lambda self, to, **_: to)
    done = commands.ran("support", "--to", "-")
    assert (done.exit_code, done.stdout) == (0, "")
    assert commands.ran("support", "--to", "-", "--output", "json").exit_code == 2
