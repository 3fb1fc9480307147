"""The HTTPS listener of WinRM: port 5986, NTLM by connection ("Negotiate"); Basic is refused, as by default."""

from __future__ import annotations

import base64
import binascii
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from winlab_standin.guest.accounts import Lockout
from winlab_standin.guest.winrm import Service

PORT = 5986
LIMIT = 512_000  # bytes of a request: MaxEnvelopeSizekb, 500 as Windows ships it
DRAIN = 16 << 20  # bytes of a refused request that are still read, so that the other side reads the answer


class Handler(BaseHTTPRequestHandler):
    """One connection: it authenticates once, then carries requests."""

    protocol_version = "HTTP/1.1"
    server_version = "Microsoft-HTTPAPI/2.0"
    sys_version = ""
    service: Service
    lockout: Lockout | None = None
    context: Any = None
    known = False

    def do_POST(self) -> None:
        """Answer a WS-Management request."""
        size = int(self.headers.get("Content-Length") or 0)
        if size > LIMIT:
            self.close_connection = True
            left = min(size, DRAIN)
            while left > 0 and (block := self.rfile.read(min(left, 1 << 16))):
                left -= len(block)
            self._answer(413, b"")
            return
        body = self.rfile.read(size)
        if self.path.rstrip("/") != "/wsman":
            self._answer(404, b"")
            return
        unauthenticated = self.headers.get("WSMANIDENTIFY", "").lower() == "unauthenticated"
        if not unauthenticated and not self._authenticate():
            return
        if unauthenticated and b"Identify" not in body:
            self._refuse()
            return
        self._answer(*self.service.handle(body))

    def _authenticate(self) -> bool:
        """Whether the client has authenticated; if not, the answer has been sent."""
        word, _, token = self.headers.get("Authorization", "").partition(" ")
        if not token:
            if not self.known:
                self._refuse()
            return self.known
        if word.lower() not in ("negotiate", "ntlm"):
            self._refuse()
            return False
        is_last = self.context is not None
        try:
            data = base64.b64decode(token, validate=True)
            answer = self._step(data)
        except Exception as error:  # spnego raises many kinds; all of them mean that the login failed
            self.log_error("authentication: %s", str(error).replace("\n", " "))
            if is_last and self.lockout is not None:
                self.lockout.admits(right=False)
            self.context, self.known = None, False
            self._refuse()
            return False
        if self.known and self.lockout is not None and not self.lockout.admits(right=True):
            self.context, self.known = None, False
        if not self.known:
            self._refuse(f"{word} {base64.b64encode(answer or b'').decode()}")
        return self.known

    def _step(self, token: bytes) -> bytes | None:
        import spnego

        if len(token) < 12:
            raise binascii.Error("too short")
        first = token.startswith(b"NTLMSSP\0\x01") or self.context is None
        if first:
            kind = "ntlm" if token.startswith(b"NTLMSSP\0") else "negotiate"
            self.context = spnego.server(protocol=kind, options=spnego.NegotiateOptions.use_ntlm)
            self.known = False
        answer: bytes | None = self.context.step(token)
        self.known = bool(self.context.complete)
        return answer

    def _refuse(self, challenge: str = "Negotiate") -> None:
        self._answer(401, b"", {"WWW-Authenticate": challenge})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        if body:
            self.send_header("Content-Type", "application/soap+xml;charset=UTF-8")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log no requests that succeeded."""


class Server(ThreadingHTTPServer):
    """Does each connection's TLS handshake in its own thread, so that a slow one delays no other."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], handler: type[Handler], context: ssl.SSLContext, allowed: Callable[[], bool]
    ) -> None:
        super().__init__(address, handler)
        self.tls = context
        self.allowed = allowed
        self.open: set[socket.socket] = set()
        self.unheard: deque[Any] = deque(maxlen=64)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection; one that the firewall blocks gets no answer, and is not closed."""
        if client_address[0] == "127.0.0.1" or self.allowed():
            super().process_request(request, client_address)
        else:
            self.unheard.append(request)

    def cut(self) -> None:
        """End all connections and the listener, as if the network adapter disappeared."""
        self.shutdown()
        self.server_close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        request.settimeout(600)
        try:
            with self.tls.wrap_socket(request, server_side=True) as secured:
                self.open.add(secured)
                try:
                    super().finish_request(secured, client_address)
                finally:
                    self.open.discard(secured)
        except OSError:
            return  # the client has disconnected, or does not trust the certificate


def listen(
    service: Service,
    chain: Path,
    key: Path,
    port: int = PORT,
    allowed: Callable[[], bool] = lambda: True,
    lockout: Lockout | None = None,
) -> Server:
    """Open the listener; ``serve_forever`` of the result serves. *allowed*: whether others may connect. *lockout*:
    counts wrong passwords."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    handler = type("BoundHandler", (Handler,), {"service": service, "lockout": lockout})
    return Server(("0.0.0.0", port), handler, context, allowed)  # noqa: S104  # the listener is for all addresses, as in Windows
