"""The verdict on an external cluster: which addresses are tried, and what comes of it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plans
import pytest
import yaml

from winlab.adapters.kube import endpoint, identity
from winlab.adapters.kube.identity import Authorities
from winlab.design import spec
from winlab.design.clusters.model import Seen
from winlab.errors import HostError
from winlab.events import ignore
from winlab.host import facts
from winlab.operations import attachment, clusters
from winlab.site import Site


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were tried.

    192.0.2.10 is this host, 192.0.2.99 does not answer, and 192.0.2.66 has another certificate.
    """
    seen: list[str] = []

    def connect(address: str, ca: str) -> bool:
        assert ca == "servers"
        seen.append(address)
        if address.startswith("192.0.2.99"):
            raise TimeoutError("timed out")
        if address.startswith("192.0.2.66"):
            raise ssl.SSLError("certificate verify failed")
        return address.startswith("192.0.2.10:")

    monkeypatch.setattr(endpoint, "connect", connect)
    monkeypatch.setattr(identity, "authorities", lambda _kubectl: Authorities("servers", "clients"))
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
) -> clusters.ClusterVerdict:
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


def reach(found: clusters.ClusterVerdict) -> list[tuple[str, str]]:
    return [(row.level, row.says.split()[0].rstrip(":")) for row in found.rows if row.about == "workers reach the API"]


def test_the_kubeconfig_s_server_and_the_published_ones_are_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[str]
) -> None:
    found = verdict(monkeypatch, tmp_path, "192.0.2.1:6443", "192.0.2.1:6443", "192.0.2.99:6443")
    assert tried == ["192.0.2.1:6443", "192.0.2.99:6443"]
    assert reach(found) == [("ok", "192.0.2.1:6443"), ("change", "192.0.2.99:6443")]
    assert (found.kind, found.refused) == ("kubeadm", False)
    assert [row.cure for row in found.rows if "--attachment routed" in row.cure]


@pytest.mark.parametrize("at", ["127.0.0.1:6443", "localhost:6443", "0.0.0.0:6550", "[::1]:6443"])
def test_loopback_is_of_no_use_to_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[str], at: str
) -> None:
    assert verdict(monkeypatch, tmp_path, at).refused
    assert tried == []
    assert not verdict(monkeypatch, tmp_path, at, "192.0.2.1:6443").refused
    assert not verdict(monkeypatch, tmp_path, at, server="192.0.2.1:6443").refused


def test_a_cluster_on_this_host_must_be_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[str]
) -> None:
    assert reach(verdict(monkeypatch, tmp_path, "192.0.2.10:6443"))[0][0] == "change"
    allowed = verdict(monkeypatch, tmp_path, "192.0.2.10:6443", changes=("network.reach=all",))
    assert reach(allowed) == [("ok", "192.0.2.10:6443")]
    assert reach(verdict(monkeypatch, tmp_path, "192.0.2.99")) == [("refused", "192.0.2.99")]


def test_an_address_with_another_certificate_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[str]
) -> None:
    (row,) = [one for one in verdict(monkeypatch, tmp_path, "192.0.2.66:6443").rows if "192.0.2.66" in one.says]
    assert (row.level, tried) == ("refused", ["192.0.2.66:6443"])
    assert "certificate verify failed" in row.says
    assert endpoint.NAMELESS in row.says


def test_a_host_that_is_not_set_up_gets_a_verdict_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tried: list[str]
) -> None:
    def fail() -> None:
        raise HostError("not set up")

    monkeypatch.setattr(facts, "read_facts", fail)
    found = verdict(monkeypatch, tmp_path, "192.0.2.1:6443")
    assert (found.kind, found.refused) == ("kubeadm", False)
