"""The wheel works by itself: it carries images/, unattend/ and specs/."""

from __future__ import annotations

import os
import subprocess  # noqa: TID251 - builds and runs the wheel as people do
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked by pip, away from the checkout; its dependencies come from this environment."""
    wheels, target = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, TOP], check=True)
    (wheel,) = wheels.glob("winlab-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def winlab(installed: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "winlab", *args],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed), "WINLAB_SPEC": "1-1-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_what_runs(installed: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import winlab.data; print(winlab.data.folder('images'))"],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(installed / "winlab" / "_data" / "images")


def _files(folder: Path) -> set[str]:
    """All files; pip and the unit tests leave node.py's compiled form beside it."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    return {str(path.relative_to(folder)) for path in found}


def test_data_is_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    for folder in ("images", "unattend", "specs"):
        assert _files(TOP / folder) == _files(installed / "winlab" / "_data" / folder)
    winlab(installed, "plan", "--rehearse", "--render", str(tmp_path))
    assert (tmp_path / "node-1" / "answer" / "Autounattend.xml").exists()


def test_the_wheel_means_the_same_images(installed: Path) -> None:
    """Keys of images depend on the builders' files; those in the wheel must count as the same."""
    in_checkout = subprocess.run(
        [sys.executable, "-m", "winlab", "plan", "--rehearse", "--output", "json"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert winlab(installed, "plan", "--rehearse", "--output", "json") == in_checkout


def test_start_up_is_light() -> None:
    """The command's start loads nothing that only some commands need."""
    heavy = ("libvirt", "ovsdbapp", "paramiko", "winrm", "cryptography", "pydantic", "httpx", "pycdlib", "rich.live")
    code = f"import sys, winlab.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
