"""Objects are applied again while the API server is busy, and never if it refuses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import plans
import pytest
import runs

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.steps.apply import SILENCE, apply

BUSY = "Error from server (Timeout): Timeout: request did not complete within requested timeout"


class Server:
    """An API server that fails so often."""

    def __init__(self, why: str, times: float) -> None:
        self.why, self.times, self.asked = why, times, 0

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        assert objects == [{"kind": "Namespace"}]
        self.asked += 1
        if self.asked <= self.times:
            raise ClusterError("kubectl apply --server-side --force-conflicts failed.", why=self.why)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> runs.Clock:
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    return runs.clock(monkeypatch)


def _apply(server: Server) -> None:
    run = runs.run(plans.make(plans.TCG, "1-1-1"))
    apply(cast(Kubectl, server), [{"kind": "Namespace"}], run, Quiet())


@pytest.mark.parametrize(
    "why",
    [
        BUSY,
        "etcdserver: request timed out",
        "The connection to the server 10.0.0.1:6443 was refused: connect: connection refused",
        "Unable to connect to the server: net/http: TLS handshake timeout",
        "Unable to connect to the server: dial tcp 10.0.0.1:6443: connect: no route to host",
    ],
)
def test_a_busy_server_is_asked_again(why: str) -> None:
    server = Server(why, times=2)
    _apply(server)
    assert server.asked == 3


def test_a_refusal_ends_it_at_once() -> None:
    server = Server('Error from server (Forbidden): namespaces is forbidden: User "x" cannot create', times=1)
    with pytest.raises(ClusterError, match="failed") as caught:
        _apply(server)
    assert server.asked == 1
    assert "Forbidden" in caught.value.why


def test_a_server_that_stays_busy_ends_it_with_its_own_words(clock: runs.Clock) -> None:
    begun = clock.now
    with pytest.raises(ClusterError) as caught:
        _apply(Server(BUSY, times=float("inf")))
    assert "Timeout" in caught.value.why
    assert clock.now - begun >= SILENCE
