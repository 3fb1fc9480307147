"""A Windows node's files by WinRM, where ssh does not answer: slower, because PowerShell reads and writes each piece.

Paths and contents are base64 in both directions: neither cmd.exe nor a code page changes them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from winlab import stopping
from winlab.adapters.guests import file_system
from winlab.adapters.guests.base import Guest, Kept
from winlab.adapters.guests.file_system import BLOCK, Entry
from winlab.adapters.guests.windows import script_line
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, NotFoundError, UsageError

MOST = 64 << 20  # bytes of an answer
LINE = 8000  # characters of a line of input: PowerShell takes it by lines
DRIVE = re.compile(r"/?([A-Za-z]:)(/.*)?")
STOP = "$ErrorActionPreference = 'Stop'; "
TEXT = "[Text.Encoding]::UTF8.GetString([Convert]::FromBase64String('{}'))"
ROW = (
    "$k = 'file'; if ($i.Attributes -band 16) { $k = 'folder' }; $s = 0; if ($k -eq 'file') { $s = $i.Length }; "
    "if ($links -and ($i.Attributes -band 1024)) { $k = 'other' }; "
    "$t = [Math]::Floor(($i.LastWriteTimeUtc - [datetime]'1970-01-01').TotalSeconds); "
    "$n = [Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($i.Name)); "
    "[Console]::WriteLine(($k, $s, $t, $n -join ' '))"
)
HOME = "[Console]::WriteLine([Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes($env:USERPROFILE)))"
LOOK = f"$links = $false; if (Test-Path -LiteralPath $p) {{ $i = Get-Item -LiteralPath $p -Force; {ROW} }}"
LIST = f"$links = $true; foreach ($i in @(Get-ChildItem -LiteralPath $p -Force)) {{ {ROW} }}"
REPLACE = (
    "if ([IO.File]::Exists($q)) { [IO.File]::Replace($p, $q, [NullString]::Value) } else { [IO.File]::Move($p, $q) }"
)
MAKE = "[void][IO.Directory]::CreateDirectory($p)"
REMOVE = "[IO.File]::Delete($p)"


class WinRmFiles:
    """See :class:`winlab.adapters.guests.file_system.FileSystem`.

    :param guest: a login to the node, which is closed with this object.
    """

    has_modes = False

    def __init__(self, guest: Guest, tag: Tag) -> None:
        self._guest = guest
        self._tag = tag
        self.name = tag.node

    def absolute(self, path: str) -> str:
        """What has no drive is in the user's profile.

        :raises UsageError: it is relative to the current folder of a drive, or has no drive.
        """
        path = path.replace("\\", "/")
        if (drive := DRIVE.fullmatch(path)) is not None:
            return f"{drive[1].upper()}{drive[2] or '/'}"
        if ":" in path or path.startswith("/"):
            raise UsageError(f"'{path}' is not a path of Windows that can be copied.", cure="Give 'C:/folder/file'.")
        home = _text(self._run(HOME).strip()).replace("\\", "/").rstrip("/")
        return f"{home}/{path}" if path not in ("", ".") else home

    def shown(self, path: str) -> str:
        """As it is."""
        return path

    def is_legal(self, name: str) -> bool:
        """See the interface."""
        return file_system.is_legal(name, self._tag.system)

    def look(self, path: str) -> Entry | None:
        """See the interface."""
        return next(self._rows(LOOK, path), None)

    def entries(self, folder: str) -> Iterator[Entry]:
        """See the interface."""
        yield from file_system.bounded(self._rows(LIST, folder), folder)

    def read(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """See the interface."""
        while size > 0:
            wanted = min(size, BLOCK)
            block = _bytes(self._run(_reading(offset, wanted), path).strip())[:wanted]
            if not block:
                return
            yield block
            offset, size = offset + len(block), size - len(block)

    def write(self, path: str, offset: int, blocks: Iterable[bytes]) -> None:
        """See the interface. Pieces are collected: PowerShell starts for each."""
        if offset == 0:
            self._run(REMOVE, path)
        written = False
        for block in _collected(blocks):
            self._run(_writing(offset), path, _lines(block))
            offset, written = offset + len(block), True
        if not written:
            self._run(_writing(offset), path, b"\n")

    def replace(self, path: str, target: str, mode: int | None) -> None:  # noqa: ARG002 - see has_modes
        """See the interface."""
        self._run(f"$q = {_quoted(target)}; {REPLACE}", path)

    def make_folder(self, path: str) -> None:
        """See the interface."""
        self._run(MAKE, path)

    def remove(self, path: str) -> None:
        """See the interface."""
        with suppress(GuestError, NotFoundError):
            self._run(REMOVE, path)

    def close(self) -> None:
        """See the interface."""
        self._guest.close()

    def _rows(self, script: str, path: str) -> Iterator[Entry]:
        for line in self._run(script, path).splitlines():
            found = re.fullmatch(r"(file|folder|other) ([0-9]{1,18}) (-?[0-9]{1,18}) ([A-Za-z0-9+/=]+)", line.strip())
            if found is None:
                raise GuestError(f"'{self.name}' does not describe '{path}' as it should.", why=line[:200])
            kind, size, changed, name = found.groups()
            yield Entry(_text(name), kind, int(size), changed=int(changed))  # type: ignore[arg-type]

    def _run(self, script: str, path: str = "", stdin: bytes = b"") -> str:
        """What a script prints; ``$p`` in it is the path.

        :raises NotFoundError: there is no such file.
        :raises GuestError: it failed.
        """
        stopping.check()
        out, err = Kept(MOST), Kept(1 << 20)
        line = script_line(f"{STOP}$p = {_quoted(path)}; {script}")
        if self._guest.execute([line], out, err, stdin) == 0:
            return str(out)
        why = str(err).strip()
        if "FileNotFoundException" in why or "DirectoryNotFoundException" in why or "PathNotFound" in why:
            raise NotFoundError(f"There is no '{path}' on '{self.name}'.")
        raise GuestError(f"'{self.name}' refuses '{path}'.", why=why)


def _reading(offset: int, size: int) -> str:
    return (
        f"$f = [IO.File]::Open($p, 'Open', 'Read', 'ReadWrite'); [void]$f.Seek({offset}, 'Begin'); "
        f"$b = New-Object -TypeName 'byte[]' -ArgumentList {size}; $n = 0; "
        "while ($n -lt $b.Length) { $r = $f.Read($b, $n, $b.Length - $n); if ($r -le 0) { break }; $n += $r }; "
        "$f.Close(); [Console]::WriteLine([Convert]::ToBase64String($b, 0, $n))"
    )


def _writing(offset: int) -> str:
    return (
        "$t = @($input) -join ''; if (-not $t) { $t = [Console]::In.ReadToEnd() }; "
        "$d = [Convert]::FromBase64String($t); $f = [IO.File]::Open($p, 'OpenOrCreate', 'Write'); "
        f"$f.SetLength({offset}); [void]$f.Seek({offset}, 'Begin'); $f.Write($d, 0, $d.Length); $f.Close()"
    )


def _quoted(text: str) -> str:
    return TEXT.format(base64.b64encode(text.encode()).decode())


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise GuestError("PowerShell's answer can't be read.", why=str(error)) from error


def _text(text: str) -> str:
    return _bytes(text).decode(errors="replace")


def _lines(block: bytes) -> bytes:
    text = base64.b64encode(block)
    return b"\n".join(text[at : at + LINE] for at in range(0, len(text), LINE)) + b"\n"


def _collected(blocks: Iterable[bytes]) -> Iterator[bytes]:
    kept = bytearray()
    for block in blocks:
        kept += block
        while len(kept) >= BLOCK:
            yield bytes(kept[:BLOCK])
            del kept[:BLOCK]
    if kept:
        yield bytes(kept)
