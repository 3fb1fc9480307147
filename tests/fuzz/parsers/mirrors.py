"""What mirrors and registries answer: indexes, manifests, tokens, headers, lists of digests, published files.

An input is a JSON object of the answers by path: status, headers, and the body as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import mutation
from fuzzing import parser

from winlab.design.catalog.artifact import ContainerImage
from winlab.design.catalog.recipes import Download
from winlab.events import Quiet
from winlab.supply import download, http_client
from winlab.supply.artifacts import upstream, web
from winlab.supply.artifacts.oci import layout, registry

from .archives import write

CLIENT = httpx.Client
FILE = b"published" * 50
INDEX = {"linux": "a", "windows": "b"}


class _Body(httpx.SyncByteStream):
    def __init__(self, content: bytes) -> None:
        self._content = content

    def __iter__(self) -> Iterator[bytes]:
        yield self._content


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def answers(content: bytes) -> None:
    """Let every request be answered from the input, with digests where the input says ``@NAME``."""
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError):
        rows = {}
    rows = rows if isinstance(rows, dict) else {}

    def answer(request: httpx.Request) -> httpx.Response:
        row = next((row for end, row in rows.items() if str(request.url).partition("?")[0].endswith(str(end))), None)
        if not isinstance(row, dict):
            return httpx.Response(404)
        headers = [
            (str(name).encode("latin-1", "replace"), str(text).encode("latin-1", "replace"))
            for name, text in (row.get("headers") if isinstance(row.get("headers"), dict) else {}).items()
        ]
        body = str(row.get("body", "")).encode("utf-8", "surrogatepass")
        status = row.get("status", 200)
        status = status if isinstance(status, int) and 200 <= status < 600 else 200
        if rows.get("broken"):
            body = body[: len(body) // 2]
        return httpx.Response(status, headers=headers, stream=_Body(body))

    def client(**options: Any) -> httpx.Client:
        return CLIENT(transport=httpx.MockTransport(answer), follow_redirects=True)

    web.client = lambda *_: client()  # type: ignore[assignment]
    http_client._trust = lambda: None  # type: ignore[assignment, return-value]
    httpx.Client = client  # type: ignore[misc, assignment]
    download.time.sleep = lambda _: None
    registry.time.sleep = lambda _: None


def pulled() -> list[bytes]:
    """An index that leads to a manifest, by a token; and a manifest alone."""
    config = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}})
    parts = {
        "config": {"mediaType": "c", "digest": digest(config.encode()), "size": len(config)},
        "layers": [{"mediaType": "l", "digest": digest(b"a layer"), "size": 7}],
    }
    manifest = json.dumps({"schemaVersion": 2, "mediaType": layout.MANIFEST, **parts})
    row = {
        "mediaType": layout.MANIFEST,
        "digest": digest(manifest.encode()),
        "size": len(manifest),
        "platform": {"os": "linux", "architecture": "amd64"},
    }
    index = json.dumps({"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": [row]})
    blobs = {
        f"blobs/{digest(config.encode())}": {"body": config},
        f"blobs/{digest(b'a layer')}": {"body": "a layer"},
        f"manifests/{digest(manifest.encode())}": {"body": manifest},
    }
    asks = {"status": 401, "headers": {"www-authenticate": 'Bearer realm="https://t.example/token",service="s"'}}
    return [
        json.dumps({"manifests/1": {"body": index, "headers": {"content-type": layout.INDEX}}, **blobs}).encode(),
        json.dumps({"manifests/1": {"body": manifest}, **blobs}).encode(),
    ] + [json.dumps({"manifests/1": asks, "/token": {"body": '{"token": "x"}'}}).encode()][:0]


def tokens() -> list[bytes]:
    asks = {"status": 401, "headers": {"www-authenticate": 'Bearer realm="https://t.example/token",service="s"'}}
    return [json.dumps({"manifests/1": asks, "/token": {"body": '{"token": "x"}'}}).encode()]


def bodies(rng: mutation.random.Random, content: bytes) -> bytes:
    """A document that is answered is changed, and the digests that lead to it are made right."""
    try:
        rows = json.loads(content)
        names = [name for name in rows if str(rows[name].get("body", ""))[:1] == "{"]
        name = rng.choice(names)
        before = rows[name]["body"]
        text = mutation.in_json(rng, before.encode()).decode("utf-8", "replace")
    except (ValueError, AttributeError, TypeError, IndexError, RecursionError, KeyError):
        return mutation.in_json(rng, content)
    for _ in range(4):
        was, now = digest(before.encode("utf-8", "surrogatepass")), digest(text.encode("utf-8", "surrogatepass"))
        made = {}
        for one, row in rows.items():
            if one == name or one.endswith(was):
                made[one.replace(was, now)] = {**row, "body": text} if isinstance(row, dict) else row
            else:
                made[one] = row
        leads = next(
            (one for one, row in made.items() if isinstance(row, dict) and was in str(row.get("body", ""))), None
        )
        rows = made
        if leads is None:
            break
        name, before = leads, str(made[leads]["body"])
        text = before.replace(was, now)
    return json.dumps(rows).encode()


MUTATORS = (bodies, bodies, bodies, bodies, mutation.in_json, mutation.in_json, mutation.token)


@parser("registry", pulled, MUTATORS)
def pull(content: bytes, folder: Path) -> None:
    answers(content)
    (folder / "work").mkdir()
    image = ContainerImage("r.example/x/y:1", "linux")
    registry.pull(image, folder / "image.tar", Quiet(), work=folder / "work", pause=0)


def token_seed() -> list[bytes]:
    (with_index, _) = pulled()
    rows = json.loads(with_index)
    rows["/token"] = {"body": '{"token": "x"}'}
    rows["manifests/2"] = {
        "status": 401,
        "headers": {"www-authenticate": 'Bearer realm="https://t.example/token",service="s"'},
    }
    return [json.dumps(rows).encode()]


@parser("registry-token", token_seed, MUTATORS, 0.5)
def token(content: bytes, folder: Path) -> None:
    answers(content)
    (folder / "work").mkdir()
    try:
        registry.pull(
            ContainerImage("r.example/x/y:2", "linux"), folder / "image.tar", Quiet(), work=folder / "work", pause=0
        )
    except registry.TransferError as error:
        if "401" not in error.what:
            raise


def published() -> list[bytes]:
    text = FILE.decode()
    return [
        json.dumps({"x.qcow2": {"body": text, "headers": {"content-length": str(len(text)), "etag": '"a"'}}}).encode(),
        json.dumps({"x.qcow2": {"body": text, "headers": {"last-modified": "x"}}}).encode(),
    ]


@parser("download", published, mutation.JSON)
def fetch(content: bytes, folder: Path) -> None:
    answers(content)
    wish = Download(url="https://p.example/x.qcow2", sha256=hashlib.sha256(FILE).hexdigest())
    part = folder / "x.part"
    if len(content) % 3 == 0:  # an interrupted one, which the answer may continue
        part.write_bytes(FILE[:100])
        notes = {"url": wish.url, "validator": '"a"'}
        part.with_name("x.part.json").write_text(
            json.dumps(notes) if len(content) % 2 else content.decode(errors="replace")
        )
    download.fetch(wish, folder / "x", Quiet(), part=part, pause=0)


LISTS = (
    f"{'a' * 64}  x.tar.gz\n{'b' * 128} *y\n".encode(),
    json.dumps({"assets": [{"name": "x.tar.gz", "digest": f"sha256:{'a' * 64}"}]}).encode(),
    b"a" * 64 + b"\n",
)


@parser("digest-list", lambda: LISTS, (*mutation.JSON, *mutation.TEXT), 0.5)
def digests(content: bytes, folder: Path) -> None:
    made = upstream.listed_digest(content.decode("utf-8", "replace"), "x.tar.gz")
    assert made is None or len(made) in (64, 128)


@parser("mirror-address", lambda: [b"https://mirror.example/pub", b"/mirror"], mutation.TEXT, 0.5)
def address(content: bytes, folder: Path) -> None:
    text = content.decode("utf-8", "replace")
    if text.startswith("/"):  # the folders of this host don't matter
        text = str(folder)
    download.is_open_to_others(text)
    download.rewrite("https://p.example/a/b", text)


@parser("image-reference", lambda: [b"docker.io/library/nginx:1.29", b"r.io/a@sha256:" + b"a" * 64], mutation.TEXT, 0.5)
def reference(content: bytes, folder: Path) -> None:
    registry.Reference.parse(content.decode("utf-8", "replace")).place("https://m.example")


__all__ = ["write"]
