"""What the network sources share: an HTTP client, descriptions of its errors, and addresses that are safe to show."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

import httpx

from winlab.errors import UsageError


def client(seconds: float = 15.0) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    :param seconds: the longest wait for a connection; an answer may take four times as long.
    """
    context = httpx.create_ssl_context()
    context.load_default_certs()  # may include a company's CA
    return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(seconds, read=4 * seconds), verify=context)


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


def check_mirror(mirror: str) -> None:
    """Check that the mirror's address can be shown in messages and logs.

    :raises UsageError: it contains a user name or password.
    """
    try:
        host = urlsplit(mirror).netloc
    except ValueError as error:
        raise UsageError("The mirror's address can't be read.", why=str(error)) from error
    if "@" in host:
        raise UsageError(
            f"The mirror at '{host.rpartition('@')[2]}' can't be used with a name and password in its address.",
            why="Addresses appear in messages, logs and bundles.",
            cure="Use a mirror that needs no password, or copy its files into a folder and give that.",
        )
