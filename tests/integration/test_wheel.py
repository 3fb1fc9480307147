"""The wheels need no checkout: winlab's carries images/, unattend/, specs/ and docs/; the stand-in's rehearses."""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - builds and runs the wheel as people do
import sys
from pathlib import Path

import pytest
import results

TOP = Path(__file__).resolve().parent.parent.parent
MOTD = TOP / "tests/fakes/addon_package"  # an add-on in a package of its own
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, TOP, TOP / "standin"], check=True)
    return folder


def unpacked(target: Path, *packages: Path) -> Path:
    """Install wheels, and packages from their folders, by pip into *target*."""
    subprocess.run([*PIP, "install", "--no-deps", "--target", target, *packages], check=True)
    return target


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels unpacked by pip, away from the checkout; their dependencies come from this environment."""
    return unpacked(tmp_path_factory.mktemp("target"), *wheels.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """winlab's wheel without the stand-in."""
    target = unpacked(tmp_path_factory.mktemp("alone"), *wheels.glob("winlab-*.whl"))
    # This environment has the stand-in. Of two distributions of one name the first counts: this one offers no builder
    hidden = target / "winlab_standin-0.dist-info"
    hidden.mkdir()
    (hidden / "METADATA").write_text("Metadata-Version: 2.1\nName: winlab-standin\nVersion: 0\n")
    return target


@pytest.fixture(scope="module")
def extended(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels and another author's add-on, as ``pip install`` builds it from its folder."""
    source = tmp_path_factory.mktemp("source") / MOTD.name
    shutil.copytree(MOTD, source, ignore=shutil.ignore_patterns("__pycache__"))  # backends may write beside it
    return unpacked(tmp_path_factory.mktemp("extended"), *wheels.glob("*.whl"), source)


def run(installed: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "winlab", *args],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed), "WINLAB_SPEC": "1-1-1"},
        capture_output=True,
        text=True,
        check=False,
    )


def winlab(installed: Path, *args: str) -> str:
    done = run(installed, *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_winlab_alone_works_without_the_stand_in(alone: Path) -> None:
    assert "debian-13" in winlab(alone, "image", "list")
    assert "node-1" in winlab(alone, "plan", "--os", "debian-13")
    refused = run(alone, "plan", "--rehearse")
    assert refused.returncode == 4
    assert "pip install 'winlab[rehearse]'" in refused.stderr


def test_winlab_runs_from_the_wheel(installed: Path) -> None:
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
    """All files; pip and the unit tests leave winlab_node's compiled modules beside it."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    return {str(path.relative_to(folder)) for path in found}


def test_data_is_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    for folder in ("images", "unattend", "specs", "docs"):
        assert _files(TOP / folder) == _files(installed / "winlab" / "_data" / folder)
    assert _files(TOP / "winlab" / "web") == _files(installed / "winlab" / "web")
    assert _files(TOP / "standin" / "winlab_standin") == _files(installed / "winlab_standin")
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


def test_an_add_on_of_an_installed_package_is_known(extended: Path, installed: Path, tmp_path: Path) -> None:
    assert list(extended.glob("winlab_motd-*.dist-info"))
    assert "what is said" in winlab(extended, "spec", "explain", "addons.motd")
    wish = ("--rehearse", "--set", "addons.motd={text: hello, on_nodes: true}")
    planned = results.item(winlab(extended, "plan", *wish, "--output", "json"))
    assert [(row["name"], row["versions"]) for row in planned["addons"]] == [("motd", {"motd": "v1.2.0"})]
    winlab(extended, "plan", *wish, "--render", str(tmp_path))
    assert "hello" in (tmp_path / "cluster" / "addons" / "motd.yaml").read_text()  # of the package's own template
    assert "hello" in (tmp_path / "controller-1/kubernetes/etc/motd.d/winlab").read_text()
    refused = run(installed, "plan", *wish)
    assert refused.returncode == 2
    assert "there is no add-on 'motd'" in refused.stderr


def test_start_up_is_light() -> None:
    """The command's start loads nothing that only some commands need."""
    heavy = ("libvirt", "ovsdbapp", "paramiko", "winrm", "cryptography", "pydantic", "httpx", "pycdlib", "rich.live")
    code = f"import sys, winlab.cli.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
