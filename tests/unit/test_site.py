"""A site: from the environment or given, and how lower layers get it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import plans
import pytest

from winlab import settings
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import connection
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import HostError
from winlab.site import Site
from winlab.threads import Threads


def test_the_environment_says_where_everything_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "s"))
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "test:///default")
    monkeypatch.setenv("WINLAB_OVN_NB", "tcp:192.0.2.1:6641")
    site = Site()
    assert site.places == settings.Places(tmp_path / "c", tmp_path / "s", "test:///default", "tcp:192.0.2.1:6641")


def test_given_values_come_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str | None] = []

    @contextmanager
    def connected(uri: str) -> Iterator[str]:
        asked.append(uri)
        yield "connection"

    monkeypatch.setattr(connection, "connected", connected)
    monkeypatch.setattr(ovn, "connect", lambda remote: asked.append(remote))
    site = Site(libvirt="test:///other", northbound="unix:/x", state=tmp_path, facts=plans.KVM)
    with site.hypervisors() as hosts:
        (host,) = hosts
    assert (host.name, host.conn, host.facts) == (HYPERVISOR, "connection", plans.KVM.machine)
    site.overlay()
    assert asked == ["test:///other", "unix:/x"]
    assert site.host_facts is plans.KVM
    assert site.folder("a").path == tmp_path / "labs/a"
    assert site.folders() == []
    site.folder("a").make()
    assert site.folders() == ["a"]


def test_a_missing_pool_is_named() -> None:
    site = Site(libvirt="test:///default", pool="elsewhere")
    with pytest.raises(HostError, match="no usable storage pool 'elsewhere'"), site.storage():
        pass


def test_lower_layers_use_the_same_places_even_in_threads(tmp_path: Path) -> None:
    outside = settings.cache_dir()
    one, other = Site(cache=tmp_path / "1"), Site(cache=tmp_path / "2")
    with one.in_use(), Threads(2) as pool:
        assert list(pool.map(lambda _: settings.cache_dir(), range(3))) == [tmp_path / "1"] * 3
        with other.in_use():
            assert pool.submit(settings.cache_dir).result() == tmp_path / "2"
        assert settings.cache_dir() == tmp_path / "1"
    assert settings.cache_dir() == outside
