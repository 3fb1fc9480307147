"""What nodes of an external cluster are given, whatever made it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import rendered
import yaml

from winlab.design.catalog import versions
from winlab.design.distribution import known, kubelet
from winlab.design.distribution.external import calls, files
from winlab.design.distribution.model import ClusterSettings, Member
from winlab.design.system import LINUX, WINDOWS

CLUSTER = ClusterSettings(
    versions.get(), "192.0.2.10:6443", (), "10.42.0.0/16", "10.43.0.0/16", "their.domain", dns="10.43.0.10"
)
AGENTS = replace(CLUSTER, proxies=())  # kube-proxy is in the distribution's own agents
NODE = Member("node-1", "10.77.0.101", LINUX, {"a": "b"}, ())
WORKER = Member("node-2", "10.77.0.102", WINDOWS)
OWN = calls.Credentials("server: https://192.0.2.10:6443", "CA", "token")


def document(text: str) -> dict[str, Any]:
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("node", "authority"), [(NODE, "/etc/kubernetes/pki/ca.crt"), (WORKER, "C:/etc/kubernetes/pki/ca.crt")]
)
def test_the_kubelet_trusts_the_clients_ca_alone_and_renews_its_certificates(node: Member, authority: str) -> None:
    made = document(files.kubelet_configuration(CLUSTER, node))
    assert made["authentication"] == {
        "anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": authority},
    }  # fmt: skip
    assert made["authorization"] == {"mode": "Webhook"}
    assert (made["rotateCertificates"], made["serverTLSBootstrap"]) == (True, True)
    assert (made["clusterDNS"], made["clusterDomain"]) == (["10.43.0.10"], "their.domain")
    assert ("cgroupDriver" in made) == (node.system is LINUX)


def test_every_field_exists() -> None:
    every = json.loads(rendered.FIELDS.read_text())[f"1.{versions.get().minor}"]
    for text in (
        files.kubelet_configuration(CLUSTER, NODE),
        files.kubelet_configuration(CLUSTER, WORKER),
        files.linux(AGENTS, NODE)[files.PROXY_CONFIG],
    ):
        made = document(text)
        assert made.keys() - {"apiVersion", "kind"} <= set(every[made["kind"]].split())


def test_the_kubelet_has_no_bootstrap_kubeconfig_which_would_lose_the_server_s_name() -> None:
    unit = files.linux(CLUSTER, NODE)["/etc/systemd/system/kubelet.service"]
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in line
    assert "--hostname-override=node-1 --node-ip=10.77.0.101" in line
    assert "--node-labels=a=b" in line
    assert "bootstrap" not in line
    windows = kubelet.windows_arguments(WORKER, bootstraps=known.EXTERNAL.bootstraps)
    assert not any("bootstrap" in word for word in windows)
    assert kubelet.windows_arguments(WORKER) != windows


def test_a_linux_node_has_its_own_kube_proxy_only_where_no_daemon_set_brings_one() -> None:
    assert files.PROXY_CONFIG not in files.linux(CLUSTER, NODE)
    made = files.linux(AGENTS, NODE)
    pod = document(made["/etc/kubernetes/manifests/kube-proxy.yaml"])
    assert pod["spec"]["containers"][0]["image"] == f"registry.k8s.io/kube-proxy:{versions.get().kubernetes}"
    assert document(made[files.PROXY_CONFIG])["clusterCIDR"] == "10.42.0.0/16"
    assert calls.become_member(CLUSTER, NODE, OWN).proxy == ""
    assert calls.become_member(AGENTS, NODE, OWN).proxy == "token"
    assert calls.become_member(AGENTS, WORKER, OWN).proxy == ""


def test_secrets_are_in_no_file_and_in_no_text() -> None:
    call = calls.become_member(AGENTS, NODE, replace(OWN, kubelet="secret-1", proxy="secret-2"))
    assert "secret" not in repr(call) + str(call.texts()) + str(files.linux(AGENTS, NODE))


def test_labs_of_both_kinds_share_payload_cds_and_golden_images() -> None:
    for system in (LINUX, WINDOWS):
        assert known.EXTERNAL.programs(system) == known.DEFAULT.programs(system)
        assert known.EXTERNAL.images(system) == known.DEFAULT.images(system)
