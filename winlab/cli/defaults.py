"""The user's defaults: a file of ``key: value`` lines, each of which stands for one ``WINLAB_*`` variable.

An option comes from the first of: the command line, the variable, this file, the option's own default. The file acts
as variables that the environment does not have, so there is no second way for a value to reach a command.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from winlab import settings
from winlab.errors import NotFoundError, UsageError
from winlab.near import did_you_mean

PREFIX = "WINLAB_"
LARGEST = 64 << 10  # bytes
KEY = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)*")
# Variables that are not an option's: what they set, and the default
SETTINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cache": ("The folder of images and downloads", "~/.cache/winlab"),
        "state": ("The folder of the labs' secrets and journals", "~/.local/state/winlab"),
        "libvirt-uri": ("The first hypervisor's libvirt", settings.LOCAL_LIBVIRT),
        "ovn-nb": ("OVN's northbound database", settings.NORTHBOUND),
        "stall-seconds": ("Seconds of silence after which a guest counts as stalled", "900"),
        "support-seconds": ("Seconds for the support archive of a failed command; 0: none", "30"),
        "debian-mirror": ("The Debian mirror that images are built from", "the host's own"),
    }
)


@dataclass(frozen=True)
class Key:
    """Something that can have a default.

    :param name: such as ``lab``, or ``node.add.count`` for an option of one command.
    :param help: what it sets.
    :param default: what applies without the user's; as text.
    :param option: of the command line; None: a variable only.
    """

    name: str
    help: str
    default: str
    option: Any = None

    @property
    def variable(self) -> str:
        """Its variable."""
        return PREFIX + re.sub("[.-]", "_", self.name).upper()

    @property
    def is_general(self) -> bool:
        """Whether it is of more than one command."""
        return "." not in self.name


def path() -> Path:
    """The file; ``WINLAB_CONFIG`` names another."""
    import platformdirs

    return Path(os.environ.get("WINLAB_CONFIG") or platformdirs.user_config_path("winlab") / "config.yaml")


def keys(main: Any) -> dict[str, Key]:
    """Everything that can have a default, by its name: the options of all commands, and settings.

    :param main: the main command.
    """
    found = {name: Key(name, text, default) for name, (text, default) in SETTINGS.items()}
    for words, option in _options(main, ()):
        if isinstance(option.envvar, str):
            name = option.envvar.removeprefix(PREFIX).lower().replace("_", "-")
        elif option.allow_from_autoenv and words:
            name = ".".join([*words, option.name.replace("_", "-")])
        else:
            continue
        found.setdefault(name, Key(name, (option.help or "").removesuffix("."), _text(option.default), option))
    return dict(sorted(found.items(), key=lambda row: (not row[1].is_general, row[0])))


def find(main: Any, name: str) -> Key:
    """The key of this name.

    :raises NotFoundError: there is none; the message names similar ones.
    """
    known = keys(main)
    if name not in known:
        cure = f"{did_you_mean(name, known)}'winlab config list --all' shows all of them."
        raise NotFoundError(f"There is no setting '{name}'.", cure=cure)
    return known[name]


def read() -> dict[str, str]:
    """The user's defaults by the names of their keys; empty if there is no file.

    :raises UsageError: the file can't be read, or is not lines of ``key: value``.
    """
    file = path()
    try:
        with file.open("rb") as opened:
            raw = opened.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _unusable(file, str(error)) from error
    import yaml

    from winlab import documents

    if len(raw) > LARGEST:
        raise _unusable(file, f"It has more than {LARGEST >> 10} KiB.")
    try:
        held = documents.from_yaml(raw)
    except (yaml.YAMLError, ValueError) as error:
        raise _unusable(file, str(error)) from error
    if held is None:
        return {}
    if not isinstance(held, dict):
        raise _unusable(file, "It is not lines of 'key: value'.")
    for name in held:
        if not isinstance(name, str) or not KEY.fullmatch(name):
            raise _unusable(file, f"'{name}' can't be the name of a setting.")
    return {name: _text(value) for name, value in held.items()}


@contextmanager
def applied() -> Iterator[frozenset[str]]:
    """Have the user's defaults count as variables for the length of a with-block, unless the environment has them.

    :returns: the variables that come from the file.
    :raises UsageError: the file can't be used.
    """
    held = {Key(name, "", "").variable: value for name, value in read().items()}
    added = {name: value for name, value in held.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield frozenset(added)
    finally:
        for name in added:
            os.environ.pop(name, None)


def write(name: str, value: str | None) -> Path:
    """Set a default, or remove it if *value* is None; other lines of the file stay. Returns the file.

    :raises UsageError: the file can't be read or written.
    """
    from winlab import files

    file = path()
    read()  # a file that can't be used is not changed
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    kept = [line for line in lines if line.partition(":")[0].strip(" \"'") != name]
    if value is not None:
        kept.append(f"{name}: {json.dumps(value)}")
    try:
        files.make_parents(file)
        files.write_named(file, "".join(f"{line}\n" for line in kept))
    except OSError as error:
        raise UsageError(f"'{file}' can't be written.", why=str(error)) from error
    return file


def _unusable(file: Path, why: str) -> UsageError:
    return UsageError(f"Your settings in '{file}' can't be used.", why=why, cure="Edit the file, or delete it.")


def _options(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            yield words, one
    for name, inner in getattr(command, "commands", {}).items():
        yield from _options(inner, (*words, name))


def _text(value: Any) -> str:
    """A value as a variable has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return " ".join(_text(one) for one in value)
    return "" if value is None else str(getattr(value, "text", value))
