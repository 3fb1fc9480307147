"""kubeadm's configuration files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import rendered
import yaml

from winlab.design.catalog import versions
from winlab.design.distribution.kubeadm import config
from winlab.design.distribution.model import ClusterSettings, Member, controller_taints

CLUSTER = ClusterSettings(
    versions.get("1.36"), "10.77.0.10:6443", ("10.77.0.10", "192.0.2.1"), rendered.POD_CIDR, "10.96.0.0/16"
)
EMULATED = dataclasses.replace(CLUSTER, emulated=True, preloaded=True)


def documents(text: str) -> dict[str, Any]:
    return {row["kind"]: row for row in yaml.safe_load_all(text)}


@pytest.mark.parametrize("minor", versions.names())
def test_only_fields_of_the_minor_are_rendered(minor: str) -> None:
    count = 0
    for name, document in rendered.documents(versions.get(minor)):
        assert rendered.unknown_fields(minor, document) == [], name
        count += 1
    assert count > 30


def test_a_field_that_no_minor_has_is_seen() -> None:
    document = {"kind": "KubeletConfiguration", "apiVersion": "x", "failSwapOnn": False}
    assert rendered.unknown_fields("1.36", document) == ["failSwapOnn"]
    document = {"kind": "JoinConfiguration", "nodeRegistration": {"taints": [{"kay": "os"}]}}
    assert rendered.unknown_fields("1.36", document) == ["nodeRegistration.taints.kay"]
    assert rendered.unknown_fields("1.36", {"kind": "KubeletConfiguration", "featureGates": {"Any": True}}) == []


def test_the_first_controller() -> None:
    found = documents(config.init(CLUSTER, rendered.CONTROLLER, rendered.TOKEN))
    assert list(found) == [
        "InitConfiguration",
        "ClusterConfiguration",
        "KubeletConfiguration",
        "KubeProxyConfiguration",
    ]
    first, cluster = found["InitConfiguration"], found["ClusterConfiguration"]
    assert first["localAPIEndpoint"] == {"advertiseAddress": "10.77.0.11", "bindPort": 6443}
    assert first["nodeRegistration"]["imagePullPolicy"] == "IfNotPresent"
    assert "ignorePreflightErrors" not in first["nodeRegistration"]
    assert "certificateKey" not in first
    assert cluster["kubernetesVersion"] == "v1.36.3"
    assert cluster["controlPlaneEndpoint"] == "10.77.0.10:6443"
    assert cluster["apiServer"]["certSANs"] == ["10.77.0.10", "192.0.2.1"]
    assert cluster["etcd"]["local"] == {"dataDir": "/var/lib/etcd", "imageTag": "3.6.16-0"}
    assert cluster["dns"] == {"imageTag": "v1.14.7"}
    assert found["KubeletConfiguration"]["cgroupDriver"] == "systemd"
    assert found["KubeletConfiguration"]["resolvConf"] == "/run/systemd/resolve/resolv.conf"
    assert found["KubeProxyConfiguration"]["mode"] == "nftables"


def test_settings_that_only_an_emulator_gets() -> None:
    real = config.init(CLUSTER, rendered.CONTROLLER, rendered.TOKEN)
    slow = config.init(EMULATED, rendered.CONTROLLER, rendered.TOKEN)
    for word in ("election-timeout", "ECDSA-P256", "timeouts", "ignorePreflightErrors", "Never"):
        assert word not in real
        assert word in slow
    assert "leader-elect" not in real
    assert "leader-elect-lease-duration" in slow
    assert slow.count("ReleaseLeaderElectionLockOnExit") == 1  # the controller manager's
    older = dataclasses.replace(EMULATED, versions=versions.get("1.35"))
    assert "feature-gates" not in config.init(older, rendered.CONTROLLER, rendered.TOKEN)
    assert "timeouts" in config.join_worker(EMULATED, rendered.WINDOWS, rendered.CREDENTIALS)
    assert "timeouts" not in config.join_worker(CLUSTER, rendered.WINDOWS, rendered.CREDENTIALS)


def test_static_pods_are_patched_only_under_an_emulator() -> None:
    assert config.patches(CLUSTER) == {}
    found = {Path(path).name.partition("+")[0]: yaml.safe_load(text) for path, text in config.patches(EMULATED).items()}
    (server,) = found["kube-apiserver"]["spec"]["containers"]
    assert server["name"] == "kube-apiserver"
    assert server["env"] == [{"name": "GOGC", "value": "400"}]
    assert server["readinessProbe"]["periodSeconds"] == 20
    (manager,) = found["kube-controller-manager"]["spec"]["containers"]
    assert "readinessProbe" not in manager  # kubeadm gives it none


@pytest.mark.parametrize(("linux_workers", "taints"), [(0, []), (1, None), (3, None)])
def test_controllers_are_tainted_where_others_can_run_pods(linux_workers: int, taints: list[str] | None) -> None:
    node = Member("controller-1", "10.77.0.11", taints=controller_taints(linux_workers))
    first = documents(config.init(CLUSTER, node, rendered.TOKEN))["InitConfiguration"]
    assert first["nodeRegistration"].get("taints") == taints  # absent: kubeadm's own


def test_a_further_controller() -> None:
    found = documents(config.join_controller(CLUSTER, rendered.CONTROLLER, rendered.CREDENTIALS))["JoinConfiguration"]
    assert found["controlPlane"] == {
        "localAPIEndpoint": {"advertiseAddress": "10.77.0.11", "bindPort": 6443},
        "certificateKey": rendered.CREDENTIALS.certificate_key,
    }
    with pytest.raises(AssertionError):
        config.join_controller(CLUSTER, rendered.CONTROLLER, config.JoinCredentials("t", ()))


def test_a_windows_worker() -> None:
    found = documents(config.join_worker(CLUSTER, rendered.WINDOWS, rendered.CREDENTIALS))["JoinConfiguration"]
    row = found["nodeRegistration"]
    assert row["criSocket"] == "npipe:////./pipe/containerd-containerd"
    assert row["taints"] == [{"key": "os", "effect": "NoSchedule", "value": "windows"}]
    assert "kubeletExtraArgs" not in row
    assert found["discovery"]["bootstrapToken"]["caCertHashes"] == list(rendered.CREDENTIALS.ca_hashes)
    assert "controlPlane" not in found


def test_a_linux_worker() -> None:
    found = documents(config.join_worker(CLUSTER, rendered.LINUX, rendered.CREDENTIALS))["JoinConfiguration"]
    assert found["nodeRegistration"]["kubeletExtraArgs"] == [
        {"name": "node-ip", "value": "10.77.0.151"},
        {"name": "node-labels", "value": "winlab.dev/lab=a,example.com/disk=ssd"},
    ]
    assert "taints" not in found["nodeRegistration"]


def test_secrets_are_not_shown() -> None:
    shown = repr(rendered.CREDENTIALS)
    assert rendered.TOKEN not in shown
    assert str(rendered.CREDENTIALS.certificate_key) not in shown


def test_fields_that_a_program_ignores_are_noticed() -> None:
    wanted = {"a": {"b": [1, 2], "c": "x"}, "d": True}
    assert rendered.lost(wanted, {"a": {"b": [1, 2], "c": "x", "more": 0}, "d": True}) == []
    assert rendered.lost(wanted, {"a": {"b": [2, 1]}, "d": "true"}) == ["a.b = [1, 2]", "a.c = 'x'", "d = True"]
    case = rendered.Case("name", "program", (), {"in": "mode: a\n"}, says="ok", source="in", kept="-")
    assert case.problems(Path(), 0, "# ok\nmode: a\n", "") == []
    for code, output in ((1, "# ok\nmode: a\n"), (0, "mode: a\n"), (0, "# ok\nmod: a\n")):
        assert len(case.problems(Path(), code, output, "")) == 1
