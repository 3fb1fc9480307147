"""What inspections report of an existing lab: nothing while it is as planned, and each difference."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import runs
import sites
import standing
from standing import POOL, Standing

from winlab import files
from winlab.adapters.overlay.differences import Difference
from winlab.design.catalog.artifact import Program
from winlab.errors import ClusterError, GuestError, HostError
from winlab.events import Quiet
from winlab.operations.drift import volumes
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.steps import paused, payload
from winlab.steps.states import (
    API,
    BOOTED,
    DRIVE_FREE,
    MEMBER,
    PAYLOAD,
    PAYLOAD_INSERTED,
    PREPARED,
    READY,
    ROUTES,
    STARTED,
)
from winlab.supply.artifacts import store

DISK = "lab.controller-1.disk.qcow2"
THIRD = "lab.controller-1.disk-3.qcow2"
NODE_DOMAIN = "winlab-lab.controller-1"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Standing:
    return standing.stand(monkeypatch, tmp_path)


def told(drifts: list[Drift]) -> list[tuple[str, str, str, str, bool]]:
    return [(one.node, one.what, one.expected, one.actual, one.mendable) for one in drifts]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, [one.drift for one in findings]
    return findings[0]


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("1-1-1", ()),
        ("3-2-1", ()),
        ("1-1-1", ("workers.bus=sata", "workers.golden=false")),
        ("1-1-1", ("linux_workers.count=1", "network.cni=host-gw")),
        ("1-1-1", ("workers.firmware=bios", "controllers.memory=4GiB")),
    ],
)
def test_a_lab_that_is_as_planned_has_no_drift(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, changes: tuple[str, ...]
) -> None:
    assert standing.stand(monkeypatch, tmp_path, source, *changes).drifts(digests=True) == []


def test_files_for_the_first_boot_may_be_gone(lab: Standing) -> None:
    """The seed and its disk removed, the payload CD ejected."""
    seed = next(one.name for one in lab.plan.node("controller-1").volumes if one.role == "seed")
    del lab.pool.volumes[seed]
    xml = lab.xml["winlab-lab.controller-1"]
    begin = xml.rindex("<disk", 0, xml.index(seed))
    end = xml.index("</disk>", begin) + len("</disk>")
    lab.change("controller-1", xml[begin:end], "", live=True)
    cd = f'<source file="{POOL}/base-kubernetes-windows-1.iso"/>'
    lab.change("node-1", cd, "", live=True)
    assert lab.drifts() == []


# -- folder


def test_files_of_the_folder(lab: Standing) -> None:
    lab.folder.known_hosts.unlink()
    lab.folder.ca.write_text("another")
    lab.folder.ssh_key.chmod(0o644)
    findings = lab.findings()
    assert told([one.drift for one in findings]) == [
        ("", "id_ed25519", "as made from the credentials", "open to others (0644)", True),
        ("", "ca.pem", "as made from the credentials", "other content", True),
        ("", "known_hosts", "as made from the credentials", "missing", True),
    ]
    key = lab.folder.credentials().ssh_key
    assert findings[2].repair is not None
    findings[2].repair(Quiet())
    assert lab.drifts() == []
    assert lab.folder.ssh_key.read_text() == key  # the same keys: the nodes have them


def test_lost_credentials_are_not_recreated(lab: Standing) -> None:
    (lab.folder.path / "credentials.json").unlink()
    finding = lab.findings()[0]
    assert finding.drift.what == "credentials.json"
    assert (finding.drift.mendable, finding.repair) == (False, None)


def test_kubeconfig_and_kubectl(lab: Standing) -> None:
    lab.folder.kubeconfig.unlink()  # the link now leads nowhere
    first, second = lab.findings()
    assert (first.drift.what, first.drift.actual) == ("kubectl", "leads nowhere")
    assert (second.drift.what, second.lab_steps) == ("kubeconfig", (API,))
    lab.folder.write(lab.folder.kubeconfig, "x", 0o644)
    assert told(lab.drifts()) == [("", "kubeconfig", "there", "open to others (0644)", True)]
    assert lab.drifts(cluster=False) == []


def test_a_kubectl_that_has_changed_in_the_cache_is_obtained_again(
    lab: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def obtained() -> Path:
        (tmp_path / "made").write_bytes(b"ELF")
        return store.keep(store.key({"a": 1}), Program("kubectl", "v1.36.3", "linux"), tmp_path / "made", "here").path

    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    files.replace_link(lab.folder.kubectl, obtained())
    assert lab.drifts() == []
    changed = lab.folder.kubectl.resolve()
    changed.chmod(0o600)
    changed.write_bytes(b"ELE")
    (finding,) = lab.findings()
    assert (finding.drift.what, finding.drift.actual) == ("kubectl", "not what was obtained")
    assert finding.repair is not None
    monkeypatch.setattr(payload, "fetch_kubectl", lambda *_: obtained())
    finding.repair(Quiet())
    assert lab.folder.kubectl.read_bytes() == b"ELF"
    assert lab.drifts() == []


# -- network


def test_rows(lab: Standing) -> None:
    lab.overlay.differs = [
        Difference("NAT dnat_and_snat 1.2.3.4 10.77.0.11", "there", ""),
        Difference("Logical_Switch_Port stray", "", "there", foreign=True),
        Difference("DHCP_Options 10.77.0.0/24: options", "a=b", "a=c"),
    ]
    findings = lab.findings()
    assert told([one.drift for one in findings]) == [
        ("", "NAT dnat_and_snat 1.2.3.4 10.77.0.11", "there", "none", True),
        ("", "Logical_Switch_Port stray", "none", "there", False),
        ("", "DHCP_Options 10.77.0.0/24: options", "a=b", "a=c", True),
    ]
    assert "left alone" in findings[1].drift.action
    for one in findings:
        if one.repair is not None:
            one.repair(Quiet())
    assert lab.overlay.mended == 1  # one change repairs all of them
    assert [one.what for one in lab.drifts()] == ["Logical_Switch_Port stray"]


def test_a_port_of_the_switch_is_named_by_its_node(lab: Standing) -> None:
    """ux N19: repair named 'Logical_Switch_Port 9bf1f3a5-...', of no node."""
    port = lab.plan.node("node-1").port
    lab.overlay.differs = [
        Difference(f"Logical_Switch_Port {port}", "there", ""),
        Difference(f"Logical_Switch_Port {port}: addresses", "a", "b"),
        Difference(f"Logical_Switch_Port {port}-other", "", "there", foreign=True),
    ]
    assert told(lab.drifts()) == [
        ("node-1", "port in OVN", "there", "none", True),
        ("node-1", "port in OVN: addresses", "a", "b", True),
        ("", f"Logical_Switch_Port {port}-other", "none", "there", False),
    ]
    assert [one.node for one in lab.drifts("controller-1")] == [""]


def test_daemons_that_do_not_follow(lab: Standing) -> None:
    lab.overlay.follows = False
    assert told(lab.drifts()) == [("", "OVN's daemons", "follow the database", "OVN's northd does not follow.", False)]


@pytest.mark.parametrize(
    ("user", "trouble", "mendable"), [(0, "is down", True), (0, "is missing", False), (1, "is down", False)]
)
def test_the_bridge(lab: Standing, monkeypatch: pytest.MonkeyPatch, user: int, trouble: str, mendable: bool) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    lab.bridge = trouble
    lab.guests["node-1"].answers = False  # an unreachable guest is not asked
    assert told(lab.drifts()) == [("", "bridge br-winlab", "172.31.240.1/20", trouble, mendable)]
    assert mendable or "sudo winlab host setup" in lab.drifts()[0].action
    monkeypatch.setenv("WINLAB_OVN_NB", "tcp:192.0.2.1:6641")  # another host's bridge can't be seen
    assert [one.what for one in lab.drifts()] == ["login"]


@pytest.mark.parametrize("user", [0, 1])
def test_the_firewall(lab: Standing, monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    lab.firewall = "is missing"
    finding = only(lab.findings())
    assert told([finding.drift]) == [("", "firewall table inet winlab", "as setup writes it", "is missing", user == 0)]
    if finding.repair is None:
        assert finding.drift.action == "run 'sudo winlab host setup'"
        return
    finding.repair(Quiet())
    assert lab.drifts() == []


def test_a_port_that_is_not_bound(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    node = lab.plan.node("node-1")
    lab.overlay.up[node.port] = False
    lab.change("node-1", f'<mac address="{node.mac}"/>', f'<mac address="{node.mac}"/><target dev="vnet7"/>', live=True)
    drift = only(lab.findings()).drift
    assert (drift.node, drift.actual, drift.mendable) == ("node-1", "not bound", True)
    lab.plugged[node.port] = "vnet7"  # it exists, so plugging it in does not help
    assert not lab.drifts()[0].mendable
    lab.states[node.domain] = "off"  # its port is gone with it
    assert [one.what for one in lab.drifts()] == ["state"]


# -- volumes


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
    assert told([finding.drift]) == [(node, f"lab.{node}.disk.qcow2", "there", "gone", False)]
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
    seen = told(lab.drifts())
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
    assert (found.drift.mendable, found.steps, found.lab_steps) == (True, (PAYLOAD_INSERTED,), (PAYLOAD,))


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
    assert (drift.what, drift.actual, drift.mendable) == (base, actual, False)
    lab.cached.append(SimpleNamespace(sha256="aa", path=Path("/cache/disk")))  # the same bytes
    finding = only(lab.findings(digests=digests))
    assert finding.drift.mendable
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
    assert told([finding.drift]) == [("", f"{base}: marker", "there", "gone", True)]
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
    assert not drift.mendable
    assert "is not known: no image in the cache has its content" in drift.action
    assert "can't be read" not in drift.action


def test_a_payload_cd_without_its_marker_is_made_again(lab: Standing) -> None:
    """ux N6: it was not noticed, and the next create uploaded the CD again."""
    lab.pool.volumes["base-kubernetes-windows-1.iso"].whole = False
    finding = only(lab.findings())
    assert told([finding.drift]) == [("node-1", "base-kubernetes-windows-1.iso: marker", "there", "gone", True)]
    assert (finding.steps, finding.lab_steps) == ((PAYLOAD_INSERTED,), (PAYLOAD,))


# -- machines


@pytest.mark.parametrize(("state", "action"), [("paused", "resumed"), ("off", "started"), ("crashed", "started")])
def test_a_machine_that_does_not_run(lab: Standing, state: str, action: str) -> None:
    lab.states["winlab-lab.node-1"] = state
    finding = only(lab.findings())
    assert told([finding.drift]) == [("node-1", "state", "running", state, True)]
    assert finding.drift.action == action
    assert finding.steps == (STARTED,)


def test_an_interrupted_first_boot_is_reported_and_left_alone(lab: Standing) -> None:
    """Only create gives a machine a new disk."""
    domain = "winlab-lab.node-1"
    lab.states[domain] = "off"
    lab.booting.add(domain)
    lab.pool.add("lab.node-1.serial.log", content=b"winlab: phase=windowsPE\r\n")
    drift = only(lab.findings()).drift
    assert not drift.mendable
    assert "Run the lab's create command again" in drift.action


def test_a_machine_whose_disk_failed_is_left_paused(lab: Standing) -> None:
    lab.states["winlab-lab.node-1"], lab.disk_trouble = "paused", "failed"
    lab.pool.free = lambda: paused.ROOM  # type: ignore[attr-defined]
    drift = only(lab.findings()).drift
    assert not drift.mendable
    assert "virsh resume winlab-lab.node-1" in drift.action


def test_a_machine_that_was_undefined_gets_its_disk_back(lab: Standing) -> None:
    """create would make a new disk for it."""
    before = lab.xml.pop("winlab-lab.controller-1")
    lab.states["winlab-lab.controller-1"] = "gone"
    finding = only(lab.findings())
    assert finding.drift.actual == "gone"
    assert finding.repair is not None
    finding.repair(Quiet())
    lab.states["winlab-lab.controller-1"] = "running"
    assert DISK in before
    assert DISK in lab.xml["winlab-lab.controller-1"]
    assert lab.drifts() == []


NODE = "controller-1"
BY_HAND = [
    ("<vcpu>2</vcpu>", "<vcpu>8</vcpu>", "CPUs"),
    ('<memory unit="MiB">3072</memory>', '<memory unit="KiB">1048576</memory>', "memory"),
    (' firmware="efi"', "", "firmware"),
    ('listen="127.0.0.1"', 'listen="0.0.0.0"', "screen"),
    ("<mac address=\"", "<mac address=\"52:54:00:00:00:01\" was=\"", "network interface"),
    ("interfaceid=\"", "interfaceid=\"another\" was=\"", "network interface"),
    ('<source bridge="br-int"/>', '<source bridge="virbr0"/>', "network interface"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "what"), BY_HAND)
def test_hardware_changed_manually_is_defined_again(lab: Standing, old: str, new: str, what: str) -> None:
    planned = lab.xml[f"winlab-lab.{NODE}"]
    lab.change(NODE, old, new)
    finding = only(lab.findings())
    assert (finding.drift.node, finding.drift.what, finding.drift.mendable) == (NODE, what, True)
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.drifts() == []
    lab.xml[f"winlab-lab.{NODE}"], lab.live[f"winlab-lab.{NODE}"] = planned, planned.replace(old, new)
    drift = only(lab.findings()).drift  # it only runs so: it is as planned when it is started again
    assert (drift.what, drift.mendable) == (f"{what} while it runs", False)
    assert f"winlab restart {NODE}" in drift.action


@pytest.mark.parametrize(
    ("xml", "what"),
    [
        (
            '<disk type="file" device="disk"><source file="/pool/other.img"/><target dev="vdz" bus="virtio"/></disk>',
            "disk vdz",
        ),
        (
            '<disk type="block" device="disk"><source dev="/dev/sdb"/><target dev="vdz" bus="virtio"/></disk>',
            "disk vdz",
        ),
        (
            '<interface type="network"><mac address="52:54:00:00:00:09"/><source network="default"/></interface>',
            "network interface 52:54:00:00:00:09",
        ),
        ('<hostdev mode="subsystem" type="usb"/>', "hostdev usb"),
        ('<filesystem type="mount"/>', "filesystem mount"),
    ],
)
def test_unknown_devices_are_reported_and_kept(lab: Standing, xml: str, what: str) -> None:
    lab.change(NODE, "</devices>", f"{xml}</devices>", live=True)
    finding = only(lab.findings())
    assert told([finding.drift]) == [(NODE, what, "none", finding.drift.actual, False)]
    assert finding.repair is None
    lab.change(NODE, "<vcpu>2</vcpu>", "<vcpu>8</vcpu>")
    cpus = next(one for one in lab.findings() if one.drift.what == "CPUs")
    assert cpus.repair is not None
    cpus.repair(Quiet())
    assert [one.what for one in lab.drifts()] == [what]


def test_another_file_in_the_place_of_a_disk_is_left_alone(lab: Standing) -> None:
    """A snapshot: later writes are in the other file."""
    lab.pool.add("lab.controller-1.disk.snapshot", backing=lab.plan.node(NODE).volume("base").name)
    lab.change(NODE, DISK, "lab.controller-1.disk.snapshot", live=True)
    drift = only(lab.findings()).drift
    assert (drift.what, drift.mendable) == ("disk vda", False)
    assert "snapshot" in drift.actual


def test_a_detached_disk_is_attached_again(lab: Standing) -> None:
    """Also the one with containerd's store, which the machine got after its first start."""
    store = f"lab.{NODE}.store.qcow2"
    lab.pool.add(store, backing=lab.plan.node(NODE).volume("base").name)
    assert told(lab.drifts())[0][1:4] == ("disk sdc", f"{store} (disk on scsi)", "none")
    finding = lab.findings()[0]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert [one.what for one in lab.drifts()] == ["disk sdc while it runs"]


def on_later_generations(lab: Standing) -> None:
    """The node's disk is the third one, over two frozen ones; its store is the second, made beside a frozen one."""
    base = lab.plan.node(NODE).volume("base").name
    size = lab.plan.node(NODE).disk_mib
    lab.pool.add("lab.controller-1.disk-2.qcow2", backing=DISK, size=size)
    lab.pool.add(THIRD, backing="lab.controller-1.disk-2.qcow2", size=size)
    lab.pool.add("lab.controller-1.store.qcow2", backing=base)
    lab.pool.add("lab@ready.controller-1.store.qcow2", backing="lab.controller-1.store.qcow2")
    lab.pool.add("lab.controller-1.store-2.qcow2", backing=base)
    lab.change(NODE, DISK, THIRD, live=True)


def test_disks_of_later_generations_are_as_planned(lab: Standing) -> None:
    on_later_generations(lab)
    assert told(lab.drifts())[0][1:4] == ("disk sdc", "lab.controller-1.store-2.qcow2 (disk on scsi)", "none")
    finding = lab.findings()[0]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert [one.what for one in lab.drifts()] == ["disk sdc while it runs"]
    lab.live[NODE_DOMAIN] = lab.xml[NODE_DOMAIN]
    assert lab.drifts() == []
    lab.xml.pop(NODE_DOMAIN)
    lab.states[NODE_DOMAIN] = "gone"
    finding = only(lab.findings())
    assert finding.repair is not None
    finding.repair(Quiet())
    assert f'{THIRD}"' in lab.xml[NODE_DOMAIN]


def test_a_frozen_store_of_an_earlier_lab_is_not_attached(lab: Standing) -> None:
    lab.pool.add("lab.node-1.store.qcow2", backing=lab.plan.node(NODE).volume("base").name)
    lab.pool.add("lab@ready.node-1.store.qcow2", backing="lab.node-1.store.qcow2")
    assert lab.drifts() == []


@pytest.mark.parametrize("lost", [DISK, THIRD])
def test_a_lost_generation_is_reported(lab: Standing, lost: str) -> None:
    on_later_generations(lab)
    lab.pool.volumes.pop(lost)
    drifts = [one for one in lab.drifts() if one.area == "volume"]
    assert told(drifts) == [(NODE, lost, "there", "gone", False)]
    assert "destroy the lab" in drifts[0].action


# -- nodes and cluster


def test_clocks(lab: Standing) -> None:
    """A clock that is never set may be a little wrong, and an injected fault is not drift."""
    lab.guests["controller-1"].ahead, lab.guests["node-1"].ahead = 20.0, -3600.0
    (finding,) = lab.findings()
    assert told([finding.drift]) == [("node-1", "clock", "as the host's", "3600 s behind", True)]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.findings() == []
    lab.skew = 7200.0
    assert {one.drift.actual for one in lab.findings()} == {"7180 s behind", "7200 s behind"}
    lab.guests["controller-1"].ahead = lab.guests["node-1"].ahead = 7200.0
    assert lab.findings() == []


def test_services(lab: Standing) -> None:
    guest = lab.guests["controller-1"]
    guest.services |= {"kubelet": "stopped"}
    lab.guests["node-1"].services |= {"containerd": "absent"}
    first, second = lab.findings()
    assert told([first.drift, second.drift]) == [
        ("controller-1", "kubelet", "running", "stopped", True),
        ("node-1", "containerd", "running", "absent", True),
    ]
    assert first.tier < second.tier  # a join needs the API server, which a kubelet runs
    assert first.repair is not None
    first.repair(Quiet())
    assert guest.did == ["start kubelet"]
    assert MEMBER in second.steps


def test_a_changed_file_is_reported_before_services(lab: Standing) -> None:
    guest = lab.guests["controller-1"]
    guest.changed = {"/etc/containerd/config.toml": PREPARED}
    guest.services |= {"containerd": "stopped"}
    stopped, changed = lab.findings()
    assert (changed.drift.what, changed.drift.actual, changed.drift.mendable) == (
        "/etc/containerd/config.toml",
        "differs",
        True,
    )
    assert changed.steps == (PAYLOAD_INSERTED, PREPARED)
    assert changed.tier < stopped.tier  # a service may not start because of its configuration


def test_names_from_a_guest_are_printable_and_bounded(lab: Standing) -> None:
    lab.guests["controller-1"].changed = {f"\x1b[2J{number}{'x' * 400}": PREPARED for number in range(300)}
    found = lab.drifts()
    assert len(found) == 200
    assert all("\x1b" not in one.what and len(one.what) <= 300 for one in found)


def test_a_kube_proxy_whose_network_was_recreated_is_restarted(lab: Standing) -> None:
    lab.guests["node-1"].services |= {"kube-proxy": "stale"}
    (finding,) = lab.findings()
    assert told([finding.drift]) == [("node-1", "kube-proxy", "running", "stale", True)]
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.guests["node-1"].did == ["start kube-proxy"]


def test_a_worker_that_is_not_a_member_joins_and_a_controller_is_not_reset(lab: Standing) -> None:
    for guest in lab.guests.values():
        guest.joined = False
    controller, worker = lab.findings()
    assert (controller.drift.node, controller.drift.mendable, controller.steps) == ("controller-1", False, ())
    assert (worker.drift.node, worker.drift.mendable) == ("node-1", True)
    assert MEMBER in worker.steps


def test_a_guest_that_does_not_answer(lab: Standing) -> None:
    lab.guests["node-1"].answers = False
    assert only(lab.findings()).steps == (BOOTED, DRIVE_FREE)
    lab.folder.kubectl.unlink()
    assert [one.what for one in lab.drifts()] == ["kubectl", "login"]  # which is not the reason
    lab.folder.kubectl.symlink_to(lab.folder.kubeconfig)
    lab.overlay.differs = [Difference("NAT x", "there", "")]  # it may be why
    assert [one.what for one in lab.drifts()] == ["NAT x"]
    lab.overlay.differs = []
    lab.guests["node-1"].answers, lab.guests["node-1"].error = True, GuestError("It refused.", cure="Look at it.")
    assert told(lab.drifts()) == [("node-1", "login", "answers", "It refused.", False)]


def test_a_node_that_the_cluster_has_forgotten(lab: Standing) -> None:
    del lab.rows["node-1"]
    finding = only(lab.findings())
    assert told([finding.drift]) == [("node-1", "node", "there", "gone", True)]
    assert (READY in finding.steps, finding.lab_steps) == (True, (ROUTES,))
    assert finding.repair is not None
    finding.repair(Quiet())
    assert lab.guests["node-1"].did == ["restart kubelet"]
    assert lab.drifts("controller-1") == []  # of another node


def test_a_node_that_is_not_ready(lab: Standing) -> None:
    lab.rows["node-1"]["status"]["conditions"][0] |= {"status": "Unknown", "message": "no word from the kubelet"}
    finding = only(lab.findings())
    assert "no word from the kubelet" in finding.drift.actual
    assert finding.steps == (READY,)
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert [one.what for one in lab.drifts()] == ["kubelet"]  # which is why


def test_an_api_server_that_does_not_answer(lab: Standing) -> None:
    lab.api = ClusterError("kubectl get failed.", why="connection refused")
    assert told(lab.drifts()) == [("", "API server", "answers", "connection refused", True)]
    lab.states["winlab-lab.controller-1"] = "paused"
    assert [one.what for one in lab.drifts()] == ["state"]


def test_routes_to_pods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lab = standing.stand(monkeypatch, tmp_path, "1-1-1", "network.cni=l3")
    assert lab.overlay.routes  # the profile has some
    cidr, hop = lab.overlay.routes.popitem()
    lab.overlay.routes["10.244.99.0/24"] = "10.77.0.99"
    assert told(lab.drifts()) == [
        ("", f"route to pods {cidr}", hop, "none", True),
        ("", "route to pods 10.244.99.0/24", "none", "10.77.0.99", True),
    ]
    assert {one.lab_steps for one in lab.findings()} == {(ROUTES,)}


# -- together


def test_a_failed_inspection_is_reported_and_the_others_continue(
    lab: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_topology: object) -> None:
        raise HostError("OVN does not answer.", cure="Run setup.")

    monkeypatch.setattr(lab.overlay, "differences", refuse)
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert told(lab.drifts()) == [
        ("", "inspection of rows", "possible", "OVN does not answer.", False),
        ("node-1", "kubelet", "running", "stopped", True),
    ]


def test_only_one_node_is_inspected(lab: Standing) -> None:
    lab.states["winlab-lab.controller-1"] = "off"
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert [one.node for one in lab.drifts("node-1")] == ["node-1"]
