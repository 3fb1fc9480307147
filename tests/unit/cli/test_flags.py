"""Groups of flags: how Typer sees them, and what a command gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from winlab.cli.flags import BundleFlags, ChangeFlags, FromFlags, SourceFlags, SpecFlags, spread

NAMED, NOTHING = SpecFlags(), SpecFlags(spec="")
SOURCES = SourceFlags()


class Given:
    """The arguments of the command."""

    def __init__(self) -> None:
        self.values: tuple[Any, ...] = ()


@pytest.fixture
def given() -> Given:
    return Given()


def run(given: Given, *words: str, default: SpecFlags = NAMED) -> Any:
    app = typer.Typer()

    @app.command()
    @spread
    def command(
        name: Annotated[str, typer.Argument()],
        wanted: SpecFlags = default,
        sources: SourceFlags = SOURCES,
        loud: bool = False,
    ) -> None:
        """Do it."""
        given.values = (name, wanted, sources, loud)

    return CliRunner().invoke(app, words)


def test_a_command_gets_one_value_for_each_group(given: Given) -> None:
    words = ("me", "-s", "3-1-1", "--set", "workers.cpus=4", "--set", "workers.disk=40GiB", "--os", "windows-2022")
    more = ("--source", "build", "--mirror", "/m", "--kubelet", "a", "--kubelet", "b", "--kube-proxy", "c", "--loud")
    assert run(given, *words, *more).exit_code == 0
    name, wanted, sources, loud = given.values
    assert (name, loud) == ("me", True)
    assert wanted == SpecFlags(
        spec="3-1-1", changes=["workers.cpus=4", "workers.disk=40GiB"], os="windows-2022", iso=None, rehearse=False
    )
    origin = sources.origin
    assert (origin.kind, origin.mirror, origin.bundle) == ("build", "/m", None)
    assert origin.own == (("kubelet", Path("a")), ("kubelet", Path("b")), ("kube-proxy", Path("c")))


def test_the_distribution_s_own_program_has_a_flag(given: Given) -> None:
    assert run(given, "me", "--kubeadm", "a").exit_code == 0
    assert given.values[2].origin.own == (("kubeadm", Path("a")),)


def test_without_flags_the_group_is_the_default(given: Given) -> None:
    assert run(given, "me").exit_code == 0
    assert given.values[1:3] == (NAMED, SOURCES)
    assert run(given, "me", default=NOTHING).exit_code == 0
    assert given.values[1] == NOTHING


def test_the_environment_counts(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_SPEC", "1-2-1")
    monkeypatch.setenv("WINLAB_MIRROR", "https://mirror.example")
    assert run(given, "me").exit_code == 0
    assert given.values[1].spec == "1-2-1"
    assert given.values[2].origin.mirror == "https://mirror.example"


def test_a_group_without_a_default_has_flags_that_must_be_given(given: Given) -> None:
    @dataclass(frozen=True)
    class Required:
        file: Annotated[Path, typer.Option()]
        times: Annotated[int, typer.Option(max=3)] = 2

    def command(wanted: Required) -> None:
        given.values = (wanted,)

    command.__annotations__["wanted"] = Required
    app = typer.Typer()
    app.command()(spread(command))
    assert CliRunner().invoke(app, []).exit_code == 2
    assert CliRunner().invoke(app, ["--file", "x", "--times", "4"]).exit_code == 2
    assert given.values == ()
    assert CliRunner().invoke(app, ["--file", "x"]).exit_code == 0
    assert given.values == (Required(Path("x"), 2),)


def test_help_shows_each_flag_and_the_command_s_own_text(given: Given) -> None:
    shown = run(given, "--help").stdout
    for text in ("Do it.", "--spec", "--set", "--rehearse", "--kube-proxy", "WINLAB_SPEC", "1-1-1", "--loud"):
        assert text in shown


def test_a_bad_value_is_a_bad_flag(given: Given) -> None:
    assert run(given, "me", "--source", "thin-air").exit_code == 2
    assert given.values == ()


def test_each_group_gives_the_origin_of_artifacts() -> None:
    assert FromFlags(mirror="/m").origin.mirror == "/m"
    assert BundleFlags(bundle=Path("b.tar")).origin.bundle == Path("b.tar")
    assert SourceFlags(bundle=Path("b.tar"), kubelet=[Path("~/k")]).origin.own == (
        ("kubelet", Path("~/k").expanduser()),
    )


def test_changes_make_a_spec(tmp_path: Path) -> None:
    assert ChangeFlags(changes=["workers.cpus=4"], os="windows-2025").of("1-1-1").workers[0].os == "windows-2025"
    assert SpecFlags(spec="1-0-1").load().workers[0].count == 0
