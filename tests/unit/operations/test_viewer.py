"""Which viewer is started on a node's screen, and how its address is written for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from winlab import run
from winlab.operations.reach import Screen
from winlab.operations.viewer import open_desktop, open_viewer

SCREEN = Screen("127.0.0.1", 5901, "secret")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    found: list[list[Any]] = []
    monkeypatch.setattr(run, "start", found.append)
    monkeypatch.setenv("DISPLAY", ":0")
    return found


@pytest.mark.parametrize(
    ("installed", "command"),
    [
        ({"remote-viewer", "vncviewer"}, ["remote-viewer", "vnc://127.0.0.1:5901"]),
        ({"vncviewer"}, ["vncviewer", "127.0.0.1::5901"]),
    ],
)
def test_starts_the_first_installed_viewer(
    started: list[list[Any]], monkeypatch: pytest.MonkeyPatch, installed: set[str], command: list[str]
) -> None:
    monkeypatch.setattr(run, "find", lambda program: program if program in installed else None)
    assert open_viewer(SCREEN) == ""
    assert started == [command]


def test_without_a_viewer_it_says_what_to_install(started: list[list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find", lambda _program: None)
    assert "Install one of remote-viewer" in open_viewer(SCREEN)
    assert started == []


def test_without_a_display_nothing_is_opened(started: list[list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(run, "find", lambda program: program)
    assert open_viewer(SCREEN) == ""
    assert started == []


@pytest.mark.parametrize(
    ("installed", "words"), [({"xfreerdp", "remmina"}, ["xfreerdp"]), ({"remmina"}, ["remmina", "-c"])]
)
def test_starts_the_first_installed_client_of_remote_desktop(
    started: list[list[Any]], monkeypatch: pytest.MonkeyPatch, installed: set[str], words: list[str]
) -> None:
    monkeypatch.setattr(run, "find", lambda program: program if program in installed else None)
    assert open_desktop(Path("node-1.rdp")) == ""
    assert started == [[*words, Path("node-1.rdp")]]


def test_without_a_client_it_says_what_to_install(started: list[list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "find", lambda _program: None)
    assert "Install one of xfreerdp3" in open_desktop(Path("node-1.rdp"))
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert open_desktop(Path("node-1.rdp")) == ""
    assert started == []
