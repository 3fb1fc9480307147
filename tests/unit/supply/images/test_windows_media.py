"""Windows media in the cache: given by a user, or fetched from the Evaluation Center."""

from __future__ import annotations

import hashlib
from pathlib import Path

import plans
import pytest
from commands import ran
from isos import make_server_medium, make_wim

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Evaluation
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.spec.model import Spec
from winlab.errors import TransferError, UsageError
from winlab.events import Quiet
from winlab.operations import lock_inputs, planning, prune
from winlab.supply.images import windows_media
from winlab.supply.media import small_iso

RECIPE = recipes.get("windows-2022")


@pytest.fixture
def medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))
    return make_server_medium(tmp_path / "w.iso")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def evaluation(path: Path) -> Evaluation:
    return Evaluation(file="SERVER_EVAL.iso", url="https://example.invalid/?LinkID=1", sha256=digest(path))


def test_a_medium_is_imported_once(medium: Path) -> None:
    assert windows_media.find(RECIPE) is None
    image = windows_media.add(RECIPE, medium, None, Quiet())
    assert image.path.read_bytes() == medium.read_bytes()
    assert image.path.stat().st_mode & 0o777 == 0o444
    assert image.sha256 == digest(medium)
    assert windows_media.add(RECIPE, medium, digest(medium).upper(), Quiet()) == image
    assert windows_media.find(RECIPE) == image
    assert windows_media.find(recipes.get("windows-2019")) is None


def test_the_last_medium_counts(medium: Path, tmp_path: Path) -> None:
    windows_media.add(RECIPE, medium, None, Quiet())
    other = make_server_medium(tmp_path / "o.iso", wim=make_wim(["Windows Server 2022 SERVERDATACENTER"]))
    last = windows_media.add(RECIPE, other, None, Quiet())
    assert windows_media.find(RECIPE) == last


def test_unexpected_media_are_refused(medium: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is Windows Server 2022, not 2019") as error:
        windows_media.add(recipes.get("windows-2019"), medium, None, Quiet())
    assert "windows-2022" in error.value.cure
    with pytest.raises(UsageError, match="not the expected file"):
        windows_media.add(RECIPE, medium, "0" * 64, Quiet())
    client = make_server_medium(tmp_path / "c.iso", wim=make_wim(["Windows 11 Pro"], kind="Client"))
    with pytest.raises(UsageError, match="can't install Windows"):
        windows_media.add(RECIPE, client, None, Quiet())
    assert windows_media.find(RECIPE) is None


def test_an_evaluation_from_a_mirror_s_folder(medium: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "SERVER_EVAL.iso").write_bytes(medium.read_bytes())
    image = windows_media.pull(RECIPE, evaluation(medium), Quiet(), mirror=str(folder))
    assert image.sha256 == digest(medium)
    assert windows_media.find(RECIPE) == image


def test_an_evaluation_from_a_local_file(medium: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.iso"
    wrong.write_bytes(b"<html>")
    with pytest.raises((TransferError, UsageError)):
        windows_media.pull(RECIPE, evaluation(medium), Quiet(), source=wrong)
    assert windows_media.find(RECIPE) is None
    assert windows_media.pull(RECIPE, evaluation(medium), Quiet(), source=medium).sha256 == digest(medium)


def test_media_outlive_a_prune(medium: Path) -> None:
    image = windows_media.add(RECIPE, medium, None, Quiet())
    prune.cache.prune({entry.key for entry in prune.cache.entries() if not entry.recipe.build})
    assert image.path.exists()


def base(*changes: str) -> str:
    builder = plans.make(plans.KVM, "1-1-1", *changes).builders[0]
    assert builder is not None
    return builder.nodes[0].volume("base").name


def test_create_uses_the_available_medium_or_the_evaluation(medium: Path) -> None:
    """The plan stays the same when the evaluation has come."""
    published = RECIPE.evaluations[0].sha256
    assert published is not None
    assert published[:16] in base()
    windows_media.add(RECIPE, medium, None, Quiet())
    assert digest(medium)[:16] in base()
    windows_media.add(RECIPE, medium, None, Quiet())
    assert base(f"workers.media={medium}") == base()  # wherever it lies


def test_plan_says_that_it_assumes_the_evaluation(medium: Path) -> None:
    plan = ["plan", "--os", "windows-2022", "--set", "workers.edition=standard-desktop"]
    assert f"{RECIPE.evaluations[0].file} is assumed" in ran(*plan).stderr
    windows_media.add(RECIPE, medium, None, Quiet())
    for words in (plan, ["plan", "--rehearse"], ["plan", "--spec", "1-0-1"]):
        done = ran(*words)
        assert (done.exit_code, "is assumed" in done.stderr) == (0, False), done.stderr


def test_drivers_come_with_media_that_can_be_fetched(medium: Path) -> None:
    """Media of the user get them only if asked for, whatever the cache has: the plan does not depend on it."""

    def windows(*changes: str) -> WindowsNode:
        (node,) = plans.make(plans.KVM, "1-1-1", *changes).windows_nodes()
        return node

    own = f"workers.media={medium}"
    published = windows_media.drivers()
    for _ in range(2):
        assert (windows().windows.drivers, windows().bus) == (windows_media.drivers(), "virtio-scsi")
        assert windows("workers.bus=sata").windows.drivers is None
        assert (windows(own).windows.drivers, windows(own).bus) == (None, "sata")
        assert windows(own, "workers.bus=virtio-blk").windows.drivers == windows_media.drivers()
        node = windows("workers.bus=sata", "workers.nic=virtio")
        assert (node.windows.drivers, node.bus, node.nic) == (windows_media.drivers(), "sata", "virtio")
        node = windows("workers.nic=e1000e")
        assert (node.windows.drivers, node.bus, node.nic) == (windows_media.drivers(), "virtio-scsi", "e1000e")
        assert windows(own, "workers.nic=e1000e").windows.drivers is None
        assert windows(own, "workers.nic=virtio").windows.drivers == windows_media.drivers()
        assert windows("workers.os=windows-rehearsal").windows.drivers is None
        assert windows("workers.drivers=/v.iso").windows.own_drivers
        before = plans.make(plans.KVM).digest
        iso = medium.with_name("virtio-win.iso")
        if not iso.exists():
            small_iso.write(iso, "virtio-win", {f"{name}/2k22/amd64/d.inf": b"" for name in ("vioscsi", "NetKVM")})
            windows_media.add(recipes.get("virtio-win"), iso, None, Quiet())
        assert plans.make(plans.KVM).digest == before
    assert windows_media.drivers() != published


def test_the_commands(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran("image", "add", "windows-2022", "--iso", str(medium), "--sha256", "x").exit_code == 2
    assert ran("image", "add", "debian-13", "--iso", str(medium)).exit_code == 2
    done = ran("image", "add", "windows-2022", "--iso", str(medium))
    assert done.exit_code == 0, done.stderr
    assert digest(medium) in done.stdout
    assert "0 MiB" in ran("image", "list").stdout


def test_terms_are_accepted_once_and_only_by_the_user(medium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "get", lambda _name: RECIPE.model_copy(update={"evaluations": (evaluation(medium),)}))
    words = ["image", "pull", "windows-2022", "--from", str(medium)]
    refused = ran(*words)
    assert refused.exit_code == 2
    assert "--accept-eula" in refused.stderr.partition("cure:")[2]
    assert windows_media.find(RECIPE) is None
    assert ran(*words, "--accept-eula").exit_code == 0
    assert ran(*words).exit_code == 0


def test_drivers_that_are_still_to_be_fetched_are_locked_by_their_published_digest(medium: Path) -> None:
    windows_media.add(RECIPE, medium, None, Quiet())
    planned = planning.make(Spec.load("1-1-1", os="windows-2022"), "lab", plans.TCG, Quiet())
    published = recipes.get("virtio-win").download
    assert published is not None
    rows = {row.name: row.sha256 for row in lock_inputs.media(planned.plan, planned.stock)}
    assert rows == {"medium of windows-2022": digest(medium), "drivers of windows-2022": published.sha256}
