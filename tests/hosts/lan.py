"""The LANs between hosts: bridges in a network namespace of their own, and the cables of hosts."""

from __future__ import annotations

import hashlib
import os
import subprocess  # noqa: TID251 - makes namespaces, links and bridges
from pathlib import Path

MANAGEMENT, TUNNELS = "eth0", "eth1"  # ssh and OVN's databases; Geneve
CARDS = (MANAGEMENT, TUNNELS)
# from the ranges for documentation (RFC 5737)
NETWORKS = {MANAGEMENT: "198.51.100", TUNNELS: "203.0.113"}
MTU = 1500


class Space:
    """A namespace, held: the kernel gives the number of one that is gone to the next one made, also by other tests."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.number = os.fstat(self._file).st_ino

    def __del__(self) -> None:
        os.close(self._file)


class Switch:
    """Where all cables end: one bridge for each LAN."""

    def __init__(self) -> None:
        # a process holds the namespace; it needs no name, and can't be left behind
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        link = Path(f"/proc/{self._process.pid}/ns/net")
        while link.readlink() == Path("/proc/self/ns/net").readlink():
            assert self._process.poll() is None, "no network namespace could be made"
        self.space = Space(link)
        for card in CARDS:
            self.run("ip", "link", "add", _lan(card), "mtu", str(MTU), "type", "bridge")
            self.run("ip", "link", "set", _lan(card), "up")

    def run(self, *words: str, check: bool = True) -> None:
        """Run a command in the switch's network namespace."""
        subprocess.run([*self.words(), *words], check=check, capture_output=True)

    def words(self) -> list[str]:
        """The beginning of a command that runs there."""
        return ["nsenter", "-t", str(self._process.pid), "-n", "--"]

    def plug(self, host: str, pid: int) -> None:
        """Plug a host's network cards in."""
        for card in CARDS:
            # the same address at each boot: peers remember it for a while
            peer = ("name", card, "address", _mac(host, card), "netns", str(pid))
            self.run("ip", "link", "add", _end(host, card), "type", "veth", "peer", *peer)
            # a virtual link leaves checksums to hardware that it does not have
            self.run("ethtool", "-K", _end(host, card), "tx", "off")
            self.run("ip", "link", "set", _end(host, card), "master", _lan(card), "up")

    def unplug(self, host: str) -> None:
        """Remove a host's cables for good."""
        for card in CARDS:
            self.run("ip", "link", "del", _end(host, card), check=False)

    def cut(self, host: str, card: str) -> None:
        """Cut one cable of a host."""
        self.run("ip", "link", "set", _end(host, card), "down")

    def join(self, host: str, card: str) -> None:
        """Repair a cable."""
        self.run("ip", "link", "set", _end(host, card), "up")

    def tap(self, card: str) -> str:
        """The interface of a LAN, for tcpdump."""
        return _lan(card)

    def remove(self) -> None:
        """End it, with all cables."""
        self._process.kill()
        self._process.wait()


def _lan(card: str) -> str:
    return f"lan-{card}"


def _end(host: str, card: str) -> str:
    """The switch's end of a cable; the kernel takes 15 characters."""
    return f"{host[:9]}-{card}"


def _mac(host: str, card: str) -> str:
    digest = hashlib.sha256(f"{host}/{card}".encode()).digest()
    return ":".join(["02", *(f"{byte:02x}" for byte in digest[:5])])
