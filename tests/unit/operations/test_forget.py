"""A hypervisor is forgotten only if its host can't be reached, leaves OVN, and is recognized when it comes back."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

import commands
import pytest
import sites

from winlab import Hosts, run
from winlab.adapters.left import LEFT, Left
from winlab.adapters.overlay import ovn
from winlab.adapters.remote import Remote
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError
from winlab.events import Event, Note
from winlab.host import facts as recorded
from winlab.operations import forget
from winlab.site import Site

OFF = HostError("ssh can't connect to 'ann@host2'.", why="ssh: connect to host host2 port 22: No route to host")


class World:
    """A site with the hypervisor 'b'; what ssh does there is ``answer``."""

    def __init__(self) -> None:
        self.nb = sites.Recorder(b=sites.record("host2", chassis="c2"))
        self.answer: Exception | None = OFF
        self.ran: list[list[str]] = []

    def call(self, _there: Remote, script: str, _limit: float = 0) -> str:
        if script == "true" and self.answer is not None:
            raise self.answer
        self.ran.append([script])
        return ""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(ovn, "connect", lambda _: nullcontext(made.nb))
    monkeypatch.setattr(Remote, "call", lambda *words: made.call(*words))
    monkeypatch.setattr(recorded, "read_facts", lambda: sites.facts(chassis="c1", recorded=True))
    monkeypatch.setattr(run, "run", lambda words, **_: made.ran.append(words))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "test:///default")
    return made


def test_it_leaves_ovn_and_the_list_and_what_labs_left_there_is_forgotten(world: World) -> None:
    for name in ("b", "c"):
        left = Left(hypervisor=name, lab="lab", whole=True)
        world.nb.others[left.key] = left.model_dump_json()
    Hosts().forget("b")
    assert [words[-2:] for words in world.ran] == [["chassis-del", "c2"]]
    assert "--no-leader-only" in world.ran[0]  # of three hosts with databases, this one may not have the leader
    assert world.nb.texts == {}
    assert list(forget.forgotten(Site())) == ["b"]
    assert [key for key in world.nb.others if key.startswith(LEFT)] == [f"{LEFT}c/lab"]


def test_without_root_the_command_is_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told: list[Event] = []
    Hosts().forget("b", listener=told.append)
    assert world.ran == []
    (note,) = [one.text for one in told if isinstance(one, Note)]
    assert "'sudo ovn-sbctl --no-leader-only chassis-del c2'" in note


def test_from_a_laptop_the_first_host_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "qemu+ssh://ann@host1/system")
    monkeypatch.setattr(recorded, "read_facts_of", lambda _: sites.facts(chassis="c1", recorded=True))
    Hosts().forget("b")
    ((script,),) = world.ran
    assert "sudo -n" in script
    assert script.endswith("chassis-del c2")


@pytest.mark.parametrize("chassis", ["c1", "", "-x", "a b", "$(reboot)", "x" * 99])
def test_a_chassis_that_anyone_could_have_written_is_not_removed(world: World, chassis: str) -> None:
    world.nb.texts["b"] = sites.record("host2", chassis=chassis)
    Hosts().forget("b")
    assert world.ran == []
    assert world.nb.texts == {}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        HostError("ssh can't connect.", why="ann@host2: Permission denied (publickey)"),
        HostError("ssh can't connect.", why="Host key verification failed."),  # of a user who never was there
        run.OverdueError("'ssh' did not end in time."),
    ],
)
def test_one_whose_host_answers_is_refused(world: World, answer: Exception | None) -> None:
    world.answer = answer
    before = dict(world.nb.texts)
    with pytest.raises(ConflictError, match="answers by ssh") as caught:
        Hosts().forget("b")
    assert "winlab host setup" in caught.value.cure
    assert world.nb.texts == before


def test_a_record_that_can_t_be_used_is_removed(world: World) -> None:
    world.nb.texts["b"] = "damaged"
    told: list[Event] = []
    Hosts().forget("b", listener=told.append)
    assert (world.nb.texts, forget.names(Site())) == ({}, {"b"})
    assert any("can't be used" in one.text for one in told if isinstance(one, Note))


@pytest.mark.parametrize("text", [sites.record("host2", chassis="c2"), ""])
def test_one_that_was_removed_from_the_list_is_forgotten(world: World, text: str) -> None:
    del world.nb.texts["b"]
    world.nb.others = {f"{forget.REMOVED}b": text, f"{forget.REMOVED}c": sites.record("host3")}
    world.nb.others[f"{LEFT}b/lab"] = Left(hypervisor="b", lab="lab", whole=True).model_dump_json()
    if text:
        world.answer = None
        with pytest.raises(ConflictError, match="answers by ssh"):
            Hosts().forget("b")
        world.answer = OFF
    Hosts().forget("b")
    assert forget.names(Site()) == {"b"}
    assert set(world.nb.others) == {f"{forget.FORGOTTEN}b", f"{forget.REMOVED}c"}


def test_names_that_can_t_be_forgotten(world: World) -> None:
    with pytest.raises(NotFoundError, match="no hypervisor 'd'"):
        Hosts().forget("d")
    with pytest.raises(UsageError):
        Hosts().forget(HYPERVISOR)


def test_the_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    done = commands.ran("hypervisor", "forget", "b")
    assert done.exit_code == 0
    assert "'b' is forgotten" in done.stdout
    world.nb.texts["b"] = sites.record("host2", chassis="c2")
    world.answer = None
    assert commands.ran("hypervisor", "forget", "b").exit_code == 6


def test_one_that_comes_back_is_recognized(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Hosts().forget("b")
    world.nb.others[f"{forget.FORGOTTEN}bad"] = "damaged"
    found: Any = forget.forgotten(Site())
    assert [(name, record.facts.chassis) for name, record in found.items()] == [("b", "c2")]
