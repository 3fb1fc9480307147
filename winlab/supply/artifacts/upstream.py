"""The sources ``upstream`` and ``mirror``: artifacts as their projects publish them.

Each is compared with its pinned digest or, without one, with the digest that its publisher gives
(:mod:`winlab.design.catalog.pins`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, Field, ValidationError

from winlab import stopping
from winlab.design.catalog.artifact import Artifact, Manifest, Obtained, Program
from winlab.design.catalog.pins import FilePin, ImagePin, ManifestPin, Pins, ProgramPin
from winlab.design.catalog.recipes import Download
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import download
from winlab.supply.artifacts import executable, parallel, store, unpack, web
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import registry

LARGEST_SUMS = 1024 * 1024  # bytes; a list of digests is far smaller


class UpstreamSource:
    """Fetches pinned artifacts from their publishers, or from a mirror of them.

    A mirror is a URL that replaces scheme and host (``https://mirror.example/pub`` +
    ``/v1.36.3/bin/linux/amd64/kubelet``). For container images it is a registry on the same host that has each image
    under its registry's name (:meth:`winlab.supply.artifacts.oci.registry.Reference.place`). It can also be a folder
    that holds files by their base names and images as OCI archives (:attr:`ContainerImage.file`). A pinned image must
    have the digest of its pin there, as ``skopeo copy --all`` keeps it.
    """

    def __init__(self, pins: Pins, mirror: str | None = None, *, insecure: bool = False, pause: float = 1.0) -> None:
        """Make the source.

        :param insecure: a mirror over plain http is trusted for artifacts that have no pinned digest.
        :param pause: seconds before the second try of a request; doubled for each further one.
        :raises UsageError: *mirror* can't be used; the message says why.
        """
        if mirror:
            download.rewrite("https://publisher.invalid/file", mirror)
        self.pins = pins
        self.mirror = mirror or None
        self.name = "mirror" if mirror else "upstream"
        self._pause = pause
        self._tampered = not insecure and download.is_open_to_others(mirror)

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """The parts of *wanted* without a row in the pins."""
        return {artifact: "it is not published, or not pinned" for artifact in wanted if self._pin(artifact) is None}

    def pinned(self, program: Program) -> bool:
        """Whether the digest of the program, or of the archive that it is in, is pinned."""
        pin = self.pins.program(program)
        return pin is not None and _digest(pin) is not None

    def at_hand(self, artifact: Artifact) -> bool:
        """Whether it is cached, so that nothing needs to be fetched."""
        pin = self._pin(artifact)
        return pin is not None and store.lookup(self._key(pin)) is not None

    def probe_url(self, wanted: Iterable[Artifact]) -> str | Path | None:
        """Where the first file of *wanted* that is not cached would come from; None if all are cached."""
        for artifact in wanted:
            pin = self._pin(artifact)
            if pin is None or self.at_hand(artifact):
                continue
            if isinstance(pin, FilePin):
                return download.rewrite(pin.url, self.mirror)
            if (folder := self._folder) is not None:
                return folder / pin.artifact.file
            return registry.Reference.parse(pin.reference).place(self.mirror)[0] + "/v2/"
        return None

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """Fetch one artifact, or take it from the cache.

        :raises NotFoundError: it is not pinned or does not exist.
        :raises TransferError: it is unreachable or not as expected (digest, architecture).
        :raises HostError: the disk is full.
        """
        pin = self._pin(artifact)
        if pin is None:
            raise NotFoundError(
                f"{artifact} can't be obtained from {self.name}.", why=self.cannot([artifact])[artifact]
            )
        key = self._key(pin)
        if there := store.lookup(key):
            return there
        self.check_trust([artifact])
        rows = self._beside(pin)
        with store.locked(self._key(rows[0]), progress, f"{artifact}"):  # one name for all that is in one file
            if there := store.lookup(key):
                return there
            with store.workspace() as work, self._named(artifact):
                if isinstance(pin, ImagePin):
                    return self._image(pin, work, progress)
                return self._file(pin, rows, work, progress)

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for several, a few at once."""
        return parallel.obtain(artifacts, self.obtain, self._file_of, progress)

    def _file_of(self, artifact: Artifact) -> str:
        """Artifacts with the same value come in one file."""
        pin = self._pin(artifact)
        return pin.url if isinstance(pin, FilePin) else str(artifact)

    def without_digest(self, wanted: Iterable[Artifact]) -> int:
        """How many of *wanted* have no digest, so that winlab has to trust their location."""
        pins = (self._pin(artifact) for artifact in wanted)
        return sum(pin is not None and _digest(pin) is None for pin in pins)

    def check_trust(self, wanted: Iterable[Artifact]) -> None:
        """Check that something protects everything: a pinned digest, or a connection that no one can tamper with.

        :raises UsageError: nothing does.
        """
        every = list(wanted)
        if self._tampered and (count := self.without_digest(every)):
            raise UsageError(
                f"The mirror {self.mirror} can't be trusted for {count} of {len(every)} artifacts.",
                why="No digest of them is known, and anyone on the way can alter what comes over plain http.",
                cure="Use an https mirror, a folder or a bundle; or accept the risk with --insecure-mirror.",
            )

    def _key(self, pin: ProgramPin | ImagePin | ManifestPin) -> str:
        """The store's key: the pin, regardless of the location; without a digest the location counts, too."""
        place = {"mirror": self.mirror} if self.mirror and _digest(pin) is None else {}
        if isinstance(pin, ImagePin):
            return store.key({"pinned": "image", **pin.model_dump(mode="json"), **place})
        digest = _digest(pin) or [pin.url, pin.sums_url]
        member = pin.member if isinstance(pin, ProgramPin) else None
        about = {"pinned": "file", "digest": digest, "member": member, "artifact": str(pin.artifact)}
        return store.key({**about, **place})

    def _pin(self, artifact: Artifact) -> ProgramPin | ImagePin | ManifestPin | None:
        if isinstance(artifact, Program):
            return self.pins.program(artifact)
        if isinstance(artifact, Manifest):
            return self.pins.manifest(artifact)
        return self.pins.image(artifact)

    @property
    def _folder(self) -> Path | None:
        place = download.rewrite("https://publisher.invalid/file", self.mirror)
        return place.parent if isinstance(place, Path) else None

    def _beside(self, pin: ProgramPin | ImagePin | ManifestPin) -> list[ProgramPin | ImagePin | ManifestPin]:
        """All rows that come from the same file: an archive is fetched once."""
        if not isinstance(pin, ProgramPin) or pin.member is None:
            return [pin]
        same = (pin.url, pin.sha256, pin.sha512, pin.sums_url)
        return [
            row for row in self.pins.programs if row.member and (row.url, row.sha256, row.sha512, row.sums_url) == same
        ]

    @contextmanager
    def _named(self, artifact: Artifact) -> Iterator[None]:
        """Prefix every transfer error with the artifact's name."""
        try:
            yield
        except (TransferError, NotFoundError) as error:
            if str(artifact) in error.what:
                raise
            cure = "Check the network (proxy, certificates, clock), or use a mirror, a bundle or a build."
            why = "\n".join(filter(None, (error.what, error.why)))
            raise type(error)(
                f"{artifact} can't be obtained from {self.name}.", why=why, cure=cure, causes=[error]
            ) from error
        except OSError as error:  # a full disk, most likely
            raise HostError(f"{artifact} can't be written to the cache.", why=str(error), causes=[error]) from error

    def _file(
        self,
        pin: ProgramPin | ManifestPin,
        rows: list[ProgramPin | ImagePin | ManifestPin],
        work: Path,
        progress: Progress,
    ) -> Obtained:
        begun = time.monotonic()
        name = PurePosixPath(urlsplit(pin.url).path).name
        fetched = work / name
        place = download.rewrite(pin.url, self.mirror)
        download.fetch(
            self._download(pin),
            fetched,
            progress,
            part=store.part(self._key(rows[0]), name),
            mirror=self.mirror,
            pause=self._pause,
        )
        if isinstance(pin, ProgramPin):
            programs = [row for row in rows if isinstance(row, ProgramPin)]
            files = _members(fetched, programs, work) if pin.member else {pin: fetched}
        else:
            return store.keep(
                self._key(pin), pin.artifact, fetched, str(place), move=True, seconds=time.monotonic() - begun
            )
        if pin not in files:
            raise TransferError(f"{place} has no {pin.artifact}.", why=f"There is no '{pin.member}' in it.")
        if why := executable.wrong(files[pin], pin.artifact):
            raise TransferError(f"{place} has a wrong {pin.artifact}.", why=why)
        kept: dict[ProgramPin, Obtained] = {}
        for row, file in files.items():
            if row is pin or not executable.wrong(file, row.artifact):  # a wrong one is refused when it is requested
                seconds = time.monotonic() - begun
                kept[row] = store.keep(self._key(row), row.artifact, file, str(place), move=True, seconds=seconds)
        return kept[pin]

    def _download(self, pin: FilePin) -> Download:
        """The expected download: as pinned, or with the digest in the publisher's own list."""
        if pin.sums_url is None:
            return Download(url=pin.url, sha256=pin.sha256, sha512=pin.sha512)
        place = download.rewrite(pin.sums_url, self.mirror)
        text = place.read_text(encoding="utf-8") if isinstance(place, Path) else self._text(place)
        name = PurePosixPath(urlsplit(pin.url).path).name
        digest = listed_digest(text, name)
        if digest is None:
            raise TransferError(f"{place} has no digest of '{name}'.")
        return Download(url=pin.url, **{"sha256" if len(digest) == 64 else "sha512": digest})

    def _text(self, url: str) -> str:
        """A small text.

        :raises TransferError: it can't be fetched.
        """
        for attempt in range(download.TRIES_UNSEEN):
            try:
                with web.client() as client, client.stream("GET", url) as response:
                    response.raise_for_status()
                    content = b""
                    for block in response.iter_bytes():
                        content += block
                        if len(content) > LARGEST_SUMS:
                            raise TransferError(f"{url} is not a list of digests: it is too large.")
                    return content.decode("utf-8", "replace")
            except httpx.HTTPError as error:
                final = isinstance(error, web.UnprotectedError) or (
                    isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in download.RETRY_STATUS
                )
                if final or attempt == download.TRIES_UNSEEN - 1:
                    raise TransferError(f"{url} can't be read.", why=web.reason(error), causes=[error]) from error
                stopping.sleep(self._pause * 2**attempt)
        raise AssertionError("the last try returns or raises")

    def _image(self, pin: ImagePin, work: Path, progress: Progress) -> Obtained:
        begun = time.monotonic()
        target = work / "image.tar"
        if (folder := self._folder) is not None:
            source = folder / pin.artifact.file
            if not source.is_file():
                raise NotFoundError(
                    f"There is no file '{source}'.", why=f"It should be an OCI archive of {pin.artifact}."
                )
            shutil.copyfile(source, target)
            oci.verify(target, pin.artifact, pin.digest)
            origin = str(source)
        else:
            blobs = work / "blobs"
            blobs.mkdir()
            registry.pull(
                pin.artifact,
                target,
                progress,
                work=blobs,
                digest=pin.digest,
                os_build=pin.os_build,
                mirror=self.mirror,
                pause=self._pause,
            )
            origin = "/".join(registry.Reference.parse(pin.reference).place(self.mirror))
        seconds = time.monotonic() - begun
        return store.keep(self._key(pin), pin.artifact, target, origin, move=True, seconds=seconds)


class _Asset(BaseModel):
    name: str
    digest: str | None = Field(None, pattern=r"^sha256:[0-9a-f]{64}$")


class _Release(BaseModel):
    """What GitHub's API says about a release, as far as it matters here."""

    assets: list[_Asset]


def listed_digest(text: str, name: str) -> str | None:
    """The SHA-256 or SHA-512 of *name* in a publisher's list, or None.

    A list is a bare digest, or lines ``DIGEST  [*]NAME``, or GitHub's API response for a release: its assets have
    ``"digest": "sha256:..."`` (docs.github.com, REST API, releases).
    """
    if text.startswith("{"):
        return _asset_digest(text, name)
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-fA-F]{64}|[0-9a-fA-F]{128})(?:\s+\*?(\S+))?\s*", line)
        if match and (match[2] is None or PurePosixPath(match[2]).name == name):
            return match[1].lower()
    return None


def _asset_digest(text: str, name: str) -> str | None:
    try:
        release = _Release.model_validate_json(text)
    except ValidationError:
        return None
    digest = next((asset.digest for asset in release.assets if asset.name == name), None)
    return digest.removeprefix("sha256:") if digest is not None else None


def _digest(pin: ProgramPin | ImagePin | ManifestPin) -> str | None:
    return pin.digest if isinstance(pin, ImagePin) else pin.sha256 or pin.sha512


def _members(archive: Path, rows: list[ProgramPin], work: Path) -> dict[ProgramPin, Path]:
    """Extract the rows' members from the archive; return those that are in it."""
    wanted = {row.member: work / f"{number}.member" for number, row in enumerate(rows) if row.member}
    members = unpack.members(archive, wanted)
    return {row: wanted[row.member] for row in rows if row.member in members}
