"""What the network sources share: an HTTP client and descriptions of its errors."""

from __future__ import annotations

from typing import Any

import httpx

from winlab.supply import http_client

# In a request's extensions: what comes is compared with a digest, so it may come from anywhere
COMPARED: dict[str, Any] = {"winlab.compared": True}
_BEGAN = "winlab.https"  # in extensions: it began by https


class UnprotectedError(httpx.HTTPError):
    """A server leads from https to http, where others could alter what nothing else verifies."""


def client(seconds: float = 15.0, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    A redirect from https to http is an :class:`UnprotectedError`, unless the request has :data:`COMPARED`.

    :param seconds: the longest wait for a connection; an answer may take four times as long.
    :param transport: for tests.
    :raises UsageError: the environment names proxies or certificates that can't be used.
    """
    return http_client.make(
        httpx.Timeout(seconds, read=4 * seconds), transport=transport, hooks={"request": [_stay_protected]}
    )


def _stay_protected(request: httpx.Request) -> None:
    """Look at each request before it is sent: one that follows a redirect has the extensions of the first.

    :raises UnprotectedError: it leads from https to http.
    """
    if request.url.scheme == "https":
        request.extensions[_BEGAN] = True
    elif request.extensions.get(_BEGAN) and not request.extensions.keys() & COMPARED:
        raise UnprotectedError(f"it leads from https to plain http, where anyone can alter it ({request.url})")


def same_origin(one: str, other: str) -> bool:
    """Whether two addresses are of one server: scheme, host and port are the same."""
    first, second = httpx.URL(one), httpx.URL(other)
    return (first.scheme, first.host, _port(first)) == (second.scheme, second.host, _port(second))


def _port(url: httpx.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)


def is_address(text: object) -> bool:
    """Whether *text*, which a server said, is a URL that :func:`client` can ask: http or https, with a host."""
    try:
        url = httpx.URL(text) if isinstance(text, str) else None
    except httpx.InvalidURL:
        return False
    return url is not None and url.scheme in ("http", "https") and bool(url.host)


def reason(error: Exception) -> str:
    """*error* as text: httpx's own may be empty."""
    return str(error) or type(error).__name__
