"""Plan making and rendering read nothing: files may not even be opened, nor folders listed or made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import plans
import pytest
from cases import CASES
from distributions import Distribution, install_motd

from winlab.design import spec
from winlab.design.plan import make
from winlab.design.plan.facts import HostFacts
from winlab.design.render import folder
from winlab.supply.images import stock

READS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.stat", "socket.connect", "subprocess.Popen"}
_watched = False


class Read(BaseException):
    """Something was read. Not an Exception, so that nothing swallows it."""


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _watched and event in READS:
        raise Read(f"{event} {args[:1]}")


sys.addaudithook(_hook)


@contextmanager
def nothing_is_read() -> Iterator[None]:
    global _watched
    _watched = True
    try:
        yield
    finally:
        _watched = False


def test_the_watch_notices(tmp_path: Path) -> None:
    with pytest.raises(Read), nothing_is_read():
        (tmp_path / "x").open()


@pytest.mark.parametrize("name", CASES)
def test_plans_are_made_and_rendered_without_reading(name: str) -> None:
    facts, source, changes = CASES[name]
    wanted = spec.load(source, changes)
    at_hand = plans.stock(wanted)
    folder.files(make.make(wanted, "warm", facts, at_hand))  # imports open files
    with nothing_is_read():
        files = folder.files(make.make(wanted, "lab", facts, at_hand))
    assert files == folder.files(plans.make(facts, source, *changes))


@pytest.mark.usefixtures("fresh_registry")
def test_machines_that_add_ons_wish_for_are_planned_without_reading(distribution: partial[Distribution]) -> None:
    install_motd(distribution)
    wanted = spec.load("1-1-1", ["addons.motd={text: hello, machines: 2}"])
    at_hand = plans.stock(wanted)
    made = make.make(wanted, "lab", plans.KVM, at_hand)
    folder.files(made)  # imports open files
    with nothing_is_read():
        again = make.make(wanted, "lab", plans.KVM, at_hand)
        folder.files(again)
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
    iso.unlink()  # a lab that stands is carried on without it
    assert stock.take(wanted).files == stock.take(wanted, voice).files
    assert not stock.take(wanted).paths
