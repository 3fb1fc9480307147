"""A call of a script in a node: its settings, its result, and for how long it may be silent."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, ClassVar, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from winlab.design.system import SystemName
from winlab.errors import GuestError, logs

LINUX: tuple[SystemName, ...] = ("linux",)
WINDOWS: tuple[SystemName, ...] = ("windows",)
BOTH: tuple[SystemName, ...] = ("linux", "windows")
# For how many seconds on hardware a script may be silent before it counts as hung. A script that
# works for long reports that before
WORK = 1800.0
QUESTION = 300.0  # for queries: an emulated node may take two minutes after its start to start PowerShell
LINUX_ONLY, WINDOWS_ONLY = {"on": "linux"}, {"on": "windows"}  # a setting that the other system's script does not have


class CallResult(BaseModel):
    """What a script returns. Unknown fields are ignored: a newer winlab may have written the CD."""

    model_config = ConfigDict(frozen=True, strict=True)


R = TypeVar("R", bound=CallResult)


class Call(Generic[R]):
    """A script with its settings. Subclasses are frozen dataclasses; their fields are the settings."""

    script: ClassVar[str]
    on: ClassVar[tuple[SystemName, ...]]
    result: ClassVar[type[CallResult]]
    quiet: ClassVar[float] = WORK

    def __init_subclass__(cls) -> None:
        (cls.result,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]

    @property
    def silence(self) -> float:
        """For how many seconds on hardware it may be silent."""
        return self.quiet

    def settings(self, system: str) -> dict[str, Any]:
        """The settings for this system's script."""
        assert system in self.on, f"there is no script '{self.script}' on {system}"
        known = self.known(system)
        return {name: value for name, value in asdict(self).items() if name in known}  # type: ignore[call-overload]

    @classmethod
    def known(cls, system: str) -> set[str]:
        """The names of the settings that this system's script has."""
        settings = fields(cls)  # type: ignore[arg-type]
        return {setting.name for setting in settings if setting.metadata.get("on", system) == system}

    def texts(self) -> dict[str, str]:
        """The files among the settings, by the names that ``winlab plan --render`` gives them."""
        return {}

    def read(self, output: dict[str, Any], node: str, lab: str) -> R:
        """The result, from the script's output.

        :raises GuestError: a field is missing or has the wrong type.
        """
        try:
            return self.result.model_validate(output)  # type: ignore[return-value]
        except ValidationError as error:
            wrong = {
                ".".join(map(str, row["loc"])) or "the whole": row["msg"] for row in error.errors(include_input=False)
            }
            raise GuestError(
                f"'{self.script}' in '{node}' gave a result with missing or wrong fields: {', '.join(wrong)}.",
                why="\n".join(f"{name}: {message}" for name, message in wrong.items()),
                cure="Run the same command again. If that does not help, its scripts are of another version of winlab.",
                evidence=logs(node, lab),
            ) from error
