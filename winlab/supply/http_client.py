"""Where clients for http(s) are made: by the proxy variables, with the certificates that the host trusts."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

from winlab.errors import UsageError
from winlab.supply import logins, proxies

LEAST = 1024  # bytes a second of an answer
WINDOW = 300.0  # seconds of waiting over which they count
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # as httpx looks at them: the first that is set


def make(
    timeout: httpx.Timeout,
    transport: httpx.BaseTransport | None = None,
    hooks: dict[str, list[Callable[..., Any]]] | None = None,
) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables, trusts the CAs that the host trusts, and logs in.

    :param transport: for tests.
    :param hooks: what httpx calls ``event_hooks``.
    :raises UsageError: the environment names certificates that can't be used. The same error comes from a request that
        needs a proxy that can't be used; one that no request needs does not matter.
    """
    routed = logins.Logins(transport or _Routed(_trust()))
    return httpx.Client(follow_redirects=True, timeout=timeout, transport=routed, event_hooks=hooks, trust_env=False)


class _Routed(httpx.BaseTransport):
    """Sends each request directly or through the proxy that the environment names for its address."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._ways: dict[proxies.Proxy | None, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        proxy = proxies.of(str(request.url))
        if proxy not in self._ways:
            self._ways[proxy] = self._way(proxy)
        return self._ways[proxy].handle_request(request)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()

    def _way(self, proxy: proxies.Proxy | None) -> httpx.HTTPTransport:
        """
        :raises UsageError: the proxy can't be used. Its address may hold a password, so no message repeats it.
        """
        try:
            through = httpx.Proxy(proxy.url) if proxy else None
            if through is not None and not through.url.host:
                raise ValueError("it has no host")
            if through is not None and through.url.scheme == "https":
                through.ssl_context = self._context
            way = httpx.HTTPTransport(verify=self._context, proxy=through)
        except (httpx.InvalidURL, ValueError, ImportError):  # ImportError: SOCKS needs a package that winlab lacks
            raise UsageError(
                f"The proxy in the environment can't be used ({proxy.variable if proxy else 'none'}).",
                why="This variable has no address that winlab understands. Its value is not repeated: it may hold a"
                " password.",
                cure="Write a proxy as http://HOST:PORT, and special letters of a password as %XX (/ is %2F). SOCKS is"
                " not supported. What no_proxy lists is reached without it (docs/images.md).",
            ) from None
        way._pool._network_backend = _Paced()  # httpx has no option for it
        return way


class TooSlowError(httpx.HTTPError):
    """A server sends so little that its answer would never end."""


class _Paced(httpcore.SyncBackend):
    """The network, with a least rate for what a server sends: headers, endless answers, and files alike."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _PacedStream(super().connect_tcp(host, port, timeout, local_address, socket_options))


class _PacedStream(httpcore.NetworkStream):
    """A connection on which no answer may be slower than :data:`LEAST` over :data:`WINDOW`.

    Only the time that is spent waiting counts, from each request on.
    """

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._waited = 0.0
        self._got = 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        begun = time.monotonic()
        content = self._stream.read(max_bytes, timeout)
        self._waited += time.monotonic() - begun
        self._got += len(content)
        if self._waited >= WINDOW:
            if self._got < LEAST * WINDOW:
                raise TooSlowError(f"it sends less than {LEAST:,} bytes a second")
            self._waited, self._got = 0.0, 0
        return content

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._waited, self._got = 0.0, 0
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _PacedStream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def is_tls(error: BaseException | None) -> bool:
    """Whether the server's certificate was the problem: then a retry does not help."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _trust() -> ssl.SSLContext:
    """httpx's usual certificates, and the host's own store, where a company's CA would be."""
    try:
        context = httpx.create_ssl_context()
        context.load_default_certs()
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        name = next((one for one in CERTIFICATES if os.environ.get(one)), None)
        if name is None:
            raise
        raise UsageError(
            f"The certificates that {name} names can't be read.",
            why="There is no such file, it can't be opened, or it has no certificates in PEM.",
            cure=f"Correct the variable {name}, or unset it: then the host's own certificates are trusted.",
        ) from None
    return context
