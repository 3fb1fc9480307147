"""Which user is at an end of a connection on the loopback, by Linux' lists of TCP sockets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from winlab import loopback

HEAD = "  sl  local_address rem_address   st\n"
HERE, THERE = ("127.0.0.1", 6080), ("127.0.0.1", 40000)


def line(local: int, uid: int, *, address: str = "0100007F", remote: str = "00000000:0000", state: str = "0A") -> str:
    return f"   0: {address}:{local:04X} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 1137 1\n"


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The lists of IPv4 and of IPv6."""
    made = tmp_path / "tcp", tmp_path / "tcp6"
    monkeypatch.setattr(loopback, "SOCKETS", ((made[0], ""), (made[1], loopback.SOCKETS[1][1])))
    made[0].write_text(HEAD + line(22, 0))
    return made


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (line(5901, os.geteuid()), True),
        (line(5901, os.geteuid() + 1), False),
        (line(5902, os.geteuid()), False),
        (line(5901, os.geteuid(), address="00000000"), False),
        (line(5901, os.geteuid(), state="01"), False),
        ("", False),
    ],
)
def test_another_user_who_listens_on_a_port_is_noticed(sockets: tuple[Path, Path], text: str, ours: bool) -> None:
    sockets[0].write_text(HEAD + text)
    assert loopback.listens(5901) is ours


def test_the_user_at_the_other_end(sockets: tuple[Path, Path]) -> None:
    assert loopback.peer(THERE, HERE) is None
    ours = line(6080, 0, remote="0100007F:9C40", state="01")  # the server's own end
    sockets[0].write_text(HEAD + ours + line(40000, 1000, remote="0100007F:17C0", state="01"))
    assert loopback.peer(THERE, HERE) == 1000


def test_one_that_has_closed_its_end_is_not_known(sockets: tuple[Path, Path]) -> None:
    """Linux then says that the socket is root's."""
    sockets[0].write_text(HEAD + line(40000, 0, remote="0100007F:17C0", state="05"))
    assert loopback.peer(THERE, HERE) is None


def test_a_program_that_uses_a_socket_of_ipv6(sockets: tuple[Path, Path]) -> None:
    mapped = "0000000000000000FFFF0000"
    sockets[1].write_text(
        HEAD + line(40000, 7, address=f"{mapped}0100007F", remote=f"{mapped}0100007F:17C0", state="01")
    )
    assert loopback.peer(THERE, HERE) == 7
