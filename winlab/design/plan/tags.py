"""Tags: every object carries them, so that the state can be read back from the objects themselves.

A domain carries an element in its metadata, an OVN row carries external_ids. winlab has no database. Tools
such as virt-clone copy a domain's metadata, so a machine also has the UUID that follows from its lab and node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lxml import etree
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from winlab.design import system
from winlab.design.plan import addresses
from winlab.design.system import System, SystemName

if TYPE_CHECKING:
    from winlab.design.plan.model import Plan
    from winlab.design.plan.node_plan import NodePlan

NAMESPACE = "urn:winlab:"  # of the tag in a domain's metadata, in every version
XMLNS = f"{NAMESPACE}domain:1"
ELEMENT = "node"  # its name there
FIRST_BOOT = f"{NAMESPACE}first-boot:1"  # of the mark of a machine whose first boot is not complete
KEY = "winlab"  # in external_ids: the lab's name
HOST = "host"  # the name in tags of objects that `winlab host setup` made, which belong to no lab
KEY_PLAN = "winlab-plan"
KEY_NODE = "winlab-node"
KEY_UID = "winlab-uid"  # of the lab's switch alone
# Tables of OVN's northbound database with independent rows that carry external_ids: ovn-nb(5)
TABLES = (
    *("Logical_Switch", "Logical_Router", "DHCP_Options", "DNS", "Address_Set", "Port_Group", "Load_Balancer"),
    *("HA_Chassis_Group", "Meter"),
)


class Tag(BaseModel):
    """What a domain says about itself.

    ``uid`` is the user who made it; None: unknown, because an earlier version made it. No plan decides it.
    ``zone`` is the DNS zone that the lab keeps from another one; None: its own.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    lab: str
    node: str
    role: str
    os: SystemName
    image: str
    user: str
    address: str
    floating: str
    plan: str
    zone: str | None = None
    uid: int | None = Field(None, ge=0)

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the element in the domain's metadata."""
        return {name: str(value) for name, value in self.model_dump(exclude_none=True).items()}

    @property
    def full_name(self) -> str:
        """The node's name with its lab's zone. Its ssh host key and its certificate are verified by it."""
        return f"{self.node}.{self.zone or addresses.zone(self.lab)}"

    @property
    def uuid(self) -> str:
        """The UUID of its domain. One with the same tag and another UUID is a user's copy."""
        return addresses.make_uuid(self.lab, self.node)

    def says_as(self, other: Tag) -> bool:
        """Whether it says the same, regardless of who made the domain."""
        return self.model_copy(update={"uid": other.uid}) == other

    @property
    def is_member(self) -> bool:
        """Whether the machine is a node of the cluster, or is to be one."""
        return self.role != "machine"

    @property
    def system(self) -> System:
        """What the node runs."""
        return system.get(self.os)


def running(which: System, tags: Iterable[Tag]) -> list[Tag]:
    """The tags of the nodes that run a system."""
    return [tag for tag in tags if tag.system is which]


def of(plan: Plan, node: NodePlan) -> Tag:
    """The tag of a node's domain."""
    return Tag(
        lab=plan.lab,
        node=node.name,
        role=node.role,
        os=node.os,
        image=node.image,
        user=node.user,
        address=node.address,
        floating=node.floating,
        plan=plan.digest,
        zone=None if plan.kept is None else plan.network.domain,
    )


def element(plan: Plan, node: NodePlan) -> etree._Element:
    """The tag of a node's domain, as an element for its metadata."""
    return etree.Element(f"{{{XMLNS}}}{ELEMENT}", attrib=of(plan, node).attributes, nsmap={"winlab": XMLNS})


def new(domain_xml: str, uid: int) -> str:
    """The XML of a domain that is about to be made: its tag says who makes it, and a mark that it has not booted.

    Without a tag, it is unchanged.
    """
    root = etree.fromstring(domain_xml.encode())
    node = root.find(f"metadata/{{{XMLNS}}}{ELEMENT}")
    if node is None:
        return domain_xml
    node.set("uid", str(uid))
    # an element of winlab's names its lab, in every version
    mark = etree.Element(f"{{{FIRST_BOOT}}}first-boot", attrib={"lab": node.get("lab", "")}, nsmap={None: FIRST_BOOT})
    node.addnext(mark)
    return str(etree.tostring(root, encoding="unicode"))


def in_first_boot(domain: etree._Element) -> bool:
    """Whether a domain's XML has the mark."""
    return domain.find(f"metadata/{{{FIRST_BOOT}}}first-boot") is not None


def read(domain_xml: str) -> Tag | None:
    """The tag in a domain's XML; None if it is not winlab's: it has none, or it is a user's copy of a machine."""
    root = etree.fromstring(domain_xml.encode())
    node = root.find(f"metadata/{{{XMLNS}}}{ELEMENT}")
    if node is None:
        return None
    try:
        tag = Tag.model_validate(dict(node.attrib))
    except ValidationError:
        return None
    return tag if root.findtext("uuid") == tag.uuid else None


def lab_of(domain_xml: str) -> str | None:
    """The lab whose tag a domain's XML carries, in any version of the tag; None if it is not winlab's."""
    return _labs(domain_xml)[0]


def copied_from(domain_xml: str) -> str | None:
    """The lab that a user's copy of a machine was made from, as by virt-clone; None if the domain is not one.

    A copy has the tag of the original, and another UUID.
    """
    return _labs(domain_xml)[1]


def _labs(domain_xml: str) -> tuple[str | None, str | None]:
    """The lab that a domain belongs to, and the lab that it is a copy from."""
    root = etree.fromstring(domain_xml.encode())
    metadata = root.find("metadata")
    ours = [
        one
        for one in (metadata if metadata is not None else ())
        if isinstance(one.tag, str) and one.tag.startswith(f"{{{NAMESPACE}")
    ]
    if not ours:
        return None, None
    lab = str(ours[0].get("lab", ""))
    node = next((str(one.get("node")) for one in ours if one.get("node") is not None), None)
    is_copy = node is not None and root.findtext("uuid") != addresses.make_uuid(lab, node)
    return (None, lab) if is_copy else (lab, None)


def external_ids(plan: Plan, node: NodePlan | None = None) -> dict[str, str]:
    """The tag of an OVN row."""
    ids = {KEY: plan.lab, KEY_PLAN: plan.digest}
    return ids if node is None else {**ids, KEY_NODE: node.name}
