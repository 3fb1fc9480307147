"""The verdict on an external cluster: which addresses are tried, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import plans
import pytest
import yaml

from winlab.design import spec
from winlab.design.clusters.model import Seen
from winlab.errors import HostError
from winlab.events import ignore
from winlab.host import facts
from winlab.operations import attachment, clusters
from winlab.site import Site


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The addresses that were tried. 192.0.2.10 is this host, 192.0.2.99 does not answer."""
    seen: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], _seconds: float) -> object:
        seen.append(address)
        if address[0] == "192.0.2.99":
            raise TimeoutError("timed out")
        own = "192.0.2.10" if address[0] == "192.0.2.10" else "192.0.2.7"
        return nullcontext(SimpleNamespace(getsockname=lambda: (own, 1), getpeername=lambda: address))

    monkeypatch.setattr(clusters.socket, "create_connection", connect)
    monkeypatch.setattr(facts, "read_facts", lambda: plans.TCG)
    monkeypatch.setattr(attachment, "bridge_of", lambda _nodes: None)
    return seen


def verdict(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    at: str,
    *endpoints: str,
    server: str = "",
    changes: tuple[str, ...] = (),
) -> clusters.Verdict:
    path = tmp_path / "config"
    rows = {
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{at}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(rows))

    @contextmanager
    def asking(*_: object) -> Iterator[None]:
        yield None

    seen = Seen("v1.36.1", kubeadm=True, profile="l3", network="as it is", endpoints=endpoints)
    monkeypatch.setattr(clusters.join, "asking", asking)
    monkeypatch.setattr(clusters.probe, "look", lambda _kubectl: seen)
    return clusters.check(spec.load("1-1-1", changes), "lab", Site(), ignore, path, server=server)


def reach(found: clusters.Verdict) -> list[tuple[str, str]]:
    return [(row.level, row.says.split()[0].rstrip(":")) for row in found.rows if row.about == "workers reach the API"]


def test_the_kubeconfig_s_server_and_the_published_ones_are_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[tuple[str, int]]
) -> None:
    found = verdict(monkeypatch, tmp_path, "192.0.2.1:6443", "192.0.2.1:6443", "192.0.2.99:6443")
    assert tried == [("192.0.2.1", 6443), ("192.0.2.99", 6443)]
    assert reach(found) == [("ok", "192.0.2.1:6443"), ("change", "192.0.2.99:6443")]
    assert (found.kind, found.refused) == ("kubeadm", False)
    assert [row.cure for row in found.rows if "via 172.31." in row.cure]


@pytest.mark.parametrize("at", ["127.0.0.1:6443", "localhost:6443", "0.0.0.0:6550", "[::1]:6443"])
def test_loopback_is_of_no_use_to_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[tuple[str, int]], at: str
) -> None:
    assert verdict(monkeypatch, tmp_path, at).refused
    assert tried == []
    assert not verdict(monkeypatch, tmp_path, at, "192.0.2.1:6443").refused
    assert not verdict(monkeypatch, tmp_path, at, server="192.0.2.1:6443").refused


def test_a_cluster_on_this_host_must_be_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[tuple[str, int]]
) -> None:
    assert reach(verdict(monkeypatch, tmp_path, "192.0.2.10:6443"))[0][0] == "change"
    allowed = verdict(monkeypatch, tmp_path, "192.0.2.10:6443", changes=("network.reach=all",))
    assert reach(allowed) == [("ok", "192.0.2.10:6443")]
    assert reach(verdict(monkeypatch, tmp_path, "192.0.2.99")) == [("refused", "192.0.2.99")]
    assert tried[-1] == ("192.0.2.99", 443)


def test_a_host_that_is_not_set_up_gets_a_verdict_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[tuple[str, int]]
) -> None:
    def fail() -> None:
        raise HostError("not set up")

    monkeypatch.setattr(facts, "read_facts", fail)
    found = verdict(monkeypatch, tmp_path, "192.0.2.1:6443")
    assert [row for row in found.rows if "which 'winlab join' prints" in row.cure]
