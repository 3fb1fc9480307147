"""How a field of the spec is declared: once, with all data for its flag, variable, schema and documentation."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from winlab.design import system

UNIT, FLAG, DEFAULT, SYSTEMS = "x-unit", "x-flag", "x-default", "x-systems"  # keys in the JSON Schema
SECRET = "writeOnly"  # noqa: S105 - JSON Schema's own word for a value that is taken and never shown
WINDOWS, LINUX = system.WINDOWS.title, system.LINUX.title


MIB = "MiB"


class Model(BaseModel):
    """A section of the spec."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _given(cls, value: object, info: ValidationInfo) -> object:
        """Take an empty section for its default, and refuse ``true`` where a number belongs: to Python it is 1."""
        field = cls.model_fields[info.field_name or ""]
        if value is None and isinstance(field.default, Model):
            return field.default  # all its lines may be commented out
        if isinstance(value, bool) and field.annotation is not bool:
            raise ValueError(
                f"{str(value).lower()} is not a value for it; in YAML, yes and on are true, no and off false"
            )
        return value


def option(
    default: Any,
    says: str,
    *,
    example: Any,
    unit: str = "",
    flag: str = "",
    otherwise: str = "",
    systems: str = "",
    secret: bool = False,
    **limits: Any,
) -> Any:
    """Declare a field.

    :param says: what the field means: a sentence without a full stop.
    :param example: a value as a spec has it.
    :param unit: the unit of plain numbers: ``MiB``. A size may be written with its own unit.
    :param flag: the field's own command-line flag, if there is one besides ``--set``.
    :param otherwise: what happens if the field is left out and *default* does not say it.
    :param systems: ``WINDOWS`` or ``LINUX`` if only nodes with that system have the field.
    :param secret: messages never have the value, and ``--set`` also takes it from a file: ``@FILE``.
    :param limits: pydantic's: ``ge``, ``le``, ``pattern``.
    """
    given = {UNIT: unit, FLAG: flag, DEFAULT: otherwise, SYSTEMS: systems, SECRET: secret}
    extra: dict[str, Any] = {key: value for key, value in given.items() if value}
    if unit == MIB:  # pydantic can't: such a field is an integer or a string
        extra.update(minimum=limits["ge"], maximum=limits["le"])
    return Field(default, description=says, examples=[example], json_schema_extra=extra, **limits)


def of(systems: str) -> ConfigDict:
    """The configuration of a section that only nodes with this system have."""
    return ConfigDict(json_schema_extra={SYSTEMS: systems})
