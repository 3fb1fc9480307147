"""libvirt that is restarted, or fails, in the middle of a command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import libvirt
import pytest
from lab_fakes import machine

from winlab.adapters.vm import connection, domains, resources
from winlab.adapters.vm.connection import explained
from winlab.adapters.vm.volumes import StoragePool
from winlab.errors import HostError, WinlabError


def error(domain: int, text: str) -> libvirt.libvirtError:
    """As libvirt-python makes it: code, domain, message, level, three texts, two numbers."""
    made = libvirt.libvirtError(text)
    made.err = (libvirt.VIR_ERR_INTERNAL_ERROR, domain, text, 2, "", "", "", 0, 0)
    return made


# what a connection says after libvirtd was killed (libvirt 9.0)
GONE = error(libvirt.VIR_FROM_RPC, "internal error: client socket is closed")
OTHER = error(libvirt.VIR_FROM_QEMU, "internal error: cannot parse json")


class Broken:
    """Every call fails, except those that find a pool."""

    def __init__(self, failure: libvirt.libvirtError, **works: Any) -> None:
        self.failure = failure
        self.works = works

    def __getattr__(self, name: str) -> Any:
        if name in self.works:
            return self.works[name]

        def fail(*_: object) -> None:
            raise self.failure

        return fail


ONE = machine("node-1")
ASKED: dict[str, Callable[[Any], object]] = {
    "machines": domains.machines,
    "find": lambda conn: domains.find(conn, ONE),
    "state": lambda conn: domains.state(conn, ONE),
    "tag": lambda conn: domains.tag_of(conn, ONE),
    "memory": resources.free_memory_mib,
    "files": domains.files,
    "volume": lambda conn: StoragePool(conn).exists("x"),
    "names": lambda conn: StoragePool(conn).names(),
    "backings": lambda conn: StoragePool(conn).backings(),
    "folder": lambda conn: StoragePool(conn).folder,
}


@pytest.mark.parametrize("failure", [GONE, OTHER])
@pytest.mark.parametrize("what", ASKED)
def test_every_question_fails_as_the_host(what: str, failure: libvirt.libvirtError) -> None:
    pool = Broken(failure, isActive=lambda: True)
    with pytest.raises(HostError) as caught:
        ASKED[what](cast(Any, Broken(failure, storagePoolLookupByName=lambda _: pool)))
    assert "same command again" in caught.value.cure
    assert str(failure) in caught.value.why


def test_a_failed_change_names_the_change_and_a_lost_connection_is_reported_as_such() -> None:
    with pytest.raises(WinlabError, match=r"^The CD can't be changed") as caught, explained("The CD can't be changed."):
        raise OTHER
    assert not isinstance(caught.value, HostError)
    with pytest.raises(HostError, match="connection to libvirt was lost"), explained("The CD can't be changed."):
        raise GONE


def test_other_errors_stay_as_they_are() -> None:
    missing = libvirt.libvirtError("no domain")
    missing.err = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_FROM_QEMU, "no domain", 2, "", "", "", 0, 0)
    conn = cast(Any, Broken(missing))
    assert domains.find(conn, ONE) is None


def test_a_libvirt_that_accepts_a_connection_and_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one: tests/integration/test_silent_libvirt.py."""
    over = threading.Event()
    monkeypatch.setattr(libvirt, "open", lambda _: over.wait(30))
    monkeypatch.setattr(connection, "FIRST", 0.1)
    with pytest.raises(HostError, match="does not answer") as caught:
        connection.connect("qemu:///system")
    assert "host setup" in caught.value.cure
    over.set()


def test_another_host_s_libvirt_that_does_not_run_is_started_by_setup_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_uri: str) -> None:
        raise libvirt.libvirtError("virt-ssh-helper: cannot connect to '/var/run/libvirt/libvirt-sock': No such file")

    monkeypatch.setattr(libvirt, "open", refuse)
    with pytest.raises(HostError, match="does not answer") as caught:
        connection.connect("qemu+ssh://root@h2/system")
    assert "Run 'sudo winlab host setup' on 'root@h2'" in caught.value.cure
