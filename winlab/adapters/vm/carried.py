"""Volumes carried from one hypervisor's pool to another's, through this host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from winlab.adapters.vm.volumes import StoragePool
from winlab.errors import ConflictError

Tell = Callable[[float], None]


def carry(name: str, source: StoragePool, target: StoragePool, tell: Tell) -> None:
    """Copy a volume's file; blocks of zeros stay holes. An existing one of that name is replaced.

    :param tell: receives the progress, 0 to 1.
    """
    source.refresh()
    size, at = source.file_size(name), 0
    with target.filling(name, size) as put, closing(source.chunks(name)) as chunks:
        for chunk in chunks:
            if any(chunk):
                put(at, chunk)
            at += len(chunk)
            tell(min(1.0, at / max(1, size)))
    target.refresh()  # libvirt detects then what is in it


def carry_base(
    name: str, source: StoragePool, target: StoragePool, folder: Path, tell: Callable[[str, float | None], None]
) -> None:
    """Bring a base volume, unless the target has it; with its claim and its marker, as every upload.

    :param folder: for the file in between.
    :raises ConflictError: its content is not what was once uploaded.
    """
    if target.is_complete(name):
        return
    path, known = folder / "base", source.uploaded_digest(name)

    def accept(digest: str) -> None:
        if known and digest != known:
            raise ConflictError(
                f"The base volume '{name}' has changed since it was uploaded.",
                cure="Run 'winlab repair --digests' for a lab that is based on it: it restores the volume.",
            )

    source.download_to(name, path, lambda part: tell(f"fetching {name}", part))
    try:
        target.upload_base(name, path, tell, accept)
    finally:
        path.unlink(missing_ok=True)
