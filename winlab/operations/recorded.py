"""What an existing lab was made from: its spec and its plan, kept in its local folder.

The plan can't be read back from the machines, and the spec's file may have changed or be gone. Later commands compare
the lab with this plan: a newer winlab may decide differently for the same spec.

While a lab is being changed, the record has the old and the new plan. A lab whose change was interrupted matches
neither; the next ``winlab apply`` finishes or reverts the change.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer

from winlab.design.plan.model import Plan
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, ConflictError, NotFoundError, WinlabError
from winlab.lab_folder import CURE, LabFolder

if TYPE_CHECKING:
    from winlab.operations.planning import Proposal


class _Design(BaseModel):
    """A spec and the plan that was made from it.

    ``roots`` are the folders that links below the spec's folders may lead into (:attr:`Spec.roots`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)  # it may hold a product key

    spec: Spec
    roots: tuple[Path, ...]
    plan: Plan

    @field_serializer("spec")
    def _given(self, spec: Spec) -> dict[str, Any]:
        # only what was set: a pool refuses fields of another system's pools, even with their default values
        return spec.model_dump(mode="json", exclude_unset=True)

    def restored_spec(self) -> Spec:
        """The spec, with its roots."""
        return self.spec.within(self.roots)


class Applying(_Design):
    """What the lab is being changed into.

    ``earlier`` are plans of changes that were interrupted before. ``rebuilt`` are nodes to be created again whose
    old machines still exist; ``cleared`` are those whose old machines are gone.
    """

    earlier: tuple[Plan, ...] = ()
    rebuilt: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()


class Recorded(_Design):
    """What a lab was made from and, if a change has begun and not ended, what it is being changed into."""

    version: Literal[1] = 1
    applying: Applying | None = None

    @property
    def wanted(self) -> _Design:
        """What the lab is meant to be: the target of the change that has begun, or what it was made from."""
        return self.applying or self

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Every plan that parts of the lab may be made from, the oldest first; usually one."""
        return (self.plan,) if self.applying is None else (self.plan, *self.applying.earlier, self.applying.plan)


def write(folder: LabFolder, proposal: Proposal) -> None:
    """Record what the lab is made from, for its owner alone.

    :raises WinlabError: the lab's folder can't be written.
    """
    spec = proposal.spec
    _write(folder, Recorded(spec=spec, roots=spec.roots, plan=proposal.plan))


def begin(folder: LabFolder, proposal: Proposal, rebuilt: Iterable[str] = ()) -> None:
    """Record that the lab is being changed into another one. :func:`write` ends the change.

    :param rebuilt: the nodes that are created again.
    :raises WinlabError: there is no record, or the lab's folder can't be written.
    """
    held, spec = read(folder), proposal.spec
    earlier = tuple(plan for plan in held.plans[1:] if plan != proposal.plan)
    cleared = held.applying.cleared if held.applying is not None else ()
    applying = Applying(
        spec=spec, roots=spec.roots, plan=proposal.plan, earlier=earlier, rebuilt=tuple(rebuilt), cleared=cleared
    )
    _write(folder, held.model_copy(update={"applying": applying}))


def is_to_be_rebuilt(folder: LabFolder, node: str) -> bool:
    """Whether the change that has begun is to create a node again, and the old machine still exists.

    :raises WinlabError: the record can't be read.
    """
    applying = read(folder).applying
    return applying is not None and node in applying.rebuilt


def old_is_gone(folder: LabFolder, node: str) -> None:
    """Record that the old machine of a node to be created again is gone. The node is now missing, like an added one.

    :raises WinlabError: the record can't be read, or the lab's folder can't be written.
    """
    held = read(folder)
    if held.applying is not None:
        rebuilt = tuple(name for name in held.applying.rebuilt if name != node)
        cleared = tuple({*held.applying.cleared, node})
        applying = held.applying.model_copy(update={"rebuilt": rebuilt, "cleared": cleared})
        _write(folder, held.model_copy(update={"applying": applying}))


def again(folder: LabFolder) -> dict[str, str]:
    """The nodes that a change which has begun makes again on other hypervisors, and which these are."""
    with suppress(WinlabError):
        held = read(folder)
        if (applying := held.applying) is not None:
            before = {node.name: node.hypervisor for node in held.plan.nodes}
            made = {*applying.rebuilt, *applying.cleared}
            return {
                node.name: node.hypervisor
                for node in applying.plan.nodes
                if node.name in made and before.get(node.name) != node.hypervisor
            }
    return {}


def change(folder: LabFolder, plan: Plan, spec: Spec) -> None:
    """Record another plan and spec of a lab that is otherwise what it was.

    :raises WinlabError: there is no record, or the lab's folder can't be written.
    """
    _write(folder, read(folder).model_copy(update={"plan": plan, "spec": spec}))


def standing(folder: LabFolder) -> tuple[Plan, ...]:
    """Every plan that parts of the lab may be made from; empty if there is no readable record."""
    with suppress(WinlabError):
        return read(folder).plans
    return ()


def require_cluster(folder: LabFolder) -> None:
    """Check that the lab was not made without a cluster.

    :raises NotFoundError: it was.
    """
    for plan in standing(folder)[-1:]:
        plan.cluster  # noqa: B018 - raises


def _write(folder: LabFolder, held: Recorded) -> None:
    folder.write(folder.design, held.model_dump_json(indent=1) + "\n")


def read(folder: LabFolder) -> Recorded:
    """What the lab was made from.

    :raises NotFoundError: this account has no record of it.
    :raises AccessError: the record can't be read.
    :raises WinlabError: it is damaged, or of another version of winlab.
    """
    try:
        return Recorded.model_validate_json(folder.design.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"This account has no record of what the lab '{folder.lab}' was made from.",
            why=f"'{folder.design}' does not exist. Another user or an earlier winlab made the lab.",
            cure="Use the account that made it, or run 'winlab create' with the lab's spec, or 'winlab join' again: it "
            "changes nothing that is there, and records the spec.",
        ) from error
    except OSError as error:
        raise AccessError(
            f"The record of the lab '{folder.lab}' can't be read.", why=str(error), cure=CURE, causes=[error]
        ) from error
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise WinlabError(
            f"The record of the lab '{folder.lab}' is damaged, or of another version of winlab.",
            why=f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}",
            cure="Run 'winlab create' with the lab's spec: it leaves the lab as it is, and writes the record again.",
            evidence=str(folder.design),
        ) from error


def refuse_unfinished(folder: LabFolder) -> None:
    """Refuse to continue while the lab is neither what it was nor what it is being changed into.

    :raises ConflictError: a change was interrupted.
    """
    if len(standing(folder)) > 1:
        raise unfinished(folder.lab)


def unfinished(lab: str) -> ConflictError:
    """The error which says that a change of the lab was interrupted."""
    return ConflictError(
        f"A change of the lab '{lab}' was interrupted.",
        why="It is partly what it was, and partly what 'winlab apply' was making of it.",
        cure=f"Run 'winlab apply --lab {lab}': it finishes the change. With the spec that the lab had before, it takes "
        "it back.",
    )
