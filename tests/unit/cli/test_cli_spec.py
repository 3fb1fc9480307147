"""The commands `winlab spec ...`."""

from __future__ import annotations

from pathlib import Path

import pytest
import results
from commands import ran

from winlab.design import spec
from winlab.design.spec import Spec, options, schema


def shown(*args: str) -> str:
    done = ran("spec", *args)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        (
            "workers.os",
            [
                "workers.os: Their system",
                "windows-2019",
                "default:   windows-2022",
                "--os, --set workers.os=windows-2025",
                "for one pool: --set workers.NAME.os=windows-2025",
                "WINLAB_WORKERS_OS",
                "workers: {os: windows-2025}",
            ],
        ),
        ("workers.memory", ["512MiB to 1TiB", "MiB, unless the value has its own"]),
        ("workers.edition", ["systems:   Windows\n"]),
        ("network.dns", ["none: it is a list", "--set network.dns='[192.0.2.53]'"]),
    ],
)
def test_explain_a_field(path: str, texts: list[str]) -> None:
    text = shown("explain", path)
    assert [one for one in texts if one not in text] == []


def test_explain_a_section() -> None:
    text = shown("explain", "network")
    assert text.startswith("network: The lab's inner network.")
    assert "network.cidr" in text
    assert "workers." not in text


def test_explain_lists_all_fields() -> None:
    text = shown("explain")
    assert [row.path for row in options.options(Spec) if row.path not in text] == []


def test_explain_as_json() -> None:
    row = results.item(shown("explain", "workers.cpus", "--output", "json"))
    assert row["variable"] == "WINLAB_WORKERS_CPUS"
    assert len(results.items(shown("explain", "--output", "json"))) == len(options.options(Spec))


def test_explain_an_unknown_field() -> None:
    done = ran("spec", "explain", "worker")
    assert done.exit_code == 2
    assert "no field 'worker'" in done.stderr


def test_schema() -> None:
    assert shown("schema") == schema.text()


def test_list() -> None:
    rows = results.items(shown("list", "--output", "json"))
    assert [row["name"] for row in rows] == spec.names()
    mixed = next(row for row in rows if row["name"] == "mixed")
    assert [pool["name"] for pool in mixed["workers"]] == ["win19", "win22", "win25", "linux"]
    assert mixed["summary"].startswith("One Linux controller and a worker of each kind")
    assert "yaml-language-server" not in shown("list")
    assert "1 windows-2019" in shown("list")


def test_show_prints_a_file_to_begin_with(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(ran("spec", "show").stdout)
    assert Spec.load(str(mine)).controllers.count == 1
    assert ran("spec", "show", "mixd").exit_code == 5
