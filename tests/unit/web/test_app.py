"""What the pages get of labs, without a browser: tests/integration/test_screens.py has one."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import lab_fakes
import pytest
from PIL import Image

from winlab import Lab, Node
from winlab.errors import AccessError, NotFoundError, OffError
from winlab.operations.look import Overview
from winlab.operations.watch import View
from winlab.web import app, latest
from winlab.web.jobs import Jobs


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> app.Labs:
    """One lab with one node, which is off."""

    def watch(lab: Lab) -> Iterator[View]:
        if lab.name != "lab":
            raise NotFoundError("There is no such lab.")
        yield View("lab", 1.0, None, None, 0.0, None, ())

    def refuse(_node: Node) -> bytes:
        raise OffError("'node-1' is off.", cure="Run 'winlab start node-1'.")

    monkeypatch.setattr(
        Lab, "overview", lambda _site: Overview({"lab": [lab_fakes.machine("node-1")]}, ("OVN is silent",))
    )
    monkeypatch.setattr(Lab, "watch", watch)
    monkeypatch.setattr(Node, "screenshot", refuse)
    monkeypatch.setattr(latest, "UNUSED", 0.0)  # no thread outlives the test
    return app.Labs(SimpleNamespace())  # type: ignore[arg-type]


def ask(labs: app.Labs, path: str, body: str | bytes | None = None) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(labs.application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request("GET" if body is None else "POST", path, content=body)

    return asyncio.run(send())


def test_all_labs_and_what_one_is_doing(labs: app.Labs) -> None:
    state = ask(labs, "/state?lab=lab").json()
    ((node,),) = [one["nodes"] for one in state["labs"]]
    assert (node["node"], node["state"], node["address"]) == ("node-1", "running", "1.2.3.4")
    assert (state["trouble"], state["jobs"], state["view"]["lab"]) == (["OVN is silent"], [], "lab")
    assert ask(labs, "/state?lab=gone").json()["view"] is None


def test_labs_that_can_not_be_read_are_a_refusal_with_a_cure(labs: app.Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_site: object) -> Overview:
        raise AccessError("You may not use libvirt.", cure="Join the group.")

    monkeypatch.setattr(Lab, "overview", refuse)
    answer = ask(labs, "/state")
    assert (answer.status_code, answer.json()["failures"][0]["cure"]) == (500, "Join the group.")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/labs/lab/do/destroy", "{}", 400),
        ("/labs/lab/do/clone", "{}", 400),
        ("/labs/lab/do/stop", '{"force": true}', 400),
        ("/labs/lab/do/stop", "x" * (app.LARGEST + 1), 400),
        ("/labs/%2e%2e/do/stop", "{}", 400),
        ("/labs/LAB/graph.svg", None, 400),
        ("/labs/lab/nodes/node-1/thumbnail.png", None, 409),
        ("/labs/lab/do/stop", None, 405),
        ("/files/../app.py", None, 404),
        ("/files/%2e%2e/app.py", None, 404),
    ],
)
def test_what_is_refused(labs: app.Labs, path: str, body: str | None, status: int) -> None:
    assert ask(labs, path, body).status_code == status
    assert labs.jobs.documents() == []


def test_a_button_starts_a_job(labs: app.Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    begin = Jobs.begin
    monkeypatch.setattr(Jobs, "begin", lambda *given: begun.append(given[1:]) or begin(*given))
    monkeypatch.setattr(Lab, "stop", lambda _lab, nodes, **_: None)
    answer = ask(labs, "/labs/lab/do/stop", '{"nodes": ["node-1"]}')
    assert (answer.status_code, answer.json()["verb"]) == (202, "stop")
    ((lab, verb, given),) = begun
    assert (lab.name, verb, given.nodes) == ("lab", "stop", ("node-1",))
    labs.jobs.stop()


def test_a_lab_without_a_run_has_a_sentence_in_place_of_its_timeline(
    labs: app.Labs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_lab: Lab, _run: str) -> None:
        raise NotFoundError("There is no run yet.")

    monkeypatch.setattr(Lab, "timeline", refuse)
    answer = ask(labs, "/labs/lab/timeline")
    assert (answer.status_code, answer.text) == (200, "There is no run yet.")


def test_a_thumbnail_is_a_small_png(labs: app.Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    large = io.BytesIO()
    Image.new("RGB", (1280, 800)).save(large, "PNG")
    monkeypatch.setattr(Node, "screenshot", lambda _node: large.getvalue())
    answer = ask(labs, "/labs/lab/nodes/node-1/thumbnail.png")
    assert Image.open(io.BytesIO(answer.content)).size == (480, 300)


def test_the_page_of_one_screen_has_no_other_node() -> None:
    only = SimpleNamespace(application=app.of_screen(Node("lab", "node-1", SimpleNamespace())))  # type: ignore[arg-type]
    assert ask(only, "/labs/lab/nodes/node-2/password", "{}").status_code == 404  # type: ignore[arg-type]
    assert ask(only, "/state").status_code == 404  # type: ignore[arg-type]
    assert ask(only, "/files/screen.html").status_code == 200  # type: ignore[arg-type]
