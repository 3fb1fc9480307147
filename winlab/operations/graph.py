"""A lab's topology as one SVG picture: the external network, router, switch, and the nodes by hypervisor."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from winlab.adapters.vm.domains import Machine
from winlab.design.plan.network_plan import NetworkPlan
from winlab.operations import look, recorded
from winlab.site import Site

WIDE, HIGH, GAP = 240, 62, 14  # pixels of a node, and between two
BUS = 26  # pixels from a column's left edge to its nodes: the line to the switch is there
MARGIN, NETWORKS = 16, 132  # pixels around everything, and of the external network, the router and the switch
STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c2430; --faint: #66717f; --line: #98a3af; --box: #f4f6f8;
  --on: #2e9d5b; --off: #98a3af; --other: #e0a030; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e6e9ed; --faint: #98a3af; --line: #5a6571;
  --box: #1b2027; } }
svg { background: var(--paper); font: 12px system-ui, sans-serif; } text { fill: var(--ink); }
.faint { fill: var(--faint); } .name { font-weight: 600; font-size: 13px; }
.box { fill: var(--box); stroke: var(--line); }
.wire { stroke: var(--line); fill: none; } .on { fill: var(--on); } .off { fill: var(--off); }
.other { fill: var(--other); }
""".strip()


def svg(lab: str, site: Site) -> str:
    """The picture. Networks have their addresses if this account made the lab.

    :raises NotFoundError: there is no such lab.
    """
    with site.hypervisors() as hosts:
        machines = look.find(lab, hosts)
    plans = recorded.standing(site.folder(lab))
    return draw(lab, machines, plans[-1].network if plans else None)


def draw(lab: str, machines: Sequence[Machine], network: NetworkPlan | None) -> str:
    """The picture of given machines. Pure."""
    groups = [(name, list(own)) for name, own in groupby(sorted(machines, key=_by_host), lambda one: one.hypervisor)]
    width = 2 * MARGIN + len(groups) * (BUS + WIDE + GAP) - GAP
    height = MARGIN + NETWORKS + 24 + max(len(own) for _, own in groups) * (HIGH + GAP) + MARGIN
    parts = _networks(lab, network, width)
    for number, (name, own) in enumerate(groups):
        parts += _column(MARGIN + number * (BUS + WIDE + GAP), name, own)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(f"Topology of {lab}")}"><style>{STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _by_host(machine: Machine) -> tuple[str, bool, str, str]:
    return machine.hypervisor, not machine.tag.is_member, machine.tag.role, machine.tag.node


def _networks(lab: str, network: NetworkPlan | None, width: int) -> list[str]:
    """The external network, the router and the switch, with the lines between them."""
    full, middle = width - 2 * MARGIN, width / 2
    external, router, switch = "external network", "router", f"lab {lab}"
    if network is not None:
        external += f"  {network.external_cidr}"
        router += f"  {network.router_external} · {network.gateway}"
        switch += f"  {network.cidr}, MTU {network.mtu}"
    return [
        f'<path class="wire" d="M{middle} {MARGIN + 26} V{MARGIN + NETWORKS - 26}"/>',
        _bar(MARGIN, MARGIN, full, external),
        _bar(middle - min(full, 2 * WIDE) / 2 + 10, MARGIN + 50, min(full, 2 * WIDE) - 20, router),
        _bar(MARGIN, MARGIN + NETWORKS - 30, full, switch),
    ]


def _bar(x: float, y: float, width: float, text: str) -> str:
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{width}" height="26" rx="13"/>'
        f'<text x="{x + width / 2}" y="{y + 17}" text-anchor="middle">{escape(text)}</text>'
    )


def _column(x: int, name: str, machines: Sequence[Machine]) -> list[str]:
    """A hypervisor's nodes, below each other."""
    top = MARGIN + NETWORKS + 24
    last = top + (len(machines) - 1) * (HIGH + GAP) + HIGH / 2
    parts = [
        f'<path class="wire" d="M{x + 8} {MARGIN + NETWORKS - 4} V{last}"/>',
        f'<text class="faint" x="{x + BUS}" y="{top - 8}">{escape(name)}</text>',
    ]
    for number, machine in enumerate(machines):
        parts.append(_node(x + BUS, top + number * (HIGH + GAP), machine))
    return parts


def _node(x: int, y: int, machine: Machine) -> str:
    tag = machine.tag
    light = {"running": "on", "off": "off"}.get(machine.state, "other")
    return (
        f'<path class="wire" d="M{x - BUS + 8} {y + HIGH // 2} H{x}"/>'
        f'<rect class="box" x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6"/>'
        f'<circle class="{light}" cx="{x + WIDE - 14}" cy="{y + 15}" r="5">'
        f"<title>{escape(machine.state)}</title></circle>"
        f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(tag.node)}</text>'
        f'<text class="faint" x="{x + 12}" y="{y + 37}">{escape(f"{tag.role}, {tag.image}")}</text>'
        f'<text x="{x + 12}" y="{y + 53}">{escape(f"{tag.address}  ·  {tag.floating}")}</text>'
    )
