"""Downloads from a real HTTP server on the loopback: a good one, and all the bad ones seen in the wild."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from winlab.design.catalog.recipes import Download
from winlab.errors import TransferError
from winlab.supply import download

pytestmark = pytest.mark.integration

CONTENT = b"QFI\xfb" + bytes(range(256)) * 12000  # 3 MB
HALF = len(CONTENT) // 2


@dataclass
class Site:
    """How the server behaves, and what it was asked."""

    port: int = 0
    content: bytes = CONTENT
    ranges: bool = True
    etag: str = '"one"'
    cuts: int = 0  # this many answers end half-way
    status: list[int] = field(default_factory=list)  # answers before the first good one
    type: str = "application/octet-stream"
    asked: list[dict[str, str]] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    site: Site

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        site.asked.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == "/moved.img":
            self.send_response(302)
            self.send_header("Location", "/image.img")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/loop.img":
            self.send_response(302)
            self.send_header("Location", "/loop.img")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if site.status:
            self.send_error(site.status.pop(0))
            return
        begin = 0
        wanted = self.headers.get("Range", "")
        if site.ranges and wanted and self.headers.get("If-Range", site.etag) == site.etag:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        if begin >= len(site.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = site.content[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(site.content) - 1}/{len(site.content)}")
        if site.etag:
            self.send_header("ETag", site.etag)
        self.send_header("Content-Type", site.type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if site.cuts:
            site.cuts -= 1
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(body)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Handler,), {"site": site}))
    site.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


class Told:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, float | None]] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append((text, fraction))


@dataclass
class Try:
    """One call of fetch()."""

    site: Site
    folder: Path
    told: Told = field(default_factory=Told)
    path: str = "/image.img"
    size: int | None = None
    sha512: bool = False

    @property
    def part(self) -> Path:
        return self.folder / "key.image.img.part"

    @property
    def target(self) -> Path:
        return self.folder / "image.qcow2"

    def __call__(self, **more: Any) -> str:
        digest: dict[str, str] = {"sha256": hashlib.sha256(CONTENT).hexdigest()}
        if self.sha512:
            digest = {"sha512": hashlib.sha512(CONTENT).hexdigest()}
        image = Download.model_validate(
            {"url": f"http://127.0.0.1:{self.site.port}{self.path}", "size": self.size, **digest}
        )
        return download.fetch(image, self.target, self.told, part=self.part, pause=0.01, **more)

    def nothing_left(self) -> bool:
        return not self.target.exists() and not self.part.exists()


@pytest.fixture
def fetch(site: Site, tmp_path: Path) -> Try:
    return Try(site, tmp_path)


@pytest.mark.parametrize("sha512", [False, True])
def test_plain(fetch: Try, sha512: bool) -> None:
    fetch.sha512 = sha512
    fetch.size = len(CONTENT)
    assert fetch() == hashlib.sha256(CONTENT).hexdigest()
    assert fetch.target.read_bytes() == CONTENT
    assert [path.name for path in fetch.folder.iterdir()] == ["image.qcow2"]
    text, fraction = fetch.told.said[-1]
    assert text.startswith("downloading image.img: 3 of 3 MB")
    assert fraction == 1.0


def test_a_redirection_is_followed(fetch: Try) -> None:
    fetch.path = "/moved.img"
    fetch()
    assert fetch.target.read_bytes() == CONTENT


def test_an_endless_redirection(fetch: Try) -> None:
    fetch.path = "/loop.img"
    with pytest.raises(TransferError, match="can't be downloaded"):
        fetch()


def test_a_mirror(fetch: Try, site: Site) -> None:
    image = Download(url="https://publisher.invalid/image.img", sha256=hashlib.sha256(CONTENT).hexdigest())
    mirror = f"http://127.0.0.1:{site.port}"
    download.fetch(image, fetch.target, fetch.told, part=fetch.part, mirror=mirror)
    assert fetch.target.read_bytes() == CONTENT


def test_cut_connections_are_resumed(fetch: Try, site: Site) -> None:
    site.cuts = 2
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert [asked.get("range") for asked in site.asked] == [None, f"bytes={HALF}-", f"bytes={HALF + HALF // 2}-"]
    assert site.asked[1]["if-range"] == '"one"'
    assert any("trying again in" in text for text, _ in fetch.told.said)


def test_a_server_that_ignores_ranges_sends_all_again(fetch: Try, site: Site) -> None:
    site.cuts, site.ranges = 1, False
    fetch()
    assert fetch.target.read_bytes() == CONTENT


def test_a_server_that_always_cuts_and_ignores_ranges_is_given_up(fetch: Try, site: Site) -> None:
    site.cuts, site.ranges = 99, False
    with pytest.raises(TransferError, match="can't be downloaded") as caught:
        fetch()
    assert "2 MB arrived" in caught.value.why
    assert len(site.asked) == download.TRIES
    assert not fetch.target.exists()


def test_a_later_run_resumes(fetch: Try, site: Site) -> None:
    site.cuts = 1

    class Stop(Exception):
        pass

    class Stopper(Told):
        def say(self, text: str, fraction: float | None = None) -> None:
            if "trying again" in text:
                raise Stop

    told, fetch.told = fetch.told, Stopper()
    with pytest.raises(Stop):
        fetch()
    assert fetch.part.stat().st_size == HALF
    fetch.told = told
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert site.asked[-1]["range"] == f"bytes={HALF}-"


def test_a_file_that_changed_meanwhile_is_downloaded_again(fetch: Try, site: Site) -> None:
    site.cuts, site.etag = 1, '"old"'
    site.content = b"\0" * len(CONTENT)

    class Changer(Told):
        def say(self, text: str, fraction: float | None = None) -> None:
            if "trying again" in text:
                site.etag, site.content = '"new"', CONTENT

    fetch.told = Changer()
    fetch()
    assert fetch.target.read_bytes() == CONTENT


@pytest.mark.parametrize("etag", ["", 'W/"weak"'])
def test_a_part_of_another_file_is_noticed_without_etag(fetch: Try, site: Site, etag: str) -> None:
    """No validator: the server can't notice that our part is of another file. The digest does."""
    site.etag = etag
    fetch.part.write_bytes(b"\0" * HALF)
    notes = fetch.part.with_name(fetch.part.name + ".json")
    notes.write_text(f'{{"url": "http://127.0.0.1:{site.port}/image.img", "validator": ""}}')
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert [asked.get("range") for asked in site.asked] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("extra", [0, 10])
def test_a_part_that_is_complete_or_too_long(fetch: Try, site: Site, extra: int) -> None:
    fetch.part.write_bytes(CONTENT + b"\0" * extra)
    notes = fetch.part.with_name(fetch.part.name + ".json")
    notes.write_text(f'{{"url": "http://127.0.0.1:{site.port}/image.img", "validator": ""}}')
    fetch()
    assert fetch.target.read_bytes() == CONTENT
    assert len(site.asked) == (2 if extra else 0)


def test_a_busy_server_is_asked_again(fetch: Try, site: Site) -> None:
    site.status = [503, 429]
    fetch()
    assert fetch.target.read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "words"), [(404, "was not found"), (403, "was refused: 403")])
def test_a_refusal_is_not_retried(fetch: Try, site: Site, status: int, words: str) -> None:
    site.status = [status] * 9
    with pytest.raises(TransferError, match=words):
        fetch()
    assert len(site.asked) == 1
    assert fetch.nothing_left()


def test_the_wrong_file(fetch: Try, site: Site) -> None:
    site.content = b"QFI\xfb" + b"\1" * 1000
    with pytest.raises(TransferError, match="not the published image") as caught:
        fetch()
    assert hashlib.sha256(site.content).hexdigest() in caught.value.why
    assert hashlib.sha256(CONTENT).hexdigest() in caught.value.why
    assert fetch.nothing_left()
    assert len(site.asked) == 1


def test_a_wrong_size_is_noticed_before_the_download(fetch: Try, site: Site) -> None:
    fetch.size = len(CONTENT) + 1
    with pytest.raises(TransferError, match="wrong size"):
        fetch()
    assert fetch.nothing_left()


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_web_page_instead_of_an_image(fetch: Try, site: Site, kind: str) -> None:
    site.content, site.type = b"\n  <!DOCTYPE html><title>Log in</title>", kind
    with pytest.raises(TransferError, match="web page"):
        fetch()
    assert fetch.nothing_left()


def test_an_unreachable_server(fetch: Try) -> None:
    fetch.site.port = 1  # tcpmux: no one listens
    with pytest.raises(TransferError, match="can't be downloaded") as caught:
        fetch()
    assert f"{download.TRIES_UNSEEN} tries" in caught.value.why


def test_a_plain_server_asked_for_tls(fetch: Try, site: Site) -> None:
    image = Download(url=f"https://127.0.0.1:{site.port}/image.img", sha256="0" * 64)
    with pytest.raises(TransferError):
        download.fetch(image, fetch.target, fetch.told, part=fetch.part, pause=0.01)
