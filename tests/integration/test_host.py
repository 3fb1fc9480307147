"""Setup, teardown and doctor, for real, without touching this host.

Each test runs in namespaces of its own (mounts, network, processes), on an overlay over the host's root file system:
what it starts, writes and configures is gone with it. They need root, overlayfs, and the packages of docs/host.md.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from winlab.run import run

pytestmark = pytest.mark.integration

# The new root is an overlay: nothing that is removed below "chroot" is removed from the host.
SANDBOX = r"""
set -eu
base=$1; shift
mount --make-rprivate /
mount -t tmpfs -o size=2g tmpfs "$base"
mkdir "$base/up" "$base/work" "$base/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$base/up,workdir=$base/work" "$base/root"
mount --bind "$(dirname "$1")" "$base/root/mnt"
cd "$base/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
for folder in dev run tmp; do mount -t tmpfs tmpfs $folder; done
mkdir -p ".$2"; mount --bind "$2" ".$2"  # the checkout, which may be under /tmp
mkdir -p dev/net dev/pts run/lock
mknod -m 666 dev/null c 1 3; mknod -m 666 dev/zero c 1 5; mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8; mknod -m 666 dev/urandom c 1 9; mknod -m 666 dev/tty c 5 0
mknod -m 600 dev/kvm c 10 232; mknod -m 600 dev/net/tun c 10 200
mount -t devpts devpts dev/pts
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/0 dev/stdin
ip link set lo up
echo 0 > /proc/sys/net/ipv4/ip_forward
echo 0 > /proc/sys/net/ipv4/conf/all/arp_ignore
exec chroot . /bin/sh -euc '
  rm -rf /etc/winlab /var/lib/winlab /etc/systemd/system/winlab*
  # A folder made anew hides what happens in the one below: the host may be in use meanwhile.
  for folder in /etc/libvirt/storage /etc/libvirt/qemu /var/lib/libvirt/qemu /var/lib/ovn /var/lib/openvswitch; do
    mkdir -p $folder  # some are made by libvirt itself, when it first runs
    owner=$(stat -c %u:%g $folder)
    until rm -rf $folder; do sleep 0.1; done  # a file may appear in the one below
    mkdir $folder; chown $owner $folder
  done
  cd "$0"; python=$1; shift; "$python" "$@"' "$2" "$3" "/mnt/$(basename "$1")"
"""

PRELUDE = """
import contextlib, json, os, sys, grp
from pathlib import Path
from winlab import settings
from winlab.errors import WinlabError
from winlab.host import changes, daemons, doctor, fabric, facts, kvmprobe, labs, setup as module
from winlab.run import run

class Told:
    def __init__(self): self.lines = []
    def say(self, text, fraction=None): self.lines.append(text)

def setup(**options):
    told = Told()
    found = module.setup(told, module.Wanted(**options))
    return found, told.lines

def teardown(**options):
    told = Told()
    module.teardown(told, **options)
    return told.lines

def processes():
    "The names of all that run; not what has ended, and nobody has asked how."
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] != "Z": found.append(name)
    return sorted(found)

def state():
    "What teardown must put back."
    links = sorted(link["ifname"] for link in json.loads(run(["ip", "-j", "addr"]).stdout))
    files = [str(path) for top in ("/etc/winlab", "/var/lib/winlab", "/run/winlab", "/etc/libvirt/storage")
             for path in [Path(top), *Path(top).rglob("*")] if path.exists() and path.name != "autostart"]
    kvm = os.stat("/dev/kvm")
    sysctl = [Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in ("ip_forward", "conf/all/arp_ignore")]
    return {"links": links, "processes": processes(), "files": files, "kvm": [kvm.st_gid, kvm.st_mode],
            "sysctl": sysctl, "nft": run(["nft", "list", "ruleset"]).stdout}

def reboot():
    "As far as processes, links and /run go; nothing runs setup after it, for there is no systemd."
    for name in ("libvirtd", "virtlogd"): os.kill(int(Path(f"/run/{name}.pid").read_text()), 9)
    for part in ("stop_controller", "stop_northd"): run([daemons.OVN_CTL, part])
    run([daemons.OVS_CTL, "stop"])
    run(["nft", "delete", "table", "inet", "winlab"])
    for link in ("br-int", "br-winlab"): run(["ip", "link", "delete", link], check=False)
    run(["sh", "-c", "rm -rf /run/winlab /run/libvirt /run/*.pid; chown root:root /dev/kvm; chmod 600 /dev/kvm"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0")
    daemons.boot_id = lambda: "another boot"

def diagnose():
    "The checks, each with its reason, and with its cure unless it is well."
    found = doctor.diagnose()
    for check in found:
        assert check.detail and check.why and (check.state == "ok" or check.cure), check
    return found

quick = kvmprobe.Probe(False, 0.0, "not tried in this test")
kvmprobe.probe_kvm = lambda: quick
out = {}
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Any:
    """A function that runs Python lines in a sandbox and returns the dictionary ``out`` that they fill."""
    assert os.geteuid() == 0, "the sandbox needs root"
    assert "overlay" in Path("/proc/filesystems").read_text(), "the sandbox needs overlayfs"
    root = Path(__file__).resolve().parents[2]
    script, base = tmp_path / "script.sh", tmp_path / "base"
    script.write_text(SANDBOX)
    base.mkdir()

    def execute(lines: str) -> dict[str, Any]:
        work = tmp_path / "lines"
        work.mkdir(exist_ok=True)
        (work / "lines.py").write_text(f"{PRELUDE}\n{lines}\nprint('OUT' + json.dumps(out))\n")
        unshare = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child"]
        words = [*unshare, "sh", script, base, work / "lines.py", root, sys.executable]
        done = run(words, check=False, timeout=180, env={"PYTHONPATH": str(root)})
        found = [line for line in done.stdout.splitlines() if line.startswith("OUT")]
        assert found, f"{done.stdout}\n{done.stderr}"
        return dict(json.loads(found[-1].removeprefix("OUT")))

    return execute


def test_teardown_undoes_setup_and_a_second_setup_changes_nothing(sandbox: Any) -> None:
    out = sandbox(
        """
out["before"] = state()
first, lines = setup()
out["facts"] = first.model_dump()
record = changes.CHANGES_FILE.read_text()
second, out["second"] = setup()
out["same"] = first == second == facts.read_facts() and record == changes.CHANGES_FILE.read_text()
out["checks"] = {check.name: (check.state, check.detail) for check in diagnose()}
out["listening"] = run(["ss", "-Hltn"]).stdout
teardown()
out["after"] = state()
out["again"] = teardown()
out["last"] = state()
"""
    )
    assert out["facts"]["external_cidr"] == "172.31.240.0/20"
    assert out["facts"]["chassis"]
    assert out["same"]
    stages = {"checking the host's networks", "virtualisation", "network", "trying KVM", "the host is ready"}
    assert {line for line in out["second"] if "KVM does not work" not in line} == stages
    failed = {name: detail for name, (state, detail) in out["checks"].items() if state == "fail" and name != "disk"}
    assert not failed
    assert out["listening"] == ""  # OVN and libvirt listen on local sockets only
    assert out["after"] == out["before"] == out["last"]
    assert out["again"] == ["there is nothing to undo"]


def test_lives_beside_docker_and_another_use_of_ovn(sandbox: Any) -> None:
    out = sandbox(
        """
run([daemons.OVS_CTL, "start", "--system-id=mine"])
run([daemons.OVN_CTL, "start_northd"])
run(["ovs-vsctl", "add-br", "br-foreign", "--", "set", "bridge", "br-foreign", "datapath_type=netdev"])
run(["ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings=phys:br-foreign"])
run(["ovn-nbctl", "set-connection", "punix:/run/ovn/other.sock"])
run(["ovn-nbctl", "ls-add", "foreign"])
run(["iptables", "-P", "FORWARD", "DROP"]); run(["iptables", "-N", "DOCKER-USER"])
run(["iptables", "-A", "FORWARD", "-j", "DOCKER-USER"])
before = state()
found, lines = setup()
out["chassis"] = found.chassis
out["mappings"] = fabric.ovs_ids()["ovn-bridge-mappings"]
out["connections"] = sorted(run(["ovn-nbctl", "get-connection"]).stdout.split())
out["rules"] = run(["iptables", "-S", "DOCKER-USER"]).stdout
out["internet access"] = {check.name: check.state for check in diagnose()}["internet access"]
setup()
out["rules again"] = run(["iptables", "-S", "DOCKER-USER"]).stdout
teardown()
after = state()
out["left"] = {key: (before[key], after[key]) for key in before if before[key] != after[key] and key != "processes"}
out["mappings after"] = fabric.ovs_ids().get("ovn-bridge-mappings")
out["ids after"] = sorted(key for key in fabric.ovs_ids() if key.startswith("ovn"))
out["connections after"] = run(["ovn-nbctl", "get-connection"]).stdout.split()
out["switches after"] = run(["ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Switch"]).stdout.split()
out["bridges after"] = fabric.bridges()
out["up"] = [daemons.ovs_up(), daemons.northd_up(), daemons.controller_up(), daemons.libvirt_up()]
"""
    )
    assert out["chassis"] == "mine"
    assert out["mappings"] == "phys:br-foreign,winlab:br-winlab"
    assert out["connections"] == ["punix:/run/ovn/other.sock", "punix:/run/winlab/ovnnb.sock"]
    assert out["rules"].count("--comment winlab -j ACCEPT") == 2
    assert out["rules again"] == out["rules"]
    assert out["internet access"] == "ok"
    assert out["left"] == {}
    assert out["mappings after"] == "phys:br-foreign"
    assert out["ids after"] == ["ovn-bridge-mappings"]
    assert out["connections after"] == ["punix:/run/ovn/other.sock"]
    assert out["switches after"] == ["foreign"]
    assert out["bridges after"] == ["br-foreign"]
    assert out["up"] == [True, True, False, False]  # what ran before still runs, the rest does not


def test_ovn_controller_s_own_bridge_does_not_choose_the_datapath(sandbox: Any) -> None:
    """With systemd it runs as soon as its package is installed, and makes one for the kernel's datapath."""
    out = sandbox(
        """
run([daemons.OVS_CTL, "start", "--system-id=mine"])
run([daemons.OVN_CTL, "start_controller"])
kind = lambda: run(["ovs-vsctl", "get", "bridge", "br-int", "datapath_type"], check=False).stdout.strip()
daemons.wait_until(kind, 60)
out["kinds"] = [kind()]
kernel = run(["ovs-dpctl", "add-dp", "it-probe"], check=False).returncode == 0 and "system"
if kernel: run(["ovs-dpctl", "del-dp", "it-probe"])
out["works"] = kernel or "netdev"
found, lines = setup()
out["kinds"] += [found.datapath, kind()]
out["checks"] = {check.name: check.state for check in diagnose() if check.state == "fail" and check.name != "disk"}
out["made"] = changes.Record().changes.bridges
"""
    )
    assert out["kinds"] == ["system", out["works"], out["works"]]
    assert out["checks"] == {}
    assert out["made"] == ["br-winlab"]


def test_teardown_refuses_while_there_are_labs(sandbox: Any) -> None:
    out = sandbox(
        """
setup()
run(["ovn-nbctl", "ls-add", "inner", "--", "set", "Logical_Switch", "inner", "external_ids:winlab=demo"])
(settings.POOL_PATH / "demo.node-1.disk.qcow2").write_text("x")
try:
    teardown()
except WinlabError as error:
    out["error"] = [type(error).__name__, error.what]
out["still"] = daemons.northd_up() and settings.NB_SOCKET.exists()
teardown(force=True)
out["after"] = state()["files"]
"""
    )
    assert out["error"] == ["ConflictError", "This host still has labs: demo."]
    assert out["still"]
    assert out["after"] == ["/etc/libvirt/storage"]


def test_repairs_a_host_after_a_reboot(sandbox: Any) -> None:
    out = sandbox(
        """
setup()
ids = ["external_ids:iface-id=it", "external_ids:vm-id=it"]  # as libvirt plugs a machine in
for name in ("it-gone", "it-alive"):
    run(["ovs-vsctl", "--no-wait", "add-port", "br-int", name, "--", "set", "Interface", name, *ids])
run(["ovs-vsctl", "--no-wait", "add-port", "br-int", "it-other"])
run(["ip", "tuntap", "add", "dev", "it-alive", "mode", "tap"])
reboot()
out["broken"] = sorted(check.name for check in diagnose() if check.state == "fail")
run([daemons.OVN_CTL, "start_northd"])  # before the folder of the socket is there
setup()
out["repaired"] = sorted(check.name for check in diagnose() if check.state == "fail" and check.name != "disk")
out["ports"] = [name for name in run(["ovs-vsctl", "list-ports", "br-int"]).stdout.split() if name.startswith("it-")]
for name in out["ports"]: run(["ovs-vsctl", "del-port", "br-int", name])
run(["ip", "link", "delete", "it-alive"])
teardown()
out["after"] = state()["files"]
"""
    )
    assert {"/dev/kvm", "libvirt", "Open vSwitch", "OVN northbound", "bridge br-winlab"} <= set(out["broken"])
    assert out["repaired"] == []
    assert sorted(out["ports"]) == ["it-alive", "it-other"]
    assert out["after"] == ["/etc/libvirt/storage"]


def test_undoes_all_after_a_reboot_that_left_everything_down(sandbox: Any) -> None:
    out = sandbox(
        """
out["before"] = state()
setup()
run(["ovs-vsctl", "add-br", "br-foreign", "--", "set", "bridge", "br-foreign", "datapath_type=netdev"])
run(["ovn-nbctl", "ls-add", "inner", "--", "set", "Logical_Switch", "inner", "external_ids:winlab=demo"])
reboot()
record = changes.CHANGES_FILE.read_text()
out["down"] = state()["processes"]
try:
    teardown()
except WinlabError as error:
    out["refused"] = [type(error).__name__, error.what]
out["down again"] = state()["processes"]
out["kept"] = record == changes.CHANGES_FILE.read_text()
away = Path("/usr/share/ovn/scripts/away")
daemons.OVN_CTL.rename(away)
try:
    teardown()
except WinlabError as error:
    out["failed"] = [type(error).__name__, str(error)]
away.rename(daemons.OVN_CTL)
out["down yet"] = state()["processes"]
out["kept yet"] = record == changes.CHANGES_FILE.read_text()
out["said"] = teardown(force=True)
out["after"] = state()
starts = ([daemons.OVS_CTL, "start"], [daemons.OVN_CTL, "start_northd"], ["virtlogd", "-d"], ["libvirtd", "-d"])
for words in starts: run(words)
daemons.wait_until(daemons.libvirt_up, 20)
out["bridges"] = fabric.bridges()
out["ids"] = sorted(key for key in fabric.ovs_ids() if key.startswith("ovn"))
out["switches"] = run(["ovn-nbctl", "--bare", "--columns=name", "list", "Logical_Switch"]).stdout.split()
out["connections"] = run(["ovn-nbctl", "get-connection"]).stdout.split()
out["pools"] = run(["virsh", "-q", "pool-list", "--all", "--name"]).stdout.split()
"""
    )
    assert out["down"] == out["down again"] == out["down yet"] == out["before"]["processes"]
    assert out["refused"] == ["ConflictError", "This host still has labs: demo."]
    assert out["failed"][0] == "HostError"
    assert "ovn-central" in out["failed"][1]
    assert out["kept"]
    assert out["kept yet"]
    assert "stopping ovs" in out["said"]  # though there is a bridge of others: it was down, so no one used it
    # Open vSwitch leaves the links of a bridge that is not ours.
    assert set(out["after"].pop("links")) - set(out["before"].pop("links")) <= {"br-foreign", "ovs-netdev"}
    assert out["after"] == out["before"]
    assert out["bridges"] == ["br-foreign"]
    assert out["ids"] == out["switches"] == out["connections"] == out["pools"] == []


def test_a_member_of_the_group_needs_no_root(sandbox: Any) -> None:
    out = sandbox(
        """
setup()
run(["useradd", "--no-create-home", "--groups", "libvirt", "member"])
run(["useradd", "--no-create-home", "stranger"])
for folder in (*Path(sys.executable).resolve().parents, *Path(sys.executable).parents):
    folder.chmod(folder.stat().st_mode | 0o055)  # in the overlay; Python may be in somebody's home
xml = "<domain type='qemu'><name>tiny</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>"
def as_user(name):
    sys.stdout.flush()
    reader, writer = os.pipe()
    if os.fork() == 0:
        import pwd
        user = pwd.getpwnam(name)
        os.initgroups(name, user.pw_gid); os.setgid(user.pw_gid); os.setuid(user.pw_uid)
        checks = {check.name: check.state for check in diagnose()}
        words = ["virsh", "-c", "qemu:///system"]
        started = run([*words, "create", "/dev/stdin"], stdin=xml, check=False).returncode
        run([*words, "destroy", "tiny"], check=False)
        words = ["ovn-nbctl", f"--db={settings.northbound()}", "ls-add", "mine", "--", "ls-del", "mine"]
        rows = run(words, check=False)
        os.write(writer, json.dumps({"checks": checks, "domain": started, "rows": rows.returncode}).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe: text = pipe.read()
    os.wait()
    return json.loads(text)
out["member"] = as_user("member")
out["stranger"] = as_user("stranger")
"""
    )
    member, stranger = out["member"], out["stranger"]
    assert [name for name, state in member["checks"].items() if state == "fail" and name != "disk"] == []
    assert member["domain"] == 0
    assert member["rows"] == 0
    assert {"group libvirt", "libvirt", "OVN northbound"} <= {n for n, s in stranger["checks"].items() if s == "fail"}
    assert stranger["domain"] != 0
    assert stranger["rows"] != 0


def test_moves_out_of_the_way_of_other_networks(sandbox: Any) -> None:
    out = sandbox(
        """
run(["ip", "tuntap", "add", "dev", "vpn0", "mode", "tun"])
run(["ip", "addr", "add", "172.31.241.7/24", "dev", "vpn0"])
run(["ip", "link", "set", "vpn0", "up"])
try:
    setup(external_cidr="172.31.240.0/20")
except WinlabError as error:
    out["error"] = [type(error).__name__, str(error)]
out["untouched"] = not settings.HOST_FILE.parent.exists()
found, lines = setup()
out["cidr"] = found.external_cidr
run(["ip", "addr", "flush", "dev", "vpn0"])
out["kept"] = setup()[0].external_cidr
out["setup fails"] = [check.name for check in diagnose() if check.name == "external subnet"]
"""
    )
    assert out["error"][0] == "ConflictError"
    assert "vpn0" in out["error"][1]
    assert out["untouched"]
    assert out["cidr"] == out["kept"] == "172.30.240.0/20"
    assert out["setup fails"] == []


HELPER = Path("/usr/lib/libvirt/virt-aa-helper")  # comes with Debian's libvirt, whether AppArmor is active or not


@pytest.mark.parametrize(
    "node", ["windows-2022-kvm/golden", "windows-2022-kvm/node-1", "linux-workers-kvm/controller-1"]
)
def test_apparmor_gives_a_node_its_disks_and_their_backing_files(sandbox: Any, node: str) -> None:
    golden = Path(__file__).resolve().parents[1] / "unit" / "design" / "render" / "golden" / node / "domain.xml"
    out = sandbox(
        f"""
from lxml import etree
xml = Path({str(golden)!r}).read_text()
tree = etree.fromstring(xml)
settings.POOL_PATH.mkdir(parents=True)
make = ["qemu-img", "create", "-q", "-f"]; bases = [settings.POOL_PATH / n for n in ("base-a.qcow2", "base-b.iso")]
for kind, base in zip(("qcow2", "raw"), bases): run([*make, kind, base, "64M"])
disks = [disk for disk in tree.findall("devices/disk") if disk.find("source") is not None]  # no empty drives
for disk in disks:
    name = disk.find("source").get("file")
    back = ("-b", bases[1], "-F", "raw") if "media" in name else ("-b", bases[0], "-F", "qcow2")
    run([*make, "qcow2", *back, name] if name.endswith(".qcow2") else [*make, "raw", name, "1M"])
out["disks"] = {{disk.find("source").get("file"): disk.find("readonly") is None for disk in disks}}
words = ["{HELPER}", "--dryrun", "--create", "--uuid", "libvirt-" + tree.findtext("uuid")]
out["rules"] = [line.strip() for line in run(words, stdin=xml).stderr.splitlines()]
out["profile"] = Path("/etc/apparmor.d/usr.lib.libvirt.virt-aa-helper").read_text()
"""
    )
    for path, writable in out["disks"].items():
        assert f'"{path}" {"rwk" if writable else "rk"},' in out["rules"]
    for base in ["base-a.qcow2", "base-b.iso"] if "golden" in node else ["base-a.qcow2"]:
        assert f'"/var/lib/winlab/pool/{base}" rk,' in out["rules"]
    assert not [rule for rule in out["rules"] if "serial.log" in rule]  # virtlogd's, not QEMU's
    # What lets the helper itself read the disks' headers, to find the backing files.
    assert all(path.endswith((".qcow2", ".iso")) for path in out["disks"])
    assert {"/**.qcow{,2} r,", "/**.[iI][sS][oO] r,"} <= {line.strip() for line in out["profile"].splitlines()}
