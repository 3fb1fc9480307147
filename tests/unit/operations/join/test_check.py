"""What is checked before workers join: their spec, the names, the way to the API server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

import pytest
from certificates import CA
from external import CLUSTER, REHEARSAL, make

from winlab.errors import UsageError
from winlab.operations import join


@pytest.mark.parametrize("change", ["controllers.count=3", "kubernetes.pod_cidr=10.1.0.0/16"])
def test_settings_of_the_cluster_can_not_be_changed(change: str) -> None:
    join.check_changes(["workers.cpus=4", "kubernetes.version=1.35"])
    with pytest.raises(UsageError, match="external cluster decides that"):
        join.check_changes([change])
    with pytest.raises(UsageError, match="external cluster decides that"):
        join.make_spec(1, [change])


def test_the_spec_of_workers_that_join() -> None:
    spec = join.make_spec(3, ["workers.cpus=4"], os="debian-13")
    assert (spec.workers[0].count, spec.workers[0].cpus, spec.workers[0].os) == (3, 4, "debian-13")


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_(error: OSError | None, own: str = "192.0.2.7:") -> None:
        def connect(address: str, ca: str) -> bool:
            assert ca == CA
            if error is not None:
                raise error
            return address.startswith(own)

        monkeypatch.setattr(join.endpoint, "connect", connect)

    return set_


def test_a_suitable_cluster_is_accepted(reach: Callable[..., None]) -> None:
    reach(None)
    join.check(make(REHEARSAL), CLUSTER, [])
    # a join that was interrupted resumes
    again = replace(CLUSTER, nodes=("cp", "node-1"))
    join.check(make(REHEARSAL), again, ["node-1"])
    with pytest.raises(UsageError, match="can't join"):
        join.check(make(REHEARSAL), again, [])
    with pytest.raises(UsageError, match="without workers"):
        join.check(make(source="1-0-1"), CLUSTER, [])


def test_a_control_plane_on_this_host_is_reached_only_if_the_spec_says_so(reach: Callable[..., None]) -> None:
    reach(None, own="192.0.2.10:")
    with pytest.raises(UsageError, match="is on this host") as caught:
        join.check(make(REHEARSAL), CLUSTER, [])
    assert "network.reach=all" in caught.value.cure
    join.check(make(REHEARSAL, "network.reach=all"), CLUSTER, [])


def test_the_server_is_asked_first(reach: Callable[..., None]) -> None:
    reach(socket.gaierror("unknown"))
    named = replace(CLUSTER, advertised="https://cp:6443", server="https://cp:6443")
    with pytest.raises(UsageError, match="no name server knows") as caught:
        join.check(make(REHEARSAL, cluster=named), named, [])
    assert "--server ADDRESS:6443" in caught.value.cure
    join.check(make(REHEARSAL, "network.dns=[192.0.2.1]", cluster=named), named, [])  # which may know it
    reach(ssl.SSLCertVerificationError("hostname mismatch"))
    with pytest.raises(UsageError, match="is not the cluster's API server") as caught:
        join.check(make(REHEARSAL), CLUSTER, [])
    assert "kubernetes.default.svc" in caught.value.cure
    reach(ConnectionRefusedError("refused"))
    with pytest.raises(UsageError, match="can't be reached"):
        join.check(make(REHEARSAL), CLUSTER, [])


def test_users_learn_what_winlab_does_not_do() -> None:
    made = make(REHEARSAL)
    told = " ".join(join.notes(made, CLUSTER))
    assert "no logs from these nodes" in told
    theirs = replace(CLUSTER, cni="calico-vxlan")
    assert "also for Windows" in " ".join(join.notes(make("workers.os=windows-2022", cluster=theirs), theirs))
