"""What add-ons give nodes: text files, and values of Windows' registry. Pure.

Steps write them, compare them with what is on the node, and remove what nothing asks for any more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from winlab.design import system
from winlab.design.system import Paths, SystemName

FILES, VALUES = 64, 64  # of one node
SIZE, TOTAL = 64 << 10, 256 << 10  # bytes of one file, and of all files of one node
SERVICES = r"HKLM\SYSTEM\CurrentControlSet\Services"
KEYS_OWN = (
    *(rf"{SERVICES}\containerd", rf"{SERVICES}\kubelet", rf"{SERVICES}\kube-proxy", rf"{SERVICES}\hns"),
    r"HKLM\SOFTWARE\winlab-restart",
)


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeFile(_Given):
    """A text file for a node: its text, or the name of a template in the add-on's folder of templates.

    Mode and owner are for Linux. The owner's group is the one that is named, or the one of the owner's name.
    """

    path: str
    text: str = ""
    template: str = ""
    mode: str = Field("0644", pattern=r"^0[0-7]{3}$")
    owner: str = Field("root", pattern=r"^[a-z_][a-z0-9_-]{0,31}(:[a-z_][a-z0-9_-]{0,31})?$")

    @model_validator(mode="after")
    def _has_one_source(self) -> NodeFile:
        if self.text and self.template:
            raise ValueError("a file has a text or a template, not both")
        return self

    @property
    def owners(self) -> str:
        """``user:group``."""
        return self.owner if ":" in self.owner else f"{self.owner}:{self.owner}"


class RegistryValue(_Given):
    r"""A value of Windows' registry, below ``HKLM\SOFTWARE`` or ``HKLM\SYSTEM``."""

    key: str = Field(max_length=255, pattern=r"^HKLM\\(SOFTWARE|SYSTEM)(\\[^\\\x00-\x1f*?\[\]]+)+$")
    name: str = Field(max_length=255, pattern=r"^[^\\\x00-\x1f*?\[\]]+$")
    type: Literal["string", "dword", "multistring"]
    value: str | int | tuple[str, ...]

    @model_validator(mode="after")
    def _fits_its_type(self) -> RegistryValue:
        match self.type, self.value:
            case "dword", int(number) if 0 <= number < 1 << 32 and not isinstance(number, bool):
                pass
            case "string", str(text) if _is_line(text):
                pass
            case "multistring", tuple(lines) if 0 < len(lines) <= 64 and all(line and _is_line(line) for line in lines):
                pass
            case _:
                raise ValueError(
                    f"{self.value!r:.80} is not the value of a {self.type}: a dword is a number below 4294967296, a "
                    "string one line, a multistring a tuple of lines"
                )
        return self

    @property
    def data(self) -> str:
        """The value as text: eight hexadecimal digits, or lines."""
        match self.value:
            case int(number):
                return f"{number:08x}"
            case str(text):
                return text
            case lines:
                return "\n".join(lines)

    @property
    def place(self) -> str:
        """Key and name."""
        return rf"{self.key}\{self.name}"


def why_not(path: str, text: str, of: SystemName, own: Sequence[str] = ()) -> str:
    """Why a node of this system can't be given the file; empty if it can.

    :param own: what winlab writes besides what the system's ``Paths.own`` has.
    """
    paths = system.get(of).paths
    if not re.fullmatch(paths.form, path) or len(path) > 255 or {".", ".."} & set(re.split(r"[/\\]", path)):
        return f"it is not {paths.described}"
    if _is_below(path, (*paths.own, *own), paths):
        return "winlab or Kubernetes writes there"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "its text is not Unicode"
    return f"it has {size} bytes, and {SIZE} are allowed" if size > SIZE else ""


def why_not_set(value: RegistryValue) -> str:
    """Why a node can't be given the value; empty if it can."""
    return "winlab sets it" if _is_below(value.key, KEYS_OWN, system.WINDOWS.paths) else ""


def too_much(texts: Sequence[str], values: int) -> str:
    """Why all of it together is too much for one node; empty if it is not."""
    total = sum(len(text.encode(errors="replace")) for text in texts)
    if len(texts) > FILES or total > TOTAL:
        return f"{len(texts)} files with {total} bytes; {FILES} files with {TOTAL} bytes are allowed"
    return f"{values} registry values; {VALUES} are allowed" if values > VALUES else ""


def _is_below(path: str, own: Sequence[str], paths: Paths) -> bool:
    full = f"{paths.key(path)}{paths.separator}"
    return any(full.startswith(f"{paths.key(one)}{paths.separator}") for one in own)


def _is_line(text: str) -> bool:
    return len(text) <= 4096 and not re.search(r"[\x00-\x1f\ud800-\udfff]", text)
