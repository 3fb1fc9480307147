"""Where clients for http(s) are made: by the proxy variables, with the certificates that the host trusts."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any

import httpx

from winlab.errors import UsageError

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # as httpx looks at them: the first that is set


def make(
    timeout: httpx.Timeout,
    transport: httpx.BaseTransport | None = None,
    hooks: dict[str, list[Callable[..., Any]]] | None = None,
) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    :param transport: for tests.
    :param hooks: what httpx calls ``event_hooks``.
    :raises UsageError: the environment names proxies or certificates that can't be used. A proxy's address may hold a
        password, so no message repeats a variable's value.
    """
    context = _trust()
    try:
        return httpx.Client(
            follow_redirects=True, timeout=timeout, verify=context, transport=transport, event_hooks=hooks
        )
    except (httpx.InvalidURL, ValueError, ImportError):  # ImportError: SOCKS needs a package that winlab does not have
        raise UsageError(
            f"The proxy in the environment can't be used ({_set(PROXIES)}).",
            why="One of these variables has no address that winlab understands. Its value is not repeated: it may hold"
            " a password.",
            cure="Write a proxy as http://HOST:PORT, and special letters of a password as %XX (/ is %2F). SOCKS is not"
            " supported. no_proxy has names and addresses, separated by commas.",
        ) from None


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


def _set(names: frozenset[str]) -> str:
    """The variables with one of these names, in any case, that are set."""
    return ", ".join(sorted(name for name, value in os.environ.items() if value and name.lower() in names))
