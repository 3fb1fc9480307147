"""Which Debian archive the host uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.errors import UsageError
from winlab.supply.images.apt import DEFAULT_MIRROR, debian_mirror


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINLAB_DEBIAN_MIRROR", raising=False)


def write(etc: Path, name: str, text: str) -> None:
    path = etc / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_default_without_any_sources(tmp_path: Path) -> None:
    assert debian_mirror(tmp_path) == DEFAULT_MIRROR


def test_one_line_style(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sources.list",
        "# deb http://commented.example/debian bookworm main\n"
        "deb-src http://source.example/debian bookworm main\n"
        "deb cdrom:[Debian]/ bookworm main\n"
        "deb http://security.example/debian-security bookworm-security main\n"
        "deb [ arch=amd64 signed-by=/etc/x.gpg ] http://mirror.example/pub/debian/ bookworm main # my\n",
    )
    assert debian_mirror(tmp_path) == "http://mirror.example/pub/debian"


def test_deb822_style(tmp_path: Path) -> None:
    write(
        tmp_path,
        "sources.list.d/debian.sources",
        "Types: deb\nEnabled: no\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\n\n"
        "Types: deb\n# http://snapshot.example/debian\nURIs: http://security.example/debian-security\n"
        "  https://mirror.example/debian\nSuites: bookworm\nComponents: main\n",
    )
    assert debian_mirror(tmp_path) == "https://mirror.example/debian"


def test_other_distributions_and_other_ways_are_not_taken(tmp_path: Path) -> None:
    write(tmp_path, "sources.list", "deb http://archive.ubuntu.example/ubuntu noble main\n")
    write(tmp_path, "sources.list.d/a.list", "deb file:/srv/debian bookworm main\ndeb [trusted=yes\n")
    assert debian_mirror(tmp_path) == DEFAULT_MIRROR


def test_order_is_apts(tmp_path: Path) -> None:
    write(tmp_path, "sources.list.d/a.list", "deb http://second.example/debian bookworm main\n")
    write(tmp_path, "sources.list", "deb http://first.example/debian bookworm main\n")
    assert debian_mirror(tmp_path) == "http://first.example/debian"


def test_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sources.list", "deb http://first.example/debian bookworm main\n")
    monkeypatch.setenv("WINLAB_DEBIAN_MIRROR", "http://chosen.example/debian/")
    assert debian_mirror(tmp_path) == "http://chosen.example/debian"


@pytest.mark.parametrize("value", ["/srv/debian", "ftp://x.example/debian", "http:///debian"])
def test_variable_must_be_a_url(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_DEBIAN_MIRROR", value)
    with pytest.raises(UsageError, match="WINLAB_DEBIAN_MIRROR"):
        debian_mirror()


def test_passwords_are_neither_shown_nor_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path,
        "sources.list",
        "deb https://me:secret@a.example/debian trixie main\ndeb https://b.example/debian trixie main\n",
    )
    assert debian_mirror(tmp_path) == "https://b.example/debian"
    monkeypatch.setenv("WINLAB_DEBIAN_MIRROR", "https://me:secret@a.example/debian")
    with pytest.raises(UsageError) as caught:
        debian_mirror(tmp_path)
    assert "secret" not in str(caught.value)
