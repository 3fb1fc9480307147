"""Small media laid out as Microsoft's."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pycdlib


def make_wim(
    names: list[str],
    *,
    flags: int = 0,
    parts: int = 1,
    cut: int = 0,
    edition: str = "ServerStandard",
    kind: str = "Server",
    arch: int = 9,
    language: str = "",
    others: tuple[str, ...] = (),
    revision: int = 587,
    build: int = 20348,
) -> bytes:
    """A WIM with only its list of images."""
    listed = "".join(f"<LANGUAGE>{one}</LANGUAGE>" for one in others)
    xml = "\ufeff<WIM>" + "".join(
        f'<IMAGE INDEX="{i}"><NAME>{n}</NAME><WINDOWS><ARCH>{arch}</ARCH><EDITIONID>{edition}</EDITIONID>'
        f"<INSTALLATIONTYPE>{kind}</INSTALLATIONTYPE><LANGUAGES>{listed}<DEFAULT>{language}</DEFAULT></LANGUAGES>"
        f"<VERSION><BUILD>{build}</BUILD><SPBUILD>{revision}</SPBUILD></VERSION></WINDOWS></IMAGE>"
        for i, n in enumerate(names, 1)
    )
    body = (xml + "</WIM>").encode("utf-16-le")
    header = bytearray(208)
    header[:8] = b"MSWIM\0\0\0"
    struct.pack_into("<HHI", header, 0x28, 1, parts, len(names))
    struct.pack_into("<QQQ", header, 0x48, len(body) | flags << 56, 208, len(body))
    return bytes(header) + body[: len(body) - cut]


def make_windows_iso(
    path: Path,
    *,
    wim: bytes | None,
    noprompt: bool = True,
    uefi: bool = True,
    files: Mapping[str, bytes] | None = None,
    boot: str = "/efi/microsoft/boot",
    fix: str = "bootfix.bin",
) -> None:
    """An ISO laid out as Microsoft's media; *files*: more of them in ``/sources``, by name, or by their whole path.

    *boot* and *fix* are names in another case.
    """
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, udf="2.60")
    iso.add_fp(io.BytesIO(b"b" * 4096), 4096, "/ETFSBOOT.COM;1")
    iso.add_eltorito("/ETFSBOOT.COM;1", bootcatfile="/BOOT.CAT;1", boot_load_size=8)
    if uefi:
        iso.add_fp(io.BytesIO(b"p" * 8192), 8192, "/EFISYS.BIN;1")
        iso.add_eltorito("/EFISYS.BIN;1", efi=True, platform_id=0xEF, boot_load_size=1)
    iso.add_directory(udf_path="/sources")
    iso.add_directory(udf_path="/boot")
    for name in ("bcd", fix, "etfsboot.com"):
        iso.add_fp(io.BytesIO(b"f" * 1024), 1024, udf_path=f"/boot/{name}")
    for parent in (*reversed(PurePosixPath(boot).parents[:-1]), boot):
        iso.add_directory(udf_path=str(parent))
    if wim is not None:
        iso.add_fp(io.BytesIO(wim), len(wim), udf_path="/sources/install.wim")
    for name, content in (files or {}).items():
        where = name if name.startswith("/") else f"/sources/{name}"
        iso.add_fp(io.BytesIO(content), len(content), udf_path=where)
    if noprompt:
        iso.add_fp(io.BytesIO(b"n" * 8192), 8192, udf_path=f"{boot}/efisys_noprompt.bin")
    iso.write(str(path))
    iso.close()


SERVER = "Windows Server 2022 SERVERSTANDARD"
BOOT = make_wim(["Microsoft Windows PE (amd64)", "Microsoft Windows Setup (amd64)"], kind="WindowsPE")
VOLUME = b"[EditionID]\r\n\r\n[Channel]\r\nvolume\r\n[VL]\r\n1\r\n"
EVAL = b"[EditionID]\r\n\r\n[Channel]\r\neval\r\n[VL]\r\n0\r\n"


def make_server_medium(path: Path, **changes: object) -> Path:
    """A correct evaluation medium of Windows Server 2022, with *changes*."""
    settings: dict[str, object] = {
        "wim": make_wim([SERVER], edition="ServerStandardEval"),
        "files": {"boot.wim": BOOT, "EI.CFG": EVAL},
    }
    make_windows_iso(path, **{**settings, **changes})  # type: ignore[arg-type]
    return path
