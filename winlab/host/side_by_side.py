"""The hosts of a site compared: what each reports about itself, and which differences matter to labs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from winlab.host.check import Status
from winlab.host.site.tunnels import OVERHEAD
from winlab.printable import printable

LONGEST = 80  # characters of a value that are shown
LATE, WRONG = 2.0, 60.0  # seconds that a clock may differ; certificates are checked from the minute they begin
# Prints 'name<TAB>value' lines. The time comes first; ovs-vsctl answers root alone.
SCRIPT = r"""
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
say() { printf '%s\t%s\n' "$1" "$(shift; "$@" 2>/dev/null | head -n 1)"; }
say time date +%s.%N
say kernel uname -r
say libvirt libvirtd --version
say QEMU qemu-system-x86_64 --version
say 'Open vSwitch' ovs-vswitchd --version
say OVN ovn-controller --version
say CPU sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo
root=$([ "$(id -u)" = 0 ] || echo sudo -n)
say tunnel $root ovs-vsctl --timeout=5 get Open_vSwitch . external_ids:ovn-encap-ip
"""
PROGRAMS = {"libvirt": 1, "QEMU": 1, "Open vSwitch": 1, "OVN": 2}  # how many numbers of the version must be the same
VERSION = re.compile(r"\d+(\.\d+)+")
ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


@dataclass(frozen=True)
class Report:
    """What one host reports.

    :param values: by name, as the script prints them.
    :param clock: by how many seconds its clock is ahead of this host's, at least; negative: behind.
    :param accelerator: ``kvm`` or ``tcg``, as its set-up recorded; empty: unknown.
    :param problem: why it reports nothing.
    :param unreached: the tunnel addresses that full packets do not reach from there; None: not tried.
    """

    name: str
    values: Mapping[str, str]
    clock: float = 0.0
    accelerator: str = ""
    problem: str = ""
    unreached: tuple[str, ...] | None = None

    @classmethod
    def parse(cls, name: str, text: str, begun: float, ended: float, accelerator: str = "") -> Self:
        """What the script printed, which ran between two times of this host's clock."""
        values = {}
        for line in text.splitlines():
            key, _, value = line.partition("\t")
            values[key] = printable(value.strip())[:LONGEST]
        for program in PROGRAMS:
            found = VERSION.search(values.get(program, ""))
            values[program] = found.group() if found else ""
        found = ADDRESS.search(values.get("tunnel", ""))
        values["tunnel"] = found.group() if found else ""
        try:
            time = float(values.get("time", ""))
        except ValueError:
            return cls(name, values, 0.0, accelerator, "It reports no time.")
        # the time was read somewhere between the two
        clock = time - ended if time > ended else min(0.0, time - begun)
        return cls(name, values, clock, accelerator)

    @property
    def tunnel(self) -> str:
        """The address of its tunnels; empty if this account may not ask for it."""
        return self.values.get("tunnel", "")


@dataclass(frozen=True)
class Cell:
    """What was found on one host, how bad it is, and the cure."""

    text: str
    state: Status = Status.OK
    cure: str = ""


@dataclass(frozen=True)
class Row:
    """One check on all hosts, and why it matters."""

    check: str
    why: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SideBySide:
    """All hosts by their names, the first one first, and what was found on them. Empty: the site has one host."""

    hosts: tuple[str, ...]
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Self:
        """What was found; the first report is that of the site's first host."""
        return cls(tuple(one.name for one in reports), tuple(_compared(reports)))

    def records(self) -> list[dict[str, str]]:
        """One record for each check of each host, as for the checks of this host alone."""
        return [
            {
                "hypervisor": name, "name": row.check, "state": str(cell.state), "detail": cell.text,
                "why": row.why, "cure": cell.cure,
            }
            for row in self.rows
            for name, cell in zip(self.hosts, row.cells, strict=True)
        ]  # fmt: skip


def pings(addresses: Sequence[str], tunnel_mtu: int) -> str:
    """The script that prints which of these addresses full packets do not reach; they must not be cut in pieces."""
    size = tunnel_mtu + OVERHEAD - 28  # without the headers of IPv4 and ICMP
    ping = f"ping -q -n -M do -c 2 -i 0.3 -W 2 -s {size}"
    return "\n".join(f"{ping} {address} >/dev/null 2>&1 || echo {address}" for address in addresses)


def _compared(reports: Sequence[Report]) -> list[Row]:
    first = reports[0]

    def row(check: str, why: str, cell: Callable[[Report], Cell]) -> Row:
        return Row(check, why, tuple(Cell("-") if one.problem and check != "answers" else cell(one) for one in reports))

    return [
        row("answers", "a lab needs all hosts that its nodes are on", _answers),
        *(
            row(program, "other versions give machines other features", partial(_version, program, first))
            for program in PROGRAMS
        ),
        row("kernel", "shown to compare", lambda one: Cell(one.values.get("kernel", "") or "unknown")),
        row("accelerator", "an emulated guest is several times slower", lambda one: _accelerator(one, first)),
        row("CPU", "the memory of a saved machine needs the same processor", lambda one: _cpu(one, first)),
        row("clock", "certificates and logs compare times of several hosts", _clock),
        row("tunnels", "packets between hosts must fit with their headers", _tunnels),
    ]


def _version(program: str, first: Report, one: Report) -> Cell:
    own, known = one.values.get(program, ""), first.values.get(program, "")
    if not own:
        return Cell("missing", Status.FAIL, f"Run 'sudo winlab host setup --install' on {one.name}.")
    same = own.split(".")[: PROGRAMS[program]] == known.split(".")[: PROGRAMS[program]]
    cure = "" if same or not known else f"Install the same release of {program} on {one.name} and {first.name}."
    return Cell(own, Status.WARN if cure else Status.OK, cure)


def _answers(one: Report) -> Cell:
    return Cell("no", Status.FAIL, one.problem) if one.problem else Cell("yes")


def _accelerator(one: Report, first: Report) -> Cell:
    if one.accelerator == first.accelerator or not one.accelerator:
        return Cell(one.accelerator or "unknown")
    slow = one if one.accelerator == "tcg" else first
    return Cell(one.accelerator, Status.WARN, f"Let {slow.name} use KVM; 'winlab doctor' there says what is missing.")


def _cpu(one: Report, first: Report) -> Cell:
    own, known = one.values.get("CPU", ""), first.values.get("CPU", "")
    if own == known or "tcg" in (one.accelerator, first.accelerator):  # an emulated guest has QEMU's own
        return Cell(own or "unknown")
    return Cell(own or "unknown", Status.WARN, f"Restore snapshots on the host that saved them: {one.name} differs.")


def _clock(one: Report) -> Cell:
    off = abs(one.clock)
    if off < LATE:
        return Cell("right")
    side = "ahead" if one.clock > 0 else "behind"
    state = Status.FAIL if off >= WRONG else Status.WARN
    return Cell(f"{off:.0f} s {side}", state, f"Synchronise the clock of {one.name}, such as with chrony.")


def _tunnels(one: Report) -> Cell:
    if one.unreached is None:
        return Cell("not tried" if one.tunnel else "unknown: run this as root")
    if not one.unreached:
        return Cell("whole packets pass")
    cure = "Check the cables and the MTU between the hosts, and that no firewall drops ICMP or UDP port 6081."
    return Cell(f"none to {', '.join(one.unreached)}", Status.FAIL, cure)
