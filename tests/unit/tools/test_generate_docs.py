"""The parts of docs/ that are made from code are as the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    found = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools/generate_docs.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_part_is_up_to_date(generator: ModuleType) -> None:
    for (name, marker), make in generator.PARTS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert generator.updated(text, marker, make()) == text, f"{name}: run tools/generate_docs.py"
        assert generator.updated(text, marker, "something else") != text


def test_markers_have_to_be_there(generator: ModuleType) -> None:
    with pytest.raises(ValueError, match="the markers of 'add-ons' are not there"):
        generator.updated("no markers", "add-ons", "")


def test_every_add_on_of_ours_is_listed_and_explained(generator: ModuleType) -> None:
    assert "[`metrics-server`](../winlab/addons/metrics_server/README.md)" in generator.addons()
    for folder in (ROOT / "winlab/addons").iterdir():
        if (folder / "__init__.py").exists():
            assert (folder / "README.md").exists(), folder
