"""A lab's nodes as a result, for the commands that end with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from winlab.cli.fault import active
from winlab.cli.session import current

if TYPE_CHECKING:
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds
    from winlab.design.fault import Fault


def answer_nodes(lab: Lab) -> bool:
    """Set a lab's nodes, as they are now, as the result of the command; see :meth:`Session.answer`."""
    from winlab.cli.kinds import labs as kinds

    if current().for_people:
        return False
    return current().answer(kinds.Node, items(lab, lab.status(), active(lab)))


def items(lab: Lab, statuses: Sequence[Any], faults: Sequence[Fault]) -> Iterator[kinds.Node]:
    """Nodes as items of a result."""
    from winlab.cli.kinds import labs as kinds

    protected = lab.protected_by() is not None
    for node in statuses:
        tag = node.tag
        yield kinds.Node(
            name=tag.node,
            lab=lab.name,
            role=tag.role,
            image=tag.image,
            state=node.state,
            kubernetes=node.kubernetes,
            answers=node.answers,
            address=tag.address,
            external=tag.floating,
            problem=node.problem,
            autostart=node.autostart,
            protected=protected,
            hypervisor=node.hypervisor,
            user=tag.user,
            cluster=tag.is_member,
            pushed=[kinds.Pushed(**asdict(one)) for one in node.pushed],
            faults=[fault.id for fault in faults if tag.node in fault.nodes],
        )
