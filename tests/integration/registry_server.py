"""A real registry, the CNCF's distribution, built from its Go modules; with TLS and optional tokens for reading."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import socket
import ssl
import subprocess  # noqa: TID251 - the registry
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from winlab.events import Quiet
from winlab.supply.artifacts.build import toolchain

VERSION = "v3.1.2"
_DISTRIBUTION = "github.com/distribution/distribution/v3"
_MAIN = f"""package main

import (
	"{_DISTRIBUTION}/registry"
	_ "{_DISTRIBUTION}/registry/auth/htpasswd"
	_ "{_DISTRIBUTION}/registry/auth/token"
	_ "{_DISTRIBUTION}/registry/storage/driver/filesystem"
)

func main() {{
	_ = registry.RootCmd.Execute()
}}
"""


def build(folder: Path) -> Path:
    """The registry as its own cmd/registry, without the stores of three clouds, which take minutes to compile."""
    go = toolchain.find("1.25.0", Quiet())
    (folder / "go.mod").write_text(
        f"module winlab.invalid/registry\n\ngo 1.25.0\n\nrequire {_DISTRIBUTION} {VERSION}\n"
    )
    (folder / "main.go").write_text(_MAIN)
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    subprocess.run(["nice", go.program, "build", "-o", "registry", "."], cwd=folder, env=environment, check=True)
    return folder / "registry"


@dataclass
class Certificate:
    """A key and a certificate for this machine, signed by itself."""

    folder: Path
    key: ec.EllipticCurvePrivateKey = field(init=False)
    der: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "winlab tests")])
        now = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.der = certificate.public_bytes(serialization.Encoding.DER)
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.key_path.write_bytes(
            self.key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    @property
    def path(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key_path(self) -> Path:
        return self.folder / "key.pem"

    def trust(self) -> ssl.SSLContext:
        """The settings of a client that trusts this certificate."""
        return ssl.create_default_context(cafile=str(self.path))

    def token(self, scope: str) -> str:
        """A JSON Web Token for *scope* as https://distribution.github.io/distribution/spec/auth/jwt/ has it."""
        kind, name, actions = scope.split(":")
        now = int(time.time())
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(self.der).decode()]}
        claims = {
            **{"iss": "tests", "aud": "registry", "sub": "", "exp": now + 300, "nbf": now - 60, "iat": now},
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }
        text = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def tokens(certificate: Certificate) -> Iterator[tuple[int, list[str]]]:
    """A server that gives tokens to everyone; its port, and the requested scopes."""
    scopes: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            scopes.append(query["scope"][0])
            body = json.dumps({"token": certificate.token(query["scope"][0])}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as port:
        yield port, scopes


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], certificate: Certificate | None = None) -> Iterator[int]:
    """Serve on the loopback, with TLS if there is a certificate; the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.path, certificate.key_path)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def registry(
    program: Path, folder: Path, certificate: Certificate, auth: dict[str, Any] | None = None
) -> Iterator[str]:
    """Run the registry on a free port of the loopback; its host and port. What is in *folder* it has."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "store")}},
        "http": {
            "addr": f"127.0.0.1:{port}",
            "tls": {"certificate": str(certificate.path), "key": str(certificate.key_path)},
        },
    }
    if auth:
        configuration["auth"] = auth
    file = folder / f"{port}.yml"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", file], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120  # a bound for a server that hangs, no expectation
        while not _listens(port):
            assert process.poll() is None, (folder / f"{port}.log").read_text()
            assert time.monotonic() < end, (folder / f"{port}.log").read_text()
            time.sleep(0.05)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait(10)


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@dataclass
class Pusher:
    """Puts images into a registry."""

    host: str
    client: httpx.Client

    def blob(self, name: str, content: bytes, kind: str) -> dict[str, Any]:
        begun = self.client.post(f"https://{self.host}/v2/{name}/blobs/uploads/")
        begun.raise_for_status()
        place = httpx.URL(begun.headers["location"]).copy_merge_params({"digest": digest(content)})
        self.client.put(place, content=content).raise_for_status()
        return {"mediaType": kind, "digest": digest(content), "size": len(content)}

    def manifest(self, name: str, tag: str, document: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(document).encode()
        kind = document["mediaType"]
        url = f"https://{self.host}/v2/{name}/manifests/{tag or digest(content)}"
        self.client.put(url, content=content, headers={"Content-Type": kind}).raise_for_status()
        return {"mediaType": kind, "digest": digest(content), "size": len(content)}

    def image(
        self, name: str, system: str, layer: bytes, *, tag: str = "", docker: bool = False, arch: str = "amd64"
    ) -> dict[str, Any]:
        """One image, in OCI's or in Docker's format; its descriptor."""
        base = "application/vnd.docker." if docker else "application/vnd.oci.image."
        config = {"os": system, "architecture": arch, "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}}
        kinds = (
            ("container.image.v1+json", "image.rootfs.diff.tar.gzip") if docker else ("config.v1+json", "layer.v1.tar")
        )
        document = {
            "schemaVersion": 2,
            "mediaType": base + ("distribution.manifest.v2+json" if docker else "manifest.v1+json"),
            "config": self.blob(name, json.dumps(config).encode(), base + kinds[0]),
            "layers": [self.blob(name, layer, base + kinds[1])],
        }
        return self.manifest(name, tag, document)

    def index(self, name: str, tag: str, entries: list[tuple[dict[str, Any], str, str, str]]) -> str:
        """An index of (descriptor, os, architecture, os.version); its digest."""
        manifests = []
        for descriptor, system, arch, version in entries:
            platform = {"os": system, "architecture": arch, **({"os.version": version} if version else {})}
            manifests.append({**descriptor, "platform": platform})
        kind = "application/vnd.oci.image.index.v1+json"
        return str(self.manifest(name, tag, {"schemaVersion": 2, "mediaType": kind, "manifests": manifests})["digest"])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
