"""k3s on a Linux controller: started once, with its token in a private file."""

from __future__ import annotations

from pathlib import Path

import pytest
from linux_guest import Guest

from winlab_node import k3s as script
from winlab_node.node import NodeError

SERVER, TOKEN = "https://10.77.0.10:6443", f"K10{'0a' * 32}::server:{'0b' * 16}"
JOIN = {"server": SERVER, "token": TOKEN}
ENVIRONMENT = Path(script.ENVIRONMENT)
RESTART = "systemctl restart --no-block kubelet"


def services(guest: Guest, answer: str) -> None:
    """What systemd says of them."""
    guest.runner.answers.pop("systemctl is-active", None)
    guest.runner.answers["systemctl is-active kubelet"] = (0, f"{answer}\n")
    guest.runner.answers["systemctl is-active containerd kubelet"] = (0, f"{answer}\n{answer}\n")


@pytest.fixture
def started(guest: Guest) -> Guest:
    """A controller whose k3s becomes ready when it starts."""

    def start() -> None:
        assert guest.do("status", {})["started"]
        assert not guest.do("status", {})["joined"]
        guest.put("etc/systemd/system/kubelet.service", "ExecStart=/usr/local/bin/k3s server\n")
        for name in ("kubelet.kubeconfig", "client-kubelet.crt"):
            guest.put(f"var/lib/rancher/k3s/agent/{name}", "x")
        services(guest, "active")

    guest.runner.effects[RESTART] = start
    services(guest, "inactive")
    return guest


@pytest.mark.parametrize(
    ("settings", "text"),
    [({}, "K3S_CLUSTER_INIT=true\n"), (JOIN, f"K3S_URL={SERVER}\nK3S_TOKEN={TOKEN}\n")],
    ids=["first", "further"],
)
def test_a_controller_is_part_of_a_cluster(started: Guest, settings: dict[str, str], text: str) -> None:
    assert started.do("run-k3s", settings) == {"joined": True, "changed": True}
    path = started.root / ENVIRONMENT
    assert (path.read_text(), path.stat().st_mode & 0o777) == (text, 0o600)
    found = started.do("status", {})
    assert (found["joined"], found["started"], found["kubelet"]) == (True, False, {"service": "running"})
    started.runner.asked.clear()
    assert started.do("run-k3s", settings) == {"joined": True, "changed": False}
    assert not started.runner.lines("systemctl")


def test_no_secret_is_an_argument(started: Guest) -> None:
    started.do("run-k3s", JOIN)
    assert not [line for line, _ in started.runner.asked if TOKEN in line]


def test_an_interrupted_start_is_resumed(started: Guest) -> None:
    effect = started.runner.effects.pop(RESTART)
    started.runner.answers[RESTART] = (1, "killed")
    with pytest.raises(NodeError, match="killed"):
        started.do("run-k3s", {})
    del started.runner.answers[RESTART]
    started.runner.effects[RESTART] = effect
    assert started.do("run-k3s", {})["changed"]


def test_a_k3s_that_does_not_become_ready_shows_its_log_without_the_token(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter(range(0, 100_000, 40))
    monkeypatch.setattr(script.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(script.time, "sleep", lambda _: None)
    services(guest, "activating")
    guest.runner.answers["journalctl"] = (0, f"fatal: {TOKEN} is not valid\n")
    with pytest.raises(NodeError, match=r"not ready after 30 min:\nfatal: <secret> is not valid"):
        guest.do("run-k3s", JOIN)
    assert "fatal: <secret>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"server": SERVER}, "belong together"),
        ({"token": TOKEN}, "belong together"),
        ({"server": SERVER, "token": "x\nK3S_DEBUG=true"}, "single words"),
        ({"server": f"{SERVER} x", "token": TOKEN}, "single words"),
    ],
)
def test_odd_settings_are_refused(guest: Guest, settings: dict[str, str], match: str) -> None:
    with pytest.raises(NodeError, match=match):
        guest.do("run-k3s", settings)
    assert not (guest.root / ENVIRONMENT).exists()
    assert guest.runner.asked == []


def test_a_node_of_another_cluster_is_refused(started: Guest) -> None:
    started.do("run-k3s", {})
    with pytest.raises(NodeError, match="part of a cluster already, made by 'itself'"):
        started.do("run-k3s", JOIN)
