"""What a standing lab was made from: its spec and its plan, kept in its local folder.

The plan can't be read back from the machines, and the spec's file may have changed or gone. Later commands compare the
lab with this plan: an update of winlab may decide otherwise for the same spec.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer

from winlab.design.plan.model import Plan
from winlab.design.spec.model import Spec
from winlab.errors import AccessError, NotFoundError, WinlabError
from winlab.lab_folder import CURE, LabFolder
from winlab.operations.planning import Proposal


class Recorded(BaseModel):
    """A spec and the plan that was made from it.

    ``roots`` are the folders that links below the spec's folders may lead into (:attr:`Spec.roots`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)  # it may hold a product key

    version: Literal[1] = 1
    spec: Spec
    roots: tuple[Path, ...]
    plan: Plan

    @field_serializer("spec")
    def _given(self, spec: Spec) -> dict[str, Any]:
        # only what was said: a pool refuses fields that another system's pools have, even with their usual values
        return spec.model_dump(mode="json", exclude_unset=True)

    def restored_spec(self) -> Spec:
        """The spec, with its roots."""
        return self.spec.within(self.roots)


def write(folder: LabFolder, proposal: Proposal) -> None:
    """Record what the lab is made from, for its owner alone.

    :raises WinlabError: the lab's folder can't be written.
    """
    spec = proposal.spec
    text = Recorded(spec=spec, roots=spec.roots, plan=proposal.plan).model_dump_json(indent=1)
    folder.write(folder.design, text + "\n")


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
            cure="Use the account that made it, or run 'winlab create' with the lab's spec: it changes nothing that is "
            "there, and records the spec.",
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
            cure="Run 'winlab create' with the lab's spec: it changes nothing that is there, and records it anew.",
            evidence=str(folder.design),
        ) from error
