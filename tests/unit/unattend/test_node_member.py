"""A Linux node becomes a member of an external cluster, with credentials that winlab asked for."""

from __future__ import annotations

from typing import Any

import pytest
from linux_guest import Guest

from winlab_node import member as script
from winlab_node.node import NodeError

KUBECONFIG = "clusters:\n- cluster:\n    server: https://192.0.2.10:6443\n"
CA = "-----BEGIN CERTIFICATE-----\nx\n"
SETTINGS: dict[str, Any] = {"kubeconfig": KUBECONFIG, "client_ca": CA}
CONF, PEM = "etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet-client-current.pem"
RESTART = "systemctl restart kubelet"


@pytest.fixture
def started(guest: Guest) -> Guest:
    """A node whose kubelet asks for its own certificate when it starts."""
    guest.runner.effects[RESTART] = lambda: guest.put(PEM, "own")
    return guest


def asked(guest: Guest) -> list[str]:
    return [line for line, _ in guest.runner.asked]


def test_the_kubelet_starts_with_what_it_is_given(started: Guest) -> None:
    started.put("var/lib/kubelet/pki/kubelet-server-current.pem", "of an unfinished join")
    assert started.do("member", {**SETTINGS, "proxy": "token"}) == {"joined": True, "changed": True}
    for name, text, mode in (
        (CONF, KUBECONFIG, 0o600),
        ("etc/kubernetes/pki/ca.crt", CA, 0o644),
        ("var/lib/kube-proxy/kubeconfig", "token", 0o600),
    ):
        path = started.root / name
        assert (path.read_text(), path.stat().st_mode & 0o777) == (text, mode)
    assert not (started.root / "var/lib/kubelet/pki/kubelet-server-current.pem").exists()
    assert asked(started)[0] == "systemctl stop kubelet"
    assert started.do("status", {})["joined"]


def test_a_second_run_changes_nothing(started: Guest) -> None:
    started.do("member", SETTINGS)
    started.runner.asked.clear()
    assert started.do("member", SETTINGS) == {"joined": True, "changed": False}
    assert RESTART not in asked(started)
    other = KUBECONFIG + "# another first certificate\n"
    assert started.do("member", {**SETTINGS, "kubeconfig": other})["changed"] is False  # it has its own
    assert (started.root / CONF).read_text() == KUBECONFIG


def test_a_member_takes_another_ca(started: Guest) -> None:
    started.do("member", SETTINGS)
    started.runner.asked.clear()
    assert started.do("member", {**SETTINGS, "client_ca": CA + "y"})["changed"]
    assert RESTART in asked(started)


def test_an_unfinished_join_starts_over(started: Guest) -> None:
    started.put(CONF, KUBECONFIG.replace("192.0.2.10", "192.0.2.99"))
    assert started.do("member", SETTINGS)["changed"]
    assert (started.root / CONF).read_text() == KUBECONFIG


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"kubeconfig": KUBECONFIG.replace("192.0.2.10", "192.0.2.99")},
            "part of the cluster at '192.0.2.10:6443' already",
        ),
        ({"kubeconfig": "clusters: []"}, "names no server"),
        ({"client_ca": "x"}, "is no certificate"),
    ],
)
def test_what_is_refused(started: Guest, changes: dict[str, str], says: str) -> None:
    started.do("member", SETTINGS)
    with pytest.raises(NodeError, match=says):
        started.do("member", {**SETTINGS, **changes})


def test_a_kubelet_that_gets_no_certificate_is_reported_with_its_log(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(range(0, 5000, 20))
    monkeypatch.setattr(script.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(script.time, "sleep", lambda _: None)
    guest.runner.answers["journalctl"] = (0, "x509: certificate signed by unknown authority")
    with pytest.raises(NodeError, match=r"after 15 min:\nx509"):
        guest.do("member", SETTINGS)
    assert "waiting for the kubelet to take its certificate" in capsys.readouterr().out
    assert not guest.do("status", {})["joined"]
