"""Headless Chromium, driven by its own protocol: https://chromedevtools.github.io/devtools-protocol/."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess  # noqa: TID251 - runs the browser
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

LIMIT = 600  # seconds for what should happen: a bound for a browser that hangs
SWITCHES = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-dev-shm-usage", "--window-size=1280,900", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """A tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.errors: list[str] = []  # what the console got: exceptions, blocked scripts
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(LIMIT))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(f"{message['params']['entry']['text']} {message['params']['entry'].get('url')}")
            elif message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]["exceptionDetails"])[:500])
            elif message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """What an expression gives; None if it throws, as while the page loads."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return None if "exceptionDetails" in done else done["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true, and return it."""
        end = time.monotonic() + LIMIT
        while not (value := self.js(expression)):
            page = self.js("document.body.innerText")
            assert time.monotonic() < end, f"{expression}: {self.errors}\n{page}"
            time.sleep(0.2)
        return value

    def click(self, selector: str) -> None:
        """Press and release the mouse on an element."""
        at = self.wait(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return r.width && {x: r.x + r.width / 2, y: r.y + r.height / 2} })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def key(self, letter: str) -> None:
        """Press and release the key of a small letter."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=letter, code=f"Key{letter.upper()}", text=letter,
                windowsVirtualKeyCode=ord(letter.upper()),
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Put a text into the field that has the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with one tab, and a profile of its own."""
    profile = folder / "profile"
    profile.mkdir(parents=True)
    program = shutil.which("chromium")
    assert program, "there is no chromium"
    words = [program, *SWITCHES, f"--user-data-dir={profile}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        port = _port(profile, process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=LIMIT) as answer:
            (tab,) = [one for one in json.load(answer) if one["type"] == "page"]
        url = tab["webSocketDebuggerUrl"]
        with connect(url, open_timeout=LIMIT, ping_interval=None, max_size=None, proxy=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        process.wait(LIMIT)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    written, end = profile / "DevToolsActivePort", time.monotonic() + LIMIT
    while not (written.exists() and len(lines := written.read_text().splitlines()) == 2):
        assert process.poll() is None, f"chromium ended with {process.returncode}"
        assert time.monotonic() < end
        time.sleep(0.1)
    return int(lines[0])
