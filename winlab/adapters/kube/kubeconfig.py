"""Kubeconfig files: the lab's own, and merging it into the user's. Touches only the files that it is given.

A guest's admin.conf is not trusted: a kubeconfig may name programs for kubectl to run and files for it to send. Only
certificates and a key are taken from it (:mod:`winlab.adapters.kube.reduced`).

The user's file is edited as YAML nodes: what stays keeps its spelling and its order. Only comments and blank lines are
lost, as with ``kubectl config``. kubectl itself is not used for it: docs/architecture.md, "Decisions", says why.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from winlab import documents
from winlab.adapters.kube import reduced
from winlab.adapters.kube.reduced import Identity
from winlab.design.cni.model import SERVER_NAME
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError, WinlabError, together
from winlab.files import is_no_file, write_atomic
from winlab.lab_folder import CURE, LabFolder

LISTS = ("clusters", "users", "contexts")
CURRENT = "current-context"
DIRECT = "winlab.internal/direct"  # the extension of a kubeconfig's cluster that is reached without a proxy
MERGED = "merged-kubeconfigs.json"  # in the lab's folder: the files that contain its entries
ELSEWHERE = "Name another file in the variable KUBECONFIG; 'winlab kubeconfig' without --merge prints it."
SIGNATURE = b"winlab\n"  # what our own locks contain
PATIENCE = 5.0  # seconds to wait for another program's lock


def for_lab(identity: Identity, lab: str, endpoint: str, network: str) -> str:
    """The kubeconfig of a lab's own cluster.

    :param identity: what its controller reports.
    :param endpoint: host:port by which this host reaches the API server.
    :param network: the CIDR of such addresses, which are never reached through a proxy.
    """
    host = endpoint.rpartition(":")[0]
    cluster = {
        "server": f"https://{endpoint}",
        # in each API server's certificate: the address may have changed since the certificate was made
        "tls-server-name": SERVER_NAME,
        reduced.CA: identity.authority,
        "extensions": [{"name": DIRECT, "extension": [network, host]}],
    }
    return named(lab, cluster, {reduced.CERTIFICATE: identity.certificate, reduced.KEY: identity.key})


def named(lab: str, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    """A kubeconfig with cluster, user and context named after the lab."""
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name(lab), "cluster": cluster}],
        "users": [{"name": name(lab), "user": user}],
        "contexts": [{"name": name(lab), "context": {"cluster": name(lab), "user": name(lab)}}],
        CURRENT: name(lab),
    }
    return yaml.safe_dump(made, sort_keys=False)


def direct(path: Path) -> list[str]:
    """The hosts and networks that a kubeconfig's cluster is reached at without a proxy; empty if it does not say."""
    try:
        cluster = documents.from_yaml(path.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
        rows = [row["extension"] for row in cluster.get("extensions") or [] if row["name"] == DIRECT]
        return [str(one) for row in rows for one in row]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        return []


def name(lab: str) -> str:
    """The name of a lab's context, cluster and user."""
    return f"winlab-{lab}"


def files() -> list[Path]:
    """The user's kubeconfig files in kubectl's order: those in ``KUBECONFIG``, otherwise the default one."""
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(part).absolute() for part in listed] or [Path.home() / ".kube/config"]


def target() -> Path:
    """The file that gets new entries: the first that exists, otherwise the last.

    As kubectl does it (client-go, tools/clientcmd, PathOptions.GetDefaultFilename); but a device or pipe, such as
    /dev/null, counts as empty, and nothing is written there.

    :raises AccessError: one can't be accessed.
    """
    every = files()
    return next((path for path in every if _is_file(path)), every[-1])


def merge(path: Path, own: str, lab: str, *, use: bool) -> None:
    """Merge a lab's kubeconfig into another one, replacing that lab's old entries; everything else stays.

    A namespace that the user chose for the lab's context also stays.

    :param use: also make it the current context, which otherwise does not change.
    :raises UsageError: *path* is not a kubeconfig that can be read; it is not changed.
    :raises ConflictError: it has a context of that name that winlab did not make, or another program has it locked.
    :raises AccessError: it can't be written.
    """
    mine = documents.from_yaml(own)

    def change(config: dict[str, Any]) -> dict[str, Any]:
        if _is_foreign(config, lab):
            raise ConflictError(
                f"'{path}' has a context '{name(lab)}' that winlab did not make.",
                cure=f"Rename it ('kubectl config rename-context {name(lab)} ...'), or give the lab another name.",
            )
        for row in mine["contexts"]:
            row["context"] = {**_context(config, lab), **row["context"]}
        changes = {key: mine[key] for key in LISTS if _mine(config, key, lab) != mine[key]}
        return {**changes, CURRENT: name(lab)} if use else changes

    _change(path, lab, change)


def unmerge(path: Path, lab: str) -> bool:
    """Remove a lab's entries from a kubeconfig; returns whether there were any. Entries that winlab did not make stay.

    :raises UsageError: *path* is not a kubeconfig that can be read; it is not changed.
    :raises ConflictError: another program has it locked.
    :raises AccessError: it can't be written.
    """

    def change(config: dict[str, Any]) -> dict[str, Any]:
        if _is_foreign(config, lab):
            return {}
        changes: dict[str, Any] = {key: [] for key in LISTS if _mine(config, key, lab)}
        return {**changes, CURRENT: ""} if config.get(CURRENT) == name(lab) else changes

    # a file that is not to be changed is not locked
    return _is_file(path) and bool(change(_read(path)[0])) and _change(path, lab, change)


def publish(lab: str, *, use: bool = False) -> Path:
    """Merge a lab's kubeconfig into the user's; returns the file that has it now. Safe to repeat.

    :param use: make the lab's context the current one.
    :raises WinlabError: as :func:`merge`; or the lab has no kubeconfig.
    """
    folder = LabFolder(lab)
    own, path = reduced.harmless(read(folder), lab), target()
    chooser = _chooser() or path
    # noted before the merge: destroy copes with a note for something that was never merged
    _note(folder, [path, chooser] if use else [path])
    merge(path, own, lab, use=use and chooser == path)
    if use and chooser != path:
        _change(chooser, lab, lambda _: {CURRENT: name(lab)})
    return path


def read(folder: LabFolder) -> str:
    """The lab's own kubeconfig.

    :raises NotFoundError: the lab has no cluster, or was made from another account.
    """
    try:
        return folder.kubeconfig.read_text(encoding="utf-8")
    except ValueError as error:  # not UTF-8
        raise WinlabError(
            f"The kubeconfig of the lab '{folder.lab}' is damaged.",
            why=str(error),
            cure="Remove it, and run the lab's create command again: that fetches it again.",
            evidence=str(folder.kubeconfig),
        ) from error
    except OSError as error:
        raise NotFoundError(
            f"The lab '{folder.lab}' has no kubeconfig in this account.",
            why=str(error),
            cure="Run the lab's create command again (without --until guests).",
        ) from error


def forget(lab: str) -> bool:
    """Remove a lab from every file that it was merged into; returns whether there was any entry. Safe to repeat.

    :raises WinlabError: a file can't be changed; the others were.
    """
    folder = LabFolder(lab)
    removed, problems = False, []
    for path in _noted(folder):
        try:
            removed |= unmerge(path, lab)
        except WinlabError as error:
            problems.append(error)
    if problems:
        raise together(problems)
    try:
        (folder.path / MERGED).unlink(missing_ok=True)
    except OSError as error:
        raise AccessError(f"'{folder.path / MERGED}' can't be removed.", why=str(error), cure=CURE) from error
    return removed


def _chooser() -> Path | None:
    """The user's file that sets the current context: the first that names one."""
    return next((path for path in files() if _is_file(path) and _read(path)[0].get(CURRENT)), None)


def _note(folder: LabFolder, paths: list[Path]) -> None:
    every = dict.fromkeys([*_noted(folder), *paths])
    folder.write(folder.path / MERGED, json.dumps([str(path) for path in every]) + "\n")


def _noted(folder: LabFolder) -> list[Path]:
    try:
        entries = [str(entry) for entry in documents.from_json((folder.path / MERGED).read_text(encoding="utf-8"))]
        if any("\0" in entry or not Path(entry).is_absolute() for entry in entries):
            raise ValueError("these are not paths")
        return [Path(entry) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError):
        return files()  # the note is damaged: look where a merge would write now
    except OSError as error:
        raise AccessError(f"'{folder.path / MERGED}' can't be read.", why=str(error), cure=CURE) from error


def _change(path: Path, lab: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Change a kubeconfig; returns whether there was anything to change.

    :param change: what changes, by the file's values: the lab's rows of a list, or the current context.
    """
    with _locked(path):
        config, root = _read(path)
        changes = change(config)
        if changes:
            _write(path, _edited(config, root, lab, changes))
        return bool(changes)


def _edited(config: dict[str, Any], root: yaml.MappingNode, lab: str, changes: dict[str, Any]) -> str:
    """A kubeconfig's text with new rows for the lab. Everything else keeps its spelling.

    PyYAML and kubectl differ about plain words: for PyYAML 12:34 is the number 754 and 1e5 is text; for kubectl 12:34
    is text and 1e5 is a number.
    """
    old = {key.value: node for key, node in root.value}
    fresh = {key: _node(value) for key, value in changes.items()}
    for key in changes.keys() & LISTS:
        rows = config.get(key) or []
        nodes = zip(rows, old[key].value if rows else (), strict=True)
        fresh[key].value[:0] = [node for row, node in nodes if row.get("name") != name(lab)]
    root.value = [(key, fresh.pop(key.value, node)) for key, node in root.value]
    root.value += [(_node(key), node) for key, node in fresh.items()]
    return yaml.serialize(root, allow_unicode=True)


def _node(value: Any) -> yaml.Node:
    return yaml.representer.SafeRepresenter(sort_keys=False).represent_data(value)


def _read(path: Path) -> tuple[dict[str, Any], yaml.MappingNode]:
    """A kubeconfig's fields, as values and as nodes.

    :raises UsageError: it is not a kubeconfig, or rewriting it would lose something.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        config, root = documents.from_yaml(text), documents.nodes(text)
        if isinstance(root, yaml.MappingNode) and [key.value for key, _ in root.value] != list(config):
            raise ValueError("its fields are not each written once, by name")  # but with '<<', or as a number
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The kubeconfig '{path}' can't be read; it was not changed.", why=str(error)) from error
    if config is None:
        root = _node(config := {"apiVersion": "v1", "kind": "Config"})
    fine = isinstance(config, dict) and all(
        isinstance(config.get(key) or [], list) and all(_is_row(row) for row in config.get(key) or []) for key in LISTS
    )
    if not fine or config.get("kind", "Config") != "Config" or not isinstance(root, yaml.MappingNode):
        raise UsageError(f"'{path}' is not a kubeconfig; it was not changed.", cure=ELSEWHERE)
    return config, root


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("context") or {}, dict)


def _mine(config: dict[str, Any], key: str, lab: str) -> list[dict[str, Any]]:
    return [row for row in config.get(key) or [] if row.get("name") == name(lab)]


def _context(config: dict[str, Any], lab: str) -> dict[str, Any]:
    """The lab's context in the user's file."""
    return next((row.get("context") or {} for row in _mine(config, "contexts", lab)), {})


def _is_foreign(config: dict[str, Any], lab: str) -> bool:
    contexts = _mine(config, "contexts", lab)
    return any((row.get("context") or {}).get("cluster") != name(lab) for row in contexts)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a kubeconfig as kubectl does while it writes: by making FILE.lock (client-go, tools/clientcmd, lockFile)."""
    if is_no_file(path):
        raise UsageError(f"'{path}' is not a regular file; nothing was written.", cure=ELSEWHERE)
    lock, limit = path.with_name(path.name + ".lock"), time.monotonic() + PATIENCE
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        while (handle := _make(lock)) is None:
            if _break_abandoned(lock):
                continue
            if time.monotonic() > limit:
                raise ConflictError(
                    f"Another program is changing '{path}'.",
                    why=f"'{lock}' exists.",
                    cure="Remove that file if no kubectl or winlab is running.",
                )
            time.sleep(0.1)
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink(missing_ok=True)
        os.close(handle)


def _make(lock: Path) -> int | None:
    """Make a lock file, held by the kernel, too, for as long as this process lives; None if there is one."""
    try:
        handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.write(handle, SIGNATURE)  # kubectl's own locks are empty
    return handle


def _break_abandoned(lock: Path) -> bool:
    """Remove the lock of a winlab that was killed: no process holds it in the kernel. Returns whether it was one."""
    flags = os.O_RDONLY | os.O_NONBLOCK  # a pipe would wait for a writer
    with suppress(OSError), os.fdopen(os.open(lock, flags), "rb") as file:  # it is held, gone, or not readable
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # a lock that another winlab has just made is a different file
        if file.read() == SIGNATURE and os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            lock.unlink()
            return True
    return False


def _write(path: Path, text: str) -> None:
    """Write the file atomically, readable only by its owner, who stays the same. A symbolic link stays a link."""
    try:
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        if place.exists() and not os.access(place, os.W_OK):  # the rename would still replace it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
        write_atomic(place, text, mode=0o600, durable=True, keep_owner=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _not_written(path, error) from error


def _is_file(path: Path) -> bool:
    """Whether there is a regular file.

    :raises AccessError: it can't be accessed.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: Exception) -> AccessError:
    return AccessError(f"The kubeconfig '{path}' can't be written.", why=str(error), cure=ELSEWHERE)
