"""Where distribution packages come from: the archive that the host itself uses.

The host's administrator chose a mirror that it can reach; builds that need Debian packages use the same one.
"""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

from winlab.errors import TransferError, UsageError
from winlab.supply import tars
from winlab.supply.download import check_mirror

DEFAULT_MIRROR = "http://deb.debian.org/debian"
VARIABLE = "WINLAB_DEBIAN_MIRROR"


def debian_mirror(etc: Path = Path("/etc/apt")) -> str:
    """The URL of the Debian archive to take packages from, without a slash at its end.

    ``WINLAB_DEBIAN_MIRROR`` names it. Otherwise it is the first Debian archive (not the security one) in the host's
    own sources, in either of apt's notations (sources.list(5)), or else Debian's public address. An archive with a
    password is skipped.

    :raises UsageError: ``WINLAB_DEBIAN_MIRROR`` is not an http or https URL, or contains a password.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        check_mirror(chosen, VARIABLE)
        if urlsplit(chosen).scheme not in ("http", "https") or not urlsplit(chosen).netloc:
            raise UsageError(
                f"{VARIABLE}='{chosen}' can't be used.",
                why="It is not an http or https URL.",
                cure=f"Give the root of a Debian archive, such as {DEFAULT_MIRROR}.",
            )
        return chosen.rstrip("/")
    for url in _urls(etc):
        parts = urlsplit(url)
        if "@" in parts.netloc:  # a password, which would be shown
            continue
        if parts.scheme in ("http", "https") and parts.netloc and parts.path.rstrip("/").endswith("/debian"):
            return url.rstrip("/")
    return DEFAULT_MIRROR


def _urls(etc: Path) -> list[str]:
    """All archive URLs of the host, in apt's own order: sources.list, then sources.list.d by name."""
    folder = etc / "sources.list.d"
    urls: list[str] = []
    for path in [etc / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # missing, or not for us to read
        urls += _deb822(text) if path.suffix == ".sources" else _one_line(text)
    return urls


def _one_line(text: str) -> list[str]:
    """The URLs of ``deb [options] URL suite component...`` lines."""
    urls = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) < 3 or words[0] != "deb":
            continue
        rest = words[1:]
        if rest[0].startswith("["):
            while rest and not rest[0].endswith("]"):
                rest = rest[1:]
            rest = rest[1:]
        urls += rest[:1]
    return urls


def _deb822(text: str) -> list[str]:
    """The URLs of enabled stanzas with ``Types: deb`` and ``URIs:``."""
    urls = []
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in "\n".join(line.rstrip() for line in lines).split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        disabled = fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without", "disable")
        if "deb" in fields.get("types", "").split() and not disabled:
            urls += fields.get("uris", "").split()
    return urls


def installed(tar: Path) -> dict[str, str]:
    """The packages in a root file system, with their versions, as dpkg's own list there says (deb-control(5)).

    :raises TransferError: there is no such list, or it is damaged.
    """
    try:
        with tars.opened(tar) as archive:
            row = next(row for row in tars.members(archive) if row.name == "./var/lib/dpkg/status")
            file = archive.extractfile(row)
            text = b"".join(iter(lambda: file.read(1 << 20), b"")).decode("utf-8") if file is not None else ""
    except (tarfile.TarError, OSError, StopIteration, LookupError, ValueError) as error:
        raise TransferError(
            f"The list of packages in '{tar}' can't be read.",
            why=str(error) or type(error).__name__,
            cure="Run the same command again: it makes the image from scratch.",
        ) from error
    found = {}
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[A-Z][A-Za-z-]*: ", line))
        if fields.get("Status") == "install ok installed" and {"Package", "Version"} <= fields.keys():
            found[fields["Package"]] = fields["Version"]
    return dict(sorted(found.items()))
