"""Images on their way to other hosts: sparse, resumed after a cut, several at once.

The hosts are namespaces (tests/hosts). The first one is the user's: it uploads to the pools of the others by ssh.
"""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - talks with an upload that runs in a host
from collections.abc import Iterator

import pytest
from hosts import MANAGEMENT, Host, Hosts, install

NAME = "base-x-1.raw"
IMAGE = "/tmp/image"
MIB = 1 << 20
# Data in three places of a sparse file, in MiB: 36 of 128
PLACES = (5, 45, 100)
DATA = 12

# Uploads to the hosts that it is given, at once. It says where it begins, and at HALF waits for a line.
UPLOAD = """
import json, sys
from pathlib import Path
from winlab.adapters.vm.connection import connected
from winlab.adapters.vm.volumes import StoragePool
from winlab.errors import WinlabError
from winlab.stopping import Stopped
from winlab.threads import Threads

HALF = 0.5
waits, *hosts = sys.argv[1:]

def upload(host):
    parts, said = [], []
    def tell(text, part):
        said.append(text)
        if text.startswith("uploading"):
            if waits == host and parts and parts[-1] < HALF <= part:
                print("half", flush=True)
                if sys.stdin.readline() == "stop\\n":
                    raise Stopped
            parts.append(part)
    error, digest = "", ""
    with connected(f"qemu+ssh://root@{host}/system") as conn:
        pool = StoragePool(conn)
        try:
            pool.upload_base("base-x-1.raw", Path("/tmp/image"), tell)
            digest = pool.uploaded_digest("base-x-1.raw") if pool.is_complete("base-x-1.raw") else ""
        except Stopped:
            error = "stopped"
        except WinlabError as caught:
            error = caught.what
    return {"begun": parts[0] if parts else None, "digest": digest, "error": error, "said": sorted(set(said))}

with Threads(len(hosts)) as threads:
    print(json.dumps(dict(zip(hosts, threads.map(upload, hosts)))), flush=True)
"""


class Site:
    """A user's machine and two hypervisors, and what an image's digest is."""

    def __init__(self, made: Hosts) -> None:
        self.hosts = made
        self.user, self.first, self.second = made.all
        self.digest = ""

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Begin an upload: the host at which it waits in the middle, or ``-``; then the hosts."""
        command = self.user.words("/opt/winlab/bin/python", "-c", UPLOAD, *words)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def upload(self, *words: str) -> dict[str, dict[str, object]]:
        with self.begin("-", *words) as process:
            return ended(process)

    def sent(self) -> int:
        """The bytes that the user's machine has sent."""
        return int(self.user.run("cat", f"/sys/class/net/{MANAGEMENT}/statistics/tx_bytes").stdout)


def ended(process: subprocess.Popen[str], line: str = "") -> dict[str, dict[str, object]]:
    out, _ = process.communicate(f"{line}\n", timeout=600)
    found: dict[str, dict[str, object]] = json.loads(out.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    install()
    with Hosts("user", "h1", "h2") as hosts:
        made = Site(hosts)
        for host in (made.first, made.second):
            host.winlab("host", "setup", "--trust-python")
        yield made


@pytest.fixture(autouse=True)
def image(site: Site) -> Iterator[None]:
    fill = f"dd if=/dev/urandom of={IMAGE} bs=1M count={DATA} seek=$at conv=notrunc status=none"
    make = f"rm -f {IMAGE}; truncate -s 128M {IMAGE}; for at in {' '.join(map(str, PLACES))}; do {fill}; done"
    site.digest = site.user.run("sh", "-c", f"{make}; sha256sum {IMAGE}").stdout.split()[0]
    yield
    for host in (site.first, site.second):
        for name in (NAME, f"{NAME}.complete", f"{NAME}.claim"):
            host.run("virsh", "vol-delete", "--pool", "winlab", name, check=False)


def content(host: Host) -> tuple[str, int]:
    """The digest of the volume's file on a host, and how many MiB of the disk it takes."""
    path = f"/var/lib/winlab/pool/{NAME}"
    digest = host.run("sha256sum", path).stdout.split()[0]
    return digest, int(host.run("du", "--block-size=1M", path).stdout.split()[0])


def test_a_cut_cable_costs_only_what_was_under_way(site: Site) -> None:
    with site.begin("h2", "h1", "h2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        site.second.cut(MANAGEMENT)
        first = ended(process)
    assert first["h1"]["digest"] == site.digest  # the host that fails does not stop the other one
    assert "lost" in str(first["h2"]["error"])
    site.second.join(MANAGEMENT)
    before = site.sent()
    again = site.upload("h1", "h2")
    assert again["h1"]["begun"] is None  # nothing to do
    assert 0.3 < float(str(again["h2"]["begun"])) < 0.9
    assert again["h2"]["digest"] == site.digest
    assert site.sent() - before < (len(PLACES) * DATA - DATA // 2) * MIB
    for host in (site.first, site.second):
        digest, size = content(host)
        assert digest == site.digest
        assert size < len(PLACES) * DATA + 4  # holes are holes


def test_an_interrupted_upload_is_resumed_or_replaced_by_what_the_host_has(site: Site) -> None:
    with site.begin("h1", "h1") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        assert ended(process, "stop")["h1"]["error"] == "stopped"
    assert site.first.run("ls", "/var/lib/winlab/pool").stdout.split() == [NAME]  # without a marker and a claim
    # what a power cut of that host leaves: zeros where data was
    damage = f"dd if=/dev/zero of=/var/lib/winlab/pool/{NAME} bs=1M seek=6 count=1 conv=notrunc status=none"
    site.first.run("sh", "-c", damage)
    found = site.upload("h1")["h1"]
    assert found["begun"] == 0
    assert (found["digest"], content(site.first)[0]) == (site.digest, site.digest)
