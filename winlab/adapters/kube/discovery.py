"""Which clusters this host has or knows: kubeconfigs, containers and files. Reads only, without sudo.

No context is used, so that no program runs that a kubeconfig names (``exec``). The sockets of Docker and Podman are
asked only where this account may use them already. Names come from other people: they are checked, and never reach a
shell.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from winlab import account, documents, run
from winlab.design.clusters import known
from winlab.design.clusters.model import Containers, Kind
from winlab.errors import WinlabError

LARGEST = 4 << 20  # bytes of a kubeconfig
MOST = 200  # contexts or containers that are read
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.:/@+-]{0,199}")
PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # a name that is one folder
ENGINES = ("docker", "podman")
SECONDS = 10.0
ACTS = ("exec", "auth-provider")  # fields of a user by which using a context runs a program


@dataclass(frozen=True)
class Candidate:
    """A cluster that was found.

    :param kind: the distribution's name; empty if nothing shows it.
    :param where: the file, or the container.
    :param use: the options of ``winlab join`` for it, or how to get a kubeconfig; *note*: what else is known.
    """

    name: str
    kind: str
    where: str
    use: str
    note: str = ""


def find() -> list[Candidate]:
    """All clusters that this host shows."""
    found = [*_contexts(), *_files()]
    for engine in ENGINES:
        found += _containers(engine)
    return found


def _contexts() -> Iterator[Candidate]:
    """The contexts of the user's kubeconfigs."""
    listed = os.environ.get("KUBECONFIG") or str(account.expanded("~/.kube/config"))
    for path in dict.fromkeys(Path(one) for one in listed.split(os.pathsep) if one):
        yield from in_kubeconfig(path)


def in_kubeconfig(path: Path) -> Iterator[Candidate]:
    """The contexts of one kubeconfig; none are used."""
    try:
        config = documents.from_yaml(_bounded(path))
        users = {str(row["name"]): row.get("user") or {} for row in config.get("users") or []}
        rows = [(str(row["name"]), str(row["context"].get("user"))) for row in config.get("contexts") or []][:MOST]
    except FileNotFoundError:
        return
    except PermissionError:
        yield Candidate("", "", str(path), "", "This account may not read it.")
        return
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        yield Candidate("", "", str(path), "", "It is not a kubeconfig.")
        return
    for name, user in rows:
        if NAME.fullmatch(name):
            use = shlex.join(["--kubeconfig", str(path), "--context", name])
            yield Candidate(name, _kind_of(name), str(path), use, _acts(users.get(user)))


def _acts(user: Any) -> str:
    """What using a context would run, if that is anything."""
    if not isinstance(user, dict) or not any(user.get(field) for field in ACTS):
        return ""
    return "To log in, kubectl runs a program that the kubeconfig names; winlab has not run it."


def _kind_of(context: str) -> str:
    for kind in known.every():
        if kind.contexts and re.fullmatch(kind.contexts, context):
            return kind.name
        at = account.expanded(kind.profile_file.format(context)) if PROFILE.fullmatch(context) else Path()
        if kind.profile_file and at.is_file():
            return kind.name
    return ""


def _files() -> Iterator[Candidate]:
    """Administrators' kubeconfigs at the places where distributions write them."""
    for kind in known.every():
        for file in kind.admin_files:
            path = Path(file.path)
            try:
                path.stat()
                readable = os.access(path, os.R_OK)
            except FileNotFoundError:
                continue
            except OSError:  # a folder above it can't be entered: nothing is known
                continue
            note = "" if readable else f"It can be read by {file.readers}: copy it, and give the copy to yourself."
            yield Candidate(kind.name, kind.name, file.path, f"--kubeconfig {file.path}", note)


def _containers(engine: str) -> Iterator[Candidate]:
    """The clusters whose controllers are containers, if this account may ask the engine."""
    program = shutil.which(engine)
    if program is None:
        return
    for kind in known.every():
        if (how := kind.containers) is not None:
            yield from _of_kind(program, engine, kind, how)


def _of_kind(program: str, engine: str, kind: Kind, how: Containers) -> Iterator[Candidate]:
    form = f'{{{{.Names}}}}\t{{{{.Label "{how.cluster}"}}}}\t{{{{.Label "{how.role}"}}}}'
    words = [program, "ps", "--no-trunc", f"--filter=label={how.cluster}", f"--format={form}"]
    try:
        printed = run.watched(words, timeout=SECONDS).stdout
    except WinlabError:  # no daemon, or no permission
        return
    names = []
    for line in printed.splitlines()[:MOST]:
        container, _, rest = line.partition("\t")
        name, _, role = rest.partition("\t")
        if NAME.fullmatch(container) and NAME.fullmatch(name) and (not how.controller or role == how.controller):
            names.append((name, container))
    for name, container in dict(names).items():
        yield Candidate(name, kind.name, f"{engine} container {container}", how.kubeconfig.format(shlex.quote(name)))


def _bounded(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"'{path}' has more than {LARGEST:,} bytes")
    return content.decode()
