"""Options of a port while its machine moves; in a real database: tests/integration/test_move.py."""

from __future__ import annotations

from winlab.adapters.overlay import moves


def test_two_hosts_share_a_port_and_the_second_is_silent_at_first() -> None:
    assert moves.options(["a", "b"]) == {"requested-chassis": "a,b", "activation-strategy": "rarp"}
    assert moves.options(["b"]) == {"requested-chassis": "b"}
    assert moves.options([]) == {}
