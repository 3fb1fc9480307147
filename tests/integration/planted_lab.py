"""Plants a lab of two nodes without guests. Run it on the first host: ``planted_lab.py LAB BLOCK [credentials]``.

Its plan, its record, its rows in OVN, its volumes and its machines are those that winlab makes, but for the machines'
hardware: they have a network card and nothing to boot from.
"""

from __future__ import annotations

import sys

from lxml import etree

from winlab import Lab, Site, Spec
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology
from winlab.operations import recorded

SIZES = (
    "controllers.hypervisor=hypervisor-1",  # both hosts see this machine's free memory, at different moments
    "controllers.memory=512",
    "linux_workers.count=1",
    "linux_workers.memory=512",
)


def definition(plan: Plan, node: NodePlan, disk: str) -> str:
    """A machine with winlab's tag, a disk and the node's network card."""
    root = etree.fromstring(f"""
    <domain type='qemu'>
      <name>{node.domain}</name><uuid>{node.uuid}</uuid><metadata/>
      <memory unit='MiB'>{node.memory_mib}</memory><vcpu>{node.cpus}</vcpu>
      <os><type arch='x86_64' machine='q35'>hvm</type></os>
      <devices>
        <disk type='file' device='disk'>
          <driver name='qemu' type='qcow2'/><source file='{disk}'/><target dev='vda' bus='virtio'/>
        </disk>
        <interface type='bridge'>
          <mac address='{node.mac}'/><source bridge='br-int'/>
          <virtualport type='openvswitch'><parameters interfaceid='{node.port}'/></virtualport>
          <target dev='p{node.uuid[:10]}'/><model type='virtio'/>
        </interface>
      </devices>
    </domain>""")
    metadata = root.find("metadata")
    assert metadata is not None
    metadata.append(tags.element(plan, node))
    return tags.new(etree.tostring(root, encoding="unicode"), 0).replace("first-boot:1", "planted:1")


def main(name: str, block: str, *more: str) -> None:
    site = Site()
    lab = Lab(name, site)
    proposal = lab.plan(Spec.load("1-0-2", [*SIZES, f"network.floating_block={block}"]))
    plan = proposal.plan
    assert [node.hypervisor for node in plan.nodes] == ["hypervisor-1", "hypervisor-2"], plan.placed
    with site.in_use(), site.storage() as hosts:
        folder = site.folder(name)
        with folder.locked():
            recorded.write(folder, proposal)
            if more:
                folder.ensure_credentials(plan)
        with site.overlay() as northbound:
            northbound.apply(topology(plan))
        for node in plan.nodes:
            host, disk = hosts.on(node), node.volume("disk").name
            host.pool.create_disk(disk, 64)
            host.conn.defineXML(definition(plan, node, str(host.pool.folder / disk))).create()


if __name__ == "__main__":
    main(*sys.argv[1:])
