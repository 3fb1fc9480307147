"""Names and passwords from netrc: only for the server that asks, only its own, only where no one else reads them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from winlab.design.catalog.artifact import ContainerImage
from winlab.design.catalog.recipes import Download
from winlab.errors import TransferError, UsageError
from winlab.events import Quiet
from winlab.supply import download, http_client, logins
from winlab.supply.artifacts import web
from winlab.supply.artifacts.oci import registry

ME = f"Basic {base64.b64encode(b'me:s3cret').decode()}"
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "netrc"
    path.write_text(
        "# mine\nmachine Mirror.example login me password s3cret\nmachine other.example login o password p4ss\n"
        "machine localhost login me password s3cret\nmachine auth.mirror.example login me password s3cret\n"
        "default login d password d3fault\n"
    )
    monkeypatch.setenv("NETRC", str(path))
    return path


class Server:
    """Asks for a login; keeps what it was asked, each with the header that came."""

    def __init__(self, wants: str = ME) -> None:
        self.wants = wants
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, Answer] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        given = request.headers.get("authorization", "")
        self.asked.append((str(request.url), given))
        if (answer := self.answers.get(str(request.url))) is not None:
            return answer(request)
        return httpx.Response(200 if given == self.wants else 401, stream=httpx.ByteStream(b"x"))

    def client(self) -> httpx.Client:
        return http_client.make(httpx.Timeout(1.0), transport=httpx.MockTransport(self))


@pytest.mark.usefixtures("file")
def test_a_server_that_asks_gets_its_own_and_once_only_asks() -> None:
    server = Server()
    with server.client() as client:
        assert client.get("https://mirror.example/a").status_code == 200
        assert client.get("https://mirror.example/b").status_code == 200
    assert server.asked == [
        ("https://mirror.example/a", ""),
        ("https://mirror.example/a", ME),
        ("https://mirror.example/b", ME),
    ]


@pytest.mark.usefixtures("file")
def test_a_server_that_does_not_ask_gets_nothing() -> None:
    server = Server(wants="")
    with server.client() as client:
        assert client.get("https://mirror.example/a").status_code == 200
    assert server.asked == [("https://mirror.example/a", "")]


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("http://mirror.example/a", []),
        ("http://localhost:5000/a", [ME]),
        ("https://localhost/a", [ME]),
        ("https://unknown.example/a", []),  # "default" means every server
    ],
)
def test_who_may_get_one(url: str, given: list[str]) -> None:
    server = Server()
    with server.client() as client:
        client.get(url)
    assert [header for _, header in server.asked if header] == given


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize("before", [False, True])
def test_a_host_to_which_another_one_leads_gets_none(before: bool) -> None:
    server = Server()
    server.answers["https://mirror.example/a"] = lambda request: (
        httpx.Response(302, headers={"location": "https://other.example/a"})
        if not before or request.headers.get("authorization")
        else httpx.Response(401)
    )
    with server.client() as client:
        assert client.get("https://mirror.example/a").status_code == 401
    assert [header for url, header in server.asked if "other" in url] == [""]


@pytest.mark.usefixtures("file")
def test_a_wrong_password_is_not_sent_again_and_again() -> None:
    server = Server(wants="nothing")
    with server.client() as client:
        assert client.get("https://mirror.example/a").status_code == 401
    assert len(server.asked) == 2


def test_a_file_that_is_not_netrc_is_named_without_its_words(file: Path) -> None:
    file.write_text("machine mirror.example login me\npassword s3cret s3cret2\n")
    with Server().client() as client, pytest.raises(UsageError, match="is not written as a netrc file") as caught:
        client.get("https://mirror.example/a")
    assert ", line " in caught.value.what
    assert "s3cret" not in f"{caught.value.what}{caught.value.why}{caught.value.cure}"


def test_without_a_file_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", "/nowhere/netrc")
    assert logins.header(httpx.URL("https://mirror.example")) is None
    assert logins.explained(httpx.URL("https://r.example")) == (
        "'/nowhere/netrc' has no name and password for r.example."
    )


@pytest.mark.usefixtures("file")
def test_a_download_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    monkeypatch.setattr(http_client, "_trust", lambda: None)
    monkeypatch.setattr(http_client, "_Routed", lambda _: httpx.MockTransport(server))
    sha256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of "x"
    wanted = Download(url="https://publisher.example/x", sha256=sha256)
    fetched = download.fetch(
        wanted, tmp_path / "x", Quiet(), part=tmp_path / "x.part", mirror="https://mirror.example/pub"
    )
    assert fetched == sha256
    server.wants = "another"
    with pytest.raises(TransferError, match="401") as caught:
        download.fetch(wanted, tmp_path / "y", Quiet(), part=tmp_path / "y.part", mirror="https://mirror.example/pub")
    assert "It was given the name and password" in caught.value.why
    assert "s3cret" not in caught.value.why


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("realm", "given"), [("https://auth.mirror.example/token", ME), ("https://other.example/token", "")]
)
def test_a_registry_s_tokens_come_from_its_own_domain(
    realm: str, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, which a registry may name, is asked as everyone asks it, even if it wants a login."""
    server = Server()
    challenge = {"www-authenticate": f'Bearer realm="{realm}"'}
    place = "https://mirror.example/v2/registry.k8s.io/pause/manifests/1"
    server.answers[place] = lambda request: (
        httpx.Response(404)
        if request.headers.get("authorization") == "Bearer T"
        else httpx.Response(401, headers=challenge)
    )
    tokens = f"{realm}?scope=repository%3Aregistry.k8s.io%2Fpause%3Apull"
    server.answers[tokens] = lambda request: (
        httpx.Response(200, json={"token": "T"})
        if request.headers.get("authorization", "") == given == ME
        else httpx.Response(401)
    )
    monkeypatch.setattr(web, "client", server.client)
    (tmp_path / "work").mkdir()
    with pytest.raises(Exception, match="has no" if given else "issued no token"):
        registry.pull(
            ContainerImage("registry.k8s.io/pause:1", "linux"),
            tmp_path / "x.tar",
            Quiet(),
            work=tmp_path / "work",
            mirror="https://mirror.example",
            pause=0.0,
        )
    assert [header for url, header in server.asked if url.startswith(realm)] == [given]


def test_domains() -> None:
    assert logins.is_related("registry-1.docker.io", "auth.docker.io")
    assert logins.is_related("gitlab.example", "registry.gitlab.example")
    assert logins.is_related("localhost", "localhost")
    assert not logins.is_related("evil.example", "mirror.test")
