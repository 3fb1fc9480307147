"""Pulls a container image from a registry into an OCI archive, without a container engine.

The protocol is the OCI distribution specification 1.1 (https://github.com/opencontainers/distribution-spec) and, for
registries that ask for it, the anonymous token flow of https://distribution.github.io/distribution/spec/auth/token/.
The archive is an OCI image layout (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) in a tar
file. On import containerd takes the image's name from the annotation ``io.containerd.image.name``.

Of an index only the images for the wanted system on amd64 are pulled. For Linux that is one. For Windows there is one
for each build of Windows, and ``os_build`` selects one. Otherwise all are pulled, with an index of their own, and
containerd selects the one that its kernel can run.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from winlab import documents, stopping
from winlab.design import system
from winlab.design.catalog.artifact import ContainerImage
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import http_client, logins
from winlab.supply.artifacts import web
from winlab.supply.artifacts.oci import layout
from winlab.supply.download import RETRY_STATUS, check_space

TRIES = 4
LONGEST_PAUSE = 60.0  # seconds, even if a registry asks for more
LARGEST_DOCUMENT = 1024 * 1024  # bytes of a token or an image's configuration
MOST_IMAGES = 50  # of an index; Windows has one for each build
LARGEST_BLOB = 1 << 40  # bytes; the largest layers of Windows have some 2 GB
LARGEST_MANIFEST = 8 * 1024 * 1024  # the specification asks registries to accept 4 MiB
_INDEXES = (layout.INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = (layout.MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_ELSEWHERE = "Use another source of artifacts: a mirror, a bundle, or a build."
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LONGEST_CHALLENGE = 4096  # characters of the header by which a registry asks for a token
_REFERENCE = re.compile(
    r"(?P<registry>[A-Za-z0-9.-]+(:[0-9]+)?)/(?P<name>[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*)"
    r"(:(?P<tag>[\w][\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True)
class Reference:
    """The parts of a full reference, ``registry/name:tag@digest``; the default tag is ``latest``."""

    registry: str
    name: str
    tag: str
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference.

        :raises UsageError: it is malformed or does not name its registry.
        """
        match = _REFERENCE.fullmatch(text)
        registry = match["registry"] if match else ""
        if match is None or not ("." in registry or ":" in registry or registry == "localhost"):
            raise UsageError(
                f"'{text}' is not a full reference of a container image.",
                cure="Give it with its registry and tag: docker.io/library/nginx:1.29, registry.k8s.io/pause:3.10.2.",
            )
        return cls(registry, match["name"], match["tag"] or "latest", match["digest"])

    def place(self, mirror: str | None) -> tuple[str, str]:
        """Base URL and repository to ask: the registry itself, or the mirror's host.

        A mirror's host has the registry's name as the first part of the path (``https://mirror.example/v2/docker.io/
        library/nginx/...``), as with pull-through caches and copies made by skopeo. The specification puts ``/v2/`` at
        the root of a host, so a path in the mirror's URL is ignored here.
        """
        official = self.registry in ("docker.io", "index.docker.io")
        name = f"library/{self.name}" if official and "/" not in self.name else self.name
        if mirror:
            parts = urlsplit(mirror)
            return f"{parts.scheme}://{parts.netloc}", f"{'docker.io' if official else self.registry}/{name}"
        return f"https://{'registry-1.docker.io' if official else self.registry}", name


def pull(
    image: ContainerImage,
    target: Path,
    progress: Progress,
    *,
    work: Path,
    digest: str | None = None,
    os_build: str | None = None,
    mirror: str | None = None,
    pause: float = 1.0,
) -> None:
    """Pull *image* to *target* as an OCI archive.

    :param work: an empty folder on *target*'s file system, for the blobs.
    :param digest: required digest of the image's index or its manifest for this system; None: whatever the tag names.
    :param os_build: Windows: pull only images whose ``os.version`` begins with this (``10.0.20348``).
    :param mirror: http(s) URL of a mirror, see :meth:`Reference.place`.
    :param pause: seconds before the second try; doubled for each further one, unless the registry says otherwise.
    :raises NotFoundError: the registry has no such image, or none for this system on amd64.
    :raises TransferError: it is unreachable, refuses, or sends content that does not match its digest.
    :raises HostError: the disk is full.
    """
    reference = Reference.parse(image.reference)
    base, name = reference.place(mirror)
    with web.client() as client:
        one = _Pull(image, client, f"{base}/v2/{name}", name, progress, layout.Blobs(work), pause)
        try:
            one.run(digest or reference.digest or reference.tag, target, os_build)
        except OSError as error:
            raise HostError(
                f"{image} can't be written to '{target.parent}'.", why=str(error), causes=[error]
            ) from error


@dataclass
class _Pull:
    """One pull with all its requests."""

    image: ContainerImage
    client: httpx.Client
    url: str
    name: str
    progress: Progress
    blobs: layout.Blobs
    pause: float
    token: str = ""
    total: int = 0
    have: int = 0
    told: float = field(default_factory=time.monotonic)

    def run(self, wanted: str, target: Path, os_build: str | None) -> None:
        self.progress.say(f"asking for {self.image.reference}")
        top = self._manifest(wanted)
        if top["mediaType"] in _INDEXES:
            chosen = _choose(self.image, top["manifests"], os_build)
            if len(chosen) > MOST_IMAGES:
                raise TransferError(
                    f"{self.image} has {len(chosen)} images for one system; one was expected.", cure=_ELSEWHERE
                )
            manifests = [(entry, self._manifest(entry["digest"])) for entry in chosen]
        elif top["mediaType"] in _MANIFESTS:
            manifests = [(self.blobs.descriptor(top["digest"], top["mediaType"]), top)]
        else:
            raise TransferError(
                f"{self.image} has an unsupported format: {top['mediaType'] or 'none given'}.",
                why="Old registries keep images of schema 1, which containerd no longer accepts.",
            )
        for entry, body in manifests:
            if body["mediaType"] not in _MANIFESTS:
                raise TransferError(
                    f"{self.image}: its index leads to {body['mediaType']}, not to an image ({entry['digest']}).",
                    cure=_ELSEWHERE,
                )
        layers = {part["digest"]: part for _, body in manifests for part in [body["config"], *body["layers"]]}
        self.total = sum(int(part["size"]) for part in layers.values())
        check_space(target.parent, 2 * self.total)  # the blobs, and the archive made of them
        for _, body in manifests:  # small ones first: they say which platform the image is for
            if int(body["config"]["size"]) > LARGEST_DOCUMENT:
                raise TransferError(
                    f"The configuration of {self.image} is larger than {LARGEST_DOCUMENT:,} bytes.", cure=_ELSEWHERE
                )
            self._blob(body["config"])
            _check_platform(self.image, self.blobs.path(body["config"]["digest"]).read_bytes())
        for part in layers.values():
            self._blob(part)
        chosen = [entry for entry, _ in manifests]
        root = chosen[0] if len(chosen) == 1 else self.blobs.add_index(chosen)
        layout.write(target, self.blobs, root, self.image.reference)

    def _manifest(self, wanted: str) -> dict[str, Any]:
        """The index or manifest by tag or digest, with ``digest`` and ``mediaType`` set as found."""
        accept = ", ".join((*_INDEXES, *_MANIFESTS))
        response = self._ask(f"{self.url}/manifests/{wanted}", accept, compared=bool(_DIGEST.fullmatch(wanted)))
        try:
            body = bytearray()
            for block in response.iter_bytes():
                body += block
                if len(body) > LARGEST_MANIFEST:
                    raise TransferError(f"The manifest of {self.image} is larger than {LARGEST_MANIFEST:,} bytes.")
        except httpx.HTTPError as error:
            raise TransferError(
                f"The download of {self.image}'s manifest was cut off.", why=web.reason(error)
            ) from error
        finally:
            response.close()
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        promised = wanted if _DIGEST.fullmatch(wanted) else response.headers.get("docker-content-digest", digest)
        if digest != promised:
            raise TransferError(
                f"{self.image}: the registry sent a different manifest than requested.",
                why=f"Its digest is {digest}, but should be {promised}.",
                cure="A proxy or a mirror may have altered it; try another mirror.",
            )
        try:
            document = documents.from_json(bytes(body))
            kind = document.get("mediaType") or response.headers.get("content-type", "").partition(";")[0]
            _check_shape(document, kind)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TransferError(
                f"{self.image}: what the registry sent is not a manifest.", why=web.reason(error), evidence=self.url
            ) from error
        self.blobs.add(digest, bytes(body))
        return {**document, "mediaType": kind, "digest": digest}

    def _blob(self, part: dict[str, Any]) -> None:
        """Fetch one blob to disk, if it is missing."""
        if self.blobs.has(part["digest"]):
            return
        for attempt in range(TRIES):
            before = self.have
            try:
                self._receive(part)
                return
            except (httpx.TransportError, layout.WrongBlobError) as error:
                self.have = before
                if attempt == TRIES - 1 or http_client.is_tls(error):
                    raise TransferError(
                        f"A layer of {self.image} can't be downloaded.",
                        why=f"{part['digest']}: {web.reason(error)}",
                        cure="The partial download was discarded. Run the command again, or try another mirror.",
                        causes=[error],
                    ) from error
                self._sleep(self.pause * 2**attempt, web.reason(error))
        raise AssertionError("the last try returns or raises")

    def _receive(self, part: dict[str, Any]) -> None:
        try:
            response = self._ask(f"{self.url}/blobs/{part['digest']}", compared=True)
        except NotFoundError:
            elsewhere = [url for url in part.get("urls") or [] if web.is_address(url)]
            if not elsewhere:  # layers of Windows that only Microsoft may distribute have URLs
                raise
            response = self._ask(elsewhere[0], compared=True)
        try:
            with self.blobs.receive(part["digest"], int(part["size"])) as add:
                for block in response.iter_bytes():
                    add(block)
                    self.have += len(block)
                    self._tell()
        finally:
            response.close()

    def _tell(self) -> None:
        if time.monotonic() - self.told > 0.25:
            self.told = time.monotonic()
            text = f"pulling {self.image.reference}: {self.have / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"
            self.progress.say(text, min(1.0, self.have / max(self.total, 1)))

    def _sleep(self, seconds: float, reason: str) -> None:
        self.progress.say(f"{urlsplit(self.url).netloc}: {reason}; trying again in {seconds:.0f} s")
        stopping.sleep(seconds)

    def _ask(self, url: str, accept: str = "", *, compared: bool) -> httpx.Response:
        """An open response with status 200; the caller closes it.

        :param compared: what comes is compared with a digest that is known.
        """
        for attempt in range(TRIES):
            wait = self.pause * 2**attempt
            try:
                response = self._send(url, accept, compared)
                if response.status_code == 401 and web.same_origin(url, self.url):
                    self._log_in(response)
                    response = self._send(url, accept, compared)
            except httpx.HTTPError as error:
                reason = web.reason(error)
                if not isinstance(error, httpx.TransportError) or http_client.is_tls(error):
                    break
            else:
                if response.status_code == 200:
                    return response
                response.close()
                reason = f"it answered {response.status_code} {response.reason_phrase}"
                if response.status_code not in RETRY_STATUS:
                    raise self._refused(response, url)
                named = response.headers.get("retry-after", "")
                wait = min(float(named), LONGEST_PAUSE) if named.isdecimal() else wait
            if attempt < TRIES - 1:
                self._sleep(wait, reason)
        host = urlsplit(self.url).netloc
        raise TransferError(
            f"{self.image} can't be pulled from {host}.",
            why=reason + ".",
            cure=f"Is {host} reachable from here (proxy, DNS, certificates)? If not, use another source of artifacts: a"
            " mirror, a bundle, or a build.",
        )

    def _send(self, url: str, accept: str, compared: bool) -> httpx.Response:
        headers = {"Accept-Encoding": "identity"}  # digests are of the stored bytes
        if accept:
            headers["Accept"] = accept
        if self.token and web.same_origin(url, self.url):  # a manifest may name layers on any host
            headers["Authorization"] = f"Bearer {self.token}"
        extensions = {logins.FOR: httpx.URL(self.url).host} | (web.COMPARED if compared else {})
        return self.client.send(
            self.client.build_request("GET", url, headers=headers, extensions=extensions), stream=True
        )

    def _refused(self, response: httpx.Response, url: str) -> NotFoundError | TransferError:
        host = urlsplit(url).netloc
        if response.status_code == 404:
            return NotFoundError(f"{host} has no {self.image}.", why=f"{url} was not found (404).")
        return TransferError(
            f"{host} refuses {self.image}: {response.status_code} {response.reason_phrase}.",
            why=logins.explained(httpx.URL(url)) if response.status_code in (401, 403) else "",
            cure="Use another source of artifacts: a mirror, a bundle, or a build.",
        )

    def _log_in(self, response: httpx.Response) -> None:
        """Get a token for reading, as the 401 response says.

        :raises TransferError: the registry requires a user, or returns no token.
        """
        response.close()
        challenge = response.headers.get("www-authenticate", "")[:LONGEST_CHALLENGE]
        scheme, _, rest = challenge.partition(" ")
        words = dict(re.findall(r'\b([A-Za-z]{1,32})="([^"]*)"', rest))
        realm = words.get("realm", "")
        if scheme.lower() != "bearer" or not web.is_address(realm):
            raise self._refused(response, self.url)
        wanted = {"scope": words.get("scope") or f"repository:{self.name}:pull"}
        if "service" in words:
            wanted["service"] = words["service"]
        # it gives everyone a token, for public images alone: so it is not waited for until it asks
        place, own = httpx.URL(realm), httpx.URL(self.url).host
        login = logins.header(place) if logins.is_related(place.host, own) else None
        headers, extensions = {"Authorization": login} if login else {}, {logins.FOR: own}
        with self.client.stream("GET", realm, params=wanted, headers=headers, extensions=extensions) as answer:
            text = bytearray()
            for block in answer.iter_bytes():
                text += block
                if len(text) > LARGEST_DOCUMENT:
                    raise TransferError(
                        f"The token for {self.image} is larger than {LARGEST_DOCUMENT:,} bytes.", cure=_ELSEWHERE
                    )
        try:
            body = documents.from_json(text) if answer.status_code == 200 else {}
            self.token = str(body.get("token") or body["access_token"])
            if not (self.token.isascii() and self.token.isprintable()):
                raise ValueError("it is not text for a header")
        except (ValueError, KeyError, AttributeError) as error:
            raise TransferError(
                f"{urlsplit(self.url).netloc} issued no token for {self.image}.",
                why=f"{urlsplit(realm).netloc} answered {answer.status_code} {answer.reason_phrase}.",
                cure="A private image needs a name and password in ~/.netrc (docs/images.md).",
            ) from error


def _check_shape(document: dict[str, Any], kind: str) -> None:
    """Check that a manifest has all fields that are read from it.

    :raises KeyError, TypeError, ValueError: it does not.
    """
    parts: list[dict[str, Any]] = []
    if kind in _INDEXES:
        parts = list(document["manifests"])
    elif kind in _MANIFESTS:
        parts = [document["config"], *document["layers"]]
    for part in parts:
        if not _DIGEST.fullmatch(part["digest"]) or not 0 <= int(part["size"]) <= LARGEST_BLOB:
            raise ValueError(f"bad descriptor {part['digest']!r}")
        if not isinstance(part.get("platform") or {}, dict) or not isinstance(part.get("urls") or [], list):
            raise ValueError(f"bad fields in the descriptor {part['digest']!r}")


def _choose(image: ContainerImage, entries: list[dict[str, Any]], os_build: str | None) -> list[dict[str, Any]]:
    """The index's entries for the image's system on amd64.

    :raises NotFoundError: there is none; the message lists the existing ones.
    """
    there: list[str] = []
    chosen = []
    for entry in entries:
        platform = entry.get("platform") or {}
        build = str(platform.get("os.version", ""))
        there.append(" ".join(filter(None, (f"{platform.get('os')}/{platform.get('architecture')}", build))))
        if platform.get("os") != image.os or platform.get("architecture") != "amd64":
            continue
        if os_build is None or f"{build}.".startswith(f"{os_build}."):
            chosen.append(entry)
    if not chosen:
        wanted = f"{image.os} on amd64" + (f", build {os_build}" if os_build else "")
        raise NotFoundError(f"There is no {image.reference} for {wanted}.", why=f"It has: {', '.join(there)}.")
    return chosen if system.get(image.os).own_layers else chosen[:1]


def _check_platform(image: ContainerImage, config: bytes) -> None:
    """Check that the image is for its system on amd64, by its own configuration rather than an index.

    :raises TransferError: it is not.
    """
    try:
        document = documents.from_json(config)
        platform = (document.get("os"), document.get("architecture"))
    except (ValueError, AttributeError) as error:
        raise TransferError(f"{image} is not a container image.", why="Its configuration can't be read.") from error
    if platform != (image.os, "amd64"):
        raise TransferError(
            f"{image} is for another platform.", why=f"It is for {platform[0]}/{platform[1]}, not {image.os}/amd64."
        )
