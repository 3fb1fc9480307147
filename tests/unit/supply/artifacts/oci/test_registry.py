"""Requests to a registry, and answers that are refused: with answers made here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from winlab.design.catalog.artifact import ContainerImage
from winlab.errors import NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.supply.artifacts import web
from winlab.supply.artifacts.oci import archive, layout, registry
from winlab.supply.artifacts.oci.registry import Reference, pull

D = "sha256:" + "a" * 64
IMAGE = ContainerImage("r.example/x/y:1", "linux")
BASE = "https://r.example/v2/x/y"


@pytest.mark.parametrize(
    ("text", "base", "name", "tag", "digest"),
    [
        ("registry.k8s.io/pause:3.10.2", "https://registry.k8s.io", "pause", "3.10.2", None),
        ("registry.k8s.io/coredns/coredns:v1", "https://registry.k8s.io", "coredns/coredns", "v1", None),
        ("docker.io/nginx", "https://registry-1.docker.io", "library/nginx", "latest", None),
        ("docker.io/calico/node:v3.32.1", "https://registry-1.docker.io", "calico/node", "v3.32.1", None),
        ("localhost:5000/a/b_c:1", "https://localhost:5000", "a/b_c", "1", None),
        (f"ghcr.io/a/b:1@{D}", "https://ghcr.io", "a/b", "1", D),
    ],
)
def test_references(text: str, base: str, name: str, tag: str, digest: str | None) -> None:
    reference = Reference.parse(text)
    assert reference.place(None) == (base, name)
    assert (reference.tag, reference.digest) == (tag, digest)


@pytest.mark.parametrize(
    "text", ["nginx", "library/nginx:1", "", "R.io/UP:1", "r.io/a:1:2", "r.io/", "r.io/a@sha256:1"]
)
def test_incomplete_references(text: str) -> None:
    with pytest.raises(UsageError, match="not a full reference"):
        Reference.parse(text)


def test_a_mirror_has_the_registrys_name_first() -> None:
    place = Reference.parse("docker.io/nginx:1").place("http://m.example:81/pub/files")
    assert place == ("http://m.example:81", "docker.io/library/nginx")
    assert Reference.parse("registry.k8s.io/pause:1").place("https://m.example")[1] == "registry.k8s.io/pause"


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class Registry:
    """Answers by address; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, httpx.Response | Callable[[httpx.Request], httpx.Response]] = {}
        self.asked: list[httpx.Request] = []
        self.layer = b"a layer"
        self.put("blobs", self.layer)

    def put(self, kind: str, content: bytes, tag: str = "", base: str = BASE) -> str:
        self.answers[f"{base}/{kind}/{tag or digest(content)}"] = httpx.Response(200, content=content)
        return digest(content)

    def image(self, tag: str = "", config: bytes | None = None, **changes: Any) -> str:
        text = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}}).encode()
        config = text if config is None else config
        self.put("blobs", config)
        parts = {
            "config": {"mediaType": "c", "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": "l", "digest": digest(self.layer), "size": len(self.layer)}],
        }
        document = {"schemaVersion": 2, "mediaType": layout.MANIFEST, **parts, **changes}
        return self.put("manifests", json.dumps(document).encode(), tag)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.get(str(request.url), httpx.Response(404))
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        return answer(request)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Registry:
    answers, client = Registry(), web.client
    monkeypatch.setattr(web, "client", lambda: client(transport=httpx.MockTransport(answers)))
    return answers


def take(tmp_path: Path, image: ContainerImage = IMAGE, **more: Any) -> Path:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    pull(image, tmp_path / "image.tar", Quiet(), work=work, pause=0.0, **more)
    return tmp_path / "image.tar"


def test_a_plain_image(server: Registry, tmp_path: Path) -> None:
    server.image("1")
    archive.verify(take(tmp_path), IMAGE)
    assert server.asked[0].url.path == "/v2/x/y/manifests/1"
    assert layout.INDEX in server.asked[0].headers["accept"]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"<html>log in</html>", "is not a manifest"),
        (b"[]", "is not a manifest"),
        (json.dumps({"mediaType": layout.MANIFEST}).encode(), "is not a manifest"),
        (json.dumps({"mediaType": layout.MANIFEST, "config": {}, "layers": []}).encode(), "is not a manifest"),
        (
            json.dumps(
                {"mediaType": layout.MANIFEST, "config": {"digest": "sha256:../../etc", "size": 1}, "layers": []}
            ).encode(),
            "is not a manifest",
        ),
        (json.dumps({"schemaVersion": 1, "mediaType": ""}).encode(), "unsupported format"),
        (b" " * (registry.LARGEST_MANIFEST + 1), "larger than"),
    ],
)
def test_bad_manifests(server: Registry, tmp_path: Path, manifest: bytes, words: str) -> None:
    server.put("manifests", manifest, "1")
    with pytest.raises(TransferError, match=words) as caught:
        take(tmp_path)
    assert IMAGE.reference in caught.value.what
    assert not (tmp_path / "image.tar").exists()


def test_another_manifest_than_the_pinned_one(server: Registry, tmp_path: Path) -> None:
    wanted = "sha256:" + "b" * 64
    server.image(tag=wanted)
    with pytest.raises(TransferError, match="different manifest") as caught:
        take(tmp_path, digest=wanted)
    assert wanted in caught.value.why


@pytest.mark.parametrize("config", [b"no json", b"[]", b"{}"])
def test_bad_configurations(server: Registry, tmp_path: Path, config: bytes) -> None:
    server.image("1", config=config)
    with pytest.raises(TransferError, match=r"r\.example/x/y:1"):
        take(tmp_path)


@pytest.mark.parametrize("sent", [b"a laye", b"a layeR", b"a layer and more"])
def test_bad_layers(server: Registry, tmp_path: Path, sent: bytes) -> None:
    server.image("1")
    server.answers[f"{BASE}/blobs/{digest(server.layer)}"] = httpx.Response(200, content=sent)
    with pytest.raises(TransferError, match="A layer of image"):
        take(tmp_path)
    tries = [request for request in server.asked if request.url.path.endswith(digest(server.layer))]
    assert len(tries) == registry.TRIES
    assert not list((tmp_path / "work").glob("*.partial"))


def test_a_bad_layer_is_tried_again(server: Registry, tmp_path: Path) -> None:
    server.image("1")
    answers = [b"cut", server.layer]
    server.answers[f"{BASE}/blobs/{digest(server.layer)}"] = lambda _: httpx.Response(200, content=answers.pop(0))
    archive.verify(take(tmp_path), IMAGE)


def test_layers_that_only_microsoft_hands_out(server: Registry, tmp_path: Path) -> None:
    elsewhere = "https://mcr.example/layer"
    foreign = {"mediaType": "l", "digest": digest(b"base"), "size": 4, "urls": [elsewhere]}
    server.answers[elsewhere] = httpx.Response(200, content=b"base")
    server.image("1", layers=[foreign])
    archive.verify(take(tmp_path), IMAGE)


def test_an_index_lists_what_it_has(server: Registry, tmp_path: Path) -> None:
    platform = {"os": "windows", "architecture": "amd64", "os.version": "10.0.20348.1"}
    entry = {"mediaType": layout.MANIFEST, "digest": server.image(), "size": 1, "platform": platform}
    server.put("manifests", json.dumps({"mediaType": layout.INDEX, "manifests": [entry]}).encode(), "1")
    with pytest.raises(NotFoundError, match="for linux on amd64") as caught:
        take(tmp_path)
    assert "windows/amd64 10.0.20348.1" in caught.value.why


def test_a_token_stays_with_its_registry(server: Registry, tmp_path: Path) -> None:
    """Layers are often redirected to another host, which must not see the token."""
    server.image("1")
    plain = dict(server.answers)
    cdn = "https://cdn.example/layer"

    def guarded(url: str) -> Callable[[httpx.Request], httpx.Response]:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.headers.get("authorization") != "Bearer T0KEN":
                challenge = 'Bearer realm="https://auth.example/token",service="s",scope="repository:x/y:pull"'
                return httpx.Response(401, headers={"www-authenticate": challenge})
            if url.endswith(digest(server.layer)):
                return httpx.Response(307, headers={"location": cdn})
            found = plain[url]
            assert isinstance(found, httpx.Response)
            return httpx.Response(200, content=found.content)

        return answer

    server.answers = {url: guarded(url) for url in plain}
    server.answers[cdn] = lambda request: httpx.Response(
        400 if "authorization" in request.headers else 200, content=server.layer
    )
    token = "https://auth.example/token?scope=repository%3Ax%2Fy%3Apull&service=s"
    server.answers[token] = httpx.Response(200, json={"access_token": "T0KEN"})
    archive.verify(take(tmp_path), IMAGE)
    assert sum(request.url.host == "auth.example" for request in server.asked) == 1


def test_a_token_is_for_no_host_that_a_manifest_names(server: Registry, tmp_path: Path) -> None:
    """The author of the image wrote it; that host may ask for a login, too, and gets none."""
    elsewhere = "https://evil.example/layer"
    foreign = {"mediaType": "l", "digest": digest(b"base"), "size": 4, "urls": [elsewhere]}
    server.image("1", layers=[foreign])
    plain = dict(server.answers)

    def guarded(url: str) -> Callable[[httpx.Request], httpx.Response]:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.headers.get("authorization") != "Bearer T0KEN":
                return httpx.Response(401, headers={"www-authenticate": 'Bearer realm="https://auth.example/t"'})
            found = plain[url]
            assert isinstance(found, httpx.Response)
            return httpx.Response(200, content=found.content)

        return answer

    server.answers = {url: guarded(url) for url in plain}
    token = "https://auth.example/t?scope=repository%3Ax%2Fy%3Apull"
    server.answers[token] = httpx.Response(200, json={"token": "T0KEN"})
    server.answers[elsewhere] = httpx.Response(200, content=b"base")
    archive.verify(take(tmp_path), IMAGE)
    (asked,) = [request for request in server.asked if request.url.host == "evil.example"]
    assert "authorization" not in asked.headers
    challenge = {"www-authenticate": 'Bearer realm="https://evil.example/login"'}
    server.answers[elsewhere] = httpx.Response(401, headers=challenge)
    (tmp_path / "again").mkdir()
    with pytest.raises(TransferError, match=r"evil\.example refuses"):
        take(tmp_path / "again")
    assert not [request for request in server.asked if request.url.path == "/login"]


@pytest.mark.parametrize("pinned", [False, True])
def test_downloads_without_a_digest_stay_encrypted(server: Registry, tmp_path: Path, pinned: bool) -> None:
    """What is compared with a digest may come from anywhere: registries lead layers to other places."""
    whole = server.image()
    layer, known = f"{BASE}/blobs/{digest(server.layer)}", f"{BASE}/manifests/{whole}"
    for url in (layer, known):
        plain = url.replace("https://r.example", "http://plain.example")
        server.answers[plain] = server.answers[url]
        server.answers[url] = httpx.Response(307, headers={"location": plain})
    server.answers[f"{BASE}/manifests/1"] = server.answers[known]
    if not pinned:
        with pytest.raises(TransferError, match=r"can't be pulled from r\.example") as caught:
            take(tmp_path)
        assert "from https to plain http" in caught.value.why
        assert len(server.asked) == 1  # it is not tried again
    else:
        archive.verify(take(tmp_path, digest=whole), IMAGE)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example/x", "https://A.example:443/y", True),
        ("https://a.example/x", "http://a.example/x", False),
        ("https://a.example/x", "https://a.example:8443/x", False),
        ("https://a.example/x", "https://a.example.evil/x", False),
        ("http://a.example:80/", "http://a.example", True),
    ],
)
def test_one_server_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert web.same_origin(one, other) is same


@pytest.mark.parametrize(
    ("headers", "token", "words"),
    [
        ({}, httpx.Response(200, json={"token": "x"}), "refuses"),
        ({"www-authenticate": 'Basic realm="x"'}, httpx.Response(200, json={"token": "x"}), "refuses"),
        ({"www-authenticate": 'Bearer realm="file:///etc/passwd"'}, httpx.Response(200, json={}), "refuses"),
        # of an endless header only the beginning is read: matching all of it took seconds
        (
            {"www-authenticate": "Bearer " + "a" * 5000 + ' realm="https://auth.example/t"'},
            httpx.Response(200, json={"token": "x"}),
            "refuses",
        ),
        ({"www-authenticate": 'Bearer realm="https://auth.example/t"'}, httpx.Response(403), "issued no token"),
        (
            {"www-authenticate": 'Bearer realm="https://auth.example/t"'},
            httpx.Response(200, text="x"),
            "issued no token",
        ),
        (
            {"www-authenticate": 'Bearer realm="https://auth.example/t"'},
            httpx.Response(200, json={"token": "x"}),
            "401",
        ),
    ],
)
def test_no_token_no_image(
    server: Registry, tmp_path: Path, headers: dict[str, str], token: httpx.Response, words: str
) -> None:
    server.answers[f"{BASE}/manifests/1"] = httpx.Response(401, headers=headers)
    server.answers["https://auth.example/t?scope=repository%3Ax%2Fy%3Apull"] = token
    with pytest.raises(TransferError, match=words) as caught:
        take(tmp_path)
    assert IMAGE.reference in caught.value.what


def test_a_registry_may_name_the_time_to_wait(
    server: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(registry.stopping, "sleep", waits.append)
    server.image("1")
    manifest = server.answers[f"{BASE}/manifests/1"]
    assert isinstance(manifest, httpx.Response)
    answers = [
        httpx.Response(429, headers={"retry-after": "7"}),
        httpx.Response(503, headers={"retry-after": "86400"}),
        httpx.Response(200, content=manifest.content),
    ]
    server.answers[f"{BASE}/manifests/1"] = lambda _: answers.pop(0)
    take(tmp_path)
    assert waits == [7.0, registry.LONGEST_PAUSE]


def test_an_unreachable_server(server: Registry, tmp_path: Path) -> None:
    def broken(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host")

    server.answers[f"{BASE}/manifests/1"] = broken
    with pytest.raises(TransferError, match=r"can't be pulled from r\.example") as caught:
        take(tmp_path)
    assert "no route to host" in caught.value.why
    assert len(server.asked) == registry.TRIES
