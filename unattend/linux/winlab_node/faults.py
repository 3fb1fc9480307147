"""Injected faults: lost and late packets, a wrong clock, a full disk."""

from __future__ import annotations

import os
import re

from winlab_node.node import Node, NodeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from winlab_node.node import Settings

UNIT, SCRIPT, FILL = "winlab-faults.service", "var/lib/winlab/faults.sh", "var/lib/winlab/faults.fill"
SYNCHRONIZERS = ("systemd-timesyncd", "chrony", "chronyd", "ntp", "ntpsec", "openntpd")
QUEUE = 20000  # packets that wait in a delay: 100 ms at one gigabit per second are about 8,000
MOST = 15  # different links: a queue of tc(8)'s prio has 16 bands
SLACK = 1 << 20  # bytes by which the free space may be wrong; the file system's own tables take some, too
ROUTED = 100  # added to a link's number in tc: the packets to and from the router
MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}(/\d{1,2})?")
SERVICE = """\
[Unit]
Description=winlab: faults on purpose
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=sh /var/lib/winlab/faults.sh

[Install]
WantedBy=multi-user.target
"""
# The node's own device, found by its default route. What an earlier run made is removed first. Nothing else changes: a
# CNI plug-in's programs (clsact) are beside the root queue, and nft's hook is beside both
CLEAN = """\
dev=$(ip -4 route show default | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p' | head -n 1)
tc qdisc del dev "$dev" root handle 77: 2>/dev/null
nft delete table netdev winlab-faults 2>/dev/null
"""
# The virtual machine's RTC has the host's time: nothing in the guest sets it while no synchronization runs
CLOCK = 'date --utc --set "@$(($(cat /sys/class/rtc/rtc0/since_epoch) + %d))" >/dev/null\n'


def faults(node: Node, settings: Settings) -> Settings:
    """Make exactly these faults active, including after a restart."""
    links, skew, free = settings.get("links") or [], settings.get("skew"), settings.get("free")
    before = node.note("faults", {})
    wanted = {"links": links, "skew": skew, "free": free}
    script = CLEAN + _packets(links) + (CLOCK % skew if skew is not None else "")
    if wanted != before:
        _empty(node)  # to make room for what is written next
    if not (links or skew is not None):
        _undo(node)
    else:
        node.write(SCRIPT, script)
        node.write(f"etc/systemd/system/{UNIT}", SERVICE)
        node.call("systemctl", "daemon-reload")
        node.call("systemctl", "enable", UNIT)  # even if nothing was written: the last run may have been killed here
    if skew is None:
        _synchronize(node)
    else:
        _keep_from_synchronizing(node)
    if links or skew is not None:
        node.call("sh", str(node.path(SCRIPT)))
    if any(value not in ([], None) for value in wanted.values()):
        node.keep("faults", wanted)
    else:
        node.path("var/lib/winlab/faults.json").unlink(missing_ok=True)
    if free is None:
        _empty(node)
    else:
        _fill(node, int(free))
    return {"changed": wanted != {"links": [], "skew": None, "free": None, **before}}


def _packets(links: list[dict[str, Any]]) -> str:
    """Lines of sh(1): tc(8)'s netem for what is sent, nft(8)'s random numbers for the loss of what comes."""
    if not links:
        return ""
    if len(links) > MOST:
        raise NodeError(f"settings.links: at most {MOST} nodes can have lost or late packets here.")
    lines = [
        "set -e",
        f'tc qdisc add dev "$dev" root handle 77: prio bands {len(links) + 1} priomap{" 0" * 16}',
    ]
    drops = []
    for band, row in enumerate(links, 2):
        mac, addresses = str(row["mac"]), [str(one) for one in row["addresses"]]
        loss, delay, jitter = float(row["loss"]), int(row["delay"]), int(row["jitter"])
        if not MAC.fullmatch(mac):
            raise NodeError(f"settings.links: '{mac}' is no MAC.")
        for address in addresses:
            if not ADDRESS.fullmatch(address):
                raise NodeError(f"settings.links: '{address}' is no address.")
        how = f" loss {loss:g}%" if loss else ""
        how += f" delay {delay}ms" + (f" {jitter}ms" if jitter else "") if delay else ""
        lines.append(f'tc qdisc add dev "$dev" parent 77:{band:x} netem limit {QUEUE}{how}')
        select = 'tc filter add dev "$dev" parent 77: protocol'
        lines.append(f"{select} all prio {band} flower dst_mac {mac} classid 77:{band:x}")
        lines += [
            f"{select} ip prio {band + ROUTED} flower dst_ip {address} classid 77:{band:x}" for address in addresses
        ]
        if loss:
            # all of 10,000 numbers are below 10,000, and nft refuses such a test
            below = round(loss * 100)
            dice = "counter drop" if below >= 10000 else f"numgen random mod 10000 < {below} counter drop"
            drops.append(f"ether saddr {mac} {dice}")
            if addresses:  # never both: two random draws would lose more
                drops.append(f"ether saddr != {mac} ip saddr {{ {', '.join(addresses)} }} {dice}")
    if drops:
        lines += [
            "nft -f - <<END",
            "table netdev winlab-faults {",
            '  chain in { type filter hook ingress device "$dev" priority -200; policy accept;',
            *(f"    {drop}" for drop in drops),
            "  }",
            "}",
            "END",
        ]
    return "".join(f"{line}\n" for line in lines)


def _undo(node: Node) -> None:
    """Let packets pass, now and after a restart."""
    script = node.path(SCRIPT)
    if not script.exists():
        return
    node.call("sh", "-c", CLEAN, fine=(0, 1, 2))
    node.call("systemctl", "disable", UNIT, fine=(0, 1))
    node.path(f"etc/systemd/system/{UNIT}").unlink(missing_ok=True)
    node.call("systemctl", "daemon-reload")
    script.unlink()


def _keep_from_synchronizing(node: Node) -> None:
    """Stop what would correct the clock, including after a restart. It is recorded first, to be undone later."""
    noted = node.note("clock", [])
    answers = node.call("systemctl", "is-active", *SYNCHRONIZERS, fine=(0, 1, 2, 3, 4)).split()
    active = [one for one, answer in zip(SYNCHRONIZERS, answers, strict=True) if answer == "active"]
    node.keep("clock", sorted({*noted, *active}))
    if active:
        node.call("systemctl", "mask", "--now", *active)


def _synchronize(node: Node) -> None:
    """Correct the clock and resume its synchronization, if a fault made it wrong."""
    note = node.path("var/lib/winlab/clock.json")
    if not note.exists():
        return
    node.call("sh", "-c", CLOCK % 0)
    for service in node.note("clock", []):
        node.call("systemctl", "unmask", service)
        node.call("systemctl", "start", service)
    note.unlink()


def _empty(node: Node) -> None:
    node.path(FILL).unlink(missing_ok=True)


def _fill(node: Node, free: int) -> None:
    """Have a file take all space except so many bytes: it grows and shrinks with the space that others use."""
    path = node.path(FILL)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        room = os.fstatvfs(file.fileno())
        # including what is reserved for root: the kubelet and containerd may use it
        excess = room.f_bfree * room.f_frsize - free
        size = os.fstat(file.fileno()).st_size
        if abs(excess) < SLACK:
            return
        if excess < 0:
            os.ftruncate(file.fileno(), max(0, size + excess))
            return
        while excess > 0:
            try:
                os.posix_fallocate(file.fileno(), size, excess)
                return
            except OSError:
                excess -= SLACK  # the file's own tables need space, too
                os.ftruncate(file.fileno(), size)
