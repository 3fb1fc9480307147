"""A storage pool in memory, as operations on snapshots see it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import disks

from winlab.errors import NotFoundError

PIECE = 1000


class MemoryPool:
    """Volumes and what they are based on. ``sent`` are the bytes that were put into sparse volumes."""

    def __init__(self, free: int = 1 << 40, folder: str = "/pool") -> None:
        self.folder = Path(folder)
        self.volumes: dict[str, bytes] = {}
        self.below: dict[str, str] = {}
        self.digests: dict[str, str] = {}
        self.space = free
        self.sent = 0
        self.on_disk: dict[str, bytes] = {}
        self.on_change: Callable[[str], object] = lambda _: None
        self.on_delete: Callable[[str], object] = lambda _: None

    def put(self, name: str, content: bytes = b"", backing: str | None = None) -> None:
        """Make a volume."""
        self.on_change(name)
        self.volumes[name] = content
        self.below.pop(name, None)
        if backing is not None:
            self.path(backing)
            self.below[name] = backing

    def refresh(self) -> None: ...

    def flush(self) -> None:
        self.on_disk = dict(self.volumes)

    def free(self) -> int:
        return self.space

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in list(self.volumes) if name.startswith(prefix))

    def exists(self, name: str) -> bool:
        return name in self.volumes

    def path(self, name: str) -> Path:
        if name not in self.volumes:
            raise NotFoundError(f"There is no volume '{name}'.")
        return self.folder / name

    def backing(self, name: str) -> Path | None:
        self.path(name)
        return self.folder / self.below[name] if name in self.below else None

    def backings(self) -> dict[str, Path]:
        return {name: self.folder / base for name, base in list(self.below.items())}

    def capacity(self, name: str) -> int:
        return len(self.volumes[name])

    allocation = capacity

    def chunks(self, name: str) -> Generator[bytes, None, None]:
        self.path(name)
        content = self.volumes[name]
        for at in range(0, len(content), PIECE):
            yield content[at : at + PIECE]

    def copy(self, name: str, source: str) -> None:
        """As libvirt does it: without a backing file, and with everything below."""
        self.path(source)
        chain = [source]
        while chain[-1] in self.below:
            chain.append(self.below[chain[-1]])
        whole = disks.qcow2(b"+".join(self.volumes[one] for one in chain))
        self.put(name, whole if len(chain) > 1 else self.volumes[source])

    def create_overlay(self, name: str, backing: str) -> None:
        self.put(name, b"overlay", backing)

    def create_disk(self, name: str, capacity_mib: int | None, backing: str | None = None) -> None:
        self.put(name, b"overlay", backing)

    @contextmanager
    def filling(self, name: str, capacity: int) -> Iterator[Callable[[int, bytes], None]]:
        content = bytearray(capacity)

        def put(offset: int, piece: bytes) -> None:
            assert offset + len(piece) <= capacity
            content[offset : offset + len(piece)] = piece
            self.sent += len(piece)

        yield put
        self.put(name, bytes(content))

    def upload(self, name: str, source: Path, tell: Callable[[float], None] = lambda _: None) -> None:
        self.put(name, source.read_bytes())

    def download_to(self, name: str, target: Path, tell: Callable[[float], None]) -> None:
        target.write_bytes(self.volumes[name])

    def is_complete(self, name: str) -> bool:
        return name in self.digests

    def uploaded_digest(self, name: str) -> str:
        return self.digests.get(name, "")

    def upload_base(
        self, name: str, source: Path, tell: Callable[[str, float | None], None], accept: Callable[[str], None]
    ) -> None:
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        accept(digest)
        self.put(name, source.read_bytes())
        self.digests[name] = digest

    def write(self, name: str, content: bytes) -> None:
        self.put(name, content)

    def delete(self, name: str) -> bool:
        self.on_delete(name)
        self.below.pop(name, None)
        return self.volumes.pop(name, None) is not None
