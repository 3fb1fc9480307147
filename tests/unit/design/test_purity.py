"""Plan making and rendering read nothing: no file, folder, variable of the environment or clock is even asked."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import external
import plans
import pytest
from cases import CASES, OTHERS
from distributions import Distribution, install_motd

from winlab.design import spec
from winlab.design.plan import make
from winlab.design.plan.changes import changes
from winlab.design.plan.facts import HostFacts
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.supply.images import stock

READS = {  # audit events; other ways to open, list and connect are noticed, too
    *("open", "os.listdir", "os.scandir", "os.mkdir", "glob.glob"),
    *("socket.connect", "socket.getaddrinfo", "socket.gethostname", "subprocess.Popen"),
}
# What raises no audit event is replaced; os.path and pathlib ask by these
OF_FILES = ("stat", "lstat", "access", "readlink", "statvfs", "getcwd", "getuid", "uname", "cpu_count", "urandom")
OF_TIME = ("time", "time_ns", "monotonic", "monotonic_ns", "localtime", "gmtime", "strftime")
_watched = False


class Read(BaseException):
    """Something was read. Not an Exception, so that nothing swallows it."""


class NoClock(datetime.datetime):
    """Does not return the time."""

    now = utcnow = today = classmethod(lambda *_args: _read("datetime"))


def _read(what: str) -> None:
    raise Read(what)


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _watched and event in READS:
        _read(f"{event} {args[:1]}")


sys.addaudithook(_hook)


@contextmanager
def nothing_is_read() -> Iterator[None]:
    global _watched
    with pytest.MonkeyPatch.context() as patch:
        for module, names in ((os, OF_FILES), (time, OF_TIME)):
            for name in names:
                patch.setattr(module, name, lambda *args, what=name, **_: _read(f"{what} {args[:1]}"))
        for name in ("__getitem__", "__iter__"):
            patch.setattr(type(os.environ), name, lambda *args: _read(f"os.environ {args[1:]}"))
        patch.setattr(datetime, "datetime", NoClock)
        _watched = True
        try:
            yield
        finally:
            _watched = False


@pytest.mark.parametrize(
    "read",
    [
        lambda path: path.open(),
        lambda path: path.exists(),
        lambda path: path.is_symlink(),
        lambda path: path.resolve(),
        lambda path: os.path.isfile(path),  # noqa: PTH113
        lambda path: os.path.getmtime(path),  # noqa: PTH204
        lambda path: os.access(path, os.R_OK),
        lambda path: list(path.parent.iterdir()),
        lambda path: os.listdir(path.parent),  # noqa: PTH208
        lambda path: list(path.parent.glob("*")),
        lambda path: path.mkdir(),
        lambda path: Path.cwd(),
        lambda path: Path("~").expanduser(),
        lambda path: os.environ.get("HOME"),
        lambda path: os.getenv("HOME"),
        lambda path: "HOME" in os.environ,
        lambda path: dict(os.environ),
        lambda path: time.time(),
        lambda path: time.monotonic(),
        lambda path: datetime.datetime.now(datetime.UTC),
        lambda path: os.urandom(8),
    ],
)
def test_the_guard_notices_reads(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(Read), nothing_is_read():
        read(tmp_path / "x")
    assert not (tmp_path / "x").exists()  # the watch is over


# What the golden files leave out
MORE: dict[str, tuple[HostFacts, str, list[str]]] = {
    "three-controllers": (plans.KVM, "3-2-1", []),
    "flannel-vxlan": (plans.KVM, "1-1-1", ["network.cni=flannel-vxlan"]),
    "calico-bgp": (plans.KVM, "1-1-1", ["network.cni=calico-bgp"]),
    "host-gw": (plans.KVM, "1-1-1", ["network.cni=host-gw"]),
    "without golden images": (plans.KVM, "1-1-1", ["workers.golden=false"]),
}
EVERY = CASES | OTHERS | MORE
FOREIGN = replace(
    external.CLUSTER, advertised="https://api.their.domain:6443", cni="calico-vxlan", cni_note="Calico with VXLAN"
)


@pytest.mark.parametrize("name", EVERY)
def test_plans_are_made_and_rendered_without_reading(name: str) -> None:
    facts, source, given = EVERY[name]
    wanted = spec.load(source, given)
    at_hand = plans.stock(wanted)
    folder.files(make.make(wanted, "warm", facts, at_hand), expand)  # imports open files
    with nothing_is_read():
        files = folder.files(make.make(wanted, "lab", facts, at_hand), expand)
    assert files == folder.files(plans.make(facts, source, *given), expand)


def test_workers_for_an_external_cluster_are_planned_and_rendered_without_reading() -> None:
    wanted = spec.load("1-2-1", ["workers.os=windows-2022"])
    at_hand = plans.stock(wanted)
    made = make.make(wanted, "lab", plans.KVM, at_hand, FOREIGN)
    files = folder.files(made, expand)  # imports open files
    with nothing_is_read():
        again = make.make(wanted, "lab", plans.KVM, at_hand, FOREIGN)
        assert folder.files(again, expand) == files
    assert again.joins
    assert again.alias == ("api.their.domain", "192.0.2.10")


def test_plans_that_keep_an_identity_are_made_and_rendered_without_reading() -> None:
    wanted = spec.load("1-1-1")
    at_hand = plans.stock(wanted)
    origin = make.make(wanted, "one", plans.KVM, at_hand)
    files = folder.files(make.make(wanted, "lab", plans.KVM, at_hand, kept=origin.as_kept()), expand)
    with nothing_is_read():
        made = make.make(wanted, "lab", plans.KVM, at_hand, kept=origin.as_kept())
        assert folder.files(made, expand) == files


def test_plans_are_compared_without_reading() -> None:
    old = plans.make(plans.KVM, "1-1-1")
    wanted = spec.load(
        "1-2-1",
        ["workers.memory=4GiB", "workers.language=de-DE", "network.dns=[203.0.113.9]", "addons.metrics-server={}"],
    )
    at_hand = plans.stock(wanted)
    made = changes([old], make.make(wanted, "lab", plans.KVM, at_hand, None, [old]))  # imports open files
    with nothing_is_read():
        assert changes([old], make.make(wanted, "lab", plans.KVM, at_hand, None, [old])) == made
    assert {row.kind for row in made.every} == {"added", "changed", "refused"}


@pytest.mark.usefixtures("fresh_registry")
def test_machines_requested_by_add_ons_are_planned_without_reading(distribution: partial[Distribution]) -> None:
    install_motd(distribution)
    wanted = spec.load("1-1-1", ["addons.motd={text: hello, machines: 2}"])
    at_hand = plans.stock(wanted)
    made = make.make(wanted, "lab", plans.KVM, at_hand)
    folder.files(made, expand)  # imports open files
    with nothing_is_read():
        again = make.make(wanted, "lab", plans.KVM, at_hand)
        folder.files(again, expand)
    assert again == made
    assert made.pools() == ("node", "motd")


def test_the_same_spec_is_the_same_plan_with_another_cache_or_home_or_name_of_the_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for home in ("one", "two"):
        monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / home / "cache"))
        iso = tmp_path / home / f"{home}.iso"
        iso.parent.mkdir()
        iso.write_bytes(b"the same medium" * (1 << 20))
        wanted = spec.load("1-1-1", ["workers.os=windows-2022", f"workers.media={iso}"])
        made.append(make.make(wanted, "lab", HostFacts(), stock.take(wanted)))
    assert made[0] == made[1]
    assert made[0].digest == made[1].digest


def test_a_large_medium_is_read_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    iso = tmp_path / "server.iso"
    iso.write_bytes(b"a" * (9 << 20))
    wanted = spec.load("1-1-1", ["workers.os=windows-2022", f"workers.media={iso}"])

    class Voice:
        def __init__(self) -> None:
            self.said: list[str] = []

        def say(self, text: str, fraction: float | None = None) -> None:
            self.said.append(text)

    voice = Voice()
    first = stock.take(wanted, voice)
    assert voice.said
    voice.said.clear()
    assert stock.take(wanted, voice) == first
    assert not voice.said
    iso.write_bytes(b"b" * (9 << 20))
    assert stock.take(wanted, voice).files != first.files
    iso.unlink()  # an existing lab resumes without it
    assert stock.take(wanted).files == stock.take(wanted, voice).files
    assert not stock.take(wanted).paths
