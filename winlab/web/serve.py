"""Serve an application on the loopback, in its own thread."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from winlab import loopback
from winlab.errors import UsageError
from winlab.web.door import TOKEN, Door

if TYPE_CHECKING:
    from starlette.types import ASGIApp

ENDING = 2.0  # seconds for open connections to end: a command has five in all
LARGEST = 16 << 20  # bytes of a message from the browser: a pasted text


@contextmanager
def serving(app: ASGIApp, path: str = "/", port: int = 0) -> Iterator[str]:
    """The URL that opens a page of *app* once, for the length of a with-block.

    :param path: of the page; it may have a query.
    :param port: 0: any that is free.
    :raises UsageError: the port is in use, or can't be used.
    """
    import uvicorn

    door = Door(app)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)  # it would print tracebacks, and URLs with the token
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((loopback.ADDRESS, port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"Port {port} of this host can't be used.", why=str(error), cure="Give another one with --port."
            ) from error
        listening.listen()
        config = uvicorn.Config(
            door, http="h11", ws="websockets-sansio", ws_max_size=LARGEST, lifespan="off", log_config=None,
            access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            number = listening.getsockname()[1]
            yield f"http://{loopback.ADDRESS}:{number}{path}{'&' if '?' in path else '?'}{TOKEN}={door.token}"
        finally:
            server.should_exit = True
            thread.join(ENDING)
