"""Chooses the one source of a lab's artifacts, before anything starts, and says why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import httpx

from winlab.design.catalog.artifact import Artifact, Program, Source
from winlab.design.catalog.pins import Pins
from winlab.errors import NotFoundError, UsageError, WinlabError
from winlab.supply.artifacts import web
from winlab.supply.artifacts.bundle import file
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.upstream import UpstreamSource

Kind = Literal["upstream", "mirror", "bundle", "build"]
PROBE_SECONDS = 3.0
HOST_CURE = (
    "No digest that was known before verifies one: give the bundle's own (--bundle-digest), or build it"
    " (--source build)."
)


class BuilderSource(Source, Protocol):
    """The source ``build``, which may turn out to be impossible."""

    def unready(self, wanted: Sequence[Artifact]) -> str | None:
        """Why this machine can't build the parts of *wanted* that are not cached; None if no reason is known."""


def unreachable(url: str) -> str | None:
    """Why *url* is unavailable, or None if its server answers and has it. Takes at most a few seconds.

    A server that answers HEAD with 401 or 405 counts as available: registries require a token first.
    """
    host = urlsplit(url).netloc
    try:
        with web.client(PROBE_SECONDS) as client:
            response = client.head(url, timeout=PROBE_SECONDS, extensions=dict(web.COMPARED))  # it takes nothing
    except httpx.TimeoutException:
        return f"{host} did not answer within {PROBE_SECONDS:.0f} s"
    except httpx.HTTPError as error:
        return f"{host} can't be reached ({web.reason(error)})"
    if response.status_code in (401, 405) or response.status_code < 400:
        return None
    return f"{host} answered {response.status_code} {response.reason_phrase}".rstrip()


def for_host(source: Source, alternatives: Sequence[Program]) -> Program | None:
    """The first of *alternatives* that the source has and that a digest known before verifies; None: none is."""
    return next((one for one in alternatives if source.pinned(one) and not source.cannot([one])), None)


def choose(
    wanted: Sequence[Artifact],
    *,
    pins: Pins,
    build: Callable[[], BuilderSource],
    kind: Kind | None = None,
    bundle_path: Path | None = None,
    bundle_digest: str | None = None,
    mirror: str | None = None,
    insecure_mirror: bool = False,
    host: Sequence[Program] = (),
    optional: Collection[Artifact] = (),
    settled: bool = False,
    probe: Callable[[str], str | None] = unreachable,
) -> tuple[Source, str]:
    """The source of everything *wanted*, and why it was chosen: a sentence for the user.

    By default (*kind* None) this is the first source that can provide everything. The order is: a bundle in the cache;
    upstream, if the cache already has everything or its server answers; a build. If the user named a bundle or a
    mirror, only that one is considered. An *optional* artifact that the source lacks does not count against it;
    :meth:`Source.cannot` says which to leave out.

    :param build: makes the source ``build``; called only if needed.
    :param bundle_digest: the digest that the named bundle must have; it then verifies everything in it.
    :param mirror: a URL or folder, see :class:`UpstreamSource`.
    :param insecure_mirror: whether a mirror that others can tamper with is trusted for artifacts without a digest.
    :param host: programs of which this host is to run one: the source must have one that may (:func:`for_host`).
    :param settled: most likely nothing will be obtained, so a build is not checked for whether it could begin.
    :raises UsageError: *kind*, *bundle_path* and *mirror* do not fit together, or one of them can't be used.
    :raises NotFoundError: no source can provide everything; the message says why for each one.
    """
    _check(kind, bundle_path, mirror)
    if bundle_digest is not None and bundle_path is None:
        raise UsageError("The digest was given without a bundle.", cure="Add the bundle: --bundle FILE.")
    needed = [artifact for artifact in wanted if artifact not in set(optional)]
    kind = kind or ("bundle" if bundle_path else "mirror" if mirror else None)
    search = _Search(needed, host, pins, mirror, insecure_mirror, probe)
    if kind in (None, "bundle"):
        choice = search.bundle_named(bundle_path, bundle_digest) if bundle_path else search.bundle_in_cache()
        if choice:
            return choice
    if kind in (None, "upstream", "mirror") and (choice := search.upstream(named=kind is not None)):
        return choice
    if kind in (None, "build") and (choice := search.built(build, named=kind is not None, settled=settled)):
        return choice
    raise NotFoundError(
        "No source has everything that the lab needs.",
        why="\n".join(search.reasons),
        cure="Give a bundle (--bundle FILE, made by 'winlab bundle create' on a machine with a network) or a mirror"
        " (--mirror URL), or let this host reach the internet or a Go module proxy."
        if kind != "build"
        else "Use another source: upstream, a mirror or a bundle.",
    )


def _check(kind: Kind | None, bundle_path: Path | None, mirror: str | None) -> None:
    """Check that the requested options fit together.

    :raises UsageError: they don't.
    """
    if kind == "mirror" and not mirror:
        raise UsageError("The source 'mirror' needs its address.", cure="Give it with --mirror URL.")
    if bundle_path and kind not in (None, "bundle"):
        raise UsageError(f"Both a bundle and the source '{kind}' were given.", cure="Give one of them.")
    if mirror and kind == "upstream":
        raise UsageError(
            "Both a mirror and the source 'upstream' were given.",
            cure="Give one of them; the mirror's source is called 'mirror'.",
        )


@dataclass
class _Search:
    """Tries the sources in turn and records why each was skipped."""

    needed: Sequence[Artifact]
    host: Sequence[Program]
    pins: Pins
    mirror: str | None
    insecure: bool
    probe: Callable[[str], str | None]

    def __post_init__(self) -> None:
        self.reasons: list[str] = []
        self.passed: list[str] = []  # the same in few words

    def bundle_named(self, path: Path, digest: str | None) -> tuple[Source, str] | None:
        """The bundle that the user named. Problems with the file itself are raised."""
        source = BundleSource(path, self.pins, digest)
        if self._lacks(f"bundle '{path}'", source, "the bundle lacks something"):
            return None
        return source, f"bundle: '{path}', as you asked; it has everything{self._trusted(source)}."

    def bundle_in_cache(self) -> tuple[Source, str] | None:
        """The newest bundle in the cache that has everything."""
        folder = file.folder()
        paths = sorted(folder.glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in paths:
            try:
                source = BundleSource(path, self.pins)
            except WinlabError as error:
                self.reasons.append(f"bundle '{path}': {' '.join(filter(None, (error.what, error.why)))}")
                continue
            if not self._lacks(f"bundle '{path}'", source, ""):
                return source, f"bundle: '{path.name}' in the cache has everything{self._trusted(source)}."
        if not paths:
            self.reasons.append(f"bundle: there is none in '{folder}'")
        self.passed.append("no bundle in the cache has everything" if paths else "there is no bundle in the cache")
        return None

    def _trusted(self, source: BundleSource) -> str:
        count = source.without_digest(self.needed)
        return f" (which alone has digests of {count} of {len(self.needed)} artifacts)" if count else ""

    def upstream(self, *, named: bool) -> tuple[Source, str] | None:
        """The publishers or the mirror, if they are pinned and can be reached."""
        source = UpstreamSource(self.pins, self.mirror, insecure=self.insecure)
        where = f"mirror {self.mirror}" if self.mirror else "upstream"
        if self._lacks(where, source, "not everything is published"):
            return None
        needed = self._with_host(source)
        source.check_trust(needed)
        place = source.probe_url(needed)
        if place is None:
            return source, self._because(f"{where}: the cache already has everything from there", named)
        if isinstance(place, Path):
            if not place.is_file():
                self.reasons.append(f"{where}: it has no '{place.name}'")
                return None
            return source, self._because(f"{where}: the folder is there", named)
        if why := self.probe(place):
            self.reasons.append(f"{where}: {why}")
            self.passed.append(why)
            return None
        answers = f"{where}: {urlsplit(place).netloc} answers"
        if self.mirror and (trusted := source.without_digest(needed)):
            answers += f" (only its own lists of digests verify {trusted} of {len(needed)} artifacts"
            answers += ", over a connection that others can tamper with)" if place.startswith("http:") else ")"
        return source, self._because(answers, named)

    def built(self, build: Callable[[], BuilderSource], *, named: bool, settled: bool) -> tuple[Source, str] | None:
        """A build on this machine."""
        try:
            source = build()
        except WinlabError as error:
            self.reasons.append(f"build: {' '.join(filter(None, (error.what, error.why)))}")
            return None
        if self._lacks("build", source, ""):
            return None
        if not settled and (why := source.unready(self._with_host(source))):
            self.reasons.append(f"build: {why}")
            return None
        return source, self._because("build: from Go modules, on this machine", named)

    def _because(self, text: str, named: bool) -> str:
        if named or not self.passed:
            return f"{text}{', as you asked' if named else ''}."
        return f"{text}, because {' and '.join(self.passed)}."

    def _with_host(self, source: Source) -> list[Artifact]:
        """What is needed, with the program for this host."""
        own = for_host(source, self.host)
        return list(dict.fromkeys([*self.needed, *([own] if own is not None else [])]))

    def _lacks(self, where: str, source: Source, brief: str) -> bool:
        missing = source.cannot(self.needed)
        if not missing:
            if not self.host or for_host(source, self.host) is not None:
                return False
            self.reasons.append(f"{where} has no {self.host[0].name} that this host may run. {HOST_CURE}")
            if brief:
                self.passed.append(f"no known digest verifies the {self.host[0].name} of {where.partition(' ')[0]}")
            return True
        by_reason: dict[str, list[str]] = {}
        for artifact, why in missing.items():
            by_reason.setdefault(why, []).append(str(artifact))
        lacks = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        self.reasons.append(f"{where} lacks {lacks}")
        if brief:
            self.passed.append(brief)
        return True
