"""WebSockets to a node's screen and serial port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from winlab import Node
from winlab.errors import WinlabError

T = TypeVar("T")
CHUNK = 1 << 16  # bytes
PAUSE = 0.03  # seconds between two looks at a silent serial port
RECENT = 1 << 16  # bytes of a serial port's log that are shown first
FAILED = 1011  # RFC 6455, 7.4.1
LONGEST = 120  # bytes of the reason of a close: RFC 6455, 5.5


async def screen(websocket: WebSocket, node: Node) -> None:
    """Connect a browser's noVNC to the node's VNC server, wherever its host is, until one of the two ends."""
    async with _accepted(websocket), _held(node.screen_here()) as there:
        reader, writer = await asyncio.open_connection(there.address, there.port)

        async def to_browser() -> None:
            while data := await reader.read(CHUNK):
                await websocket.send_bytes(data)

        async def from_browser() -> None:
            while True:
                writer.write(await websocket.receive_bytes())
                await writer.drain()

        try:
            await _until_one_ends(to_browser, from_browser)
        finally:
            writer.close()


async def serial(websocket: WebSocket, node: Node) -> None:
    """Connect a browser's terminal to the node's serial port, after what the port has written last."""
    async with _accepted(websocket), _held(node.serial()) as port:
        with suppress(WinlabError):
            await websocket.send_bytes((await run_in_threadpool(node.serial_log))[-RECENT:])

        async def to_browser() -> None:
            while (data := await run_in_threadpool(port.read)) is not None:
                if data:
                    await websocket.send_bytes(data)
                else:
                    await asyncio.sleep(PAUSE)

        async def from_browser() -> None:
            while True:
                await run_in_threadpool(port.write, await websocket.receive_bytes())

        await _until_one_ends(to_browser, from_browser)


@asynccontextmanager
async def _accepted(websocket: WebSocket) -> AsyncIterator[None]:
    """The connection, which ends with the with-block; the browser gets the reason of a failure."""
    await websocket.accept()
    code, why = 1000, ""
    try:
        yield
    except WinlabError as error:
        code, why = FAILED, error.what
    except OSError as error:
        code, why = FAILED, str(error)
    finally:
        with suppress(RuntimeError, WebSocketDisconnect):  # the browser has closed it
            await websocket.close(code, why.encode()[:LONGEST].decode(errors="ignore"))


@asynccontextmanager
async def _held(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """What a context manager yields that blocks: it is entered and left in threads, in one context."""
    context = copy_context()
    held = await run_in_threadpool(context.run, manager.__enter__)
    try:
        yield held
    finally:
        await asyncio.shield(run_in_threadpool(context.run, manager.__exit__, None, None, None))


async def _until_one_ends(*ways: Callable[[], Awaitable[None]]) -> None:
    """Run both directions until one of them ends.

    :raises OSError: the node's side failed.
    :raises WinlabError: the same.
    """
    tasks = [asyncio.ensure_future(way()) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        with suppress(WebSocketDisconnect, RuntimeError):  # the browser's side ended
            task.result()
