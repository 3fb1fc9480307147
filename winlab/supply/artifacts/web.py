"""What the network sources share: an HTTP client and descriptions of its errors."""

from __future__ import annotations

import ssl

import httpx


def client(seconds: float = 15.0) -> httpx.Client:
    """A client that follows redirects, honours the proxy variables and trusts the CAs that the host trusts.

    :param seconds: the longest wait for a connection; an answer may take four times as long.
    """
    context = httpx.create_ssl_context()
    context.load_default_certs()  # may include a company's CA
    return httpx.Client(follow_redirects=True, timeout=httpx.Timeout(seconds, read=4 * seconds), verify=context)


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
