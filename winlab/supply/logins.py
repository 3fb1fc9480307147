"""Names and passwords for mirrors and registries: from the user's netrc file, as curl, git and Go have them there.

``~/.netrc``, or the file that ``NETRC`` names, has lines ``machine HOST login NAME password PASSWORD``. A password
never comes from the command line or an address: others see those in the list of processes, in messages and manifests.

A server gets one only if it asks (401), only its own, and only by https or on this host. A host to which another one
leads gets none. The entry ``default``, which means every host, counts for nothing.
"""

from __future__ import annotations

import base64
import netrc
import os
from pathlib import Path

import httpx

from winlab.errors import UsageError
from winlab.supply import proxies

CURE = "A line is: machine HOST login NAME password PASSWORD."
FOR = "winlab.login-for"  # in a request's extensions: the only host that may get a password for it


class Logins(httpx.BaseTransport):
    """Answers a server's 401 by the name and password that the user has for it."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._taken: dict[tuple[str, str, int | None], str] = {}  # what servers have accepted, by their addresses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and send it again with a login if the server asks for one."""
        url, own = request.url, "authorization" in request.headers
        # a request that follows a redirect has the extensions of the first
        if request.extensions.setdefault(FOR, url.host) != url.host or own:
            return self._inner.handle_request(request)
        place = (url.scheme, url.host, url.port)
        if place in self._taken:
            request.headers["Authorization"] = self._taken[place]
            return self._inner.handle_request(request)
        response = self._inner.handle_request(request)
        if response.status_code != 401 or (words := header(url)) is None:
            return response
        response.close()
        request.headers["Authorization"] = words
        response = self._inner.handle_request(request)
        if response.status_code != 401:
            self._taken[place] = words
        return response

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def header(url: httpx.URL) -> str | None:
    """The header ``Authorization`` with what the user has for the server of an address; None if that is nothing.

    :raises UsageError: the file can't be read.
    """
    if url.scheme != "https" and not proxies.is_this_host(url.host):
        return None
    login = _login(url.host)
    return None if login is None else f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def explained(url: httpx.URL) -> str:
    """A sentence about a server that refuses: whether there is a name and password for it."""
    if _login(url.host) is None:
        return f"'{_file()}' has no name and password for {url.host}."
    if header(url) is None:
        return f"'{_file()}' has a name and password for {url.host}, which winlab does not send over plain http."
    return f"It was given the name and password that '{_file()}' has for {url.host}, if it asked for them."


def is_related(one: str, other: str) -> bool:
    """Whether two hosts are the same, or below the same domain: a registry names where its tokens come from."""
    return one == other or one.split(".")[-2:] == other.split(".")[-2:]


def _login(host: str) -> tuple[str, str] | None:
    file = _file()
    try:
        if not file.is_file():
            return None
        rows = {name.lower(): row for name, row in netrc.netrc(str(file)).hosts.items()}
    except netrc.NetrcParseError as error:  # its message may repeat a password
        line = "" if error.lineno is None else f", line {error.lineno},"
        raise UsageError(f"'{file}'{line} is not written as a netrc file.", cure=CURE) from None
    except (OSError, UnicodeError) as error:
        raise UsageError(f"'{file}' can't be read.", why=str(error), cure=CURE) from error
    name, account, password = rows.get(host.lower(), ("", "", ""))
    return (name or account, password) if password else None


def _file() -> Path:
    named = Path(os.environ.get("NETRC") or "~/.netrc")
    try:
        return named.expanduser()
    except RuntimeError:  # this account has no home
        return named
