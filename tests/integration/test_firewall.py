"""winlab's firewall table in the kernel, in network namespaces: the host itself is not touched, and needs no set-up."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - runs the matrix in namespaces
import sys
from pathlib import Path

import pytest

from winlab import run
from winlab.events import Quiet
from winlab.host import firewall, packages

ALWAYS = {"dns", "world", "world by a bridge", "ping", "from the host"}
HOST = {"ssh", "ssh by another address", "container", "container's own address"}


@pytest.fixture(scope="session", autouse=True)
def _packages() -> None:
    """In place of the other tests' fixture: nothing but nft is needed."""
    if run.find("nft") is None:
        assert os.geteuid() == 0, "install nftables, or run this as root"
        packages.install(packages.RUN, Quiet())


@pytest.mark.parametrize("datapath", ["system", "netdev"])
def test_guests_reach_the_outside_and_only_allowed_ports_of_the_host(datapath: str) -> None:
    """The new MAC of a lab whose reach is ``all`` opens the host's services; metadata stays closed even then."""
    done = subprocess.run(
        [
            *("unshare", "--map-root-user", "--net", "--mount"),
            *(sys.executable, str(Path(__file__).with_name("firewall_matrix.py"))),
        ],
        input=firewall.ruleset("172.31.240.0/20", datapath, ["br-lan"]),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = {name: {goal for goal, reached in row.items() if reached} for name, row in json.loads(done.stdout).items()}
    assert found == {"plain": ALWAYS, "open": ALWAYS | HOST}


LOOKED = """
from winlab.design.plan.facts import HostFacts
from winlab.host import bridges, firewall
from winlab.run import run

bridges.leading_on = lambda: ["br-lan"]

def look():
    known = HostFacts(external_cidr="172.31.240.0/20", datapath="netdev")
    print(firewall.table_trouble(known) or "fine", firewall._sign_seen(), sep=", ")

run(["ip", "link", "set", "lo", "up"])
look()
run(["nft", "-f", "-"], stdin=firewall.ruleset("172.31.240.0/20", "netdev", ["br-lan"]))
look()
run(["nft", "insert", "rule", "inet", "winlab", "guests", "tcp", "dport", "22", "counter", "accept"])
look()
run(["nft", "flush", "ruleset"])
look()
"""


def test_the_rules_of_the_kernel_are_compared_with_the_loaded_ones() -> None:
    """And whether the table is there shows without reading it."""
    words = ("unshare", "--map-root-user", "--net", sys.executable, "-c", LOOKED)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "is missing or out of date, False",
        "fine, True",
        "has other rules than setup writes, True",
        "is missing or out of date, False",
    ]
