"""``winlab.lock``: every input of a lab by its hash, beside the spec. Pure, apart from the file that it is given.

::

    format: 1
    winlab: 0.3.0                       the version that wrote it; not compared
    spec: 1-1-1                         what it was written for; not compared
    bundle: "sha256:..."                the bundle that was named, if any; another one is refused
    source: upstream                    where artifacts came from; not compared, only the artifacts are
    versions: {kubernetes: v1.36.3, containerd: 2.3.7, ...}
    profile: calico-vxlan
    components: {calico: v3.32.1, ...}  the versions of the profile's and the add-ons' parts
    media:                              the user's own, by the node's image
    - {name: windows-2022, file: server.iso, sha256: ...}
    images:                             from the catalog; ``key`` covers everything that winlab makes it from
    - {name: debian-13, key: ..., download: "sha512:...", sha256: ..., packages: {apt: 3.0.3, ...}}
    golden:                             images that Windows nodes are clones of; ``sha256`` if they were made before
    - {name: windows-2022, key: ..., sha256: ...}
    programs:
    - {name: kubelet.exe, version: v1.36.3, os: windows, sha256: ..., origin: ...}
    containers:
    - {name: registry.k8s.io/pause, version: 3.10.2, os: linux, sha256: ..., origin: ...}
    manifests:
    - {name: calico/tigera-operator.yaml, version: v3.32.1, sha256: ..., origin: ...}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from winlab import documents, files
from winlab.design.catalog.artifact import ContainerImage, Obtained, Program
from winlab.design.catalog.versions import Versions
from winlab.design.plan.model import Plan
from winlab.design.system import SystemName
from winlab.errors import AccessError, ConflictError, NotFoundError, UsageError
from winlab.version import __version__

LONGEST = 4 << 20  # bytes of a lock file
FORMAT = 1
NAME = "winlab.lock"
HEAD = (
    "# What the lab beside this file is made of, by hash. Written by 'winlab lock';\n"
    "# 'winlab create --locked' refuses whatever differs. Keep it with the spec.\n"
)
NAMED = 5  # the most packages that a message names
_HEX = r"^[0-9a-f]{64}$"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LockedMedium(_Row):
    """The user's own installation medium, drivers or program: for which image, as which file."""

    name: str
    file: str
    sha256: str = Field(pattern=_HEX)


class LockedImage(_Row):
    """An image of the catalog: its key in the cache and the digest of its download, and the file's digest if it is
    cached. For one that is built, the distribution's packages in it."""

    name: str
    key: str = Field(pattern=_HEX)
    download: str | None = None
    sha256: str | None = Field(None, pattern=_HEX)
    packages: dict[str, str] = {}


class LockedGolden(_Row):
    """A golden image: the image it is of, its key, and its file's digest if it is cached."""

    name: str
    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    sha256: str | None = Field(None, pattern=_HEX)


class Artifact(_Row):
    """A program, container image or manifest."""

    name: str
    version: str
    os: SystemName | None = None
    sha256: str = Field(pattern=_HEX)
    origin: str = ""


class Lock(_Row):
    """The whole file."""

    format: Literal[1] = 1
    winlab: str = __version__
    spec: str = ""
    source: str = ""
    bundle: str | None = Field(None, pattern=r"^sha256:[0-9a-f]{64}$")
    versions: Versions
    profile: str
    components: dict[str, str] = {}
    media: tuple[LockedMedium, ...] = ()
    images: tuple[LockedImage, ...] = ()
    golden: tuple[LockedGolden, ...] = ()
    programs: tuple[Artifact, ...] = ()
    containers: tuple[Artifact, ...] = ()
    manifests: tuple[Artifact, ...] = ()


_Input: TypeAlias = LockedMedium | LockedImage | LockedGolden | Artifact


def beside(spec: str) -> Path:
    """Where the lock file of a spec is: beside its file; for a shorthand or a name, in the current folder."""
    path = Path(spec)
    return (path.parent if spec.endswith((".yaml", ".yml")) or "/" in spec else Path()) / NAME


def collect(
    plan: Plan,
    obtained: Iterable[Obtained],
    *,
    media: Sequence[LockedMedium] = (),
    images: Sequence[LockedImage] = (),
    golden: Sequence[LockedGolden] = (),
    spec: str = "",
    source: str = "",
    bundle: str | None = None,
) -> Lock:
    """The lock of a plan and what was obtained for it; always in the same order.

    :param media: see :func:`winlab.operations.lock_inputs.media`.
    :param bundle: the digest of the bundle that the user named.
    :param images: see :func:`winlab.operations.lock_inputs.images`.
    :param golden: see :func:`winlab.operations.lock_inputs.golden`.
    """
    rows: dict[str, dict[tuple[str, str], Artifact]] = {"programs": {}, "containers": {}, "manifests": {}}
    for item in obtained:
        kind, row = _row(item)
        rows[kind][row.name, row.os or ""] = row
    return Lock(
        spec=spec,
        source=source,
        bundle=bundle,
        versions=plan.cluster.versions,
        profile=plan.cluster.profile,
        components=plan.components,
        media=tuple(sorted(set(media), key=lambda row: (row.name, row.file))),
        images=tuple(sorted({image.name: image for image in images}.values(), key=lambda row: row.name)),
        golden=tuple(sorted(golden, key=lambda row: (row.name, row.key))),
        programs=_sorted(rows["programs"]),
        containers=_sorted(rows["containers"]),
        manifests=_sorted(rows["manifests"]),
    )


def compare(locked: Lock, now: Lock, *, whole: bool = True) -> list[str]:
    """How *now* differs from the lock: a sentence for each input, which names it. Empty: no difference.

    :param whole: False: *now* is only a part of the lab, and missing inputs are not reported.
    """
    differences = []
    before, after = locked.versions.model_dump(), now.versions.model_dump()
    for field in before:
        if before[field] != after[field]:
            differences.append(f"versions.{field} is {after[field]}, locked is {before[field]}.")
    for name in sorted({**locked.components, **now.components}):
        old, new = (lock.components.get(name, "not there") for lock in (locked, now))
        if old != new and locked.profile == now.profile:
            differences.append(f"components.{name} is {new}, locked is {old}.")
    if locked.profile != now.profile:
        differences.append(f"The CNI profile is {now.profile}, locked is {locked.profile}.")
    differences += _other_bundle(locked, now.bundle)
    known, here = dict(_inputs(locked)), dict(_inputs(now))
    for name, row in here.items():
        if name not in known:
            if not (isinstance(row, LockedGolden) and row.sha256 is None):  # its inputs are locked
                differences.append(f"{name} is not in the lock.")
        elif why := _differs(known[name], row):
            differences.append(f"{name} {why}.")
    if whole:
        differences += [f"{name} is locked, but is no longer used." for name in known if name not in here]
    return differences


def require(locked: Lock, now: Lock, path: Path, *, whole: bool = True) -> None:
    """Make sure that *now* matches the lock.

    :raises ConflictError: it does not; every difference is named.
    """
    _refuse(compare(locked, now, whole=whole), path)


def require_bundle(locked: Lock, bundle: str | None, path: Path) -> None:
    """Make sure that a bundle is the locked one, before anything is taken out of it. A match does not verify what
    this host runs: the lock came with the spec.

    :param bundle: the digest of the bundle that the user named.
    :raises ConflictError: it is another one.
    """
    _refuse(_other_bundle(locked, bundle), path)


def _other_bundle(locked: Lock, bundle: str | None) -> list[str]:
    if not locked.bundle or not bundle or locked.bundle == bundle:
        return []
    return [f"The bundle is {bundle}, locked is {locked.bundle}."]


def _refuse(differences: list[str], path: Path) -> None:
    if differences:
        raise ConflictError(
            f"The lab's inputs differ from those locked in '{path}'.",
            why="\n".join(differences),
            cure="Use the locked inputs, or accept the new ones with 'winlab lock' and the same options.",
        )


def read(path: Path) -> Lock:
    """Read a lock file.

    :raises NotFoundError: there is none.
    :raises UsageError: this winlab does not recognize it as a lock file.
    """
    try:
        if files.is_no_file(path):
            raise OSError("it is not a file")
        if path.exists() and path.stat().st_size > LONGEST:
            raise OSError(f"it has more than {LONGEST:,} bytes")
        raw = documents.from_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no '{path}'.", cure="'winlab lock' with the same options writes it.") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"The lock file '{path}' can't be read.", why=str(error)) from error
    if isinstance(raw, dict) and raw.get("format") != FORMAT:
        raise UsageError(
            f"The lock file '{path}' has a format that this winlab does not know: {raw.get('format')!r}.",
            cure="Use the version of winlab that wrote it, or write a new one with 'winlab lock'.",
        )
    try:
        return Lock.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"The lock file '{path}' is not valid.",
            why=f"{place}: {first['msg']}" if place else first["msg"],
            cure="Write a new one with 'winlab lock'.",
        ) from error


def replaced(path: Path) -> Lock | None:
    """The lock file that a new one replaces; None if there is none, or it can't be understood.

    :raises UsageError: the existing file is not a winlab lock file.
    """
    try:
        return read(path)
    except NotFoundError:
        return None
    except UsageError:
        with suppress(OSError):  # a path that can't be checked is not a lock file
            if path.is_file() and path.read_bytes().startswith(HEAD.encode()):
                return None  # damaged, or from another version of winlab
        raise


def write(path: Path, lock: Lock) -> bool:
    """Write a lock file atomically; returns whether it changed. The same lock gives the same bytes.

    :raises UsageError: it is not a regular file.
    :raises AccessError: it can't be written.
    """
    files.check_named(path, stream=False)
    text = HEAD + _dump(lock)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return False
        files.write_atomic(path, text)
    except OSError as error:
        raise AccessError(
            f"The lock file '{path}' can't be written.",
            why=str(error),
            cure="Name another file with --file, or work in a folder that you can write to.",
        ) from error
    return True


def count(lock: Lock) -> int:
    """How many inputs a lock pins."""
    return len(list(_inputs(lock)))


def _dump(lock: Lock) -> str:
    data: dict[str, Any] = lock.model_dump(mode="json", exclude_none=True)
    rows = {key: data.pop(key) for key in ("media", "images", "golden", "programs", "containers", "manifests")}
    parts = [yaml.safe_dump(data, sort_keys=False)]
    for key, every in rows.items():  # one line per input, so that a diff is readable
        lines = [yaml.safe_dump(row, sort_keys=False, default_flow_style=True, width=10_000) for row in every]
        parts.append(f"{key}:\n" + "".join(f"- {line}" for line in lines) if lines else f"{key}: []\n")
    return "".join(parts)


def _row(item: Obtained) -> tuple[str, Artifact]:
    artifact = item.artifact
    common: dict[str, Any] = {"sha256": item.sha256, "origin": item.origin}
    if isinstance(artifact, Program):
        return "programs", Artifact(name=artifact.file, version=artifact.version, os=artifact.os, **common)
    if isinstance(artifact, ContainerImage):
        name, version = _reference(artifact.reference)
        return "containers", Artifact(name=name, version=version, os=artifact.os, **common)
    name = f"{artifact.project}/{artifact.name}"
    return "manifests", Artifact(name=name, version=artifact.version, **common)


def _reference(reference: str) -> tuple[str, str]:
    """``registry:5000/name:tag@digest`` as name and the rest."""
    bare, at, digest = reference.partition("@")
    folder, slash, last = bare.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{folder}{slash}{last}", f"{tag}{at}{digest}"


def _sorted(rows: dict[tuple[str, str], Artifact]) -> tuple[Artifact, ...]:
    return tuple(rows[key] for key in sorted(rows))


def _inputs(lock: Lock) -> Iterator[tuple[str, _Input]]:
    """Everything in a lock, with the name that messages use for it."""
    for medium in lock.media:
        yield f"The {medium.name}", medium
    for image in lock.images:
        yield f"The image {image.name}", image
    for golden in lock.golden:
        yield f"The golden image {golden.key} of {golden.name}", golden
    for kind, rows in (("program", lock.programs), ("container image", lock.containers), ("manifest", lock.manifests)):
        for row in rows:
            yield f"The {kind} {row.name}" + (f" ({row.os})" if row.os else ""), row


def _differs(locked: _Input, now: _Input) -> str:
    """How an input differs, as the rest of a sentence; empty if it does not."""
    if isinstance(locked, LockedImage) and isinstance(now, LockedImage):
        if locked.packages and now.packages and (locked.download, locked.key) == (now.download, now.key):
            return _other_packages(
                locked.packages, now.packages
            )  # two builds from the same packages may differ in bytes
        for name in ("download", "key", "sha256"):
            before, after = getattr(locked, name), getattr(now, name)
            # the file's own digest is known only if it is cached
            if before != after and (name != "sha256" or (before and after)):
                what = {"download": "the download", "key": "the key", "sha256": "the SHA-256"}[name]
                return f"has {what} {after or 'none'}, locked is {before or 'none'}"
        return ""
    if isinstance(locked, Artifact) and isinstance(now, Artifact) and locked.version != now.version:
        return f"is {now.version}, locked is {locked.version}"
    if locked.sha256 == now.sha256 or (isinstance(locked, LockedGolden) and None in (locked.sha256, now.sha256)):
        return ""  # a golden image has a digest once it is made
    return f"has the SHA-256 {now.sha256}{_from(now)}, locked is {locked.sha256}{_from(locked)}"


def _other_packages(locked: dict[str, str], now: dict[str, str]) -> str:
    names = sorted(name for name in locked.keys() | now.keys() if locked.get(name) != now.get(name))
    told = [f"{name} {now.get(name, 'missing')}, locked is {locked.get(name, 'none')}" for name in names[:NAMED]]
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"has other packages: {'; '.join(told)}{more}" if names else ""


def _from(row: _Input) -> str:
    if isinstance(row, Artifact) and row.origin:
        return f" ({row.origin})" if row.origin.startswith("built from ") else f" (from {row.origin})"
    return f" ({row.file})" if isinstance(row, LockedMedium) else ""
