"""winlab is installed in fresh root file systems, by each of the ways in docs/install.md and by the Containerfile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from fresh_root import TOP, Root, Roots, bases, build, checkout, instructions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
SOURCE = "/src"  # of the checkout in a root
LEFT = "for path in /opt/winlab /usr/bin/winlab /usr/share/doc/winlab; do test ! -e $path; done"
IS_COMPLETE = """/opt/winlab/bin/python3 -c '
from winlab.host import boot, packages
print(boot.doubts(boot.places()), packages.missing((*packages.RUN, *packages.MEDIA, *packages.BUILD)))'"""


@dataclass(frozen=True)
class Built:
    """A base, what makes fresh roots of it, and the stages of the Containerfile on it."""

    base: str
    roots: Roots
    stages: dict[str, Root]


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    return Roots(tmp_path_factory.mktemp("roots"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module", params=bases())
def built(request: pytest.FixtureRequest, roots: Roots, source: Path) -> Built:
    text = (TOP / "Containerfile").read_text(encoding="utf-8")
    return Built(request.param, roots, build(text, request.param, roots, source))


@pytest.fixture(scope="module")
def packaged(built: Built) -> Root:
    """A fresh root with the package and its dependencies only."""
    root = built.roots.fresh(built.base)
    root.add(built.stages["build"].host_path(f"{SOURCE}/dist"), "/root")
    root.run("apt-get update && apt-get install --yes --no-install-recommends /root/winlab_*.deb")
    return root


def works(root: Root, before: str = "") -> None:
    """Check that the command of a root works: its data folders, its documents and the stand-in are there."""
    run: Callable[[str], str] = lambda line: root.run(before + line).stdout  # noqa: E731
    assert run("winlab --version").startswith("winlab ")
    assert "node-1" in run("winlab plan --spec 1-1-1 --rehearse")


def test_the_container_has_all_that_labs_need(built: Built) -> None:
    final = built.stages[""]
    works(final)
    assert final.run(IS_COMPLETE).stdout.strip() == "[] []"
    assert not list(final.host_path("/").glob("packages"))


def test_the_package_works_for_everyone(packaged: Root) -> None:
    works(packaged)
    works(packaged, "setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp ")


def test_only_root_can_change_what_the_package_runs(packaged: Root) -> None:
    code = "from winlab.host import boot; print(boot.doubts(boot.places()))"
    assert packaged.run(f'/opt/winlab/bin/python3 -I -c "{code}"').stdout.strip() == "[]"


def test_nothing_in_the_package_names_the_folder_it_was_built_in(packaged: Root) -> None:
    assert packaged.run(f"! grep -rl {SOURCE}/build/deb /opt/winlab /var/lib/dpkg/info/winlab.*").stdout == ""


def test_the_package_stays_on_a_host_with_labs_and_leaves_nothing_on_another(packaged: Root) -> None:
    remove = "apt-get purge --yes winlab"
    packaged.run("mkdir /etc/winlab && touch /etc/winlab/host.yaml")
    refused = packaged.run(remove, check=False)
    assert refused.returncode != 0
    # dpkg has a terminal of apt's, whose output is apt's
    assert "Run 'sudo winlab host teardown' first." in refused.stdout + refused.stderr
    assert packaged.run("winlab --version").stdout.startswith("winlab ")
    packaged.run(f"rm -r /etc/winlab && {remove} && {LEFT}")


def commands(title: str) -> str:
    """The commands of a section of docs/install.md, for root."""
    text = (TOP / "docs/install.md").read_text(encoding="utf-8")
    block = text.partition(f"\n## {title}\n")[2].partition("```\n")[2].partition("```")[0]
    assert block
    return "\n".join(line.partition("#")[0].removeprefix("sudo ") for line in block.splitlines())


@pytest.mark.parametrize("title", ["With pipx", "With uv"])
@pytest.mark.parametrize("base", bases())
def test_one_line_installs_it_for_one_user(title: str, base: str, roots: Roots, source: Path) -> None:
    root = roots.fresh(base)
    root.host_path(SOURCE).mkdir()
    root.add(source, SOURCE)
    root.run("apt-get update")
    root.env["APT_CONFIG"] = "/root/apt.conf"
    root.host_path("/root/apt.conf").write_text('APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n')
    root.run(f"cd {SOURCE}\n{commands(title)}")
    works(root, "PATH=$HOME/.local/bin:$PATH ")


def test_the_container_starts_with_the_help() -> None:
    last = list(instructions((TOP / "Containerfile").read_text(encoding="utf-8")))[-1]
    assert last == ("CMD", '["winlab", "--help"]')
