"""The secrets of a lab that are known here, so that they can be removed from what others will read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import yaml

from winlab.design.spec.proxy import LOGIN, without_login
from winlab.lab_folder import LabFolder
from winlab.steps.fresh import FRESH

# What credentials.json has besides secrets
PUBLIC = frozenset({"identity", "ssh_key_public", "host_key_public", "certificate", "ca_certificate"})
PRIVATE = frozenset({"product_key", "client-key-data", "token", "password"})  # in the design and in a kubeconfig
TEXT = re.compile(r'"((?:[^"\\]|\\.){8,})"')


def of(folder: LabFolder) -> tuple[dict[str, str], list[str]]:
    """A lab's secrets by their names, and why some may be unknown. A damaged file counts text by text.

    A copy whose own credentials are unfinished has two sets of them.
    """
    (secrets, problems), (others, more) = _in(folder), _in(folder.within(FRESH))
    return {**secrets, **{f"{FRESH} {name}": secret for name, secret in others.items()}}, [*problems, *more]


def _in(folder: LabFolder) -> tuple[dict[str, str], list[str]]:
    secrets: dict[str, str] = {}
    problems: list[str] = []
    for path in (folder.path / "credentials.json", folder.design, folder.kubeconfig, folder.ssh_key):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{path.name} can't be read: {error.strerror}")
            continue
        if path == folder.ssh_key:
            secrets["ssh key"] = text
            continue
        try:
            value = yaml.safe_load(text) if path == folder.kubeconfig else json.loads(text)
        except (ValueError, RecursionError, yaml.YAMLError):
            found = dict.fromkeys(one[1].replace("\\n", "\n") for one in TEXT.finditer(text))
            secrets |= {f"{number} of the damaged {path.name}": one for number, one in enumerate(found, start=1)}
            continue
        wanted = None if path.name == "credentials.json" else PRIVATE
        secrets |= dict(_secret(value, "" if wanted is None else path.stem, wanted))
    return secrets, problems


def without(value: Any) -> Any:
    """A value of JSON with placeholders for product keys, and for names and passwords in addresses."""
    if isinstance(value, dict):
        return {name: "<product key>" if name == "product_key" and one else without(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without(one) for one in value]
    return without_login(value) if isinstance(value, str) else value


def _secret(value: Any, path: str, wanted: frozenset[str] | None, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts below a value that are secret, by their paths as text; *wanted* None: all but the public ones.

    Of an address, the name and password are.
    """
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _secret(one, f"{path} {key}".strip(), wanted, str(key))
    elif isinstance(value, list):
        for number, one in enumerate(value, start=1):
            yield from _secret(one, f"{path} {number}", wanted, name)
    elif isinstance(value, str) and value:
        place = path.replace("_", " ").removeprefix("nodes ")
        if name not in PUBLIC if wanted is None else name in wanted:
            yield place, value
        elif wanted is not None and (login := LOGIN.search(value)):
            yield place, login[0]
            yield f"{place} password", unquote(login[0].partition(":")[2])
