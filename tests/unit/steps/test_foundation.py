"""When a lab's network counts as made."""

from __future__ import annotations

import json
from types import SimpleNamespace

import plans
import pytest
import runs

from winlab import account
from winlab.adapters.vm import domains
from winlab.design.plan import tags
from winlab.design.render.topology import Topology, topology
from winlab.engine.step import Step
from winlab.errors import ConflictError, HostError
from winlab.events import Quiet
from winlab.host import fabric, firewall
from winlab.steps import foundation

PLAN = plans.make(plans.KVM, "1-0-1")


class Overlay:
    """It has one topology, and daemons that follow, or that don't."""

    def __init__(self) -> None:
        self.made: Topology | None = None
        self.applied = 0
        self.follows = True
        self.waited: list[float] = []

    def has(self, wanted: Topology) -> bool:
        return self.made == wanted

    def apply(self, wanted: Topology) -> None:
        self.made = wanted
        self.applied += 1

    def await_followers(self, seconds: float, chassis: str) -> None:
        self.waited.append(seconds)
        if not self.follows:
            raise HostError("northd does not follow.")


@pytest.fixture
def overlay(monkeypatch: pytest.MonkeyPatch) -> Overlay:
    made = Overlay()

    monkeypatch.setattr(fabric, "bridge_trouble", lambda *_: "")
    monkeypatch.setattr(firewall, "trouble", lambda: "")
    return made


def network(overlay: Overlay) -> Step:
    return runs.titled(foundation.steps(runs.run(PLAN, overlay=overlay)), "network")


def test_a_network_with_one_other_row_is_made_again(overlay: Overlay) -> None:
    step = network(overlay)
    assert not step.done()
    step.run(Quiet())
    assert step.done()
    overlay.made = topology(plans.make(plans.KVM.model_copy(update={"chassis": "another"}), "1-0-1"))
    assert not step.done()
    step.run(Quiet())
    assert overlay.applied == 2
    step.run(Quiet())
    assert overlay.applied == 2  # correct parts are not touched: machines may be using them
    assert set(overlay.waited) == {foundation.FOLLOW_SECONDS}


def test_daemons_that_do_not_follow_end_a_create_before_machines_boot(overlay: Overlay) -> None:
    step = network(overlay)
    overlay.follows = False
    with pytest.raises(HostError, match="follow"):
        step.run(Quiet())
    with pytest.raises(HostError, match="follow"):
        step.done()


def test_a_bridge_without_its_address_is_reported(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "bridge_trouble", lambda *_: "is missing")
    with pytest.raises(HostError, match=r"'br-winlab'.* is missing") as caught:
        network(overlay).run(Quiet())
    assert "sudo winlab host setup" in caught.value.cure
    monkeypatch.setenv("WINLAB_OVN_NB", "tcp:192.0.2.1:6641")  # of another host, whose bridge can't be seen
    network(overlay).run(Quiet())


def test_a_flushed_firewall_ends_a_create_before_machines_boot(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, troubles = network(overlay), [""]
    step.run(Quiet())
    assert step.done()
    troubles[0] = "is missing"
    monkeypatch.setattr(firewall, "trouble", lambda: troubles[0])
    assert not step.done()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostError, match="is missing") as caught:
        step.run(Quiet())
    assert "sudo winlab host setup" in caught.value.cure
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(firewall, "restore", lambda _progress: troubles.__setitem__(0, ""))
    step.run(Quiet())
    assert step.done()


@pytest.mark.parametrize(
    ("flags", "local", "trouble"),
    [
        (["UP"], "172.31.240.1", ""),
        (["UP"], "10.0.0.1", "does not have its address 172.31.240.1/20"),
        ([], "172.31.240.1", "is down"),
        (None, "", "is missing"),
    ],
)
def test_problems_of_the_bridge_are_found(
    monkeypatch: pytest.MonkeyPatch, flags: list[str] | None, local: str, trouble: str
) -> None:
    link = {"flags": flags, "addr_info": [{"family": "inet", "local": local, "prefixlen": 20}]}
    said = SimpleNamespace(returncode=int(flags is None), stdout=json.dumps([link]))
    monkeypatch.setattr(fabric, "run", lambda *_, **__: said)
    found = fabric.bridge_trouble("172.31.240.1", 20)
    assert (trouble in found) if trouble else not found


@pytest.mark.parametrize(("uid", "cure"), [(None, "winlab destroy"), (0, "--lab NAME"), (1234567, "winlab destroy")])
def test_a_lab_without_credentials_on_this_host(monkeypatch: pytest.MonkeyPatch, uid: int | None, cure: str) -> None:
    """Another user's lab must not be destroyed: your own gets another name."""
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    node = PLAN.nodes[0]
    tag = tags.of(PLAN, node).model_copy(update={"uid": uid})
    monkeypatch.setattr(domains, "machines", lambda *_: [domains.Machine(node.domain, "running", tag, False)])
    step = runs.titled(foundation.steps(runs.run(PLAN)), "credentials")
    with pytest.raises(ConflictError, match="has no credentials for") as caught:
        step.run(Quiet())
    assert cure in caught.value.cure
    assert ("belongs to root" in caught.value.what) == (uid == 0)
