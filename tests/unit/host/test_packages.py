"""Packages of the distribution: which, by what command, and beside other programs that install some."""

from __future__ import annotations

import subprocess  # noqa: TID251 - another program that installs packages
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from winlab.errors import HostError
from winlab.events import Quiet
from winlab.host import packages
from winlab.host.packages import Package


def test_packages_are_named_for_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Package("a", "deb-a", "rpm-a"), Package("b", "deb-a", "rpm-b")]
    monkeypatch.setattr(packages, "find", lambda program: program if program == "apt-get" else None)
    assert packages.install_command(wanted)[0] == "apt-get"
    assert packages.install_command(wanted).count("deb-a") == 1
    monkeypatch.setattr(packages, "find", lambda program: program if program == "dnf" else None)
    assert packages.install_command(wanted) == ["dnf", "install", "-y", "rpm-a", "rpm-b"]


@pytest.mark.parametrize("begun", [False, True])
def test_an_installation_that_was_interrupted_is_finished_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begun: bool
) -> None:
    """apt-get refuses to continue after a SIGTERM in the middle of dpkg's work."""
    if begun:
        (tmp_path / "0003").touch()
    (tmp_path / "tmp.i").touch()  # dpkg's own, which apt-get overlooks
    ran: list[list[str]] = []
    monkeypatch.setattr(packages, "UNFINISHED", tmp_path)
    monkeypatch.setattr(packages, "INSTALLING", tmp_path / "lock")
    monkeypatch.setattr(packages, "UPDATING", tmp_path / "lists-lock")
    monkeypatch.setattr(packages, "find", lambda program: program if program == "apt-get" else None)
    monkeypatch.setattr(packages, "run", lambda words, **_: ran.append(words))
    monkeypatch.setattr(packages, "stream", lambda words, *_, **__: ran.append(words))
    first = [["dpkg", "--configure", "-a"]] if begun else []
    packages.install((Package("/nonexistent/file", "deb-a", "rpm-a"),), Quiet())
    *before, install = ran
    assert before == [*first, ["apt-get", "update"]]
    program, *rest = packages.install_command([Package("a", "deb-a", "rpm-a")])
    assert install == [program, "-o", f"DPkg::Lock::Timeout={packages.WAIT}", *rest]
    ran.clear()
    packages.install((Package("apt-get", "apt", "apt"),), Quiet())
    assert ran == first, "also when nothing seems to be missing"


# Holds a lock as dpkg does, in a process of its own: a process never waits for its own lock.
HOLDER = f"""\
#!{sys.executable}
import fcntl, sys
file = open(sys.argv[1], "rb+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_installation(folder: Path, lock: Path) -> Iterator[Callable[[], None]]:
    """A program that holds *lock* until the function is called."""
    program = folder / "holder"
    program.write_text(HOLDER)
    program.chmod(0o755)
    pipe = subprocess.PIPE
    with subprocess.Popen([str(program), str(lock)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process.stdin.close
        finally:
            process.stdin.close()


@pytest.mark.parametrize("name", ["INSTALLING", "UPDATING"])
def test_another_installation_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """What dpkg is doing for another program also looks as if it had been interrupted."""
    unfinished = tmp_path / "updates"
    unfinished.mkdir()
    (unfinished / "0001").touch()
    for lock in ("INSTALLING", "UPDATING"):
        monkeypatch.setattr(packages, lock, tmp_path / lock)
        (tmp_path / lock).touch()
    monkeypatch.setattr(packages, "UNFINISHED", unfinished)
    ran: list[list[str]] = []
    monkeypatch.setattr(packages, "run", lambda words, **_: ran.append(words))
    said: list[str] = []
    with another_installation(tmp_path, tmp_path / name) as end:

        class Listener(Quiet):
            def say(self, text: str, fraction: float | None = None) -> None:
                """The other program ends while we wait."""
                said.append(text)
                (unfinished / "0001").unlink(missing_ok=True)
                end()

        packages.install((Package("sh", "dash", "dash"),), Listener())
    assert set(said) == {"waiting for another program to install its packages"}
    assert ran == [], "nothing was interrupted"


def test_an_installation_that_takes_too_long_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setattr(packages, "INSTALLING", lock)
    monkeypatch.setattr(packages, "WAIT", -1)
    missing = (Package("/nonexistent/file", "deb-a", "rpm-a"),)
    with another_installation(tmp_path, lock), pytest.raises(HostError) as caught:
        packages.install(missing, Quiet())
    assert f"fuser -v {lock}" in caught.value.cure


def test_the_documentation_names_all_packages() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "host.md").read_text(encoding="utf-8")
    for title, wanted in (
        ("labs", packages.RUN),
        ("Windows media", packages.MEDIA),
        ("building images", packages.BUILD),
    ):
        row = next(line for line in text.splitlines() if line.startswith(f"| {title} |"))
        assert row.split("|")[2].split() == list(dict.fromkeys(package.debian for package in wanted))
