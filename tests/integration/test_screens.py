"""The pages in a real browser, on the screen and the serial port of a guest in a real QEMU. The lab is a fake."""

from __future__ import annotations

import base64
import io
import subprocess  # noqa: TID251 - asks as another user
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lab_fakes
import pytest
from browser import Page, browser
from echoing_guest import LIMIT, PASSWORD, Guest, guest
from PIL import Image, ImageChops

from winlab.adapters.vm.domains import Machine
from winlab.errors import ConflictError, NotFoundError
from winlab.events import Note
from winlab.operations import graph
from winlab.operations.look import Overview
from winlab.operations.reach import Screen
from winlab.web import app
from winlab.web.serve import serving

NOBODY = 65534
ASK = r"""exec 3<>/dev/tcp/{address}
printf 'GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n' >&3; cat <&3"""
CANVAS = "document.querySelector('#screen canvas')"


class Node:
    """A node whose machine is the guest."""

    def __init__(self, guest: Guest, lab: str, name: str) -> None:
        self.lab, self.name, self._guest = lab, name, guest

    def screen(self) -> Screen:
        return self._guest.screen

    @contextmanager
    def screen_here(self) -> Iterator[Screen]:
        yield self._guest.screen

    @contextmanager
    def serial(self) -> Iterator[Any]:
        yield SimpleNamespace(read=self._guest.listen, write=self._guest.serial.sendall)

    def serial_log(self) -> bytes:
        return b"what was before\r\n"

    def screenshot(self) -> bytes:
        return self._guest.picture()


class FakeLabs:
    """In place of :class:`winlab.Lab`: labs of one machine, which can be copied."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.labs = {"lab": [lab_fakes.machine("node-1")]}

    def __call__(self, name: str, _site: object = None) -> Any:
        machines = self.labs.get(name, [])

        def clone(labs: list[str], _snapshot: str | None, **given: Any) -> None:
            given["listener"](Note(text="copying"))
            if labs[0] in self.labs:
                raise ConflictError(f"There is a lab '{labs[0]}'.", cure="Choose another name.")
            self.labs[labs[0]] = [_renamed(one, labs[0]) for one in machines]

        def watch() -> Iterator[Any]:
            raise NotFoundError("There is no lab.")
            yield

        snapshots = SimpleNamespace(clone=clone, list=list)
        return SimpleNamespace(
            name=name, snapshots=snapshots, watch=watch, node=lambda node: Node(self.guest, name, node),
            graph=lambda: graph.draw(name, machines, None), timeline=lambda _: SimpleNamespace(html=lambda: "<p>none"),
        )  # fmt: skip

    def overview(self, _site: object) -> Overview:
        return Overview(dict(self.labs), ())


def _renamed(machine: Machine, lab: str) -> Machine:
    return replace(machine, tag=machine.tag.model_copy(update={"lab": lab}))


@pytest.fixture(scope="module")
def echoing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with guest(tmp_path_factory.mktemp("guest")) as made:
        yield made


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path) as made:
        yield made
        assert made.errors == []  # nothing was blocked, and nothing failed


def shows(page: Page, guest: Guest) -> bool:
    """Whether the page shows the guest's screen, except for a cursor that blinks."""
    shown = Image.open(io.BytesIO(base64.b64decode(page.js(f"{CANVAS}.toDataURL()").split(",")[1]))).convert("RGB")
    real = Image.open(io.BytesIO(guest.picture())).convert("RGB")
    assert shown.size == real.size
    bounds = ImageChops.difference(shown, real).getbbox()
    return bounds is None or (bounds[2] - bounds[0]) * (bounds[3] - bounds[1]) < 1000


def test_the_page_shows_the_screen_and_keys_reach_the_guest(echoing: Guest, page: Page) -> None:
    with serving(app.of_screen(Node(echoing, "lab", "node-1")), app.screen_path("lab", "node-1")) as url:  # type: ignore[arg-type]
        page.open(url)
        page.wait("document.getElementById('state').textContent === 'connected'")
        for letter in "hello":
            page.key(letter)
        echoing.wait_for(b"hello")
        page.wait(f"{CANVAS}.width === {Image.open(io.BytesIO(echoing.picture())).width}")
        page.wait(f"new Set({CANVAS}.getContext('2d').getImageData(0, 0, 300, 200).data).size > 2")
        assert "token" not in page.js("location.href")
        assert PASSWORD not in page.js("document.documentElement.outerHTML + location.href + document.cookie")

        page.click("#type")
        page.wait("document.getElementById('ask').open")
        page.type("Say it: A&B!")
        page.click("#ask button[value=yes]")
        echoing.wait_for(b"Say it: A&B!")
        end = time.monotonic() + LIMIT
        while not shows(page, echoing):  # the picture comes after the text on COM1
            assert time.monotonic() < end
            time.sleep(0.2)


def test_all_labs_and_a_click_makes_a_clone(echoing: Guest, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "Lab", labs := FakeLabs(echoing))
    monkeypatch.setattr(app, "EVERY", 0.5)
    made = app.Labs(None)  # type: ignore[arg-type]
    with serving(made.application) as url:
        page.open(url)
        page.wait("document.querySelector('.node img')?.naturalWidth > 300")
        page.wait("document.getElementById('graph').naturalWidth > 200")
        page.click("#do-clone")
        page.wait("document.getElementById('ask').open")
        page.type("copy")
        page.click("#yes")
        page.wait("[...document.querySelectorAll('#labs button')].some(b => b.textContent.startsWith('copy'))")
        page.wait("document.querySelector('.job').textContent.includes('clone lab: done')")
        assert list(labs.labs) == ["lab", "copy"]
        page.click("#do-clone")
        page.wait("document.getElementById('ask').open")
        page.type("copy")
        page.click("#yes")
        page.wait("document.querySelector('.job .failure')?.textContent.includes('Cure: Choose another name.')")

        page.open(f"{url.partition('/?')[0]}/files/serial.html?lab=lab&node=node-1")
        page.wait("document.querySelector('.xterm-rows')?.textContent.includes('what was before')")
        page.wait("document.getElementById('state').textContent === 'connected'")
        for letter in "serial":
            page.key(letter)
        page.wait("document.querySelector('.xterm-rows').textContent.includes('serial')")
    made.jobs.stop()


def test_other_users_and_second_readers_of_the_url_are_refused(echoing: Guest) -> None:
    def ask(user: int) -> str:
        host, _, path = url.removeprefix("http://").partition("/")
        script = ASK.format(host=host, address=host.replace(":", "/"), path=path)
        return subprocess.run(["bash", "-c", script], user=user, cwd="/", capture_output=True, text=True).stdout

    with serving(app.of_screen(Node(echoing, "lab", "node-1")), app.screen_path("lab", "node-1")) as url:  # type: ignore[arg-type]
        assert "another user" in ask(NOBODY)
        assert " 303 " in (first := ask(0)).splitlines()[0]
        assert "httponly" in first.lower()
        assert "used before" in ask(0)
