"""Addresses for ssh, and what ssh's failures say."""

from __future__ import annotations

import subprocess  # noqa: TID251 - runs the program that libvirt is given
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from winlab import loopback, run
from winlab.adapters import registered, remote
from winlab.adapters.registered import Registered
from winlab.adapters.remote import Remote
from winlab.design.plan.facts import MachineFacts
from winlab.errors import HostError, UsageError, WinlabError


@pytest.mark.parametrize(
    ("uri", "found"),
    [
        ("qemu+ssh://ann@host1/system", Remote("host1", "ann")),
        ("qemu+ssh://host1.example:2222/system", Remote("host1.example", port=2222)),
        ("qemu+ssh://ann@[2001:db8::1]:22/system", Remote("2001:db8::1", "ann", 22)),
        ("ssh://ann@host1/run/x", Remote("host1", "ann")),
        ("qemu:///system", None),
        ("qemu+tls://host1/system", None),
        ("test:///default", None),
    ],
)
def test_only_ssh_has_a_host(uri: str, found: Remote | None) -> None:
    assert Remote.of(uri) == found


@pytest.mark.parametrize(
    "uri", ["qemu+ssh:///system", "qemu+ssh://-oProxyCommand=x/system", "qemu+ssh://a:b@host/system",
            "qemu+ssh://-l@host/system", "qemu+ssh://host:port/system", "qemu+ssh://ho st/system", "ssh://["],
)  # fmt: skip
def test_what_ssh_could_take_for_an_option_is_refused(uri: str) -> None:
    with pytest.raises(UsageError):
        Remote.of(uri)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h1", Remote("h1")),
        ("ann@192.0.2.1", Remote("192.0.2.1", "ann")),
        ("ssh://ann@lab_1.example:2222", Remote("lab_1.example", "ann", 2222)),
    ],
)
def test_an_address_may_be_written_as_for_ssh(text: str, found: Remote) -> None:
    assert Remote.parse(text) == Remote.parse(found.url("")) == found


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=id", "ann@-x", "h1 id", "h1;id", "qemu+ssh://h1/system", "h1:x", "\n", "h1\n", "[", "h1:99999"],
)
def test_what_is_not_an_address_for_ssh_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the ssh address"):
        Remote.parse(text)


def test_the_command_line_ends_options_before_the_host() -> None:
    words = Remote("host1", "ann", 2222).words("-T")
    assert words[-2:] == ["--", "host1"]
    assert words[:1] == ["ssh"]
    assert {"-oBatchMode=yes", "-oConnectTimeout=5", "-T"} <= set(words)
    assert {"-oStrictHostKeyChecking=yes", "-oForwardAgent=no", "-oForwardX11=no"} <= set(words)
    assert words[words.index("-p") + 1] == "2222"
    assert Remote.of(Remote("2001:db8::1", "ann", 22).url("/x")) == Remote("2001:db8::1", "ann", 22)


def test_libvirt_is_given_a_program_that_passes_everything_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    assert remote.program() == remote.program() == tmp_path / "ssh"
    fake = tmp_path / "bin/ssh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o700)
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin"}
    said = subprocess.run([remote.program(), "-T", "--", "a b"], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [*remote.OPTIONS, "-T", "--", "a b"]


def test_a_failure_to_connect_says_how_to_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(code: int) -> Any:
        def watched(words: list[str], **_: Any) -> None:
            raise run.CommandError(run.Result(tuple(words), code, "", "Host key verification failed.", 0.1))

        return watched

    monkeypatch.setattr(run, "watched", fail(255))
    with pytest.raises(HostError, match="ssh can't connect to 'ann@host1'") as caught:
        Remote("host1", "ann", 2222).call("true")
    assert "Host key verification" in caught.value.why
    assert "ssh -p 2222 ann@host1 true" in caught.value.cure
    monkeypatch.setattr(run, "watched", fail(1))
    with pytest.raises(run.CommandError):
        Remote("host1").call("false")


def ssh_that(said: str | None) -> tuple[Any, list[list[str]]]:
    """``run.beside`` for an ssh that has ended and said something, or runs (None); and the command lines it gets."""
    started: list[list[str]] = []

    @contextmanager
    def beside(words: list[str]) -> Iterator[Any]:
        started.append(words)
        yield lambda: said

    return beside, started


def test_a_forwarded_socket_that_does_not_come_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    beside, started = ssh_that("administratively prohibited")
    monkeypatch.setattr(run, "beside", beside)
    with pytest.raises(HostError, match="ssh can't connect") as caught, remote.forwarded("ssh://ann@host1/run/nb.sock"):
        pass
    assert caught.value.why == "administratively prohibited"
    assert any(word.endswith(":/run/nb.sock") for word in started[0])


def test_a_forwarded_socket_is_in_a_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def beside(words: list[str]) -> Iterator[Any]:
        (local,) = (word[2:].partition(":")[0] for word in words if word.startswith("-L"))
        Path(local).touch()
        yield lambda: None

    monkeypatch.setattr(run, "beside", beside)
    with remote.forwarded("ssh://host1/run/nb.sock") as socket:
        assert socket.parent.stat().st_mode & 0o777 == 0o700
    assert not socket.parent.exists()


def test_a_port_is_forwarded_while_ssh_runs_and_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "free_port", lambda: 5901)
    monkeypatch.setattr(loopback, "listens", lambda port: port == 5901)
    beside, started = ssh_that(None)
    monkeypatch.setattr(run, "beside", beside)
    with remote.forwarded_port(Remote("host1"), 5900) as port:
        assert port == 5901
    assert "-L127.0.0.1:5901:127.0.0.1:5900" in started[0]
    monkeypatch.setattr(run, "beside", ssh_that("Address already in use")[0])
    with pytest.raises(HostError) as caught, remote.forwarded_port(Remote("host1"), 5900):
        pass
    assert caught.value.why == "Address already in use"


@pytest.mark.parametrize("name", ["hypervisor-1", "", "A", "-a", "a-", "a" * 33, "a.b", "é"])
def test_a_name_that_no_other_hypervisor_can_have(name: str) -> None:
    with pytest.raises(UsageError):
        registered.check_name(name)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("qemu:///system", "this host"),
        ("qemu+unix:///system", "this host"),
        ("qemu+tls://host/system", "by ssh"),
        ("qemu+ssh://host/session", "by ssh"),
        ("qemu+ssh://host/system?command=/x", "by ssh"),
        ("qemu+ssh://host/system#x", "by ssh"),
        ("qemu+ssh://host/system\n", "by ssh"),
        ("qemu+ssh://a:b@host/system", "by ssh"),
    ],
)
def test_a_uri_that_no_other_hypervisor_can_have(uri: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        registered.check_uri(uri)
    assert why in caught.value.why


def test_a_record_is_read_as_it_was_written_and_may_have_more() -> None:
    one = Registered(uri="qemu+ssh://ann@host2/system", facts=MachineFacts(chassis="c"))
    text = one.model_dump_json()
    assert Registered.parse("b", text) == one
    assert Registered.parse("b", text[:-1] + ', "later": 1}') == one
    assert Registered.parse("b", text.replace('"facts":{', '"facts":{"later":1,')) == one
    assert one.remote == Remote("host2", "ann")


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"uri": 1, "facts": {}}', "[" * 5000, '{"a": 1e999}'])
def test_a_record_that_is_damaged_says_how_to_remove_it(text: str) -> None:
    with pytest.raises(WinlabError, match="hypervisor 'b' can't be used") as caught:
        Registered.parse("b", text)
    assert "remove b --force" in caught.value.cure
