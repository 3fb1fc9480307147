"""A site of several hypervisors: connected at the same time, and those that do not answer are values, not errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import plans
import pytest
import sites

from winlab import settings
from winlab.adapters import remote
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import connection, domains
from winlab.adapters.vm.hypervisor import UNKNOWN
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.errors import HostError, UsageError, WinlabError
from winlab.host import facts as recorded
from winlab.site import Site

NODE = plans.make(plans.KVM, "1-0-1").nodes[0]
OFF = HostError("libvirt at 'x' does not answer.", why="No route to host")


def on(name: str) -> Any:
    return NODE.model_copy(update={"hypervisor": name})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URIs to which connections were opened. ``off`` in one: it does not answer."""
    found: list[str] = []

    def connect(uri: str, _limit: float | None = None) -> str:
        found.append(uri)
        if "off" in uri:
            raise OFF
        return f"connection to {uri}"

    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setattr(connection, "close", lambda conn: found.append(f"closed {conn}"))
    return found


def site(monkeypatch: pytest.MonkeyPatch, texts: Callable[[], dict[str, str]], facts: Any = None) -> Site:
    class Northbound:
        def hypervisors(self) -> dict[str, str]:
            return texts()

        def records(self, _prefix: str) -> dict[str, str]:
            return {}

    monkeypatch.setattr(ovn, "connect", lambda _remote: nullcontext(Northbound()))
    return Site(libvirt="test:///default", facts=facts or sites.facts())


def test_all_are_connected_and_their_facts_are_those_recorded(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"b": sites.record("b", accelerator="tcg"), "c": sites.record("c")}
    with site(monkeypatch, lambda: texts).hypervisors() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR, "b", "c"]
        assert hosts.silent == ()
        assert hosts.on(on("b")).facts == MachineFacts(accelerator="tcg")
        assert hosts.on(on("c")).conn == "connection to qemu+ssh://ann@c/system"  # type: ignore[comparison-overlap]
        with pytest.raises(HostError, match="no hypervisor 'd'"):
            hosts.on(on("d"))
    assert sum(one.startswith("closed") for one in asked) == 3


def test_one_that_is_off_is_named_when_a_node_needs_it(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"b": sites.record("off"), "c": sites.record("c")}
    here = site(monkeypatch, lambda: texts)
    with here.hypervisors() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR, "c"]
        with pytest.raises(HostError, match="The hypervisor 'b' does not answer, and 'winlab-lab") as caught:
            hosts.on(on("b"))
    assert "No route to host" in caught.value.why
    assert "winlab hypervisor list" in caught.value.cure  # the error itself has none
    assert [str(one) for one in here.silent] == [
        "The hypervisor 'b' does not answer: libvirt at 'x' does not answer (No route to host)."
    ]


def test_one_that_is_off_is_asked_again_only_after_a_while(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"b": sites.record("off")}
    here = site(monkeypatch, lambda: texts)
    for _ in range(3):
        with here.hypervisors() as hosts:
            assert [one.name for one in hosts.silent] == ["b"]
    assert sum("off" in one for one in asked) == 1
    monkeypatch.setattr("winlab.site.REST", -1.0)
    texts["b"] = sites.record("host2")
    with here.hypervisors() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR, "b"]


def test_one_that_was_removed_is_forgotten(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"b": sites.record("off")}
    here = site(monkeypatch, lambda: texts)
    with here.hypervisors():
        texts.clear()
    with here.hypervisors() as hosts:
        assert hosts.silent == ()


def test_a_record_that_winlab_did_not_write_is_a_hypervisor_that_does_not_answer(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = '{"uri": "qemu+ssh://host/system?command=/tmp/evil", "facts": {}}'
    with site(monkeypatch, lambda: {"b": evil, "c": "{", "d": "[]" * 9000}).hypervisors() as hosts:
        assert [one.name for one in hosts.silent] == ["b", "c", "d"]
        assert all("can't be used" in str(one) for one in hosts.silent)
    assert asked[0] == "test:///default"
    assert not any("ssh" in one for one in asked)


def test_without_ovn_the_first_is_used_and_others_are_unknown(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> dict[str, str]:
        raise HostError("There is no OVN northbound socket.")

    here = site(monkeypatch, fail)
    with here.hypervisors() as hosts:
        assert hosts.on(NODE).name == HYPERVISOR
        with pytest.raises(HostError, match=f"{UNKNOWN}, and 'winlab-lab.controller-1' is on 'b'"):
            hosts.on(on("b"))
    assert str(here.silent[0]) == f"{UNKNOWN}: There is no OVN northbound socket."


def test_a_site_that_no_host_has_joined_does_not_ask_ovn(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> dict[str, str]:
        raise AssertionError("OVN was asked")

    with site(monkeypatch, fail, facts=plans.KVM).hypervisors() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR]
    monkeypatch.setattr(recorded, "read_facts", lambda: plans.KVM)
    with Site(libvirt="test:///default").hypervisors() as hosts:
        assert hosts.silent == ()


def test_with_facts_that_cannot_be_read_ovn_is_asked(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupt() -> None:
        raise UsageError("The host's facts can't be used.")

    site(monkeypatch, dict)
    monkeypatch.setattr(recorded, "read_facts", corrupt)
    with Site(libvirt="test:///default").hypervisors() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR]


def test_a_host_that_has_joined_makes_no_labs_by_itself(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    facts = sites.facts(joined="ann@host1")
    site(monkeypatch, dict)
    here = Site(libvirt=settings.LOCAL_LIBVIRT, facts=facts)
    with pytest.raises(UsageError, match="has joined the site of another one") as caught, here.hypervisors():
        pass
    assert "'ann@host1'" in caught.value.why
    assert "WINLAB_LIBVIRT_URI" in caught.value.cure


def test_only_the_first_must_have_the_pool(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lacking: list[str] = ["connection to qemu+ssh://ann@b/system"]

    class Pool:
        def __init__(self, conn: str, _name: str) -> None:
            if conn in lacking:
                raise HostError("There is no usable storage pool.")

    monkeypatch.setattr("winlab.site.StoragePool", Pool)
    monkeypatch.setattr("winlab.adapters.vm.others.StoragePool", Pool)
    here = site(monkeypatch, lambda: {"b": sites.record("b"), "c": sites.record("c")})
    with here.storage() as hosts:
        assert [one.name for one in hosts] == [HYPERVISOR, "c"]
        assert [one.name for one in hosts.silent] == [one.name for one in here.silent] == ["b"]
    lacking[:] = ["connection to test:///default"]
    with pytest.raises(HostError, match="no usable storage pool"), here.storage():
        pass


def test_machines_of_those_that_answer_are_found(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "machines", lambda _conn, _lab: [])
    with site(monkeypatch, lambda: {"b": sites.record("off")}).hypervisors() as hosts:
        assert hosts.machines("lab") == []


def test_the_socket_and_the_facts_are_the_first_hypervisor_s(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    @contextmanager
    def forwarded(url: str) -> Any:
        calls.append(url)
        raise WinlabError("stop here")
        yield

    monkeypatch.setattr(ovn, "forwarded", forwarded)
    monkeypatch.setattr(remote.Remote, "call", lambda self, script: calls.append((str(self), script)) or "nested: true")
    here = Site(libvirt="qemu+ssh://ann@host1:2222/system")
    assert here.places.northbound == f"ssh://ann@host1:2222{settings.NB_SOCKET}"
    with settings.use(here.places):
        assert not settings.network_is_here()
    assert here.host_facts.nested
    with pytest.raises(WinlabError, match="stop here"), here.overlay():
        pass
    assert calls == [
        ("ann@host1", f"test ! -e {settings.HOST_FILE} || cat {settings.HOST_FILE}"),
        here.places.northbound,
    ]
    given = Site(libvirt="qemu+ssh://ann@host1/system", northbound="tcp:192.0.2.1:6641")
    assert given.places.northbound == "tcp:192.0.2.1:6641"
