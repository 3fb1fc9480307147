"""Files and settings that made other tools fail, kept in tests/field; docs/field-reports.md says what people saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import plans
import pytest

from winlab import documents
from winlab.design.catalog import versions
from winlab.design.render import answer
from winlab.design.render.templates import expand
from winlab.design.spec import Spec
from winlab.errors import UsageError
from winlab.supply import download, http_client

FIELD = Path(__file__).parents[1] / "field"


def rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = documents.from_yaml((FIELD / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The proxies that requests went through, None for none; there are no variables."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    through: list[str | None] = []

    def handle(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        pool = transport._pool
        through.append(pool._proxy_url.host.decode() if hasattr(pool, "_proxy_url") else None)
        return httpx.Response(200)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    return through


@pytest.mark.parametrize(
    "row", rows("proxies.yaml"), ids=lambda row: f"{row['report']} {row['variables']} {row['url']}"
)
def test_proxy_variables(row: dict[str, Any], asked: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in row["variables"].items():
        # each variable's proxy is told apart by its host
        monkeypatch.setenv(name, value.replace("//p", f"//{name.replace('_', '-')}"))
    if "p:3128" in row["variables"].values():  # no scheme
        monkeypatch.setenv("HTTPS_PROXY", "HTTPS-PROXY:3128")
    with http_client.make(httpx.Timeout(1.0)) as client:
        if row["through"] == "refused":
            with pytest.raises(UsageError, match="ALL_PROXY"):
                client.get(row["url"])
            return
        client.get(row["url"])
    wanted = row["through"]
    assert asked == [wanted and wanted.lower().replace("_", "-")]
    if row["url"].startswith("http:"):  # what a proxy is asked for does not come from this host
        assert download.is_open_to_others(row["url"]) or wanted is None


@pytest.mark.parametrize("path", sorted((FIELD / "specs").glob("*.yaml")), ids=lambda path: path.stem)
def test_specs(path: Path) -> None:
    """The first line says what winlab does: ``REPORT: taken: FIELD=VALUE``, or ``REPORT: refused: WORDS``."""
    head, _, said = path.read_text(encoding="utf-8").partition("\n")[0].partition(": ")
    assert path.name.startswith(head.removeprefix("# ") + "-")
    verdict, _, what = said.partition(": ")
    if verdict == "refused":
        with pytest.raises(UsageError) as caught:
            Spec.load(str(path), environment={})
        assert what in str(caught.value)
        return
    spec: Any = Spec.load(str(path), environment={}).model_dump()
    name, _, wanted = what.partition("=")
    for part in name.split("."):
        spec = spec[int(part) if part.isdecimal() else part]
    assert str(spec) == wanted


@pytest.mark.parametrize("version", ["1.036", "1.3_6", "01.36", "1.36.01"])
def test_versions_that_are_no_versions(version: str) -> None:
    asked = Spec.load(changes=[f"kubernetes.version={version}"], environment={}).kubernetes.version
    with pytest.raises(UsageError, match=f"'{version}' is not a version of Kubernetes"):
        versions.get(asked)


@pytest.mark.parametrize("path", sorted((FIELD / "answers").iterdir()), ids=lambda path: path.name)
def test_answer_files(path: Path) -> None:
    node = plans.make(plans.KVM, "1-1-1", f"workers.template={path}").node("node-1")
    assert "NODE-1" in answer.answer_xml(node, "a password", expand)
