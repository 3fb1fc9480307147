"""Fetches published images over http(s) or from a local file, and accepts only files with the right digest.

- The file gets its final name only when its digest is right.
- A broken transfer is resumed where it stopped (``Range`` with ``If-Range``, RFC 9110 sections 13.1.5 and 14), by the
  same process or by a later one. A server that ignores that sends it all again.
- A mirror replaces the publisher: ``https://mirror.example/pub`` takes the place of scheme and host, so that
  ``https://publisher.example/a/b.qcow2`` becomes ``https://mirror.example/pub/a/b.qcow2``; a local folder holds the
  file by its base name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

import httpx

from winlab import documents, stopping
from winlab.design.catalog.recipes import Download
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import http_client, logins, proxies

BLOCK = 1024 * 1024
LARGEST = 32 << 30  # bytes of a file of unknown size; installation media have a fifth of that
MOST = 1 << 80  # bytes that a message names; more is as good as endless
TRIES = 5  # in a row without a single new byte
TRIES_UNSEEN = 3  # the same if the server was never reached: don't wait long for a missing network
TIMEOUT = httpx.Timeout(15.0, read=60.0)
RETRY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_HTML = (b"<!doctype", b"<html", b"<head", b"<?xml")


def rewrite(url: str, mirror: str | None) -> str | Path:
    """Where to take *url* from: itself, the same path under the URL *mirror*, or a file in the folder *mirror*.

    :raises UsageError: *mirror* is neither an http(s) URL nor an existing folder, or :func:`check_mirror` refuses it.
    """
    if not mirror:
        return url
    check_mirror(mirror)
    path = urlsplit(url).path
    scheme = urlsplit(mirror).scheme
    if scheme in ("http", "https"):
        return mirror.rstrip("/") + path
    folder = Path(mirror)
    try:
        folder = folder.expanduser()
        usable = folder.is_dir()
    except (OSError, RuntimeError, ValueError):  # an overlong name, an unknown user's home, a NUL
        usable = False
    if not usable:
        raise UsageError(
            f"The mirror '{mirror}' can't be used.",
            why="It is neither an http or https URL nor an existing folder.",
            cure="Give a URL such as https://mirror.example, or a folder that holds the images by their names.",
        )
    return folder / PurePosixPath(path).name


def check_mirror(mirror: str, called: str = "The mirror's address") -> None:
    """Check that paths can be added to the mirror's address, and that it can be shown in messages and manifests.

    :param called: what messages call it.
    :raises UsageError: it contains a user name or password, a query or fragment, or has no host.
    """
    try:
        parts = urlsplit(mirror)
        host = parts.hostname
    except ValueError as error:
        raise UsageError("The mirror's address can't be read.", why=str(error)) from error
    if "@" in parts.netloc:
        raise UsageError(
            f"The mirror at '{parts.netloc.rpartition('@')[2]}' can't be used with a name and password in its address.",
            why="Addresses appear in messages, logs and bundles.",
            cure="Leave them out of the address, and write them into ~/.netrc (docs/images.md).",
        )
    if parts.scheme not in ("http", "https"):
        return
    if not host:
        raise UsageError(f"{called} has no host.", cure="Write it as https://mirror.example/path.")
    if "?" in mirror or "#" in mirror:
        raise UsageError(
            f"The mirror at '{parts.netloc}' can't be used with a query or fragment in its address.",
            why="Paths are added at the end; and signatures would appear in messages, logs and bundles.",
            cure="Use a mirror whose address is a plain path, or copy its files into a folder and give that.",
        )


def is_open_to_others(mirror: str | None) -> bool:
    """Whether others on the network can alter what a mirror sends: plain http, unless from this host itself."""
    try:
        parts = urlsplit(mirror or "")
    except ValueError:
        return False  # it can't be used at all: check_mirror says so
    return parts.scheme == "http" and not proxies.is_this_host(parts.hostname or "")


def fetch(
    download: Download,
    target: Path,
    progress: Progress,
    *,
    part: Path,
    mirror: str | None = None,
    source: Path | None = None,
    pause: float = 1.0,
) -> str:
    """Download the published image *download* to *target* and return its SHA-256.

    :param part: where the unfinished file is kept between tries and runs (same file system as *target*).
    :param source: a local file to use instead; it must have the same digest.
    :param pause: seconds before the second try; doubled for each further one.
    :raises TransferError: unreachable, missing, or the wrong file (the message has both digests).
    :raises NotFoundError: the local file does not exist.
    :raises HostError: the disk is full.
    """
    place = source if source is not None else rewrite(download.url, mirror)
    if isinstance(place, Path):
        return _copy(download, place, target, progress)
    return _Transfer(download, place, part, progress, pause).run(target)


class _Digests:
    """SHA-256 of what was seen, and SHA-512 where the publisher gives that."""

    def __init__(self, download: Download) -> None:
        self.download = download
        self.size = 0
        self.sha256 = hashlib.sha256()
        self.sha512 = hashlib.sha512() if download.sha512 else None

    def add(self, block: bytes) -> None:
        self.size += len(block)
        self.sha256.update(block)
        if self.sha512 is not None:
            self.sha512.update(block)

    def problem(self) -> str | None:
        """Why this is not the published file, or None if it is."""
        if self.sha512 is not None:
            name, wanted, digest = "SHA-512", self.download.sha512, self.sha512.hexdigest()
        else:
            name, wanted, digest = "SHA-256", self.download.sha256, self.sha256.hexdigest()
        if wanted == digest:
            return None
        return f"Its {name} is\n    {digest}\n  but should be\n    {wanted}\n  ({self.size:,} bytes)."


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _full(error: OSError, place: Path) -> HostError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HostError(
            f"There is no space left for '{place.name}' in '{place.parent}'.",
            cure="Free some space ('winlab image prune' removes cached images), or move the cache with WINLAB_CACHE.",
            causes=[error],
        )
    return HostError(f"'{place}' can't be written.", why=str(error), causes=[error])


def check_space(folder: Path, needed: int) -> None:
    """Make sure that *folder* has room for *needed* bytes.

    :raises HostError: it does not.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise HostError(
            f"There is not enough space in '{folder}'.",
            # whole numbers: a size from someone else may be too large for a float
            why=f"{min(needed, MOST) // 1_000_000:,} MB are needed and {free // 1_000_000:,} MB are free.",
            cure="Free some space ('winlab image prune' removes cached images), or move the cache with WINLAB_CACHE.",
        )


def _copy(download: Download, source: Path, target: Path, progress: Progress) -> str:
    """Copy a local file, if it is the right one."""
    try:
        there, why = source.is_file(), f"It should be a copy of {download.url}."
    except OSError as error:  # an overlong name, a folder without access
        there, why = False, str(error)
    if not there:
        raise NotFoundError(
            f"There is no file '{source}'.",
            why=why,
            cure="Give the path of a copy, or leave it out to download the image.",
        )
    digests = _Digests(download)
    total = source.stat().st_size
    check_space(target.parent, total)
    try:
        with source.open("rb") as reader, target.open("wb") as writer:
            for block in _blocks(reader):
                digests.add(block)
                writer.write(block)
                progress.say(f"copying {source}", min(1.0, digests.size / max(total, 1)))
    except OSError as error:
        target.unlink(missing_ok=True)
        raise _full(error, target) from error
    problem = digests.problem()
    if problem:
        target.unlink()
        raise TransferError(
            f"'{source}' is not the published image.", why=problem, cure=f"It should be a copy of {download.url}."
        )
    return digests.sha256.hexdigest()


class _LostError(Exception):
    """The transfer failed in a way that a retry may cure."""


@dataclass
class _Transfer:
    """One download with all its tries."""

    download: Download
    url: str
    part: Path
    progress: Progress
    pause: float
    reached: bool = False
    resumed: bool = False
    sized: bool = False  # whether the recipe or the server says how much will come
    digests: _Digests = field(init=False)

    @property
    def _notes(self) -> Path:
        return self.part.with_name(self.part.name + ".json")

    def _drop(self) -> None:
        """Discard what has arrived so far."""
        self.part.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
        self.digests = _Digests(self.download)
        self.resumed = False

    def run(self, target: Path) -> str:
        self._take_up()
        failures = 0
        best = self.digests.size  # new bytes, not bytes sent again, give new tries
        with http_client.make(TIMEOUT) as client:
            while True:
                try:
                    if (
                        not self.digests.size or self.digests.problem()
                    ):  # otherwise everything had arrived, and only the last step is missing
                        self._attempt(client)
                except (_LostError, httpx.HTTPError) as error:
                    failures = 1 if self.digests.size > best else failures + 1
                    best = max(best, self.digests.size)
                    self._wait(error, failures)
                    continue
                except OSError as error:
                    if not self.sized:
                        self._drop()  # it may have no end: what is here only fills the disk
                    raise _full(error, self.part) from error
                problem = self.digests.problem()
                if problem is None:
                    break
                again = self.resumed
                self._drop()
                if not again:
                    raise TransferError(
                        f"{self.url} is not the published image.",
                        why=problem,
                        cure="The download was deleted. Try another mirror; if the publisher replaced the image, the"
                        " recipe needs its new digest.",
                    )
                self.progress.say("the resumed parts don't match; starting over", 0.0)
        self.part.replace(target)
        self._notes.unlink(missing_ok=True)
        return self.digests.sha256.hexdigest()

    def _take_up(self) -> None:
        """Resume what an earlier run left, if it was from the same place."""
        self.digests = _Digests(self.download)
        if not self.part.exists():
            return
        if self._validator() is None:
            self._drop()
            return
        with self.part.open("rb") as file:
            for block in _blocks(file):
                self.digests.add(block)

    def _validator(self) -> str | None:
        """The strong ETag or date of what has arrived ("" if the server gave none); None if from elsewhere."""
        try:
            notes = documents.from_json(self._notes.read_text(encoding="utf-8"))
            return str(notes["validator"]) if notes["url"] == self.url else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _attempt(self, client: httpx.Client) -> None:
        """Request what is missing and write it to disk.

        :raises _LostError: worth another try.
        """
        have = self.digests.size
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if validator := self._validator():
                headers["If-Range"] = validator
        with client.stream("GET", self.url, headers=headers) as response:
            self.reached = True
            if response.status_code == 416:  # everything is there already, or more
                if response.headers.get("content-range") != f"bytes */{have}":
                    self._drop()
                    raise _LostError("the server's file is shorter than the part that is here")
                return
            self._check_status(response)
            if response.status_code == 206 and have:
                if not response.headers.get("content-range", "").startswith(f"bytes {have}-"):
                    self._drop()
                    raise _LostError("the server sent a different part than requested")
                self.resumed = True
            else:
                self._drop()  # a fresh start: the first try, or a server that ignores ranges
            self._receive(response)

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status in RETRY_STATUS:
            raise _LostError(f"the server answered {status} {response.reason_phrase}")
        if status in (404, 410):
            raise TransferError(
                f"{self.url} was not found ({status}).",
                why="Publishers remove dated images after some months, and a mirror may hold only some.",
                cure="Use another mirror, a local copy of the file, or another image ('winlab image list').",
            )
        if status not in (200, 206):
            why = logins.explained(response.url) if status in (401, 403) else ""
            raise TransferError(f"{self.url} was refused: {status} {response.reason_phrase}.", why=why)
        if response.headers.get("content-type", "").startswith(("text/html", "application/xhtml")):
            raise self._html()

    def _html(self) -> TransferError:
        return TransferError(
            f"{self.url} gave a web page instead of an image.",
            why="A proxy, a login page or a mirror's error page answered.",
            cure="Open the address in a browser to see what it says; check http_proxy and https_proxy, or the mirror.",
        )

    def _receive(self, response: httpx.Response) -> None:
        have = self.digests.size
        told_length = response.headers.get("content-length", "")
        length = int(told_length) if re.fullmatch("[0-9]{1,18}", told_length) else None
        total = have + length if length is not None else self.download.size
        if self.download.size is not None and total != self.download.size:
            raise TransferError(
                f"{self.url} has the wrong size.",
                why=f"It has {total:,} bytes but should have {self.download.size:,}.",
                cure="Try another mirror; if the publisher replaced the image, the recipe needs its new digest.",
            )
        self.sized = total is not None
        if total is not None and total > (self.download.size or LARGEST):
            raise self._too_large(total)
        if total is not None:
            check_space(self.part.parent, total - have)
        tag = response.headers.get("etag", "")
        validator = tag if tag and not tag.startswith("W/") else response.headers.get("last-modified", "")
        self._notes.write_text(json.dumps({"url": self.url, "validator": validator}), encoding="utf-8")
        begun = told = time.monotonic()
        with self.part.open("ab") as file:
            # As it comes from the network: bigger blocks would be lost with the connection.
            for block in response.iter_raw():
                if self.digests.size == 0 and block.lstrip()[:9].lower().startswith(_HTML):
                    self._drop()
                    raise self._html()
                if self.digests.size + len(block) > (self.download.size or LARGEST):
                    size = self.digests.size + len(block)
                    self._drop()
                    raise self._too_large(size)
                file.write(block)
                self.digests.add(block)
                if time.monotonic() - told > 0.25:
                    told = time.monotonic()
                    self._tell(total, (self.digests.size - have) / (told - begun))
        if total is not None and self.digests.size < total:
            raise _LostError(f"the connection ended after {self.digests.size:,} of {total:,} bytes")
        self._tell(total, (self.digests.size - have) / max(time.monotonic() - begun, 0.001))

    def _too_large(self, size: int) -> TransferError:
        return TransferError(
            f"{self.url} is larger than it can be.",
            why=f"The server sends {size:,} bytes or more, and {self.download.size or LARGEST:,} are the most.",
            cure="Try another mirror, or a local copy of the file.",
        )

    def _tell(self, total: int | None, rate: float) -> None:
        size = self.digests.size
        of = f" of {total / 1e6:,.0f}" if total else ""
        name = PurePosixPath(urlsplit(self.url).path).name
        text = f"downloading {name}: {size / 1e6:,.0f}{of} MB, {rate / 1e6:.1f} MB/s"
        self.progress.say(text, min(1.0, size / total) if total else None)

    def _wait(self, error: Exception, failures: int) -> None:
        """Sleep before the next try.

        :raises TransferError: a retry is pointless, or there were enough.
        """
        host = urlsplit(self.url).netloc
        if http_client.is_tls(error):
            raise TransferError(
                f"The identity of {host} can't be verified.",
                why=str(error),
                cure="Is the host's clock right? If your network inspects TLS, install its CA certificate on the host,"
                " or name it in SSL_CERT_FILE.",
                causes=[error],
            ) from error
        reason = str(error) or type(error).__name__
        final = isinstance(error, httpx.HTTPError) and not isinstance(error, httpx.TransportError)
        if final or failures >= (TRIES if self.reached else TRIES_UNSEEN):
            raise TransferError(
                f"{self.url} can't be downloaded.",
                why=f"{reason} ({failures} tries; {self.digests.size / 1e6:,.0f} MB arrived and are kept)",
                cure=f"Is {host} reachable from here (proxy, DNS)? The same command resumes. Offline: give a mirror, or"
                " a local copy of the file.",
                causes=[error],
            ) from error
        seconds = self.pause * 2 ** (failures - 1)
        self.progress.say(f"{host}: {reason}; trying again in {seconds:.0f} s")
        stopping.sleep(seconds)
