"""The systems that nodes can run; fields of the spec name them by their images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.system import LINUX, System
from winlab.near import choose_from


@dataclass(frozen=True)
class _Suggested:
    """The known images in the JSON Schema: an editor suggests them, and accepts others, too."""

    only: System | None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        known = [name for name in recipes.systems() if self.only in (None, recipes.get(name).system)]
        return {"anyOf": [{"enum": known}, {"type": "string"}]}


AnySystem = Annotated[str, _Suggested(only=None)]
LinuxSystem = Annotated[str, _Suggested(only=LINUX)]


def system(name: str) -> Recipe:
    """The recipe of the image *name*.

    :raises ValueError: there is no such image, or nodes can't run it.
    """
    known = recipes.systems()
    if name not in known:
        raise ValueError(f"there is no image '{name}'; {choose_from(name, known)}")
    return recipes.get(name)


def require(wanted: System, name: str, who: str) -> str:
    """Return *name*, the image of *who* (``a controller``).

    :raises ValueError: there is no such image, or it holds another system.
    """
    actual = system(name).system
    if actual is not wanted:
        raise ValueError(f"{who} runs {wanted.title}, '{name}' is {actual.title}")
    return name
