"""Loads winlab's firewall table in a network namespace of its own and reports what a guest of a lab gets through it.

Run by ``unshare --map-root-user --net --mount``: ``br-winlab`` is one end of a veth pair, the guest's namespace has the
other end, and a third namespace is the network behind the host. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - sets up namespaces by hand
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HOST, GUEST, WORLD = "172.31.240.1", "172.31.240.33", "198.51.100.2"
DOCKER, PIECE = "br-0123456789ab", "172.18.0.2"  # a network of Docker's, and a container in it
UPLINK, BEYOND = "br-lan", "203.0.113.2"  # a bridge that leads to other networks of the host's
METADATA = "169.254.169.254"
PLAIN, OPEN = "52:54:00:00:00:01", "52:54:01:00:00:01"
CONTAINER = f"""\
table ip container {{
	chain published {{
		type nat hook prerouting priority dstnat;
		ip daddr {HOST} tcp dport 8080 dnat to {WORLD}:8000
	}}
}}
"""
PING = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as made:
    made.settimeout(2)
    made.sendto(bytes([8, 0, 0xf7, 0xfd, 0, 1, 0, 1]), (sys.argv[1], 0))
    made.recv(100)
"""
ASK = "import sys, socket; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2).close()"


def run(*words: str, check: bool = True) -> bool:
    return subprocess.run(words, check=check, capture_output=not check).returncode == 0


class Answer(BaseHTTPRequestHandler):
    """Only connections are looked at."""


def inside(pid: int, *words: str) -> bool:
    return run("nsenter", f"--net=/proc/{pid}/ns/net", *words, check=False)


def namespace() -> subprocess.Popen[bytes]:
    made = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()
    return made


def serve(address: str, port: int) -> None:
    threading.Thread(target=HTTPServer((address, port), Answer).serve_forever, daemon=True).start()


def main() -> None:
    rules = sys.stdin.read()
    guest, world, container, beyond = (namespace() for _ in range(4))
    try:
        for link, peer, pid, ours, theirs in (
            ("br-winlab", "eth0", guest.pid, f"{HOST}/20", f"{GUEST}/20"),
            ("out", "eth0", world.pid, "198.51.100.1/24", f"{WORLD}/24"),
            (DOCKER, "eth0", container.pid, "172.18.0.1/16", f"{PIECE}/16"),
            (UPLINK, "eth0", beyond.pid, "203.0.113.1/24", f"{BEYOND}/24"),
        ):
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "peer")
            run("ip", "link", "set", "peer", "netns", str(pid))
            inside(pid, "ip", "link", "set", "peer", "name", peer)
            run("ip", "addr", "add", ours, "dev", link)
            run("ip", "link", "set", link, "up")
            inside(pid, "ip", "addr", "add", theirs, "dev", peer)
            inside(pid, "ip", "link", "set", peer, "up")
            inside(pid, "ip", "route", "add", "default", "via", ours.partition("/")[0])
        run("ip", "link", "set", "lo", "up")
        inside(world.pid, "ip", "addr", "add", f"{METADATA}/32", "dev", "eth0")
        run("ip", "route", "add", f"{METADATA}/32", "via", WORLD)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        subprocess.run(["nft", "-f", "-"], input=f"{CONTAINER}\n{rules}", text=True, check=True)
        for port in (22, 53):
            serve("0.0.0.0", port)
        answers = "from http.server import *; HTTPServer(('', 8000), BaseHTTPRequestHandler).serve_forever()"
        servers = [
            subprocess.Popen(["nsenter", f"--net=/proc/{space.pid}/ns/net", sys.executable, "-c", answers])
            for space in (world, guest, container, beyond)
        ]
        found: dict[str, dict[str, bool]] = {}
        try:
            for there in (WORLD, GUEST, PIECE, BEYOND):
                for _ in range(50):
                    if run(sys.executable, "-c", ASK, there, "8000", check=False):
                        break
            for name, mac in (("plain", PLAIN), ("open", OPEN)):
                inside(guest.pid, "ip", "link", "set", "eth0", "address", mac)
                run("ip", "neigh", "flush", "all")
                goals = {
                    "ssh": (HOST, "22"), "ssh by another address": ("198.51.100.1", "22"), "dns": (HOST, "53"),
                    "container": (HOST, "8080"), "container's own address": (PIECE, "8000"),
                    "world": (WORLD, "8000"), "world by a bridge": (BEYOND, "8000"), "metadata": (METADATA, "8000"),
                }  # fmt: skip
                found[name] = {
                    goal: inside(guest.pid, sys.executable, "-c", ASK, *where) for goal, where in goals.items()
                }
                found[name]["ping"] = inside(guest.pid, sys.executable, "-c", PING, HOST)
                found[name]["from the host"] = run(sys.executable, "-c", ASK, GUEST, "8000", check=False)
                found[name]["from the world"] = inside(world.pid, sys.executable, "-c", ASK, GUEST, "8000")
        finally:
            for one in servers:
                one.kill()
                one.wait()
        print(json.dumps(found))
    finally:
        for space in (guest, world, container, beyond):
            space.kill()
            space.wait()


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    main()
