"""What inspections report of volumes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import runs
import sites
import standing
from standing import POOL, Standing, only, reported

from winlab.events import Quiet
from winlab.operations.drift import volumes
from winlab.operations.drift.model import Subject
from winlab.steps.states import (
    PAYLOAD,
    PAYLOAD_INSERTED,
)

DISK = "lab.controller-1.disk.qcow2"


@pytest.mark.parametrize(
    ("node", "defined", "cure"),
    [
        ("controller-1", True, "destroy the lab"),
        ("controller-1", False, "destroy the lab"),  # the lab has a cluster, which was in it
        ("node-1", True, "'winlab node rebuild node-1'"),
        ("node-1", False, "run the lab's create command again"),
    ],
)
def test_a_lost_disk_is_reported_and_not_recreated(lab: Standing, node: str, defined: bool, cure: str) -> None:
    del lab.pool.volumes[f"lab.{node}.disk.qcow2"]
    lab.states[f"winlab-lab.{node}"] = "off" if defined else "gone"
    if not defined:
        del lab.xml[f"winlab-lab.{node}"]
    finding = only([one for one in lab.findings() if one.drift.area == "volume"])
    assert reported([finding.drift]) == [(node, f"lab.{node}.disk.qcow2", "there", "gone", False)]
    assert cure in finding.drift.action
    assert (finding.repair, finding.steps) == (None, ())


def test_an_unfinished_lab_needs_its_create_command_again(lab: Standing) -> None:
    """Its create was killed before the first machine was made."""
    del lab.pool.volumes[DISK], lab.xml["winlab-lab.controller-1"]
    lab.states["winlab-lab.controller-1"] = "gone"
    lab.folder.kubeconfig.unlink()
    actions = [one.action for one in lab.drifts() if one.what == DISK]
    assert actions == ["run the lab's create command again: it makes what is missing"]


def test_a_damaged_disk(lab: Standing) -> None:
    lab.pool.volumes[DISK].content = b"\0" * 512
    lab.pool.volumes["lab.node-1.disk.qcow2"].size = 7
    seen = reported(lab.drifts())
    assert seen[0] == ("controller-1", DISK, "there", "damaged", False)
    assert seen[1][1:] == ("lab.node-1.disk.qcow2: size", f"{lab.plan.node('node-1').disk_mib} MiB", "7 MiB", False)
    assert len(seen) == 2


def test_a_disk_without_its_base(lab: Standing) -> None:
    lab.pool.volumes[DISK].backing = None
    assert only(lab.findings()).drift.actual == "none"


def test_volumes_without_which_a_machine_does_not_start(lab: Standing) -> None:
    del lab.pool.volumes["base-kubernetes-linux-1.iso"]
    seed = next(one.name for one in lab.plan.node("controller-1").volumes if one.role == "seed")
    del lab.pool.volumes[seed]
    by_name = {one.drift.what: one for one in lab.findings()}
    assert by_name.keys() == {"base-kubernetes-linux-1.iso", seed}
    cd = by_name["base-kubernetes-linux-1.iso"]
    assert (cd.steps, cd.lab_steps) == ((PAYLOAD_INSERTED,), (PAYLOAD,))
    assert by_name[seed].repair is not None


@pytest.mark.parametrize("name", ["lab.load-linux.iso", "lab.controller-1.push.iso"])
def test_a_missing_cd_of_load_or_push_is_replaced_by_the_payload_cd(lab: Standing, name: str) -> None:
    cd = f"{POOL}/base-kubernetes-linux-1.iso"
    lab.change("controller-1", cd, f"{POOL}/{name}")
    (found,) = [one for one in lab.findings() if one.drift.what == name]
    assert (found.drift.repairable, found.steps, found.lab_steps) == (True, (PAYLOAD_INSERTED,), (PAYLOAD,))


@pytest.mark.parametrize(
    ("whole", "now", "digests", "actual"),
    [
        (False, "aa", False, "incomplete"),
        (True, "bb", False, None),  # only reading all of it shows this
        (True, "bb", True, "other content"),
    ],
)
def test_base_volumes(lab: Standing, whole: bool, now: str, digests: bool, actual: str | None) -> None:
    base = lab.plan.node("controller-1").volume("base").name
    lab.pool.volumes[base].whole, lab.pool.volumes[base].now = whole, now
    if actual is None:
        assert lab.drifts(digests=digests) == []
        return
    drift = only(lab.findings(digests=digests)).drift
    assert (drift.what, drift.actual, drift.repairable) == (base, actual, False)
    lab.cached.append(SimpleNamespace(sha256="aa", path=Path("/cache/disk")))  # the same bytes
    finding = only(lab.findings(digests=digests))
    assert finding.drift.repairable
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.pool.written == [f"{base} from /cache/disk"]


@pytest.mark.parametrize("digests", [False, True])
def test_a_base_volume_that_only_lost_its_marker_is_kept(lab: Standing, digests: bool) -> None:
    """ux N6: the image was in the cache and the disk could be read, and repair denied both."""
    base = lab.plan.node("controller-1").volume("base").name
    lab.pool.volumes[base].whole, lab.pool.volumes[base].unmarked = False, True
    lab.cached.append(SimpleNamespace(sha256="aa", path=Path("/cache/disk")))
    finding = only(lab.findings(digests=digests))
    assert reported([finding.drift]) == [("", f"{base}: marker", "there", "gone", True)]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.pool.written == [f"marker of {base}"]
    assert lab.drifts() == []


def test_two_pools_may_have_lost_the_marker_of_the_same_base_volume(lab: Standing) -> None:
    base, second = lab.plan.node("controller-1").volume("base").name, standing.Pool()
    copied = [one if one.name != "node-1" else one.model_copy(update={"hypervisor": "b"}) for one in lab.plan.nodes]
    plan = lab.plan.model_copy(update={"nodes": tuple(copied)})
    second.add(base)
    second.add("lab.node-1.disk.qcow2", backing=base)
    for pool in (lab.pool, second):
        pool.volumes[base].whole, pool.volumes[base].unmarked = False, True
    lab.cached.append(SimpleNamespace(sha256="aa", path=Path("/cache/disk")))
    hosts = [sites.hypervisor("conn", lab.pool), sites.hypervisor("conn", second, name="b")]
    subject = Subject(runs.run(plan, hypervisors=hosts), plan.nodes, cluster=True)
    found = {one.drift.key: one for one in volumes.bases(subject, Quiet())}
    assert [what for _, _, what in found] == [f"{base}: marker", f"{base} on b: marker"]
    for one in found.values():
        assert one.repair is not None
        one.repair(Quiet())
    assert lab.pool.written == second.written == [f"marker of {base}"]
    lab.cached.clear()
    for pool in (lab.pool, second):
        pool.volumes[base].whole = False
    assert len({one.drift.key for one in volumes.bases(subject, Quiet())}) == 2  # also if they can't be repaired


def test_a_base_volume_of_unknown_content_is_not_replaced(lab: Standing) -> None:
    base = lab.plan.node("controller-1").volume("base").name
    lab.pool.volumes[base].whole, lab.pool.volumes[base].unmarked = False, True
    lab.cached.append(SimpleNamespace(sha256="", path=Path("/cache/disk")))
    drift = only(lab.findings()).drift
    assert not drift.repairable
    assert "is not known: no image in the cache has its content" in drift.action
    assert "can't be read" not in drift.action


def test_a_payload_cd_without_its_marker_is_made_again(lab: Standing) -> None:
    """ux N6: it was not noticed, and the next create uploaded the CD again."""
    lab.pool.volumes["base-kubernetes-windows-1.iso"].whole = False
    finding = only(lab.findings())
    assert reported([finding.drift]) == [("node-1", "base-kubernetes-windows-1.iso: marker", "there", "gone", True)]
    assert (finding.steps, finding.lab_steps) == ((PAYLOAD_INSERTED,), (PAYLOAD,))
