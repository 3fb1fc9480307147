"""Kubeconfig files: the lab's own, and merging it into the user's. Touches only the files that it is given.

A guest's admin.conf is not believed: a kubeconfig may name programs for kubectl to run and files for it to send. Only
certificates and a key are taken from it (:mod:`winlab.adapters.kube.reduced`).

The user's file keeps its comments, its order and its other entries wherever YAML allows it
(:mod:`winlab.adapters.kube.yamltext`). It is written as kubectl does: under kubectl's lock file, readable only by its
owner.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from winlab import documents, locks, settings
from winlab.adapters.kube import reduced, yamltext
from winlab.adapters.kube.reduced import Identity
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError, WinlabError, together
from winlab.files import write_atomic
from winlab.lab_folder import CURE, LabFolder

LISTS = ("clusters", "users", "contexts")
CURRENT = "current-context"
DIRECT = "winlab.internal/direct"  # the extension of a kubeconfig's cluster that is reached without a proxy
MERGED = "merged-kubeconfigs.json"  # in the lab's folder: the files that contain its entries
LOCKED_BY = "winlab"  # what the content of our own lock begins with
PATIENCE = 5.0  # seconds to wait for another program's lock


def for_lab(identity: Identity, lab: str, endpoint: str, network: str) -> str:
    """The kubeconfig of a lab's own cluster.

    :param identity: what its controller tells.
    :param endpoint: host:port by which this host reaches the API server.
    :param network: the CIDR of such addresses, which are never reached through a proxy.
    """
    host = endpoint.rpartition(":")[0]
    cluster = {
        "server": f"https://{endpoint}",
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
    """The user's kubeconfig files in kubectl's order: those in ``KUBECONFIG``, else the default one."""
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(part).absolute() for part in listed] or [Path.home() / ".kube/config"]


def target() -> Path:
    """The file that gets new entries: the first that exists, else the last.

    As kubectl does it (client-go, tools/clientcmd, PathOptions.GetDefaultFilename).

    :raises AccessError: one can't be looked at.
    """
    every = files()
    return next((path for path in every if _is_there(path)), every[-1])


def merge(path: Path, own: str, lab: str, *, use: bool) -> None:
    """Merge a lab's kubeconfig into another one, replacing that lab's old entries; everything else stays.

    A namespace that the user chose for the lab's context also stays.

    :param use: also make it the current context, which otherwise stays.
    :raises UsageError: *path* is not a kubeconfig; it is not changed.
    :raises ConflictError: it has a context of that name that winlab did not make, or another program has it locked.
    :raises AccessError: it can't be written.
    """
    mine = documents.from_yaml(own)
    with _locked(path):
        text, config = _read(path)
        _refuse_foreign(path, config, lab)
        for row in mine["contexts"]:
            row["context"] = {**_context(config, lab), **row["context"]}
        if all(_mine(config, key, lab) == mine[key] for key in LISTS) and not use:
            return
        wanted = _without(config, lab)
        for key in LISTS:
            wanted[key] = [*(wanted.get(key) or []), *mine[key]]
        if use:
            wanted[CURRENT] = name(lab)
        _write(path, yamltext.edit(text, wanted))


def unmerge(path: Path, lab: str) -> bool:
    """Remove a lab's entries from a kubeconfig; whether there were any. Entries that winlab did not make stay.

    :raises UsageError: *path* is not a kubeconfig; it is not changed.
    :raises ConflictError: another program has it locked.
    :raises AccessError: it can't be written.
    """
    if not _is_there(path):
        return False
    if _cleared(config := _read(path)[1], lab) == config:
        return False  # a file that is not to be changed is not locked
    with _locked(path):
        text, config = _read(path)
        wanted = _cleared(config, lab)
        if wanted == config:
            return False
        _write(path, yamltext.edit(text, wanted))
        return True


def _cleared(config: dict[str, Any], lab: str) -> dict[str, Any]:
    """The file's content without the lab."""
    wanted = config if _is_foreign(config, lab) else _without(config, lab)
    if wanted.get(CURRENT) == name(lab) and not _mine(wanted, "contexts", lab):
        wanted = {**wanted, CURRENT: ""}
    return wanted


def publish(lab: str, *, use: bool = False) -> Path:
    """Merge a lab's kubeconfig into the user's; the file that has it now. Safe to repeat.

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
        with _locked(chooser):
            text, config = _read(chooser)
            _write(chooser, yamltext.edit(text, {**config, CURRENT: name(lab)}))
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
            cure="Remove it, and run the lab's create command again: it fetches it anew.",
            evidence=str(folder.kubeconfig),
        ) from error
    except OSError as error:
        raise NotFoundError(
            f"The lab '{folder.lab}' has no kubeconfig in this account.",
            why=str(error),
            cure="Run the lab's create command again (without --until guests).",
        ) from error


def forget(lab: str) -> bool:
    """Remove a lab from every file that it was merged into; whether there was any entry. Safe to repeat.

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
    return next((path for path in files() if _is_there(path) and _read(path)[1].get(CURRENT)), None)


def _note(folder: LabFolder, paths: list[Path]) -> None:
    every = dict.fromkeys([*_noted(folder), *paths])
    folder.write(folder.path / MERGED, json.dumps([str(path) for path in every]) + "\n")


def _noted(folder: LabFolder) -> list[Path]:
    try:
        entries = [str(entry) for entry in documents.from_json((folder.path / MERGED).read_text(encoding="utf-8"))]
        if any("\0" in entry or not Path(entry).is_absolute() for entry in entries):
            raise ValueError("these are no paths")
        return [Path(entry) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError):
        return files()  # the note is damaged: look where a merge would write now
    except OSError as error:
        raise AccessError(f"'{folder.path / MERGED}' can't be read.", why=str(error), cure=CURE) from error


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        config = documents.from_yaml(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The kubeconfig '{path}' can't be read; it was not changed.", why=str(error)) from error
    if config is None:
        config = {}
    fine = isinstance(config, dict) and all(
        isinstance(config.get(key) or [], list) and all(_is_row(row) for row in config.get(key) or []) for key in LISTS
    )
    if not fine or config.get("kind", "Config") != "Config":
        raise UsageError(
            f"'{path}' is not a kubeconfig; it was not changed.", cure="Name another file in the variable KUBECONFIG."
        )
    return text, {"apiVersion": "v1", "kind": "Config", **config}


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


def _refuse_foreign(path: Path, config: dict[str, Any], lab: str) -> None:
    if _is_foreign(config, lab):
        raise ConflictError(
            f"'{path}' has a context '{name(lab)}' that winlab did not make.",
            cure=f"Rename it ('kubectl config rename-context {name(lab)} ...'), or give the lab another name.",
        )


def _without(config: dict[str, Any], lab: str) -> dict[str, Any]:
    left = dict(config)
    for key in LISTS:
        if _mine(config, key, lab):
            left[key] = [row for row in config[key] if row.get("name") != name(lab)]
    return left


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a kubeconfig as kubectl does while it writes: by making FILE.lock (client-go, tools/clientcmd, lockFile)."""
    lock = path.with_name(path.name + ".lock")
    mine, limit = f"{LOCKED_BY} {locks.signature()}\n", time.monotonic() + PATIENCE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(path, error) from error
    while True:
        try:
            handle = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError as error:
            if _break_abandoned(lock):
                continue
            if time.monotonic() > limit:
                pid = _pid(lock)
                raise ConflictError(
                    f"Another program is changing '{path}'.",
                    why=f"'{lock}' exists." + (f" winlab's process {pid} made it." if pid else ""),
                    cure=f"Wait for process {pid} to end." if pid else "Remove that file if no kubectl is running.",
                ) from error
            time.sleep(0.1)
        except OSError as error:
            raise _not_written(path, error) from error
    try:
        with os.fdopen(handle, "w") as file, suppress(OSError):  # the signature only helps those who find a stale lock
            file.write(mine)
        yield
    finally:
        with suppress(OSError):  # then it is a stale one, which the next winlab breaks
            lock.unlink(missing_ok=True)


def _break_abandoned(lock: Path) -> bool:
    """Remove a lock whose winlab was killed; whether it was one. kubectl's own locks are empty and are left alone."""
    state = settings.state_dir()
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        # otherwise a second winlab could remove the first one's new lock
        with locks.briefly(state / "kubeconfig.lock"):
            content = _content(lock)
            if not content.startswith(LOCKED_BY) or not locks.is_gone(content.removeprefix(LOCKED_BY)):
                return False
            lock.unlink(missing_ok=True)
            return True
    except OSError as error:
        raise AccessError(
            f"The abandoned lock '{lock}' can't be removed.", why=str(error), cure=CURE, causes=[error]
        ) from error


def _pid(lock: Path) -> int | None:
    content = _content(lock)
    return locks.signer(content.removeprefix(LOCKED_BY)) if content.startswith(LOCKED_BY) else None


def _content(lock: Path) -> str:
    try:
        return lock.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Write the file atomically, readable only by its owner. A symbolic link stays one."""
    try:
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, text, mode=0o600, durable=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _not_written(path, error) from error


def _is_there(path: Path) -> bool:
    """Whether a kubeconfig exists.

    :raises AccessError: it can't be looked at.
    """
    try:
        return path.exists()
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: Exception) -> AccessError:
    return AccessError(
        f"The kubeconfig '{path}' can't be written.",
        why=str(error),
        cure="Name another file in the variable KUBECONFIG; 'winlab kubeconfig' without --merge prints it.",
    )
