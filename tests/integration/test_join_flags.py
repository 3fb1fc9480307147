"""A worker joins control planes with the flags of k3s, and of MicroK8s with and without roles.

Their API servers verify its kubelet.
"""

from __future__ import annotations

import json
import socket
import subprocess  # noqa: TID251 - gives this host an address
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import flagged
import pytest
import yaml
from flagged import PODS, Flagged
from harness import Golden, Winlab, added, is_ready, traces
from joining import LAB, Joined, joining

pytestmark = pytest.mark.slow  # another cluster and another clone for each: ten minutes on two cores


# of MicroK8s with shares of the pods' network: without them winlab refuses l3, and names the flags as the cure
ALL = (flagged.K3S, *(replace(flags, allocates=True) for flags in (flagged.MICROK8S, flagged.BARE)))
LABELS = {flagged.K3S.name: {"node.kubernetes.io/instance-type": "k3s"}}
OTHERS = {"microk8s.io/cluster": "true"}
SERVER, ADDRESS, KUBELET = "server-1", "198.51.100.9", 10250


class Served(Flagged):
    """With the Node of a server, which no kubelet runs for."""

    def start(self) -> None:
        super().start()
        metadata = {"name": SERVER, "labels": LABELS.get(self.flags.name, OTHERS)}
        path = self.folder / "server.yaml"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
        self.kubectl("create", f"--filename={path}")
        reached = {"status": {"addresses": [{"type": "InternalIP", "address": self.address}]}}
        words = ("--subresource=status", "--type=merge", f"--patch={json.dumps(reached)}")
        self.kubectl("patch", "node", SERVER, *words)
        self.kubectl("wait", "--for=jsonpath={.spec.podCIDR}", f"node/{SERVER}", "--timeout=110s")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """An address of this host that is not in its network for labs, as that of a server beside them."""
    own = (f"{ADDRESS}/32", "dev", "lo")  # kernels may lack dummy interfaces
    subprocess.run(["ip", "address", "add", *own], check=True)
    with socket.create_server((ADDRESS, KUBELET)):  # where the server's kubelet would listen: join tries it
        yield ADDRESS
    subprocess.run(["ip", "address", "del", *own], check=True)


@pytest.fixture(scope="module", params=ALL, ids=lambda flags: flags.name)
def joined(
    request: pytest.FixtureRequest,
    address: str,
    host: None,
    scripted: Winlab,
    golden: Golden,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Joined]:
    """A lab whose worker has joined a control plane on this host, without translation."""
    folder = tmp_path_factory.mktemp(request.param.name)
    with joining(Served(folder, request.param, address), scripted, golden, "--attachment", "routed") as made:
        yield made


def test_the_node_is_ready(joined: Joined) -> None:
    joined.elsewhere.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=110s")
    print(joined.elsewhere.kubectl("get", "nodes", "--output=wide"))
    node: Any = joined.elsewhere.get("node", "node-1")
    assert is_ready(node)
    assert node["metadata"]["labels"]["kubernetes.io/os"] == "windows"
    assert node["spec"]["podCIDR"].startswith(PODS.removesuffix(".0.0/16"))


def test_the_api_server_reads_from_the_kubelet_that_it_verifies(joined: Joined) -> None:
    # logs and exec use the same connection; pods don't run on the stand-in
    assert isinstance(joined.elsewhere, Flagged)
    assert joined.elsewhere.flags.verifies
    assert joined.elsewhere.kubectl("get", "--raw", "/api/v1/nodes/node-1/proxy/healthz") == "ok"
    assert "kubelet_node_name" in joined.elsewhere.kubectl("get", "--raw", "/api/v1/nodes/node-1/proxy/metrics")


def test_destroy_leaves_nothing_in_the_cluster(joined: Joined, scripted: Winlab) -> None:
    scripted.ok("destroy", "--lab", LAB)
    elsewhere = joined.elsewhere
    assert [node["metadata"]["name"] for node in elsewhere.get("nodes")["items"]] == [SERVER]
    ours = "clusterrolebindings,serviceaccounts,certificatesigningrequests"
    assert elsewhere.get(ours, "--all-namespaces", "--selector=winlab.internal/node")["items"] == []
    assert added(joined.before, traces(), LAB) == []
