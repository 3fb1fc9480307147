"""Which way a screen is shown, and what is printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import commands
import pytest

from winlab import Lab, Node
from winlab.cli import screens
from winlab.operations import viewer
from winlab.operations.reach import Desktop, Screen
from winlab.web import browser

SCREEN = Screen("127.0.0.1", 5901, "secret")
DESKTOP = Desktop("172.31.247.130", 3389, "Administrator", "pass")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was opened."""
    found: list[Any] = []

    @contextmanager
    def here(_node: Node) -> Iterator[Screen]:
        yield SCREEN

    monkeypatch.setattr(Node, "screen", lambda _node: SCREEN)
    monkeypatch.setattr(Node, "screen_here", here)
    monkeypatch.setattr(Node, "desktop", lambda _node: DESKTOP)
    monkeypatch.setattr(screens, "_serve", lambda _app, path, port, _what: found.append((path, port)))
    monkeypatch.setattr(viewer, "open_viewer", lambda one: found.append(one) or "")
    monkeypatch.setattr(viewer, "open_desktop", lambda file: found.append(file) or "")
    monkeypatch.setattr(browser, "find", lambda: None)
    return found


def test_the_browser_shows_the_screen_where_there_is_one(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "find", lambda: "firefox")
    done = commands.ran("vnc", "node-1", "--lab", "ci")
    assert (done.exit_code, shown) == (0, [("/files/screen.html?lab=ci&node=node-1", 0)])
    assert "secret" not in done.stdout + done.stderr


def test_without_a_browser_the_address_is_printed(shown: list[Any]) -> None:
    done = commands.ran("vnc", "node-1")
    assert done.stdout == "node-1: vnc://127.0.0.1:5901  password secret\n"
    assert "--web" in done.stderr
    assert shown == []


def test_ways_can_be_chosen(shown: list[Any]) -> None:
    assert "vnc://" in commands.ran("vnc", "node-1", "--print").stdout
    assert shown == []
    commands.ran("vnc", "node-1", "--viewer")
    commands.ran("vnc", "node-1", "--web", "--port", "6080")
    assert shown == [SCREEN, ("/files/screen.html?lab=lab&node=node-1", 6080)]
    assert commands.ran("vnc", "node-1", "--web", "--viewer").exit_code == 2


def test_the_desktop_of_a_windows_node(shown: list[Any], tmp_path: Path) -> None:
    done = commands.ran("rdp", "node-1")
    assert done.stdout == "node-1: rdp://172.31.247.130:3389  user Administrator  password pass\n"
    (opened,) = shown
    assert (opened.name, opened.stat().st_mode & 0o777) == ("node-1.rdp", 0o600)
    commands.ran("rdp", "node-1", "--print")
    assert len(shown) == 1
    commands.ran("rdp", "node-1", "--file", str(tmp_path / "n.rdp"))
    text = (tmp_path / "n.rdp").read_text()
    assert "full address:s:172.31.247.130:3389" in text
    assert "pass" not in text.replace("password", "")
    assert "password pass" in commands.ran("rdp", "node-1", "--file", "-").stderr


def test_the_topology_goes_to_the_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "graph", lambda lab: f"<svg>{lab.name}</svg>\n")
    assert commands.ran("graph", "--lab", "ci").stdout == "<svg>ci</svg>\n"


@pytest.mark.parametrize(
    ("variables", "installed", "program"),
    [
        ({"DISPLAY": ":0"}, {"xdg-open", "firefox"}, "xdg-open"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, {"firefox"}, "firefox"),
        ({"BROWSER": "code-open"}, {"code-open"}, "code-open"),
        ({"DISPLAY": ":0"}, set(), None),
        ({}, {"xdg-open", "firefox"}, None),
    ],
)
def test_which_browser_is_opened(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], installed: set[str], program: str | None
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started: list[Any] = []
    monkeypatch.setattr(browser.run, "find", lambda name: name if name in installed else None)
    monkeypatch.setattr(browser.run, "start", started.append)
    assert browser.open_url("http://127.0.0.1:1/") is (program is not None)
    assert started == ([[program, "http://127.0.0.1:1/"]] if program else [])
