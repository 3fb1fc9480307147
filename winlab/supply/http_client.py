"""Where clients for http(s) are made: by the proxy variables, with the certificates that the host trusts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx

from winlab.errors import UsageError
from winlab.supply import proxies

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # as httpx looks at them: the first that is set


def make(
    timeout: httpx.Timeout,
    transport: httpx.BaseTransport | None = None,
    hooks: dict[str, list[Callable[..., Any]]] | None = None,
) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    :param transport: for tests.
    :param hooks: what httpx calls ``event_hooks``.
    :raises UsageError: the environment names certificates that can't be used. The same error comes from a request that
        needs a proxy that can't be used; one that no request needs does not matter.
    """
    routed = transport or _Routed(_trust())
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
            return httpx.HTTPTransport(verify=self._context, proxy=through)
        except (httpx.InvalidURL, ValueError, ImportError):  # ImportError: SOCKS needs a package that winlab lacks
            raise UsageError(
                f"The proxy in the environment can't be used ({proxy.variable if proxy else 'none'}).",
                why="This variable has no address that winlab understands. Its value is not repeated: it may hold a"
                " password.",
                cure="Write a proxy as http://HOST:PORT, and special letters of a password as %XX (/ is %2F). SOCKS is"
                " not supported. What no_proxy lists is reached without it (docs/images.md).",
            ) from None


def is_tls(error: BaseException | None) -> bool:
    """Whether the server's certificate was the problem: then a retry is no help."""
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
