"""A lab's folder: its key files say what its credentials say; nothing secret outlives a winlab that was killed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import plans
import pytest

from winlab import files, locks, settings
from winlab.design.plan import credentials
from winlab.errors import UsageError
from winlab.lab_folder import LabFolder


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: folder.ssh_key.write_text("the key of earlier credentials\n"),
        lambda folder: folder.known_hosts.write_text("172.31.240.33 ssh-ed25519 AAAA\n"),
        lambda folder: folder.ca.write_bytes(b"\xff"),
        lambda folder: folder.known_hosts.unlink(),
    ],
)
def test_key_files_of_other_credentials_are_not_trusted(damage: Callable[[LabFolder], None]) -> None:
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    made = folder.ensure_credentials(plan)
    assert folder.has_credentials_for(plan)
    damage(folder)
    assert not folder.has_credentials_for(plan)
    assert folder.ensure_credentials(plan) == made
    assert folder.has_credentials_for(plan)


def test_new_credentials_replace_the_key_files() -> None:
    """As if winlab was killed after it wrote credentials.json."""
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    folder.ensure_credentials(plan)
    fresh = credentials.generate(plan)
    folder.write(folder.path / "credentials.json", fresh.model_dump_json())
    assert not folder.has_credentials_for(plan)
    folder.ensure_credentials(plan)
    assert folder.ssh_key.read_text() == fresh.ssh_key


def left_behind(folder: LabFolder) -> Path:
    """A staging folder of a winlab that was killed."""
    path = folder.path / "staging-dead"
    path.mkdir(parents=True)
    (path / "image.iso").write_text("the Administrator's password")
    return path


def test_secrets_are_staged_in_the_labs_folder() -> None:
    folder = LabFolder("lab")
    with folder.staging() as path:
        assert path.parent == folder.path
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        (path / "kubeconfig").write_text("secret")
    assert not folder.path.exists(), "a look at a cluster leaves no trace"


def test_leftovers_of_a_killed_winlab_are_swept_by_the_next_one() -> None:
    folder = LabFolder("lab")
    left = left_behind(folder)
    with folder.staging():
        assert not left.exists()
    left = left_behind(folder)
    with folder.locked():
        assert not left.exists()


def test_files_that_another_winlab_is_staging_stay() -> None:
    folder = LabFolder("lab")
    others = left_behind(folder)
    with locks.folder(others), folder.staging() as first, folder.staging() as second:
        assert others.exists()
        assert first.exists()
        assert second.exists()
        assert first != second


def test_many_stage_at_once_in_a_folder_that_did_not_exist() -> None:
    def stage(_: int) -> None:
        with LabFolder("it").staging() as path:
            (path / "secret").write_text("x")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(stage, range(200)))
    assert list(LabFolder("it").path.glob("*")) == []


def test_a_file_can_be_written_while_another_ends_staging_in_a_folder_that_it_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A winlab that made the folder only to stage in it removes it, but never while another uses it."""
    ended = Event()
    write = files.write_atomic

    def late(path: Path, content: str, **how: Any) -> None:
        end.set()
        ended.wait(0.3)
        write(path, content, **how)

    monkeypatch.setattr(files, "write_atomic", late)
    begun, end, folder = Event(), Event(), LabFolder("it")

    def stage() -> None:
        with LabFolder("it").staging():
            begun.set()
            end.wait()
        ended.set()

    with ThreadPoolExecutor(1) as threads:
        staging = threads.submit(stage)
        begun.wait()
        folder.write(folder.path / "drive-node-1", "payload.iso")
        staging.result()
    assert (folder.path / "drive-node-1").read_text() == "payload.iso"


def test_the_state_folder_is_private_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        with LabFolder("lab").held(lambda *_: None, "x"), LabFolder("other").locked():  # type: ignore[arg-type]
            pass
    finally:
        os.umask(before)
    state = settings.state_dir()
    for path in (state, *state.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0, path
        assert path.is_file() or stat.S_IMODE(path.stat().st_mode) == 0o700, path


@pytest.mark.parametrize("name", ["a/b", "/etc", "..", ".", "", "a\0b"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of a lab"):
        LabFolder(name)


def test_other_credentials_of_a_lab_have_a_folder_of_their_own() -> None:
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    held, made = folder.ensure_credentials(plan), credentials.generate(plan)
    other = folder.within("fresh")
    other.keep_credentials(plan, made)
    assert (folder.credentials(), other.credentials()) == (held, made)
    assert (folder.ssh_key.read_text(), other.ssh_key.read_text()) == (held.ssh_key, made.ssh_key)
    assert other.has_credentials_for(plan)
    assert stat.S_IMODE(other.path.stat().st_mode) == 0o700
    assert {path.name for path in other.path.iterdir()} == {"credentials.json", "id_ed25519", "known_hosts", "ca.pem"}


def test_a_lab_takes_other_credentials_and_another_kubeconfig() -> None:
    plan, folder = plans.make(plans.TCG, "1-0-1"), LabFolder("lab")
    folder.ensure_credentials(plan)
    folder.write(folder.kubeconfig, "old")
    other, made = folder.within("fresh"), credentials.generate(plan)
    other.keep_credentials(plan, made)
    folder.take(plan, other)
    assert (folder.credentials(), folder.kubeconfig.read_text()) == (made, "old")
    other.write(other.kubeconfig, "new")
    folder.take(plan, other)
    assert folder.kubeconfig.read_text() == "new"
    assert folder.has_credentials_for(plan)
    for _ in range(2):
        folder.drop("fresh")
    assert not other.path.exists()
    assert folder.has_credentials_for(plan)
