"""A host with systemd: a fresh user of Debian 13 follows docs/install.md, restarts the host, and undoes all of it.

The tests are the parts of one story, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import results
from harness import Winlab
from systemd_host import IMAGE, LIMIT, ON, POOL, SUBNET, USER, Host, checkout, download, looks, readme

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * LIMIT)]

INNER = "inner"
AGENT = "workers={name: agent, os: debian-13, memory: 512MiB, cpus: 1, cluster: false}"
# Ends when the machine has started: one that is emulated in an emulated host would hardly boot.
CREATE = f"""\
cat >create.py <<'END'
from threading import Event
from winlab import Lab, Spec, Stopped
lab, started = Lab("{INNER}"), Event()
def listen(event):
    if type(event).__name__ == "StepDone" and event.step == "start agent-1":
        started.set()
try:
    lab.create(lab.plan(Spec.load("0-1-1", ["{AGENT}"])), listener=listen, stop=started)
except Stopped:
    pass
END
/opt/winlab/bin/python create.py
"""
# Waits until winlab's service has ended, with all its repetitions.
SETTLED = """\
while state=$(systemctl is-active winlab-host.service); test "$state" = activating || test "$state" = deactivating; do
    sleep 2
done
echo "$state"
"""
CONFINED = f"""\
pid=$(sudo cat /run/libvirt/qemu/winlab-{INNER}.agent-1.pid)
sudo cat /proc/$pid/attr/current
sudo ovs-vsctl --bare --columns=name find Interface external_ids:vm-id!=[]
"""


@pytest.fixture(scope="module")
def machine(host: None, winlab: Winlab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The machine, with a new user who may use sudo, this checkout, and what pip and winlab would download."""
    folder = tmp_path_factory.mktemp("checkout")
    own = checkout(folder)
    command = Winlab(prefix=own.prefix, env=winlab.env)
    command.ok("destroy", *ON, "--anyone")
    command.ok("create", "--spec", "0-1-1", "--set", POOL, *ON)
    made = Host(command)
    work = tmp_path_factory.mktemp("work")
    download(work / "pip")
    made.send_tree(work / "pip", "/srv/pip", work)
    made.send_tree(folder, "/srv/checkout", work)
    command.ok("image", "build", "debian-13")
    command.ok("image", "export", "debian-13", "--to", str(work / "debian-13"))
    made.send(work / "debian-13", "/tmp/debian-13")
    made(
        f"""\
printf '[global]\\nno-index = true\\nfind-links = /srv/pip\\n' >/etc/pip.conf
useradd --create-home --shell /bin/bash --groups sudo {USER}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/{USER}
mv /srv/checkout /home/{USER}/winlab
mv /tmp/debian-13 /home/{USER}/
chown -R {USER}: /home/{USER}""",
        user="root",
    )
    yield made
    command.ok("destroy", *ON)
    command("image", "rm", IMAGE)  # it is not in the cache if the pool had its volume


@pytest.fixture(scope="module")
def before(machine: Host) -> list[str]:
    """What was on the machine before the commands of docs/install.md."""
    return looks(machine)


@pytest.fixture(scope="module")
def ready(machine: Host, before: list[str]) -> Host:
    """The machine after those commands. The next login is the one after them."""
    lines = [f"{line} --external-cidr {SUBNET}" if "host setup" in line else line for line in readme()]
    assert any("host setup" in line for line in lines)
    said = machine("\n".join(["export DEBIAN_FRONTEND=noninteractive", "cd ~/winlab", "set -x", *lines]))
    assert "The host is set up" in said
    machine("echo 'PATH=/opt/winlab/bin:$PATH' >>~/.profile")
    return machine


@pytest.fixture(scope="module")
def lab(ready: Host) -> Host:
    """The machine with a lab of one machine, which a member of the group libvirt made."""
    ready("winlab image import ~/debian-13 && rm ~/debian-13")
    ready(CREATE)
    return ready


@pytest.fixture(scope="module")
def restarted(lab: Host) -> Host:
    """The machine after a reboot."""
    lab.reboot()
    return lab


def failed_units(host: Host) -> list[str]:
    """The units that failed, and what the one of winlab said."""
    failed = host("systemctl --failed --plain --no-legend").splitlines()
    return [*failed, host("sudo journalctl --boot --no-pager --lines=40 --unit=winlab-host.service")] if failed else []


def failed(host: Host) -> dict[str, str]:
    """The checks of a member's and of root's doctor that fail, and the units that failed."""
    found = {}
    for doctor in ("winlab doctor", "sudo /opt/winlab/bin/winlab doctor"):
        rows = results.items(host(f"{doctor} --output json || true"))
        found |= {row["name"]: row["detail"] for row in rows if row["state"] == "fail"}
    return found | dict.fromkeys(failed_units(host), "failed")


def test_setup_leaves_nothing_to_repair(ready: Host) -> None:
    assert failed(ready) == {}
    record = ready("sudo cat /var/lib/winlab/host-changes.yaml")
    ready("sudo /opt/winlab/bin/winlab host setup")
    assert ready("sudo cat /var/lib/winlab/host-changes.yaml") == record


def test_the_database_is_open_to_the_group_alone(ready: Host) -> None:
    assert ready("stat -c '%a %G' /run/winlab /run/winlab/ovnnb.sock").split() == ["2750", "libvirt", "770", "libvirt"]
    assert "denied" in ready("sudo -u nobody ovn-nbctl --db=unix:/run/winlab/ovnnb.sock show 2>&1 || true")


def test_a_member_s_machine_runs_confined(lab: Host) -> None:
    profile, port = lab(CONFINED).split("\n")[:2]
    assert profile.startswith("libvirt-")
    assert profile.endswith("(enforce)")
    assert port.startswith("vnet")


def test_a_reboot_brings_everything_back(restarted: Host) -> None:
    assert restarted(SETTLED).strip() == "active"
    assert failed(restarted) == {}
    assert INNER in restarted("winlab list")
    restarted(f"virsh -c qemu:///system start winlab-{INNER}.agent-1")
    assert "(enforce)" in restarted(CONFINED)


def test_a_restart_of_open_vswitch_is_survived(restarted: Host) -> None:
    restarted("sudo systemctl restart openvswitch-switch.service")
    restarted(SETTLED)
    assert failed(restarted) == {}


def test_a_setup_that_failed_is_repeated(restarted: Host) -> None:
    said = restarted(
        "sudo mv /usr/bin/ovs-vsctl /root/;"
        " sudo systemctl restart winlab-host.service || systemctl show --value -p SubState winlab-host.service;"
        " sudo mv /root/ovs-vsctl /usr/bin/"
    )
    assert said.strip() == "auto-restart"
    assert restarted(SETTLED).strip() == "active"
    assert failed(restarted) == {}


def test_teardown_leaves_nothing(before: list[str], restarted: Host) -> None:
    restarted(f"winlab destroy --lab {INNER}")
    restarted("sudo /opt/winlab/bin/winlab host teardown")
    after = looks(restarted)
    assert {"gone": sorted({*before} - {*after}), "left": sorted({*after} - {*before})} == {"gone": [], "left": []}
    assert failed_units(restarted) == []
