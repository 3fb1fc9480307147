"""The sources of the engine: a named program, the one beside the checkout, a download."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from powershell import engine

from winlab.design.catalog.recipes import Download


def packed() -> bytes:
    """A release as far as it is needed here: a program that answers what it is asked."""
    buffer = io.BytesIO()
    body = b"#!/bin/sh\necho False\n"
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("pwsh")
        entry.size = len(body)
        entry.mode = 0o644
        archive.addfile(entry, io.BytesIO(body))
    return buffer.getvalue()


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of the release, which is where winlab looks for it."""
    folder = tmp_path / "server"
    folder.mkdir()
    archive = folder / "powershell.tar.gz"
    archive.write_bytes(packed())
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    url = f"http://127.0.0.1:{server.server_port}/powershell.tar.gz"
    monkeypatch.setattr(engine, "PWSH", Download(url=url, sha256=digest))
    monkeypatch.setattr(engine, "SHARED", tmp_path / "nowhere")
    monkeypatch.delenv("WINLAB_POWERSHELL", raising=False)
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    yield archive
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What was found before is not asked for."""
    engine.locate.cache_clear()
    yield
    engine.locate.cache_clear()


def test_a_release_is_downloaded_once_and_only_reads(release: Path, tmp_path: Path) -> None:
    program = engine.locate(tmp_path)
    assert program.is_relative_to(tmp_path / "cache")
    assert not engine.runs_doubles(program)
    release.unlink()
    engine.locate.cache_clear()
    assert engine.locate(tmp_path) == program
    assert [path.name for path in program.parent.parent.iterdir()] == [program.parent.name]


def test_a_release_that_is_not_the_pinned_one(release: Path, tmp_path: Path) -> None:
    release.write_bytes(packed() + b"more")
    with pytest.raises(engine.MissingEngineError, match="can't be downloaded"):
        engine.locate(tmp_path)
    assert not list((tmp_path / "cache").rglob("pwsh"))


def test_without_internet_the_reason_is_given(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "PWSH", Download(url="http://127.0.0.1:1/x.tar.gz", sha256="a" * 64))
    text = "there is no PowerShell engine: WINLAB_POWERSHELL names none, none is beside the checkout"
    with pytest.raises(engine.MissingEngineError, match=text):
        engine.locate(tmp_path)


def test_the_named_one_comes_first(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "mine"
    monkeypatch.setenv("WINLAB_POWERSHELL", str(named))
    with pytest.raises(AssertionError, match="which is no program"):
        engine.locate(tmp_path)
    named.write_text("#!/bin/sh\necho True\n")
    named.chmod(0o755)
    assert engine.locate(tmp_path) == named
    assert engine.runs_doubles(named)


def test_the_pin() -> None:
    """Of Microsoft's own release, by https."""
    assert engine.PWSH.url.startswith("https://github.com/PowerShell/PowerShell/releases/download/v7.")
    assert len(engine.PWSH.sha256 or "") == 64
