"""Clients for http(s), as the environment has it."""

from __future__ import annotations

import traceback
from pathlib import Path

import httpx
import pytest

from winlab.design.catalog.recipes import Download
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.supply import download, http_client
from winlab.supply.artifacts import select, web


def make() -> httpx.Client:
    return http_client.make(httpx.Timeout(1.0))


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in http_client.CERTIFICATES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("https_proxy", "http://user:s3cretpw/x@proxy:3128"),
        ("HTTPS_PROXY", "http://user:s3cret@[::1"),
        ("https_proxy", "foo://s3cret"),
        ("all_proxy", "socks5://s3cret"),
        ("https_proxy", "http://s3cret\udcff@proxy"),
        ("https_proxy", "http:///s3cret"),
    ],
)
def test_a_proxy_that_can_t_be_used_is_named_and_not_repeated(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with make() as client, pytest.raises(UsageError, match=rf"can't be used \({name}\)") as caught:
        client.get("https://publisher.example/x")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("content", [None, "no certificates"])
def test_certificates_that_can_t_be_read(content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(UsageError, match="certificates that SSL_CERT_FILE names") as caught:
        make()
    assert str(file) not in str(caught.value)


def test_every_download_uses_this_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "foo://s3cret")
    wanted = Download(url="https://publisher.example/x", sha256="0" * 64)
    for ask in (
        lambda: web.client().get("https://publisher.example/x"),
        lambda: select.unreachable("https://mirror.example/x"),
        lambda: download.fetch(wanted, tmp_path / "x", Quiet(), part=tmp_path / "x.part"),
    ):
        with pytest.raises(UsageError, match="https_proxy"):
            ask()
