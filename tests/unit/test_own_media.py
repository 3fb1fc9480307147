"""Windows media in the cache: brought by a person, or fetched from the Evaluation Center."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from isos import make_server_medium, make_wim
from typer.testing import CliRunner

from winlab import catalog, images
from winlab.catalog import Evaluation
from winlab.cli.common import make_spec
from winlab.cli.main import app
from winlab.errors import TransferError, UsageError
from winlab.events import Quiet
from winlab.media import own_media

RECIPE = catalog.get("windows-2022")


@pytest.fixture
def medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    return make_server_medium(tmp_path / "w.iso")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def evaluation(path: Path) -> Evaluation:
    return Evaluation(file="SERVER_EVAL.iso", url="https://example.invalid/?LinkID=1", sha256=digest(path))


def test_a_medium_is_taken_in_once(medium: Path) -> None:
    assert own_media.find(RECIPE) is None
    image = own_media.add(RECIPE, medium, None, Quiet())
    assert image.path.read_bytes() == medium.read_bytes()
    assert image.path.stat().st_mode & 0o777 == 0o444
    assert image.sha256 == digest(medium)
    assert own_media.add(RECIPE, medium, digest(medium).upper(), Quiet()) == image
    assert own_media.find(RECIPE) == image
    assert own_media.find(catalog.get("windows-2019")) is None


def test_the_last_one_counts(medium: Path, tmp_path: Path) -> None:
    own_media.add(RECIPE, medium, None, Quiet())
    other = make_server_medium(tmp_path / "o.iso", wim=make_wim(["Windows Server 2022 SERVERDATACENTER"]))
    last = own_media.add(RECIPE, other, None, Quiet())
    assert own_media.find(RECIPE) == last


def test_what_is_not_what_was_meant(medium: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is Windows Server 2022, not 2019") as error:
        own_media.add(catalog.get("windows-2019"), medium, None, Quiet())
    assert "windows-2022" in error.value.cure
    with pytest.raises(UsageError, match="not the file that you mean"):
        own_media.add(RECIPE, medium, "0" * 64, Quiet())
    client = make_server_medium(tmp_path / "c.iso", wim=make_wim(["Windows 11 Pro"], kind="Client"))
    with pytest.raises(UsageError, match="can't install Windows"):
        own_media.add(RECIPE, client, None, Quiet())
    assert own_media.find(RECIPE) is None


def test_an_evaluation_from_a_mirror_s_folder(medium: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "SERVER_EVAL.iso").write_bytes(medium.read_bytes())
    image = own_media.pull(RECIPE, evaluation(medium), Quiet(), mirror=str(folder))
    assert image.sha256 == digest(medium)
    assert own_media.find(RECIPE) == image


def test_an_evaluation_from_a_local_file(medium: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.iso"
    wrong.write_bytes(b"<html>")
    with pytest.raises((TransferError, UsageError)):
        own_media.pull(RECIPE, evaluation(medium), Quiet(), source=wrong)
    assert own_media.find(RECIPE) is None
    assert own_media.pull(RECIPE, evaluation(medium), Quiet(), source=medium).sha256 == digest(medium)


def test_media_outlive_a_prune(medium: Path) -> None:
    image = own_media.add(RECIPE, medium, None, Quiet())
    images.cache.prune({entry.key for entry in images.cache.entries() if not entry.recipe.build})
    assert image.path.exists()


def test_create_takes_the_medium_that_is_there(medium: Path) -> None:
    assert make_spec("1-1-1", None, "windows-2022", None, False).workers.media is None
    image = own_media.add(RECIPE, medium, None, Quiet())
    assert make_spec("1-1-1", None, "windows-2022", None, False).workers.media == image.path
    assert make_spec("1-1-1", None, "windows-2022", str(medium), False).workers.media == medium
    assert make_spec("1-1-1", None, None, None, True).workers.media is None
    assert make_spec("1-0-1", None, None, None, False).workers.media is None


def test_the_commands(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    assert isinstance(
        run(app, ["image", "add", "windows-2022", "--iso", str(medium), "--sha256", "x"]).exception, UsageError
    )
    assert isinstance(run(app, ["image", "add", "debian-13", "--iso", str(medium)]).exception, UsageError)
    done = run(app, ["image", "add", "windows-2022", "--iso", str(medium)])
    assert done.exit_code == 0, done.output
    assert digest(medium) in done.stdout
    assert "0 MiB" in run(app, ["image", "list"]).stdout


def test_terms_are_accepted_once_and_by_nobody_else(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "get", lambda _name: RECIPE.model_copy(update={"evaluations": (evaluation(medium),)}))
    run = CliRunner().invoke
    words = ["image", "pull", "windows-2022", "--from", str(medium)]
    refused = run(app, words).exception
    assert isinstance(refused, UsageError)
    assert "--accept-eula" in refused.cure
    assert own_media.find(RECIPE) is None
    assert run(app, [*words, "--accept-eula"]).exit_code == 0
    assert run(app, words).exit_code == 0
