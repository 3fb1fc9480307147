"""Three controllers behind OVN's load balancer, and the profile host-gw. After the other labs: guests are heavy."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - stops a guest as a fault would
import time
from collections.abc import Iterator

import pytest
from harness import Winlab, traces

LAB = "it-c"
SPEC = ("--spec", "3-0-1", "--set", "network.cni=host-gw", "--set", "controllers.memory=2GiB")


@pytest.fixture(scope="module")
def three(host: None, winlab: Winlab) -> Iterator[str]:
    winlab.ok("destroy", "--lab", LAB)
    before = traces()
    yield winlab.ok("create", *SPEC, "--lab", LAB)
    winlab.ok("destroy", "--lab", LAB)
    assert traces() == before


def get(winlab: Winlab, *words: str) -> list[dict[str, object]]:
    return list(json.loads(winlab.ok("kubectl", "--lab", LAB, "--", "get", *words, "--output=json"))["items"])


def test_three_controllers_are_ready(three: str, winlab: Winlab) -> None:
    nodes = get(winlab, "nodes", "--selector=node-role.kubernetes.io/control-plane")
    assert [node["metadata"]["name"] for node in nodes] == [f"controller-{n}" for n in (1, 2, 3)]  # type: ignore[index]
    for node in nodes:
        rows = {row["type"]: row["status"] for row in node["status"]["conditions"]}  # type: ignore[index]
        assert rows["Ready"] == "True"
    etcd = get(winlab, "pods", "--namespace=kube-system", "--selector=component=etcd")
    assert [pod["status"]["phase"] for pod in etcd] == ["Running"] * 3  # type: ignore[index]


def test_pods_on_two_nodes_talk_both_ways_by_the_nodes_routes(three: str, winlab: Winlab) -> None:
    done = winlab("test", "smoke", "--lab", LAB, "--only", "L1,L2,L4,L6,L7,L12", "--output", "json")
    rows = {row["id"]: (row["outcome"], row["detail"]) for row in json.loads(done.stdout)["results"]}
    wanted = ("L1", "L2", "L4", "L6", "L7", "L12")
    assert {rows[name][0] for name in wanted} == {"passed"}, rows
    routes = winlab.ok("exec", "--lab", LAB, "controller-1", "--", "ip route show proto 171")
    assert "via 10.77.0.12" in routes
    assert "via 10.77.0.13" in routes


def test_the_api_address_survives_the_loss_of_a_controller(three: str, winlab: Winlab) -> None:
    subprocess.run(["virsh", "suspend", f"winlab-{LAB}-controller-1"], check=True, capture_output=True)
    try:
        deadline = time.monotonic() + 600  # a bound for a test that hangs, no expectation
        answers = 0
        while answers < 6 and time.monotonic() < deadline:  # six in a row: by chance two thirds would answer
            done = winlab("kubectl", "--lab", LAB, "--", "get", "--raw=/readyz", "--request-timeout=20s")
            answers = answers + 1 if done.stdout == "ok" else 0
        assert answers == 6, done.stderr
    finally:
        subprocess.run(["virsh", "resume", f"winlab-{LAB}-controller-1"], check=True, capture_output=True)
