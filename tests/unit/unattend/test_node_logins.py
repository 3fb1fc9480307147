"""The ssh keys of a Linux node: another one gets in, then the former one does not, and all others stay."""

from __future__ import annotations

import os
from typing import Any

import pytest
from linux_guest import Guest

from winlab_node.node import NodeError

OLD, NEW, OWN = "ssh-ed25519 AAAAold winlab lab", "ssh-ed25519 AAAAnew winlab try", "ssh-rsa AAAAown me@home"
KEYS = "home/debian/.ssh/authorized_keys"
HOST_KEY = "etc/ssh/ssh_host_ed25519_key"
WANTED = {"user": "debian", "ssh_key": NEW, "host_key": "new private\n", "host_key_public": "ssh-ed25519 AAAAhost"}
RELOAD = "systemctl try-reload-or-restart ssh"


@pytest.fixture
def node(guest: Guest) -> Guest:
    guest.put(
        "etc/passwd", f"root:x:0:0::/root:/bin/sh\ndebian:x:{os.getuid()}:{os.getgid()}::/home/debian:/bin/bash\n"
    )
    guest.put(KEYS, f"{OLD}\n{OWN}\n")
    guest.put(HOST_KEY, "old private\n")
    guest.put(f"{HOST_KEY}.pub", "ssh-ed25519 AAAAoldhost\n")
    return guest


def keys(node: Guest) -> list[str]:
    return (node.root / KEYS).read_text().splitlines()


def do(node: Guest, **settings: Any) -> bool:
    return bool(node.do("logins", {**WANTED, **settings})["changed"])


def test_both_keys_log_in_until_the_former_one_is_named(node: Guest) -> None:
    assert do(node)
    assert keys(node) == [OLD, OWN, NEW]
    assert (node.root / HOST_KEY).read_text() == "new private\n"
    assert (node.root / f"{HOST_KEY}.pub").read_text() == "ssh-ed25519 AAAAhost\n"
    assert do(node, former=OLD)
    assert keys(node) == [OWN, NEW]
    assert node.runner.lines("systemctl") == [RELOAD, RELOAD]


def test_files_are_only_their_owner_s(node: Guest) -> None:
    do(node)
    assert [(node.root / path).stat().st_mode & 0o777 for path in (KEYS, HOST_KEY)] == [0o600, 0o600]


def test_a_second_run_changes_nothing(node: Guest) -> None:
    do(node, former=OLD)
    assert not do(node, former=OLD)


@pytest.mark.parametrize(
    "line", [f'from="10.0.0.0/8",no-pty {OLD}', OLD.replace("winlab lab", "another comment"), f"  {OLD}"]
)
def test_a_key_is_known_by_itself_not_by_its_comment(node: Guest, line: str) -> None:
    node.put(KEYS, f"{line}\n")
    do(node, former=OLD)
    assert keys(node) == [NEW]


def test_the_new_key_gets_in_before_the_host_key_changes(node: Guest) -> None:
    """A winlab that was cut off knows either the old ones or the new ones: one of them must do."""
    seen: list[list[str]] = []
    node.runner.effects[RELOAD] = lambda: seen.append(keys(node))
    node.runner.answers[RELOAD] = (1, "no")
    with pytest.raises(NodeError, match="exit code 1: no"):
        do(node)
    assert seen == [[OLD, OWN, NEW]]
    node.runner.answers.clear()
    do(node)
    assert len(seen) == 2, "sshd is asked again, though the files are written"


def test_an_unknown_user_is_refused(node: Guest) -> None:
    with pytest.raises(NodeError, match="no user 'ubuntu'"):
        do(node, user="ubuntu")
    assert keys(node) == [OLD, OWN]


def test_a_user_without_keys_is_refused(node: Guest) -> None:
    (node.root / KEYS).unlink()
    (node.root / KEYS).parent.rmdir()
    with pytest.raises(NodeError, match="not made by winlab"):
        do(node)
    assert (node.root / HOST_KEY).read_text() == "old private\n"
