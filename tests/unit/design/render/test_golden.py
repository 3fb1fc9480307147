"""Whole spec → every file that guests, libvirt and OVN would be given, compared with golden files.

``pytest tests/unit/design/render/test_golden.py --regenerate`` rewrites them; look at the difference before
committing it.
"""

from __future__ import annotations

from pathlib import Path

import guard
import plans
import pytest
from cases import CASES, OTHERS
from lxml import etree

from winlab.design.render import folder
from winlab.design.render.templates import expand

GOLDEN = Path(__file__).parent / "golden"
EVERY = CASES | OTHERS
SCRIPTS = ("bootstrap.ps1", "beacon.ps1", "pe.cmd")  # the same for all nodes


@pytest.mark.parametrize("name", EVERY)
def test_files_match_the_recorded_ones(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    facts, source, changes = EVERY[name]
    made = folder.files(plans.make(facts, source, *changes), expand)
    base = GOLDEN / name
    if request.config.getoption("--regenerate"):
        monkeypatch.undo()
        _write(base, made)
    # the bootstrap script is the same bytes everywhere; one copy is enough
    expected = {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    found = {path: content for path, content in made.items() if not path.endswith(SCRIPTS)}
    assert sorted(found) == sorted(expected)
    for path, content in found.items():
        assert content.decode() == expected[path].decode(), path


def _write(base: Path, made: dict[str, bytes]) -> None:
    guarded, guard.base = guard.base, None
    for path, content in made.items():
        if not path.endswith(SCRIPTS):
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            (base / path).write_bytes(content)
    guard.base = guarded


@pytest.mark.parametrize("name", EVERY)
def test_no_secret_is_rendered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, source, changes = EVERY[name]
    for path, content in folder.files(plans.make(facts, source, *changes), expand).items():
        assert b"PRIVATE KEY" not in content, path


def test_domain_xml_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt's own schema, where the machine has it (package libvirt0 or libvirt-dev ships it)."""
    schema = Path("/usr/share/libvirt/schemas/domain.rng")
    assert schema.exists(), "libvirt's schemas are missing"
    relaxng = etree.RelaxNG(etree.parse(str(schema)))
    for facts, source, changes in EVERY.values():
        for path, content in folder.files(plans.make(facts, source, *changes), expand).items():
            if path.endswith("domain.xml"):
                relaxng.assertValid(etree.fromstring(content))
