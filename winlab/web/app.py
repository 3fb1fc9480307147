"""The applications: the screen of one node, and everything about all labs. What they do is what the library does."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from winlab import Lab, Node, Overview, Site, View
from winlab.design.plan.lab_name import check_lab_name
from winlab.errors import ExitCode, Failure, NotFoundError, UsageError, WinlabError
from winlab.lab_snapshots import Listed
from winlab.web import relays
from winlab.web.files import files, kind
from winlab.web.jobs import Given, Jobs
from winlab.web.latest import Latest

EVERY = 3.0  # seconds between two looks at all labs
WIDTH = 480  # pixels of a thumbnail
LARGEST = 1 << 16  # bytes of a request
STATUS = {ExitCode.USAGE: 400, ExitCode.NOT_FOUND: 404, ExitCode.CONFLICT: 409, ExitCode.GUEST: 409}
NODE = "/labs/{lab}/nodes/{node}"


def screen_path(lab: str, node: str) -> str:
    """The path of the page with a node's screen."""
    return f"/files/screen.html?{urlencode({'lab': lab, 'node': node})}"


def of_screen(node: Node) -> Starlette:
    """The application for one node's screen, and no other."""
    where = f"/labs/{node.lab}/nodes/{node.name}"

    def password(_request: Request) -> Response:
        return JSONResponse({"password": node.screen().password})

    async def relay(websocket: WebSocket) -> None:
        await relays.screen(websocket, node)

    return _application(
        Route(f"{where}/password", password, methods=["POST"]), WebSocketRoute(f"{where}/screen", relay)
    )


class Labs:
    """The application for all labs of a site."""

    def __init__(self, site: Site) -> None:
        self.jobs = Jobs()
        self._site = site
        self._overview = Latest(self._overviews)
        self._views: dict[str, Latest[View]] = {}
        self.application = _application(
            Route("/", _page("ui.html")),
            Route("/state", self._state),
            Route("/labs/{lab}/graph.svg", self._graph),
            Route("/labs/{lab}/timeline", self._timeline),
            Route("/labs/{lab}/snapshots", self._snapshots),
            Route("/labs/{lab}/do/{verb}", self._do, methods=["POST"]),
            Route(f"{NODE}/thumbnail.png", self._thumbnail),
            Route(f"{NODE}/password", self._password, methods=["POST"]),
            WebSocketRoute(f"{NODE}/screen", self._screen),
            WebSocketRoute(f"{NODE}/serial", self._serial),
        )

    def _lab(self, connection: Request | WebSocket) -> Lab:
        return Lab(check_lab_name(connection.path_params["lab"], own=True), self._site)

    def _node(self, connection: Request | WebSocket) -> Node:
        return self._lab(connection).node(connection.path_params["node"])

    def _overviews(self) -> Generator[Overview, None, None]:
        while True:
            yield Lab.overview(self._site)
            time.sleep(EVERY)

    def _state(self, request: Request) -> Response:
        """All labs, all jobs, and what the nodes of one lab are doing."""
        found, view, trouble = self._overview.get(), None, []
        if name := request.query_params.get("lab"):
            lab = Lab(check_lab_name(name, own=True), self._site)
            try:
                latest = self._views.setdefault(name, Latest(lab.watch)).get()
                view = None if latest is None else latest.document()
            except NotFoundError:
                self._views.pop(name, None)
        if found is not None:
            trouble = list(found.unknown)
        labs = None if found is None else [_lab(name, machines) for name, machines in sorted(found.labs.items())]
        return JSONResponse({"labs": labs, "trouble": trouble, "jobs": self.jobs.documents(), "view": view})

    def _graph(self, request: Request) -> Response:
        return Response(self._lab(request).graph(), media_type="image/svg+xml")

    def _timeline(self, request: Request) -> Response:
        try:
            return HTMLResponse(self._lab(request).timeline("last").html())
        except NotFoundError as error:
            return PlainTextResponse(error.what)

    def _snapshots(self, request: Request) -> Response:
        return JSONResponse([_snapshot(one) for one in self._lab(request).snapshots.list()])

    async def _do(self, request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST:
                raise UsageError("The request is too long.")
        try:
            given = Given.model_validate_json(bytes(body) or b"{}")
        except ValidationError as error:
            raise UsageError("The request does not fit the verb.", why=str(error)) from error
        job = self.jobs.begin(self._lab(request), request.path_params["verb"], given)
        return JSONResponse(asdict(job), 202)

    def _thumbnail(self, request: Request) -> Response:
        return Response(_reduced(self._node(request).screenshot()), media_type="image/png")

    def _password(self, request: Request) -> Response:
        return JSONResponse({"password": self._node(request).screen().password})

    async def _screen(self, websocket: WebSocket) -> None:
        await relays.screen(websocket, self._node(websocket))

    async def _serial(self, websocket: WebSocket) -> None:
        await relays.serial(websocket, self._node(websocket))


def _application(*routes: Route | WebSocketRoute) -> Starlette:
    handlers: Any = {WinlabError: _refused}
    return Starlette(routes=[Route("/files/{path:path}", _file), *routes], exception_handlers=handlers)


def _file(request: Request) -> Response:
    path = request.path_params["path"]
    if path not in files():
        return PlainTextResponse("There is no such file.\n", 404)
    return Response(files()[path], media_type=kind(path))


def _page(path: str) -> Callable[[Request], Response]:
    return lambda _request: Response(files()[path], media_type=kind(path))


def _refused(_request: Request, error: Exception) -> Response:
    failures = [asdict(one) for one in Failure.each(error)]
    code = error.exit_code if isinstance(error, WinlabError) else ExitCode.FAILED
    return JSONResponse({"failures": failures}, STATUS.get(code, 500))


def _lab(name: str, machines: list[Any]) -> dict[str, Any]:
    nodes = [
        {
            "node": one.tag.node,
            "role": one.tag.role,
            "os": one.tag.os,
            "image": one.tag.image,
            "state": one.state,
            "address": one.tag.floating,
            "hypervisor": one.hypervisor,
        }
        for one in machines
    ]
    return {"lab": name, "nodes": nodes}


def _snapshot(one: Listed) -> dict[str, Any]:
    return {
        "name": one.id.name,
        "made": None if one.record is None else one.record.made.timestamp(),
        "disk": one.disk,
        "copies": list(one.copies),
        "problem": one.problem,
    }


def _reduced(png: bytes) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        image.thumbnail((WIDTH, WIDTH))
        image.save(made, "PNG")
    return made.getvalue()
