"""Searches for labs' secrets wherever they must not be: plain, as base64 and as UTF-16.

Every random value of a lab is as good as a planted one: they are read from the lab's own folder. What may have them is
listed in :data:`ALLOWED` with the reason, and must be closed to everyone but its owner.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess  # noqa: TID251 - asks libvirt and OVN for what they know
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

POOL = Path("/var/lib/winlab/pool")
SHORTEST = 8  # characters: a VNC password
LARGEST = 8 << 20  # bytes of a file that is read; disks and images are larger
PUBLIC = ("identity", "ssh_key_public", "host_key_public", "certificate", "ca_certificate")
PRIVATE = ("product_key", "client-key-data", "token", "password")  # in the design and in a kubeconfig
ALLOWED = {
    "*/labs/*/credentials.json": "the lab's secrets themselves",
    "*/labs/*/id_ed25519": "ssh reads its key from a file",
    "*/labs/*/kubeconfig": "the cluster's administrator",
    "*/labs/*/design.json": "the spec, which may have a product key, or a proxy's password",
    "*/labs/*/staging-*": "on their way into an ISO; the next command that changes the lab sweeps it",
    f"{POOL}/*.seed.iso": "brings a Linux node its host key",
    f"{POOL}/*.answer.iso": "brings a Windows node its password, until it is ready",
    f"{POOL}/*.disk*.qcow2": "the node's own disk",
    f"{POOL}/*@*": "a snapshot has a lab's memory, its disks, and the VNC password in each machine's XML",
    f"{POOL}/*.restore": "the memory of a machine that is being restored",
    "*/snapshots/*@*.json*": "the record of a snapshot has the lab's credentials",
    "/etc/libvirt/qemu/*.xml": "libvirt's own copy of a domain, with the VNC password",
    "/run/libvirt/qemu/*.xml": "the same, of a running one",
}
PASSED_OVER = ("/tmp/pytest-of-*", "/tmp/bash_*")  # what tests and shells wrote, not winlab
LOGS = (Path("/var/log"),)
TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run"))
DATABASES = (Path("/var/lib/ovn"), Path("/etc/ovn"), Path("/etc/openvswitch"), Path("/var/lib/openvswitch"))


class Secrets:
    """The secrets of labs, to look for.

    :param values: by their names.
    :param since: when the oldest of them was made, in seconds since 1970: an older file can't have one.
    """

    def __init__(self, values: Mapping[str, str], since: float = 0.0) -> None:
        self.names = sorted(values)
        self.since = since
        self._forms = [
            (f"{name} ({how})", needle)
            for name, value in values.items()
            for part in _telling(value)
            for how, needle in _forms(part)
        ]

    @classmethod
    def of(cls, state: Path, labs: Iterable[str] = ()) -> Secrets:
        """Those of labs that have a folder in the state folder; of all by default."""
        values: dict[str, str] = {}
        since: list[float] = []
        for folder in [state / "labs" / lab for lab in labs] or sorted((state / "labs").glob("*/")):
            for file, wanted in (("credentials.json", None), ("design.json", PRIVATE), ("kubeconfig", PRIVATE)):
                try:
                    text = (folder / file).read_text()
                    since.append((folder / file).stat().st_mtime)
                except FileNotFoundError:
                    continue
                for path, value in _leaves(yaml.safe_load(text) if file == "kubeconfig" else json.loads(text)):
                    last = path.rpartition(".")[2]
                    if (last in wanted if wanted else last not in PUBLIC) and len(value) >= SHORTEST:
                        values[f"{folder.name}: {path}"] = value
        return cls(values, min(since, default=0.0) - 1)

    def within(self, content: bytes) -> list[str]:
        """The names of those that the content has, with their forms."""
        return sorted({name for name, needle in self._forms if needle in content})


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{path}.{number}")
    elif isinstance(value, str):
        yield path, value


def _telling(value: str) -> list[str]:
    """What identifies a secret: of a key in PEM (or in base64 of it) two lines of its middle, which are unique."""
    if not value.startswith("-----BEGIN"):
        try:
            decoded = base64.b64decode(value, validate=True).decode("ascii")
        except ValueError:
            return [value]
        if not decoded.startswith("-----BEGIN"):
            return [value]
        value = decoded
    lines = [line for line in value.splitlines() if not line.startswith("-----")]
    return lines[len(lines) // 2 :][:2]


def _forms(text: str) -> Iterator[tuple[str, bytes]]:
    plain, wide = text.encode(), text.encode("utf-16-le")
    yield "plain", plain
    yield "UTF-16", wide
    for how, content in (("base64", plain), ("base64 of UTF-16", wide)):
        for shift in range(3):
            # characters that depend on nothing but the content, wherever in the encoded text it is
            first, last = -(-shift * 8 // 6), (shift + len(content)) * 8 // 6
            yield how, base64.b64encode(bytes(shift) + content)[first:last]


def leaks(
    state: Path, labs: Iterable[str] = (), *, caches: Iterable[Path] = (), seen: Iterable[bytes] = ()
) -> list[str]:
    """Every place that has a secret of labs and must not: ``<lab>: <secret> (<form>) in <where>``; sorted.

    Empty is good; also if no lab has secrets yet. It takes a second or two and changes nothing. Needs root.

    :param state: the folder in WINLAB_STATE.
    :param labs: whose secrets; by default of all that have a folder there.
    :param caches: folders in WINLAB_CACHE to look into, too.
    :param seen: what a :class:`Watch` saw of processes that have ended.
    """
    secrets = Secrets.of(state, labs)
    if not secrets.names:
        return []
    every = list(_contents(secrets.since, (state, *caches)))
    every += [("a process that has ended", content) for content in seen]
    return sorted({f"{name} in {where}" for where, content in every for name in secrets.within(content)})


def _contents(since: float, more: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for kind in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{kind}"):
            yield f"{path} of {_read(path.with_name('comm')).decode().strip()}", _read(path)
    for command in _QUESTIONS:
        yield " ".join(command), _said(*command)
    for domain in _said("virsh", "-c", "qemu:///system", "list", "--all", "--name").decode().split():
        yield f"virsh dumpxml {domain}", _said("virsh", "-c", "qemu:///system", "dumpxml", domain)
    for folder in (*LOGS, *TEMPORARY, *DATABASES, POOL, *more):
        for path in _files(folder, since, own=folder in more):
            yield from _of_file(path)


_QUESTIONS = (
    ("ovsdb-client", "dump", "unix:/run/ovn/ovnnb_db.sock"),
    ("ovsdb-client", "dump", "unix:/run/ovn/ovnsb_db.sock"),
    ("ovsdb-client", "dump", "unix:/run/openvswitch/db.sock"),
)


def _files(folder: Path, since: float, *, own: bool) -> Iterator[Path]:
    """The files that may have a secret by accident: changed since, not allowed to have one, not as large as a disk."""
    for root, folders, names in os.walk(folder):
        if not own:
            folders[:] = [name for name in folders if not any(fnmatch(f"{root}/{name}", one) for one in PASSED_OVER)]
        for path in (Path(root) / name for name in names):
            try:
                what = path.lstat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(what.st_mode) or max(what.st_mtime, what.st_ctime) < since:
                continue
            if any(fnmatch(str(path), pattern) for pattern in ALLOWED):
                assert is_closed(path), f"others can read {path}, which has secrets"
            elif what.st_size <= LARGEST:
                yield path


def is_closed(path: Path) -> bool:
    """Whether only the owner can read a file, by its own mode or by that of a folder around it."""
    try:
        modes = [path.stat().st_mode & 0o044, *(folder.stat().st_mode & 0o011 for folder in path.parents)]
    except FileNotFoundError:
        return True  # it is gone
    return not all(modes)


def _of_file(path: Path) -> Iterator[tuple[str, bytes]]:
    yield str(path), _read(path)
    if path.parent.name == "support" and path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            for member in archive:
                if (file := archive.extractfile(member)) is not None:
                    yield f"{path}: {member.name}", file.read()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # a process that has ended, a file that is gone
        return b""


def _said(*command: str) -> bytes:
    return subprocess.run(command, capture_output=True, check=False).stdout


class Watch:
    """Keeps the arguments and the environments of all processes that it sees, for the length of a with-block."""

    EVERY = 0.25  # seconds

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self.EVERY):
            for process in Path("/proc").glob("[0-9]*"):
                self.seen |= {_read(process / "cmdline"), _read(process / "environ")}
