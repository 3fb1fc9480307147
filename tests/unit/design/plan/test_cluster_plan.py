"""The cluster's part of the plan, its topology, its payloads, and what explains a node that is not Ready."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path

import plans
import pytest

from winlab.adapters.kube import authority, diagnose
from winlab.design import spec
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import ContainerImage, Obtained, Program
from winlab.design.plan import cluster, required
from winlab.design.render import runtime_classes
from winlab.design.render.topology import topology
from winlab.errors import UsageError
from winlab.supply.payload import PayloadCd


def test_one_controller_is_its_own_endpoint() -> None:
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    assert plan.cluster.endpoint == "10.77.0.11:6443"
    assert plan.cluster.external == f"{plan.node('controller-1').floating}:6443"
    assert topology(plan).balancers == ()


def test_several_controllers_are_behind_a_load_balancer_without_a_machine() -> None:
    plan = plans.make(plans.TCG, "3-0-1")
    inside, outside = topology(plan).balancers
    assert inside.vip == plan.cluster.endpoint == "10.77.0.10:6443"
    assert outside.vip == plan.cluster.external == f"{plan.network.router_external}:6443"
    assert inside.backends == outside.backends == ("10.77.0.11:6443", "10.77.0.12:6443", "10.77.0.13:6443")
    assert (inside.on_switch, outside.on_switch) == (True, False)


def test_the_certificate_is_for_every_address() -> None:
    plan = plans.make(plans.TCG, "3-0-1")
    for node in plan.nodes:
        assert {node.address, node.floating} <= set(plan.cluster.names)
    assert {"10.77.0.10", plan.network.router_external} <= set(plan.cluster.names)


@pytest.mark.parametrize(
    ("changes", "profile"),
    [
        (("workers.os=windows-rehearsal",), "l3"),
        (("workers.os=windows-2022",), "calico-vxlan"),
        (("workers.os=debian-13",), "l3"),
        (("workers.os=windows-rehearsal", "network.cni=host-gw"), "host-gw"),
    ],
)
def test_default_profile(changes: tuple[str, ...], profile: str) -> None:
    assert plans.make(plans.TCG, "1-1-1", *changes).cluster.profile == profile


def test_a_profile_that_the_stand_in_does_not_support() -> None:
    with pytest.raises(UsageError, match="can't be rehearsed") as error:
        plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal", "network.cni=calico-vxlan")
    assert "host-gw or l3" in error.value.cure


def test_routed_pods_are_translated_on_the_way_out() -> None:
    nats = topology(plans.make(plans.TCG, "1-0-1")).nats
    assert [nat.logical for nat in nats if nat.type == "snat"] == ["10.77.0.0/24", "10.244.0.0/16"]
    nats = topology(plans.make(plans.TCG, "1-0-1", "network.cni=host-gw")).nats
    assert [nat.logical for nat in nats if nat.type == "snat"] == ["10.77.0.0/24"]


def test_linux_and_windows_workers_coexist() -> None:
    plan = plans.make(plans.TCG, "1-1-1", "linux_workers.count=2", "workers.os=windows-rehearsal")
    assert [node.name for node in plan.nodes] == ["controller-1", "node-1", "linux-1", "linux-2"]
    assert [node.address for node in plan.nodes][2:] == ["10.77.0.51", "10.77.0.52"]
    assert len({node.floating for node in plan.nodes}) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("kubernetes.version=1.12",), "not a known-good combination"),
        (("workers.os=windows-2019", "kubernetes.version=1.36"), "kubernetes.version=1.34"),
        (("kubernetes.pod_cidr=10.77.0.0/20",), "overlap"),
        (("linux_workers.os=windows-2022",), "a Linux worker runs Linux"),
        (
            (
                "kubernetes.version=v1.36.1",
                "kubernetes.untested=true",
                "workers.os=windows-2025",
                "network.cni=flannel-vxlan",
            ),
            "does not support Windows Server 2025",
        ),
        (
            ("kubernetes.version=1.34", "workers.os=windows-2019", "network.cni=flannel-vxlan"),
            "its configuration and its token. Known to work with Kubernetes 1.34 on Windows Server 2019: calico-vxlan",
        ),
        (
            (
                "kubernetes.version=v1.34.9",
                "kubernetes.untested=true",
                "workers.os=windows-2019",
                "network.cni=flannel-vxlan",
            ),
            "it does not find what is mounted there",
        ),
    ],
)
def test_refused_before_anything_is_touched(changes: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        plans.make(plans.TCG, "1-1-1", *changes)
    assert says in str(caught.value)


DEFAULT = versions.get().kubernetes
MIXED = "workers=[{name: old, os: windows-2019}, {name: new, os: windows-2025}]"


@pytest.mark.parametrize(
    ("changes", "version", "says"),
    [
        (("network.cni=l3",), DEFAULT, None),
        (("workers.os=debian-13",), DEFAULT, None),
        (("workers.os=windows-2019",), "v1.34.4", "work with calico-vxlan on Windows Server 2019."),
        (("workers.os=windows-2019", "network.cni=l3"), "v1.34.4", "work with l3 on Windows Server 2019."),
        ((MIXED,), "v1.34.4", "work with calico-vxlan on Windows Server 2019 and Windows Server 2025."),
        (("workers.os=windows-2019", "kubernetes.version=1.34"), "v1.34.4", None),
    ],
)
def test_without_a_version_the_newest_that_the_workers_go_with(
    changes: tuple[str, ...], version: str, says: str | None
) -> None:
    wanted = spec.load("1-1-1", list(changes))
    plan = plans.make(plans.TCG, "1-1-1", *changes)
    assert plan.cluster.versions.kubernetes == version
    note = cluster.version_note(wanted, plan)
    if says is None:
        assert note is None
    else:
        assert note == f"Using Kubernetes {version} (not {DEFAULT}), the newest known to {says}"


def test_some_workers_have_no_suitable_version() -> None:
    with pytest.raises(UsageError, match=r"Kubernetes .*, Windows Server 2025 .* don't work together"):
        plans.make(plans.TCG, "1-1-1", "workers.os=windows-2025", "network.cni=flannel-vxlan")


def test_artifacts_of_a_lab() -> None:
    every = required.every(plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal"))
    names = {(one.name, one.os) for one in every if isinstance(one, Program)}
    assert {("kubelet", "windows"), ("kube-proxy", "windows"), ("runc", "linux"), ("win-bridge", "windows")} <= names
    assert ("kube-proxy", "linux") not in names  # an image there
    images = [one.reference for one in every if isinstance(one, ContainerImage) and one.os == "linux"]
    assert len(images) == len(set(images)) == 8


def test_workers_import_no_control_plane() -> None:
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=debian-13")
    worker = required.node_images(plan, controller=False)
    assert {name.split(":")[0].rsplit("/", 1)[1] for name in worker} == {"pause", "kube-proxy", "coredns"}
    assert not any("agnhost" in name for name in required.node_images(plan, controller=True))


def test_the_payload_depends_on_its_content(tmp_path: Path) -> None:
    def payload(content: bytes) -> PayloadCd:
        path = tmp_path / "kubelet"
        path.write_bytes(content)
        program = Program("kubelet", "v1.36.3", "linux")
        digest = hashlib.sha256(content).hexdigest()
        return PayloadCd("linux", [Obtained(program, path, digest, len(content), "here")], [])

    first, second = payload(b"one"), payload(b"two")
    assert first.volume != second.volume
    assert first.volume == payload(b"one").volume
    listed = json.loads(second.files["payload.json"])  # type: ignore[arg-type]
    sha256 = hashlib.sha256(b"two").hexdigest()
    assert listed["programs"]["kubelet"] == {"crc32": zlib.crc32(b"two"), "sha256": sha256, "version": "v1.36.3"}


def test_windows_payloads_bring_the_scripts() -> None:
    files = PayloadCd("windows", [], []).files
    assert {"scripts/status.ps1", "scripts/join.ps1", "scripts/common.ps1"} <= set(files)


def test_why_a_node_is_not_ready() -> None:
    node = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "no CNI"}]}}
    assert not diagnose.is_ready(node)
    assert diagnose.brief(node) == "R: no CNI"
    assert "has not reported" in diagnose.brief({})
    assert diagnose.telling(["all well", "E1 failed to start", "fine"]) == ["E1 failed to start"]


def test_runtime_classes_carry_the_toleration() -> None:
    (made,) = runtime_classes.objects(["2022"])
    assert made["scheduling"]["nodeSelector"]["node.kubernetes.io/windows-build"] == "10.0.20348"
    assert made["scheduling"]["tolerations"][0]["value"] == "windows"


def test_a_kubeconfig_without_authority_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters: []\n")
    with pytest.raises(UsageError, match="does not name the certificate authority"):
        authority.authority(path)
