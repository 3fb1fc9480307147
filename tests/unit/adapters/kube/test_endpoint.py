"""Which address an API server is looked for at. That its certificate counts: tests/integration/test_identity.py."""

from __future__ import annotations

import socket
from typing import NoReturn

import pytest
from certificates import CA

from winlab.adapters.kube import endpoint


@pytest.mark.parametrize(
    ("address", "tried"),
    [
        ("192.0.2.1:6443", ("192.0.2.1", 6443)),
        ("cp.example", ("cp.example", 443)),
        ("[fd00::1]:6443", ("fd00::1", 6443)),
    ],
)
def test_the_port_is_that_of_https_unless_the_address_has_one(
    monkeypatch: pytest.MonkeyPatch, address: str, tried: tuple[str, int]
) -> None:
    def connect(to: tuple[str, int], _seconds: float) -> NoReturn:
        assert to == tried
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(TimeoutError):
        endpoint.connect(address, CA)
