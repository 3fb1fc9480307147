"""What the network sources share: an HTTP client and descriptions of its errors."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

# In a request's extensions: what comes is compared with a digest, so it may come from anywhere
COMPARED: dict[str, Any] = {"winlab.compared": True}
_BEGAN = "winlab.https"  # in extensions: it began by https


class UnprotectedError(httpx.HTTPError):
    """A server leads from https to http, where others could alter what nothing else vouches for."""


def client(seconds: float = 15.0, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    A redirect from https to http is an :class:`UnprotectedError`, unless the request has :data:`COMPARED`.

    :param seconds: the longest wait for a connection; an answer may take four times as long.
    :param transport: for tests.
    """
    context = httpx.create_ssl_context()
    context.load_default_certs()  # may include a company's CA
    return httpx.Client(
        follow_redirects=True,
        timeout=httpx.Timeout(seconds, read=4 * seconds),
        verify=context,
        transport=transport,
        event_hooks={"request": [_stay_protected]},
    )


def _stay_protected(request: httpx.Request) -> None:
    """Look at each request before it is sent: one that follows a redirect has the extensions of the first.

    :raises UnprotectedError: it leads from https to http.
    """
    if request.url.scheme == "https":
        request.extensions[_BEGAN] = True
    elif request.extensions.get(_BEGAN) and not request.extensions.keys() & COMPARED:
        raise UnprotectedError(f"it leads from https to plain http, where anybody can alter it ({request.url})")


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
    """*error* in words: httpx's own text may be empty."""
    return str(error) or type(error).__name__


def is_tls(error: BaseException | None) -> bool:
    """Whether the server's certificate was the problem: then a retry is no help."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
