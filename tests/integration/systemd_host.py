"""A host with systemd for tests: a Debian 13 machine that winlab makes, and what goes into it.

The machine needs no internet. The packages of Debian are in its image, made by a recipe of the tests' own. Those of
Python are downloaded on this host, and pip in the machine takes them from a folder (pip's ``find-links``).
"""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - runs the command with a standard input, and pip
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from harness import Winlab

from winlab.host import packages

TOP = Path(__file__).resolve().parents[2]
LAB, NODE, USER = "it-systemd", "host-1", "alice"
ON = ("--lab", LAB)
IMAGE = "debian-13-host"
# One CPU: with two, emulated Linux dies now and then (bare.py).
POOL = f"workers={{name: host, os: {IMAGE}, memory: 3GiB, cpus: 1, cluster: false}}"
# In the machine winlab's usual subnet is the way to this host, from which the tests come.
SUBNET = "192.168.240.0/20"
PYTHON = "3.13"  # Debian 13's
CHECKOUT = ("winlab", "standin", "docs", "images", "unattend", "specs", "pyproject.toml", "README.md", "LICENSE")
PART = 32 << 20  # bytes; the command takes twice as many
LIMIT = 7200  # seconds, for an emulated machine on a busy host: a bound for a hang


def readme() -> list[str]:
    """The commands of docs/install.md that install winlab by pip."""
    text = (TOP / "docs/install.md").read_text(encoding="utf-8")
    block = text.partition("## With pip, into /opt/winlab\n")[2].partition("```\n")[2].partition("\n```")[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def checkout(folder: Path) -> Winlab:
    """The command of a copy of this checkout that has one more recipe: Debian 13 with what a host of labs needs."""
    for name in CHECKOUT:
        source = TOP / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    recipe = yaml.safe_load((folder / "images/debian-13.yaml").read_text(encoding="utf-8"))
    recipe |= {"name": IMAGE, "summary": "Debian 13 as a host of labs"}
    installed = recipe["build"]["options"]["packages"]
    developers = next(line for line in readme() if line.startswith("sudo apt install ")).split()[3:]
    wanted = [package.debian for package in (*packages.RUN, *packages.MEDIA, *packages.BUILD)]
    # AppArmor's programs: most installations of Debian have them, and libvirt then confines its machines
    installed[:] = dict.fromkeys([*installed, *developers, *wanted, "apparmor"])
    (folder / "images" / f"{IMAGE}.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return Winlab(prefix=("env", "-C", str(folder)))  # python -m takes winlab from the current folder


def download(folder: Path) -> None:
    """Download what the machine's pip needs, as pinned for this checkout."""
    pinned = [f"--requirement={TOP}/tools/requirements/{name}.txt" for name in ("all", "build")]
    systems = [f"--platform={name}_x86_64" for name in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    words = ("download", "--quiet", "--no-deps", f"--python-version={PYTHON}", f"--dest={folder}")
    subprocess.run([sys.executable, "-m", "pip", *words, *systems, *pinned], check=True)


@dataclass(frozen=True)
class Host:
    """The machine, through the command."""

    winlab: Winlab

    def run(self, command: str, given: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Run a command in the machine as the lab's own user, with *given* as its standard input."""
        words = [*self.winlab.prefix, sys.executable, "-m", "winlab", "exec", "-i", NODE, *ON, "--", command]
        env = {**os.environ, **self.winlab.env}
        done = subprocess.run(words, input=given, capture_output=True, env=env, check=False, timeout=LIMIT)
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    def __call__(self, script: str, user: str = USER) -> str:
        """The output of a script in a new login of *user*; it must succeed."""
        # in braces: the shell has read all of it before a command reads the standard input
        done = self.run(f"sudo -iu {user} bash -es", f"{{\n{script}\n}} </dev/null\n".encode())
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def send(self, file: Path, to: str) -> None:
        """Copy a file into the machine."""
        with file.open("rb") as source:
            while part := source.read(PART):
                done = self.run(f"cat >>{to}", part)
                assert done.returncode == 0, done.stderr

    def send_tree(self, folder: Path, to: str, work: Path) -> None:
        """Copy a folder's contents into the folder *to* in the machine, for all to read."""
        archive = work / "tree.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, ".")
        self.send(archive, "/tmp/tree.tar")
        archive.unlink()
        done = self.run(f"sudo mkdir -p {to} && sudo tar -x -f /tmp/tree.tar -C {to} && rm /tmp/tree.tar")
        assert done.returncode == 0, done.stderr

    def reboot(self) -> None:
        """Restart the machine, and wait until everything has started that starts by itself."""
        before = self("cat /proc/sys/kernel/random/boot_id")
        self.run("sudo systemctl --no-block reboot")
        end = time.monotonic() + LIMIT
        while self.run("cat /proc/sys/kernel/random/boot_id").stdout in ("", before):
            assert time.monotonic() < end, "the machine does not come back"
            time.sleep(5)
        self("systemctl is-system-running --wait || true")


# What setup and labs could leave. Some things are libvirt's own. /run/libvirt and the logs change with each of its
# starts. It keeps a profile of each machine that ran confined, and the folder of its pools. Its daemon runs until
# no one has used it for two minutes.
LOOK = r"""
export LC_ALL=C
systemctl list-unit-files --no-legend --no-pager | awk '!/^session-/ {print "unit file", $1, $2}'
systemctl list-units --all --type=service,socket --no-legend --no-pager --plain \
    | awk '/winlab|virt|ovn|openvswitch/ {print "unit", $1, $2, $1 ~ /^libvirtd/ ? "" : $3}'
sudo nft --stateless list ruleset | sed 's/^/firewall /'
ip -brief address | awk '{$2=""; print "address", $0}'
ip route | sed 's/^/route /'
for name in ip_forward conf/all/arp_ignore; do echo "sysctl $name $(cat /proc/sys/net/ipv4/$name)"; done
sudo find /etc /run/winlab /var/lib/winlab /var/lib/libvirt/images /var/lib/libvirt/qemu -xdev \
    \( -path /etc/apparmor.d/libvirt -o -path /etc/libvirt/storage \) -prune \
    -o -printf 'file %M %u %g %p\n' 2>/dev/null || true
sudo ovs-vsctl list-br | sed 's/^/bridge /'
sudo ovs-vsctl get Open_vSwitch . external_ids | sed 's/^/ids /'
for table in Logical_Switch Logical_Router Connection DNS DHCP_Options; do
    sudo ovn-nbctl --bare --columns=_uuid list $table | sed "/./s/^/$table /"
done
sudo virsh pool-list --all --name | sed 's/^/pool /'
sudo virsh list --all --name | sed 's/^/machine /'
"""


def looks(host: Host) -> list[str]:
    """What is on the machine that setup or a lab may have made, a line each."""
    return sorted({line.rstrip() for line in host(LOOK).splitlines() if line.strip()})
