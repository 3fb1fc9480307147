"""Who gets in to the pages. No socket is opened: requests are handed to the application."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from winlab import loopback
from winlab.web.door import Door

URL = "http://127.0.0.1:6080"


def page(request: Request) -> Response:
    return PlainTextResponse(f"{request.method} {request.url.path}?{request.url.query}")


class Site:
    """The pages, and a browser that keeps its cookies."""

    def __init__(self) -> None:
        self.door = Door(Starlette(routes=[Route("/{path:path}", page, methods=["GET", "POST"])]))
        self.cookies = httpx.Cookies()

    def ask(self, path: str = "/", method: str = "GET", **headers: str) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.door, client=("127.0.0.1", 40000))
            async with httpx.AsyncClient(transport=transport, base_url=URL, cookies=self.cookies) as client:
                answer = await client.request(method, path, headers=headers)
                self.cookies.update(client.cookies)
                return answer

        return asyncio.run(send())

    def enter(self) -> Site:
        assert self.ask(f"/?token={self.door.token}").status_code == 303
        return self


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(loopback, "peer", lambda there, here: os.geteuid())
    return Site()


def test_the_url_opens_the_page_once_and_leaves_a_cookie(site: Site) -> None:
    answer = site.ask(f"/files/screen.html?lab=lab&token={site.door.token}&node=node-1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/files/screen.html?lab=lab&node=node-1")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert site.door.token not in cookie
    assert site.ask("/x").text == "GET /x?"
    assert site.ask(f"/x?token={site.door.token}").status_code == 303  # by the same browser, again
    site.cookies.clear()
    again = site.ask(f"/?token={site.door.token}")
    assert (again.status_code, "used before" in again.text) == (403, True)


def test_the_url_leads_to_no_other_host(site: Site) -> None:
    assert site.ask(f"{URL}//evil.example/?token={site.door.token}").headers["location"] == "/evil.example/"


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=x", "/files/ui.js"])
def test_without_the_token_there_is_nothing(site: Site, path: str) -> None:
    assert site.ask(path).status_code == 403


def test_a_token_opens_nothing_by_a_post(site: Site) -> None:
    assert site.ask(f"/?token={site.door.token}", "POST", Origin=URL).status_code == 403
    site.enter()  # and is not used up


@pytest.mark.parametrize("user", [None, os.geteuid() + 1])
def test_another_user_does_not_get_in_with_the_cookie(
    site: Site, monkeypatch: pytest.MonkeyPatch, user: int | None
) -> None:
    site.enter()
    monkeypatch.setattr(loopback, "peer", lambda there, here: user)
    assert "another user" in site.ask().text


def test_behind_sudo_the_browser_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr(loopback, "peer", lambda there, here: 1000)
    Site().enter()


@pytest.mark.parametrize("host", ["rebound.example:6080", "127.0.0.1.example", "10.0.0.1:6080", "[", ""])
def test_a_name_that_was_rebound_to_the_loopback_is_refused(site: Site, host: str) -> None:
    assert "loopback" in site.enter().ask(Host=host).text


def test_a_forwarded_port_may_have_another_number(site: Site) -> None:
    site.enter()
    assert site.ask(Host="localhost:9000").status_code == 200
    assert site.ask("/x", "POST", Host="localhost:9000", Origin="http://localhost:9000").status_code == 200


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:6081", "https://127.0.0.1:6080"]
)
def test_other_sites_change_nothing(site: Site, origin: str | None) -> None:
    site.enter()
    headers = {} if origin is None else {"Origin": origin}
    assert "another site" in site.ask("/x", "POST", **headers).text
    assert asyncio.run(_websocket(site, headers)) == "websocket.close"


async def _websocket(site: Site, headers: dict[str, str]) -> str:
    """What is answered to a WebSocket with the cookie."""
    sent: list[Any] = []
    cookie = "; ".join(f"{name}={value}" for name, value in site.cookies.items())
    given = {"host": "127.0.0.1:6080", "cookie": cookie, **headers}

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket", "path": "/x", "query_string": b"",
        "client": ("127.0.0.1", 40000), "server": ("127.0.0.1", 6080),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
    }  # fmt: skip
    await site.door(scope, receive, send)
    return str(sent[0]["type"])


def test_pages_run_no_inline_script_and_are_not_kept(site: Site) -> None:
    for answer in (site.ask("/"), site.enter().ask("/")):
        assert "script-src 'self';" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
