"""One row a setting: its flag, its variable, its schema and its documentation say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import guard
import pytest
import typer.main
import yaml

from winlab import data
from winlab.cli import main
from winlab.design import spec
from winlab.design.spec import Spec, options, schema
from winlab.errors import UsageError

SPECS = data.folder("specs")
DOCS = SPECS.parent / "docs" / "specs.md"
TABLE = re.compile(f"(?<={re.escape(options.BEGIN)}\n).*?(?={re.escape(options.END)})", re.DOTALL)
SCALARS = [row for row in options.options(Spec) if row.variable]
REGENERATE = "run this test with --regenerate"


def test_each_field_says_what_it_is() -> None:
    for row in options.options(Spec):
        assert row.meaning, row.path
        assert row.meaning[0].isupper(), row.path
        assert not row.meaning.endswith("."), row.path
        assert row.example, row.path
        assert row.default, row.path
        assert row.values, row.path


@pytest.mark.parametrize("row", options.options(Spec), ids=lambda row: row.path)
def test_each_example_is_valid(row: options.Option) -> None:
    given = {row.path: yaml.safe_load(row.example)}
    changes = [f"{path}={json.dumps(value)}" for path, value in given.items()]
    made = spec.load("1-1-1", changes, environment={}).model_dump(mode="json")
    for name in row.path.split("."):
        made = made[0][name] if isinstance(made, list) else made[name]
    assert made not in (None, [], ())


@pytest.mark.parametrize("row", SCALARS, ids=lambda row: row.variable)
def test_each_scalar_field_has_a_variable(row: options.Option, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("addons: {metrics-server: {}}\n")
    by_variable = spec.load(str(path), environment={row.variable: row.example})
    assert by_variable == spec.load(str(path), [f"{row.path}={row.example}"], environment={})
    if row.path.startswith("addons."):  # a variable turns none on
        assert spec.load("1-1-1", environment={row.variable: row.example}).addons == {}


def test_no_two_fields_share_a_variable() -> None:
    names = [row.variable for row in SCALARS]
    assert len(set(names)) == len(names)
    others = {"LAB", "SPEC", "MIRROR", "DEBUG", "CACHE", "STATE", "LIBVIRT_URI", "OVN_NB", "STALL_SECONDS"}
    assert not {f"WINLAB_{name}" for name in others} & set(names)


def test_flags_of_fields_are_flags_of_create() -> None:
    command = typer.main.get_command(main.app).commands["create"]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    of_fields = {row.flag: row.path for row in options.options(Spec) if row.flag}
    assert of_fields == {"--os": "workers.os", "--iso": "workers.media"}
    assert set(of_fields) <= flags


def test_the_documentation_has_the_table(request: pytest.FixtureRequest) -> None:
    text = DOCS.read_text(encoding="utf-8")
    if request.config.getoption("--regenerate"):
        text = TABLE.sub(lambda _: options.table(Spec), text)
        _write(DOCS, text)
    found = TABLE.search(text)
    assert found is not None
    assert found[0] == options.table(Spec), REGENERATE


def test_the_schema_is_current(request: pytest.FixtureRequest) -> None:
    path = SPECS / schema.FILE
    if request.config.getoption("--regenerate"):
        _write(path, schema.text())
    assert path.read_text(encoding="utf-8") == schema.text(), REGENERATE


def test_shipped_specs_name_the_schema() -> None:
    for name in spec.names():
        first = (SPECS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
        found = re.fullmatch(r"# yaml-language-server: \$schema=(.*)", first)
        assert found is not None, name
        assert (SPECS / found[1]).is_file()


def test_the_schema_knows_every_field_with_its_meaning() -> None:
    made = schema.schema()
    for row in options.options(Spec):
        node = made
        for name in row.path.split("."):
            while "properties" not in node:
                node = made["$defs"][(node.get("anyOf") or [node])[0]["$ref"].rpartition("/")[2]]
            assert node["additionalProperties"] is False
            node = node["properties"][name]
        assert node["description"] == row.meaning
    workers = made["properties"]["workers"]["anyOf"]
    assert {"$ref": "#/$defs/Pool"} in workers
    assert {"type": "array", "items": {"$ref": "#/$defs/Pool"}} in workers


def test_sections_and_fields_are_found() -> None:
    assert [row.path for row in options.find(Spec, "workers.cpus")] == ["workers.cpus"]
    assert {row.section for row in options.find(Spec, "network")} == {"network", "network.proxy"}
    assert options.find(Spec, "") == options.options(Spec)
    with pytest.raises(UsageError) as caught:
        options.find(Spec, "workers.cpu")
    assert "Did you mean workers.cpus" in str(caught.value.cure)


def test_the_row_of_a_field() -> None:
    (row,) = options.find(Spec, "workers.memory")
    assert (row.values, row.unit, row.systems) == ("512MiB to 1TiB", "MiB", "Linux and Windows")
    assert options.find(Spec, "workers.edition")[0].systems == "Windows"
    assert options.find(Spec, "controllers.cpus")[0].systems == "Linux"
    assert options.find(Spec, "network.dns")[0].variable == ""


def test_paths_of_docs_exist() -> None:
    for row in options.options(Spec):
        for page in re.findall(r"docs/[a-z-]+\.md", row.meaning):
            assert (Path(DOCS).parent.parent / page).is_file()


def _write(path: Path, text: str) -> None:
    guarded, guard.base = guard.base, None
    path.write_text(text, encoding="utf-8")
    guard.base = guarded
