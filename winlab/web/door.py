"""Who gets in to the pages: the user who started them, in one browser, from no other site.

The loopback is shared by all users of the host, and any site in a browser can send requests to it. So a request needs:

* a connection of this user's process (``/proc/net/tcp``): other users have the URL from the list of processes;
* a ``Host`` that is the loopback: a site whose name was rebound to 127.0.0.1 has its own (DNS rebinding);
* an ``Origin`` of these pages, if it changes something or opens a WebSocket (cross-site requests);
* the cookie that the first request with the token of the URL was given. The token works once.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.websockets import WebSocket

from winlab import account, loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = (loopback.ADDRESS, "localhost")
TOKEN = "token"  # noqa: S105 - its name in the URL
# Only the pages' own scripts and pictures. xterm.js and the timeline have styles of their own
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Door:
    """An ASGI application that hands on what may get in to another one."""

    def __init__(self, inside: ASGIApp) -> None:
        self.token = secrets.token_urlsafe(24)
        self._inside = inside
        self._is_used = False
        # browsers send cookies to all ports of a host: another winlab's must not replace this one
        self._cookie = f"winlab-{secrets.token_hex(4)}"
        self._session = secrets.token_urlsafe(32)
        self._users: set[int] = {os.geteuid(), account.uid()}  # behind sudo the browser is the caller's

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on a request, welcome the browser, or refuse it."""
        connection = HTTPConnection(scope)
        refusal = self._refusal(connection)
        if refusal and scope["type"] == "websocket":
            await WebSocket(scope, receive, send).close(1008, refusal)
        elif refusal:
            await PlainTextResponse(refusal + "\n", 403, HEADERS)(scope, receive, send)
        elif TOKEN in connection.query_params and scope["type"] == "http":
            await self._welcome(connection)(scope, receive, send)
        else:
            await self._inside(scope, receive, _with_headers(send) if scope["type"] == "http" else send)

    def _refusal(self, connection: HTTPConnection) -> str:
        """Why a request does not get in; empty: it does."""
        host = connection.headers.get("host", "")
        if not self._is_of_user(connection.scope):
            return "This connection is of another user's program."
        if host.partition(":")[0] not in HOSTS:
            return "This name is not that of the loopback."
        is_look = connection.scope["type"] == "http" and connection.scope["method"] in ("GET", "HEAD")
        if not is_look and connection.headers.get("origin") != f"http://{host}":
            return "This request comes from another site."
        if secrets.compare_digest(connection.cookies.get(self._cookie, "").encode(), self._session.encode()):
            return ""
        given = connection.query_params.get(TOKEN, "")
        if is_look and secrets.compare_digest(given.encode(), self.token.encode()):
            return "This URL was used before. Run the command again for another one." if self._is_used else ""
        return "These pages open with the URL that winlab printed."

    def _is_of_user(self, scope: Scope) -> bool:
        user = loopback.peer(scope["client"], scope["server"])
        return user is not None and user in self._users

    def _welcome(self, connection: HTTPConnection) -> Response:
        """The same page without the token, and the cookie."""
        self._is_used = True
        rest = urlencode([(name, value) for name, value in connection.query_params.multi_items() if name != TOKEN])
        path = connection.url.path.lstrip("/")  # two slashes would be another host
        response = RedirectResponse(f"/{path}{'?' if rest else ''}{rest}", 303, HEADERS)
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="lax")
        return response


def _with_headers(send: Send) -> Send:
    async def to_browser(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return to_browser
